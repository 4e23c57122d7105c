from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.cli.render.arguments import about, in_full
from penguin.cli.render.table import table
from penguin.cli.render.text import columns, cut, one_line, visible


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\x1b[31mb", "a␛[31mb"),
        ("bell\a", "bell␇"),
        ("del\x7f", "del␡"),
        ("c1\x9b2J", "c1<U+009B>2J"),
        ("rm \u202etxt.exe", "rm <U+202E>txt.exe"),
        ("kept\n\tas is", "kept\n\tas is"),
        ("win\r\n", "win\n"),
        ("zürich 東京 👩‍👩‍👧", "zürich 東京 👩‍👩‍👧"),
    ],
)
def test_what_could_steer_a_terminal_is_shown_instead(raw: str, shown: str) -> None:
    assert visible(raw) == shown


@given(st.lists(st.text()))
def test_text_in_pieces_is_as_safe_as_text_at_once(pieces: list[str]) -> None:
    shown = "".join(map(visible, pieces))
    assert shown == visible("".join(pieces))
    assert not any(character < " " and character not in "\n\t" for character in shown)


def test_wide_characters_count_twice_and_combining_ones_not_at_all() -> None:
    assert columns("東京") == 4
    assert columns("e\u0301") == 1
    assert columns("abc") == 3


@given(st.text(), st.integers(1, 40))
def test_a_cut_line_fits(text: str, width: int) -> None:
    assert columns(cut(text, width)) <= width


def test_what_is_cut_says_so() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("東京都", 5) == "東京…"
    assert cut("abc", 3) == "abc"
    assert cut("a\tb", None) == "a    b"


def test_one_line_has_no_line_ends() -> None:
    assert one_line("a\n  b\x1b") == "a b␛"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"cmd": "pytest -q", "description": "run"}', "pytest -q"),
        ('{"file_path": "a b.txt", "limit": 3}', "a b.txt"),
        ('{"n": 3, "deep": {"x": [1]}}', 'n=3  deep={"x": [1]}'),
        ("{}", ""),
        ('{"cmd": "a\\nb\\u001b[2J"}', "a b␛[2J"),
        ("not json {", "not json {"),
        ("[1]", "[1]"),
    ],
)
def test_the_telling_argument_of_a_call(arguments: str, shown: str) -> None:
    assert about(arguments) == shown


def test_a_person_who_decides_sees_each_argument_whole() -> None:
    long = "x" * 5_000
    assert in_full(f'{{"cmd": "{long}", "n": 1}}') == [("cmd", long), ("n", "1")]
    assert in_full("broken") == [("arguments", "broken")]


def test_columns_of_a_table_line_up_with_wide_characters() -> None:
    assert list(table(("a", "b"), [("東京", "x"), ("y", "")])) == ["a     b", "東京  x", "y"]
