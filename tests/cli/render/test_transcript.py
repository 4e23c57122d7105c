"""Messages in, lines out: hand-made streams, and the golden ones."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.cli.render.look import Look
from penguin.cli.render.transcript import Transcript
from penguin.cli.render.usage import usage_line
from penguin.protocol import builders as b
from penguin.protocol.codec import decode
from penguin.protocol.events import Decision, ErrorDetail, TokenCounts
from penguin.protocol.messages import Message, StopReason, Text, ToolCall

PLAIN = Look(width=lambda: 40)
ASCII = Look(unicode=False, width=lambda: 40)
COLOUR = Look(colour=True, width=lambda: 40)


def shown(
    messages: Sequence[Message],
    look: Look = PLAIN,
    *,
    live: bool = True,
    answers: bool = True,
    full: bool = False,
    close: bool = True,
) -> str:
    pieces: list[str] = []
    transcript = Transcript(pieces.append, look, live=live, answers=answers, full=full)
    for message in messages:
        transcript.show(message)
    if close:
        transcript.close()
    return "".join(pieces)


def at(message: Message, second: float) -> Message:
    return msgspec.structs.replace(message, timestamp=f"2026-03-01T10:00:{second:06.3f}Z")


def spoken(*pieces: str) -> list[Message]:
    deltas: list[Message] = [b.partial_text("delta", piece) for piece in pieces]
    return [b.partial_text("start"), *deltas, b.partial_text("stop"), b.assistant_text("".join(pieces))]


def thought(*pieces: str) -> list[Message]:
    deltas: list[Message] = [b.partial_thinking("delta", piece) for piece in pieces]
    return [b.partial_thinking("start"), *deltas, b.partial_thinking("stop"), b.thinking("".join(pieces))]


def ran(call_id: str, output: str, *, stop: StopReason | None = None, second: float = 2) -> list[Message]:
    return [
        b.partial_tool_call_output("start", call_id),
        b.partial_tool_call_output("delta", call_id, output),
        b.partial_tool_call_output("stop", call_id),
        at(b.tool_call_output(output, call_id, stop_reason=stop), second),
    ]


def called(call_id: str, cmd: str, decision: Decision = "allow") -> list[Message]:
    return [
        at(b.tool_call("exec_command", json.dumps({"cmd": cmd}), call_id), 1),
        at(b.approval_decision(decision, call_id), 1.5),
    ]


def test_speech_appears_as_it_comes_and_once() -> None:
    assert shown(spoken("Hel", "lo\nworld")) == "Hello\nworld\n"
    assert shown(spoken("Hel", "lo")[:2], close=False) == "Hel"


def test_complete_messages_alone_say_the_same_as_their_fragments() -> None:
    stream = [*thought("Hm."), *spoken("Yes.")]
    complete = [message for message in stream if not b.is_partial(message)]
    assert shown(stream) == shown(complete) == "[thinking] Hm.\n\nYes.\n"


def test_thinking_is_dim_where_there_is_colour() -> None:
    assert shown(thought("Hm"), COLOUR) == "\x1b[2mHm\x1b[0m\n"


def test_a_call_is_a_card_with_output_and_time() -> None:
    assert shown([*called("a", "ls"), *ran("a", "one\ntwo\n")]) == (
        "● exec_command  ls\n  │ one\n  │ two\n  └ done, 0.5 s\n"
    )


def test_output_is_live() -> None:
    stream = [*called("a", "make"), *ran("a", "compiling\nlinking")[:2]]
    assert shown(stream, close=False) == "● exec_command  make\n  │ compiling\n"


def test_parallel_calls_are_read_in_call_order_whatever_ends_first() -> None:
    stream = [*called("a", "slow"), *called("b", "fast"), *ran("b", "B\n"), *ran("a", "A\n", second=9)]
    text = shown(stream)
    assert re.findall(r"slow|fast|A|B", text) == ["slow", "A", "fast", "B"]


def test_output_waits_while_the_model_speaks() -> None:
    stream = [*called("a", "ls"), b.partial_text("start"), b.partial_text("delta", "Mean"), *ran("a", "out\n")]
    text = shown([*stream, b.partial_text("delta", "while"), b.partial_text("stop"), b.assistant_text("Meanwhile")])
    assert "Meanwhile\n" in text
    assert text.index("Meanwhile") < text.index("out")


@pytest.mark.parametrize(("stop", "word"), [("failed", "failed"), ("timeout", "timeout"), ("aborted", "aborted")])
def test_how_a_tool_ended_is_named(stop: StopReason, word: str) -> None:
    assert f"└ {word}, 0.5 s" in shown([*called("a", "x"), *ran("a", "[exit code 1]", stop=stop)])


def test_a_denied_call_says_so() -> None:
    text = shown(
        [*called("a", "rm x", "deny"), at(b.tool_call_output("denied by the user", "a", stop_reason="aborted"), 2)]
    )
    assert text.endswith("└ denied\n")


def test_long_output_keeps_its_beginning_and_its_end() -> None:
    output = "".join(f"line {number}\n" for number in range(100))
    text = shown([*called("a", "x"), *ran("a", output)])
    assert "│ line 7\n  ⋮ 84 more lines\n  │ line 92\n" in text
    assert "line 99" in text
    assert len(text.splitlines()) == 1 + 8 + 1 + 8 + 1
    assert "line 50" in shown([*called("a", "x"), *ran("a", output)], full=True)


@given(st.integers(0, 30))
def test_no_line_is_lost_without_being_counted(lines: int) -> None:
    text = shown([*called("a", "x"), *ran("a", "row\n" * lines)])
    left_out = sum(map(int, re.findall(r"(\d+) more line", text)))
    assert text.count("│ row") + left_out == lines


def test_lines_fit_the_width_and_full_cuts_nothing() -> None:
    stream = [*called("a", "echo " + "東" * 100), *ran("a", "x" * 200)]
    assert max(len(line) for line in shown(stream).splitlines()) <= 40
    assert "x" * 200 in shown(stream, full=True)
    assert "東" * 100 in shown(stream, full=True)


def test_K12_no_escape_code_of_a_model_or_tool_reaches_the_terminal() -> None:
    evil = "\x1b]0;title\x07\x9b2J"
    stream = [*thought(evil), *spoken("a\x1b", "[31mb"), *called("a", evil), *ran("a", evil)]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown(stream))


def test_K12_a_terminal_without_unicode_gets_ascii_symbols() -> None:
    stream = [*called("a", "x" * 100), *ran("a", "row\n" * 20)]
    assert shown(stream, ASCII).isascii()


def test_a_retry_is_announced_with_its_reason_and_wait() -> None:
    end = b.request_end("timeout", error=ErrorDetail("network", "the connection broke"), attempt=1, retry_in_ms=2_000)
    assert "[the request ended as timeout: the connection broke (network); trying again in 2 s]" in shown([end])


def test_a_kind_that_repeats_the_status_is_said_once() -> None:
    end = b.request_end("malformed", error=ErrorDetail("malformed", "half a stream"), attempt=1, retry_in_ms=2_000)
    assert "[the request ended as malformed: half a stream; trying again in 2 s]" in shown([end])


def test_a_retry_without_a_wait_is_announced_without_one() -> None:
    end = b.request_end("malformed", error=ErrorDetail("malformed", "cut"), attempt=1, retry_in_ms=0)
    assert "[the request ended as malformed: cut; trying again]" in shown([end])


def test_E13_a_retry_is_announced_below_the_foot_of_the_tool_that_still_runs() -> None:
    end = b.request_end("timeout", error=ErrorDetail("network", "gone"), attempt=1, retry_in_ms=2_000)
    text = shown([*called("a", "make"), end, *ran("a", "built\n"), b.request_begin()])
    assert text.index("built") < text.index("done") < text.index("trying again")


def test_E13_a_call_nobody_decided_about_is_shown_as_not_run_and_does_not_hold_up_the_others() -> None:
    cut = b.tool_call("exec_command", '{"cmd": "make', "a", stop_reason="malformed")
    end = b.request_end("malformed", error=ErrorDetail("malformed", "cut"), attempt=1, retry_in_ms=0)
    text = shown([cut, end, b.request_begin(), *called("b", "ls"), *ran("b", "x\n")], close=False)
    assert text.index("not run") < text.index("trying again") < text.index("ls") < text.index("done")


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("answers", [True, False])
def test_L4_the_note_of_a_completed_request_is_shown(*, live: bool, answers: bool) -> None:
    end = b.request_end("completed", error=ErrorDetail("note", "The reply was cut at the output limit."))
    text = shown([b.request_begin(), *spoken("Half of"), end], live=live, answers=answers)
    assert text.endswith("[The reply was cut at the output limit.]\n")


def test_L10_arguments_nested_beyond_reading_are_shown_as_they_came() -> None:
    deep = '{"cmd":' + "[" * 3000 + "]" * 3000 + "}"
    call = b.tool_call("exec_command", deep, "a")
    assert "[[[" in shown([call])
    assert "[[[" in shown([call], full=True)
    assert "\ufffd" in shown([b.tool_call("exec_command", r'{"cmd": "\ud800"}', "a")])


def test_the_last_failure_is_told_by_the_result_while_live_and_by_the_record_when_read() -> None:
    end = b.request_end("failed", error=ErrorDetail("auth", "wrong key"))
    assert shown([end]) == ""
    assert "wrong key (auth)" in shown([end], live=False)


def test_without_answers_only_words_on_the_way_are_shown() -> None:
    stream = [
        b.request_begin(),
        *spoken("I will look."),
        *called("a", "ls"),
        b.request_end("completed"),
        *ran("a", "x\n"),
        b.request_begin(),
        *spoken("The answer."),
        b.request_end("completed"),
    ]
    text = shown(stream, answers=False)
    assert "I will look." in text
    assert "The answer." not in text


def test_words_of_a_failed_attempt_do_not_count_as_said() -> None:
    stream = [
        b.request_begin(),
        *spoken("Half of"),
        b.request_end("timeout", retry_in_ms=2_000),
        b.request_begin(),
        *called("a", "ls"),
    ]
    assert "Half of" not in shown(stream, answers=False)


def test_an_interruption_ends_what_was_open() -> None:
    stream = [*called("a", "sleep"), *ran("a", "so far", stop="aborted"), b.abort("aborted by user")]
    assert shown(stream).endswith("  │ so far\n  └ aborted, 0.5 s\n\n[aborted by user]\n")


def test_a_record_that_breaks_off_says_which_call_has_no_output() -> None:
    assert shown(called("a", "sleep 9"), live=False).endswith("└ no output was recorded\n")


def test_an_output_without_its_call_is_shown_too() -> None:
    assert "│ lost" in shown([b.tool_call_output("lost", "nobody")], live=False)


def test_P7_an_unknown_payload_is_skipped() -> None:
    line = b'{"timestamp":"2026-03-01T10:00:00.000Z","type":"event_msg","payload":{"type":"confetti","n":1}}'
    assert shown([decode(line)]) == ""


def test_messages_of_a_subagent_do_not_mix_with_ours() -> None:
    child = "session-2026-03-01-10-00-00-00c0ffee"
    stream = [b.with_origin(message, child) for message in [*spoken("child words"), *called("c", "ls")]]
    assert shown(stream) == "  [subagent calls exec_command]\n"


def test_usage_line() -> None:
    counts = TokenCounts(cache_read=800, cache_write=434, output=56, total=1_290)
    assert usage_line(counts, turns=1, seconds=4.21) == "1 turn, 1,234 tokens in (800 cached), 56 out, 4.2 s"
    assert "~434 tokens in, ~56 out" in usage_line(
        TokenCounts(cache_write=434, output=56, total=490), turns=2, seconds=0, estimated=True
    )


# ---------------------------------------------------------------- recorded streams


def recorded(golden_dir: Path) -> list[Path]:
    return sorted(golden_dir.glob("*/stream.jsonl")) + sorted(golden_dir.glob("*/trace-*.jsonl"))


def read(file: Path) -> list[Message]:
    return [decode(line) for line in file.read_bytes().splitlines() if not line.startswith(b'{"driver"')]


@pytest.mark.golden
def test_every_recorded_stream_can_be_read_whole_and_cut_anywhere(golden_dir: Path) -> None:
    files = recorded(golden_dir)
    assert files
    for file in files:
        messages = read(file)
        for look in (PLAIN, ASCII, COLOUR):
            text = shown(messages, look)
            assert text.endswith("\n")
        for end in range(0, len(messages), 7):
            cut = shown(messages[:end], live=False)
            assert not cut or cut.endswith("\n")


@pytest.mark.golden
def test_a_recorded_trace_names_every_call_and_says_every_word(golden_dir: Path) -> None:
    for file in sorted(golden_dir.glob("*/trace-*.jsonl")):
        messages = read(file)
        text = shown(messages, live=False, full=True)
        calls = [message.payload.name for message in messages if isinstance(message.payload, ToolCall)]
        words = [message.payload.text for message in messages if isinstance(message.payload, Text)]
        assert all(name in text for name in calls)
        assert all(line.strip() in text for said in words for line in said.splitlines())
