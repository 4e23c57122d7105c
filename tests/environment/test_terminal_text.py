from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.environment import terminal_text
from penguin.environment.terminal_text import TerminalText


def shown(data: bytes) -> str:
    text = TerminalText()
    return text.feed(data) + text.close()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"one\ntwo\n", "one\ntwo\n"),
        (b"no newline", "no newline"),
        (b"dos\r\nlines\r\n", "dos\r\nlines\r\n"),
        (b"\rstep 1\rstep 2\n", "step 2\n"),
        (b"\rstep 1\rstep 2\r", "step 2"),
        (b"10%\r100%\r\nok\n", "100%\r\nok\n"),
        (b"pty\r\r\n", "pty\r\n"),
        (b"\n\n", "\n\n"),
        (b"\x1b[1;31mred\x1b[0m\n", "red\n"),
        (b"\x1b]0;title\x07text\n", "text\n"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "link\n"),
        (b"\x1b]0;cut short\x1b[1mbold\n", "bold\n"),
        (b"\x1b(Bset\x1b=\x1b7\n", "set\n"),
        (b"\x1bPq#0\x1b\\pic\n", "pic\n"),
        (b"a\x1b\n", "a\n"),
        (b"unfinished \x1b[3", "unfinished "),
        (b"a\xff\xfe\x00b\n", "a\ufffd\ufffdb\n"),
        (b"\xf0", "\ufffd"),
        (b"bell\x07 and back\x08\n", "bell and back\n"),
        (
            bytes(range(0x09)) + b"\x0b\x0c" + bytes(range(0x0E, 0x1B)) + bytes(range(0x1C, 0x20)) + b"\x7f\t|\n",
            "\t|\n",
        ),
        (b"\x1b[\x0131mred\x05\n", "red\n"),
        ("page\x0cbreak \u2028 \x85".encode(), "pagebreak \u2028 \x85"),
        ("grün €\n".encode(), "grün €\n"),
    ],
)
def test_N11_shows_what_a_terminal_would(data: bytes, expected: str) -> None:
    assert shown(data) == expected


def test_N11_an_unfinished_line_is_held_until_it_ends_or_is_flushed() -> None:
    text = TerminalText()
    assert (text.feed(b"one\ntw"), text.holding) == ("one\n", True)
    assert text.feed(b"o") == ""
    assert (text.flush(), text.holding) == ("two", False)
    assert text.flush() == ""
    assert text.feed(b"!\n") == "!\n"


def test_N11_after_a_flush_a_carriage_return_starts_a_new_line() -> None:
    text = TerminalText()
    assert text.feed(b"\r10%") + text.flush() == "10%"
    assert text.feed(b"\r20%\r30%") == ""
    assert text.flush() == "\n30%"
    assert text.feed(b"\r40%\nend\n") == "\n40%\nend\n"


def test_N11_a_flush_between_return_and_newline_keeps_the_line_end() -> None:
    text = TerminalText()
    assert text.feed(b"dos\r") + text.flush() == "dos"
    assert text.feed(b"\nnext\n") == "\r\nnext\n"


def test_N11_a_flush_never_splits_a_character_or_an_escape() -> None:
    text = TerminalText()
    assert text.feed(b"\xe2\x82") + text.flush() == ""
    assert text.feed(b"\xac\x1b[3") + text.flush() == "€"
    assert text.feed(b"1m!") + text.flush() == "!"


def test_N11_a_single_line_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_text, "LINE_LIMIT", 10)
    assert shown(b"0123456789abc\nnext\n") == "0123456789 [… 3 more characters in this line]\nnext\n"
    assert shown(b"0123456789abc") == "0123456789 [… 3 more characters in this line]"
    assert shown(b"0123456789abc\rshort\n") == "short\n"


def test_N11_memory_of_a_held_line_is_bounded() -> None:
    text = TerminalText()
    for _ in range(64):
        assert text.feed(b"x" * 65_536) == ""
    assert len(text.flush()) == terminal_text.LINE_LIMIT
    assert text.feed(b"\n") == " [… 3,145,728 more characters in this line]\n"


def test_D20_five_hundred_redraws_show_the_last_state_once() -> None:
    frames = b"".join(b"\rstep %3d/500" % number for number in range(500))
    assert shown(frames + b"\n") == "step 499/500\n"


_PIECES = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\x1b",
    b"\x1b[",
    b"\x1b]0;",
    b"\x1b\\",
    b"\x07",
    b"\x00",
    b"a",
    b"bc",
    b"0123456789",
    b"[",
    b"31m",
    b"\xe2\x82\xac",
    b"\xe2",
    b"\xac",
    b"\xff",
]


def test_N11_an_escape_cut_in_two_still_ends_the_string_before_it() -> None:
    text = TerminalText()
    assert text.feed(b"\x1b]0;title\x1b[") + text.feed(b"1mbold\n") == "bold\n"


@given(st.lists(st.sampled_from(_PIECES) | st.binary(max_size=4), max_size=40), st.data())
def test_N11_any_split_of_the_bytes_gives_the_same_text(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal_text, "LINE_LIMIT", 12)
        text = TerminalText()
        ends = [0, *cuts, len(whole)]
        parts = "".join(text.feed(whole[start:end]) for start, end in itertools.pairwise(ends))
        assert parts + text.close() == shown(whole)


@given(st.lists(st.sampled_from(_PIECES) | st.binary(max_size=4), max_size=40))
def test_N11_no_escape_and_no_control_survives(pieces: list[bytes]) -> None:
    text = shown(b"".join(pieces))
    assert not set(text) & {*map(chr, range(32)), "\x7f"} - {"\t", "\n", "\r"}


@given(st.lists(st.sampled_from([b"word", b"\r", b"\n", b"\x1b[K"]), max_size=20), st.data())
def test_N11_flushing_never_loses_what_was_handed_out(pieces: list[bytes], data: st.DataObject) -> None:
    text = TerminalText()
    delivered = ""
    for piece in pieces:
        delivered += text.feed(piece)
        if data.draw(st.booleans()):
            delivered += text.flush()
    delivered += text.close()
    final_lines = [line.rstrip("\r") for line in shown(b"".join(pieces)).split("\n")]
    remaining = iter(line.rstrip("\r") for line in delivered.split("\n"))
    assert all(line in remaining for line in final_lines)


@given(
    st.lists(st.sampled_from(["", "a", "bc", "\r", "\r\r", "\n", "\r\n", "long long line"]), max_size=30).map("".join),
    st.integers(3, 20),
)
def test_N11_of_the_frames_of_a_line_the_last_is_shown(text: str, limit: int) -> None:
    def as_a_terminal_shows(line: str) -> str:
        frames = line.rstrip("\r")
        kept = frames.rpartition("\r")[2]
        left_out = len(kept) - limit
        return f"{kept[:limit]} [… {left_out} more characters in this line]" if left_out > 0 else kept

    *lines, last = text.split("\n")
    ends = ["\r\n" if line.endswith("\r") else "\n" for line in lines]
    wanted = [as_a_terminal_shows(line) + end for line, end in zip(lines, ends, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal_text, "LINE_LIMIT", limit)
        assert shown(text.encode()) == "".join([*wanted, as_a_terminal_shows(last)])


@pytest.mark.parametrize(
    "unit", [b"\r", b"x\r", b"\x1b", b"\x1b\x1b[1m", b"a\rb\n", b"\r\n", b"\x1b]", b"\x07", b"\x00", b"\xff"]
)
def test_N11_odd_input_takes_no_longer_than_its_size_allows(unit: bytes) -> None:
    chunk = unit * (256 * 1024 // len(unit))
    text = TerminalText()
    began = time.process_time()
    for _ in range(20):
        text.feed(chunk)
    # It takes 0.05 to 0.7 s; with a step of Python for each \r it took 1.7 s, and what is not linear takes minutes.
    assert time.process_time() - began < 4
