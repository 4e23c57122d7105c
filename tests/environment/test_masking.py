"""The vault's values never come out (S6)."""

# ruff: noqa: ASYNC110 - a test may look again until a process has got there

from __future__ import annotations

import base64
import os
import random
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.environment.environment import Environment, EnvironmentConfig
from penguin.environment.masking import Masker, Secrets
from penguin.environment.processes import NOTICE_LENGTH, CommandSessions
from penguin.environment.shell_environment import ShellEnvironment
from penguin.environment.tool import Services
from penguin.protocol.builders import tool_call
from penguin.protocol.interfaces import ToolExecutionRequest
from penguin.protocol.messages import Message, PartialToolCallOutput, ToolCallOutput
from penguin.testing.framing import assert_well_framed

SECRET = "s3cr3t/value+with=odd chars"
SECRETS = Secrets({"TOKEN": SECRET, "SHORT": "abc"})


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"<{SECRET}>",
        urllib.parse.quote(SECRET),
        urllib.parse.quote(SECRET, safe=""),
        urllib.parse.quote(SECRET, safe="").lower(),
    ],
)
def test_S6_plain_and_percent_encoded(text: str) -> None:
    masked = SECRETS.masked(text)
    assert "[vault:TOKEN]" in masked
    assert "s3cr3t" not in masked


@given(before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_S6_base64_at_every_offset(before: bytes, after: bytes) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(before + SECRET.encode() + after).decode()
        masked = SECRETS.masked(encoded)
        assert "[vault:TOKEN]" in masked
        assert len(masked.replace("[vault:TOKEN]", "")) <= len(encoded) - len(SECRET)


@given(
    words=st.lists(st.sampled_from([SECRET, SECRET[:9], SECRET[9:], "s3", "plain ", "\n", "ü"]), max_size=12),
    seed=st.integers(0, 2**32),
)
def test_S6_a_value_split_over_writes_is_caught(words: list[str], seed: int) -> None:
    text = "".join(words)
    pick = random.Random(seed)  # noqa: S311 - where to split is no secret
    masker = Masker(SECRETS)
    shown, position = "", 0
    while position < len(text):
        size = pick.randint(1, 7)
        shown += masker.feed(text[position : position + size])
        position += size
    shown += masker.flush()
    assert shown == SECRETS.masked(text)


def test_S6_nothing_is_held_back_without_a_reason() -> None:
    masker = Masker(SECRETS)
    assert masker.feed("hello world\n") == "hello world\n"
    assert masker.feed("price s3cr") == "price "
    assert masker.feed("et is fine") == "s3cret is fine"


LONG = "".join(chr(33 + place * 7 % 94) for place in range(91))
WRAPPED = Secrets({"LONG": LONG, "TOKEN": SECRET, "LONGER": f"{SECRET}-and-more"})


@pytest.mark.parametrize("width", [1, 10, 60, 64, 76, 1000])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("before", ["", "x", "user:"])
def test_S6_encoded_forms_are_found_across_line_breaks(width: int, line_end: str, before: str) -> None:
    forms = [base64.b64encode((before + LONG + "\n").encode()).decode(), urllib.parse.quote(f"{before}{LONG}", safe="")]
    for form in forms:
        wrapped = line_end.join(form[start : start + width] for start in range(0, len(form), width))
        masked = WRAPPED.masked(f"begin{line_end}{wrapped}{line_end}end")
        assert masked.startswith(f"begin{line_end}")
        assert masked.endswith(f"{line_end}end")
        assert "[vault:LONG]" in masked
        rest = _joined(masked.removeprefix("begin").removesuffix("end").replace("[vault:LONG]", ""))
        assert len(rest) <= 12  # the neighbours, and the characters they share with the value


def _joined(text: str) -> str:
    return text.replace("\r", "").replace("\n", "")


def test_S6_a_value_of_several_lines_comes_with_any_line_ends() -> None:
    secrets = Secrets({"KEY": "-----BEGIN KEY-----\nabc\n-----END KEY-----\n"})
    text = "<-----BEGIN KEY-----\nabc\n-----END KEY-----\n>"
    for line_end in ("\n", "\r\n"):
        assert secrets.masked(text.replace("\n", line_end)).startswith("<[vault:KEY]")


def test_S6_innocents_below_each_other_are_left_alone() -> None:
    digits = Secrets({"PIN": "12345678"})
    column = "".join(f"{number}\n" for number in range(1, 9))
    assert digits.masked(column) == column
    assert digits.masked("MTIz\nMTIz\nNDU2\n") == "MTIz\nMTIz\nNDU2\n"


@given(
    words=st.lists(
        st.sampled_from(
            [
                SECRET,
                f"{SECRET}-and-more",
                SECRET[:9],
                SECRET[9:],
                base64.encodebytes(LONG.encode()).decode(),
                base64.encodebytes(LONG.encode()).decode().replace("\n", "\r\n"),
                base64.encodebytes(f"x{LONG}y".encode()).decode()[:90],
                "\n",
                "\r\n",
                "plain ",
            ]
        ),
        max_size=8,
    ),
    seed=st.integers(0, 2**32),
)
def test_S6_text_in_pieces_is_masked_like_the_whole(words: list[str], seed: int) -> None:
    text = "".join(words)
    pick = random.Random(seed)  # noqa: S311 - where to split is no secret
    masker = Masker(WRAPPED)
    shown, position = "", 0
    while position < len(text):
        size = pick.randint(1, 60)
        shown += masker.feed(text[position : position + size])
        position += size
    assert shown + masker.flush() == WRAPPED.masked(text)


@given(cut=st.integers(1, len(SECRET) - 1))
def test_S6_a_pause_in_the_middle_of_a_value_tells_less_than_four_characters_of_it(cut: int) -> None:
    masker = Masker(SECRETS)
    first = masker.feed(f"<{SECRET[:cut]}") + masker.rest()
    second = masker.feed(f"{SECRET[cut:]}>") + masker.rest() + masker.flush()
    assert first == f"<{SECRET[:cut] if cut < 4 else ''}"
    assert second == "[vault:TOKEN]>"


def test_S6_a_pause_does_not_swallow_what_only_looks_like_a_beginning() -> None:
    masker = Masker(SECRETS)
    assert masker.feed("these are 3 items") == "these are 3 item"
    assert masker.rest() == "s"
    assert masker.rest() == ""
    assert masker.feed(" and ") == " and "
    assert masker.feed("s3cr") + masker.rest() == ""
    assert masker.flush() == "s3cr"


def test_S6_short_values_are_not_masked_and_an_empty_vault_costs_nothing() -> None:
    assert SECRETS.masked("abc") == "abc"
    assert not Secrets({})
    assert not Secrets({"SHORT": "abc"})


@pytest.mark.anyio
async def test_S6_commands_have_the_values_and_nobody_sees_them(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    config = EnvironmentConfig(tmp_path, vault={"TOKEN": SECRET}, scratchpad_dir=scratch)
    environment = Environment(config)
    said: list[Message] = []
    cmd = (
        'printf %s "$TOKEN" | wc -c; for i in $(seq 1 ${#TOKEN}); do'
        ' printf %s "${TOKEN:$((i-1)):1}"; sleep 0.001; done;'
        ' echo; printf "x%s" "$TOKEN" | base64 -w0; echo; yes "$TOKEN" | head -n 7000'
    )
    arguments = msgspec.json.encode({"cmd": cmd, "description": "d"}).decode()
    await environment.execute_tool(ToolExecutionRequest(tool_call("exec_command", arguments, "c1")), said.append)
    await environment.aclose()
    assert_well_framed(said)
    complete = said[-1].payload
    assert isinstance(complete, ToolCallOutput)
    assert str(len(SECRET)) in complete.output
    assert complete.output.count("[vault:TOKEN]") >= 3
    everything = "".join(m.payload.output for m in said if isinstance(m.payload, PartialToolCallOutput))
    archived = "".join(path.read_text() for path in scratch.rglob("*") if path.is_file())
    assert archived
    for text in (complete.output, everything, archived):
        assert SECRET not in text
        assert SECRET[:12] not in text


SPLIT = "secretvalue-0123456789abcdef"


@pytest.mark.anyio
@pytest.mark.parametrize("tty", [False, True])
async def test_S6_a_value_split_by_a_yield_is_shown_by_no_call(
    make_desk: Callable[..., Any], tmp_path: Path, tty: bool
) -> None:
    environment = ShellEnvironment(login_shell=False, vault={"TOKEN": SPLIT})
    sessions = CommandSessions(environment=environment, grace=0.3)
    desk = make_desk(vault={"TOKEN": SPLIT}, services=Services(command_sessions=sessions))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    cmd = f"printf 'it is %s' ${{TOKEN:0:9}}; cat {gate}; printf '%s, %s\\n' ${{TOKEN:9}} ${{TOKEN:0:5}}"
    first = await desk.call("exec_command", cmd=cmd, description="d", tty=tty, yield_time_ms=300)
    said = [first.output]
    assert sessions.states()[0].undelivered == ""
    async with await anyio.open_file(gate, "w") as opened:
        await opened.write("")
    with anyio.fail_after(20):
        while "has ended" not in said[-1]:
            said.append((await desk.call("input_command", process_id="p1", yield_time_ms=200)).output)
    await sessions.aclose()
    assert said[0].startswith("it is \n[still running")
    assert "".join(said[1:]).startswith("[vault:TOKEN], secre\n")


@pytest.mark.anyio
async def test_S6_E17_the_notice_of_an_end_is_cut_after_it_is_masked(tmp_path: Path) -> None:
    environment = ShellEnvironment(login_shell=False, vault={"TOKEN": SPLIT})
    sessions = CommandSessions(environment=environment, grace=0.3)
    command = await sessions.start(f"echo $TOKEN; printf '%0{NOTICE_LENGTH - 10}d' 0", tmp_path)
    await sessions.keep(command)
    with anyio.fail_after(20):
        while sessions.states()[0].returncode is None:
            await anyio.sleep(0.01)
    (state,) = sessions.states()
    await sessions.aclose()
    assert len(state.undelivered) == NOTICE_LENGTH
    assert state.undelivered.startswith("lt:TOKEN]\n0")
