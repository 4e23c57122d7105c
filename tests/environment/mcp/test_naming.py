"""D32: names that every provider accepts, unique, the same after a restart."""

from __future__ import annotations

import re
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from penguin.environment.mcp.naming import server_prefixes, tool_names

LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
words = st.text(min_size=1, max_size=90)
likely = st.text(alphabet="a_.-/é", min_size=1, max_size=8)


def test_D32_the_tools_of_the_case() -> None:
    names = tool_names("mcp__shop__", ["catalog.get-entity", "admin/users", "naïve tool", "a.b", "a_b"])
    assert names["catalog.get-entity"] == "mcp__shop__catalog_get-entity"
    assert names["admin/users"] == "mcp__shop__admin_users"
    assert names["naïve tool"] == "mcp__shop__na_ve_tool"
    assert names["a_b"] == "mcp__shop__a_b"
    assert re.fullmatch(r"mcp__shop__a_b_[0-9a-f]{8}", names["a.b"])


def test_D32_a_long_name_keeps_its_beginning() -> None:
    (name,) = tool_names("mcp__s__", ["x" * 100]).values()
    assert len(name) == 64
    assert re.fullmatch(r"mcp__s__x+_[0-9a-f]{8}", name)


@given(st.lists(words | likely, unique=True, max_size=12), words | likely)
def test_D32_names_are_legal_unique_and_do_not_depend_on_order(originals: list[str], server: str) -> None:
    prefix = server_prefixes([server])[server]
    names = tool_names(prefix, originals)
    assert names == tool_names(prefix, originals[::-1])
    assert len(set(names.values())) == len(originals)
    assert all(LEGAL.fullmatch(name) for name in names.values())


@given(st.lists(words | likely, unique=True, max_size=8))
def test_D32_no_server_can_make_a_name_of_another(servers: list[str]) -> None:
    prefixes = server_prefixes(servers)
    assert prefixes == server_prefixes(servers[::-1])
    assert all(not a.startswith(b) and not b.startswith(a) for a, b in combinations(prefixes.values(), 2))


def test_a_server_called_like_another_and_half_a_tool() -> None:
    prefixes = server_prefixes(["a", "a__b", "a_", "a_b"])
    assert prefixes["a"] == "mcp__a__"
    assert prefixes["a_b"] == "mcp__a_b__"
    assert len(set(prefixes.values())) == 4
