"""``penguin run`` as a process, against a provider that speaks real HTTP."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.command_line import COMMAND, Place, Terminal

from penguin.protocol.codec import decode
from penguin.protocol.messages import Abort, PartialText, Text, TokenUsage, ToolCallOutput
from penguin.testing import call, refuse, say, serve_in_thread, stalled, think, turn
from penguin.testing.replies import ReplyLike
from penguin.trace.check import check_trace

READ = call("read_file", {"file_path": "note.txt"}, id="c1")
WRITE = call("write_file", {"file_path": "made.txt", "content": "made"}, id="c2")


def no_escape_codes(text: str) -> bool:
    return "\x1b" not in text


def test_A2_a_model_is_connected_and_does_a_task_with_parallel_tools(place: Place) -> None:
    (place.workspace / "note.txt").write_text("the content of the note\n")
    replies: list[ReplyLike] = [turn(think("Hm."), say("I will look."), READ, WRITE), "It is done."]
    with serve_in_thread(replies) as provider:
        added = place.run(
            *("config", "model", "add", "--provider", "custom", "--model-id", "M", "--client-type", "openai-chat"),
            *("--base-url", provider.base_url, "--api-key", "sk-not-to-be-seen-1234", "--set-default"),
        )
        done = place.run("run", "-m", "make it")
        provider.assert_exhausted()
        assert provider.requests[0].headers["authorization"] == "Bearer sk-not-to-be-seen-1234"
    assert (added.returncode, done.returncode) == (0, 0), added.stderr + done.stderr
    assert done.stdout == "It is done.\n"
    for part in ("all tool calls are allowed", "[thinking] Hm.", "I will look.", "● read_file  note.txt", "2 turns"):
        assert part in done.stderr
    assert done.stderr.index("● read_file") < done.stderr.index("● write_file")
    assert (place.workspace / "made.txt").read_text() == "made"
    (trace,) = place.traces()
    assert check_trace(trace).ending == "complete"
    assert "sk-not" not in added.stdout + done.stdout + done.stderr + trace.read_text()
    assert no_escape_codes(done.stdout + done.stderr)


def test_A2_json_prints_each_message_as_a_line(place: Place) -> None:
    (place.workspace / "note.txt").write_text("x")
    with serve_in_thread([turn(READ), "Fine: zürich 東京"]) as provider:
        place.connect(provider.base_url)
        done = place.run("run", "--json", "-m", "hi")
    assert done.returncode == 0, done.stderr
    payloads = [decode(line).payload for line in done.stdout.splitlines()]
    assert any(isinstance(payload, PartialText) for payload in payloads)
    assert sum(isinstance(payload, ToolCallOutput) for payload in payloads) == 1
    assert sum(isinstance(payload, TokenUsage) for payload in payloads) == 2
    assert [p.text for p in payloads if isinstance(p, Text)] == ["Fine: zürich 東京"]


def test_K6_a_failed_task_exits_with_1_and_says_what_the_provider_said(place: Place) -> None:
    with serve_in_thread([refuse(401, "no such key: sk-test-abcdefghijklmnop")]) as provider:
        place.connect(provider.base_url)
        done = place.run("run", "-m", "hi")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "no such key" in done.stderr
    assert "penguin trace show session-" in done.stderr
    assert "sk-test-abcdefghijklmnop" not in done.stderr
    assert "Traceback" not in done.stderr


def test_K6_a_limit_exits_with_3(place: Place) -> None:
    with serve_in_thread([turn(READ)], when_exhausted="repeat") as provider:
        place.connect(provider.base_url)
        done = place.run("run", "-m", "hi", "--max-turns", "1")
        assert len(provider.requests) == 1
    assert done.returncode == 3
    assert "limit" in done.stderr


def test_K6_K9_what_nobody_was_there_to_allow_is_denied_and_exits_with_4(place: Place) -> None:
    (place.workspace / "note.txt").write_text("x")
    with serve_in_thread([turn(READ, WRITE), "I was not allowed to write."]) as provider:
        place.connect(provider.base_url)
        done = place.run("run", "-m", "hi", "--approve", "read-only")
    assert done.returncode == 4, done.stderr
    assert "one tool call was denied because nobody was there" in done.stderr
    assert "all tool calls are allowed" not in done.stderr
    assert not (place.workspace / "made.txt").exists()
    assert done.stdout == "I was not allowed to write.\n"


def test_D54_standard_input_is_the_task_or_is_attached_to_it(place: Place) -> None:
    with serve_in_thread(["ok"], when_exhausted="repeat") as provider:
        place.connect(provider.base_url)
        for arguments, typed in (
            (["run"], "from the pipe\n"),
            (["run", "-m", "summarise"], b"\xef\xbb\xbfpiped \xff text"),
        ):
            done = place.run(*arguments, typed=typed, variables={"TERM": "dumb"})
            assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
            assert no_escape_codes(done.stderr)
        said = [str(request.body["messages"][1:]) for request in provider.requests]
    assert "from the pipe" in said[0]
    assert "summarise" in said[1]
    assert "piped \ufffd text" in said[1]


def test_D54_closed_descriptors_and_a_missing_TERM_are_no_obstacle(place: Place) -> None:
    with serve_in_thread(["ok"], when_exhausted="repeat") as provider:
        place.connect(provider.base_url)
        command = " ".join(COMMAND)
        without_input = shell(place, f"{command} run -m hi <&- | cat; exit ${{PIPESTATUS[0]}}")
        without_output = shell(place, f"{command} run -m hi >&- 2>&-")
    assert (without_input.returncode, without_input.stdout) == (0, "ok\n"), without_input.stderr
    assert without_output.returncode == 0
    assert len(place.traces()) == 2
    assert all(check_trace(trace).ending == "complete" for trace in place.traces())


def shell(place: Place, line: str) -> subprocess.CompletedProcess[str]:
    """Only a shell can close a descriptor."""
    return subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=place.workspace,
        env=place.environment,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_D55_a_reader_that_leaves_stops_the_task_in_good_order(place: Place) -> None:
    words = turn(say("word " * 5_000), delta_size=5, delta_delay=0.002)
    with serve_in_thread([words]) as provider:
        place.connect(provider.base_url)
        process = place.start("run", "--json", "-m", "write 500 lines")
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read().decode()
        process.stderr.close()
        assert process.wait(15) == 0
        provider.wait_for_departures(1)
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors
    (trace,) = place.traces()
    assert check_trace(trace).ending == "aborted"
    assert not check_trace(trace).damaged


@pytest.mark.parametrize("arguments", ["--version", "--help", "trace show --help", "schema", "config show"])
def test_D55_no_command_minds_a_reader_that_never_reads(place: Place, arguments: str) -> None:
    done = shell(place, f"PYTHONUNBUFFERED=1 {' '.join(COMMAND)} {arguments} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_K6_one_signal_interrupts_cleanly_and_exits_with_130(place: Place, number: signal.Signals) -> None:
    with serve_in_thread([stalled(turn(say("Half of it and never more")), after=400)]) as provider:
        place.connect(provider.base_url)
        process = place.start("run", "-m", "hi")
        provider.wait_for_requests(1)
        process.send_signal(number)
        output, errors = process.communicate(timeout=15)
    assert process.returncode == 130
    (trace,) = place.traces()
    name = trace.name.removesuffix("_001.jsonl")[-8:]
    assert f"penguin run --resume {name} -m TEXT" in errors.decode()
    assert "Traceback" not in errors.decode()
    assert "Half of it and never more".startswith(output.decode().rstrip("\n"))
    last = decode(trace.read_bytes().splitlines()[-1])
    assert isinstance(last.payload, Abort)


def test_K6_a_signal_ends_the_command_that_runs_and_the_session_can_go_on(place: Place) -> None:
    sleep = call("exec_command", {"cmd": "echo started > started; sleep 61.27", "description": "wait"}, id="c9")
    with serve_in_thread([turn(sleep), "Where were we?"]) as provider:
        place.connect(provider.base_url)
        process = place.start("run", "-m", "first words")
        until((place.workspace / "started").exists)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=15)
        assert process.returncode == 130, errors.decode()
        assert not running("sleep 61.27")
        (name,) = re.findall(r"--resume ([0-9a-f]{8}) -m", errors.decode())
        done = place.run("run", "--resume", name, "-m", "go on")
        assert (done.returncode, done.stdout) == (0, "Where were we?\n"), done.stderr
        assert "first words" in str(provider.requests[-1].body["messages"])
    (trace,) = place.traces()
    assert check_trace(trace).ending == "complete"


def until(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def running(command: str) -> bool:
    """Whether a process with this command line is there."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended just now
            if command.encode() in file.read_bytes().replace(b"\0", b" "):
                return True
    return False


def test_K12_a_terminal_that_cannot_show_a_character_gets_a_question_mark(place: Place) -> None:
    with serve_in_thread(["zürich 東京"]) as provider:
        place.connect(provider.base_url)
        done = place.run("run", "-m", "hi", variables={"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii:strict"})
    assert (done.returncode, done.stdout) == (0, "z?rich ??\n"), done.stderr


def test_K12_an_escape_code_of_the_model_does_not_reach_the_pipe(place: Place) -> None:
    with serve_in_thread(["a\x1b[31mb"]) as provider:
        place.connect(provider.base_url)
        assert place.run("run", "-m", "hi").stdout == "a␛[31mb\n"


# ---------------------------------------------------------------- on a terminal


def test_K6_on_a_terminal_everything_is_shown_in_colour_as_it_comes(place: Place) -> None:
    (place.workspace / "note.txt").write_text("x")
    with serve_in_thread([turn(think("Hm."), READ), "It is done."]) as provider:
        place.connect(provider.base_url)
        with Terminal(place, "run", "-m", "hi") as terminal:
            assert terminal.end() == 0
    assert "\x1b[2mHm.\x1b[0m" in terminal.screen
    assert "● \x1b[1mread_file\x1b[0m  note.txt" in terminal.screen
    assert "It is done." in terminal.screen
    assert "2 turns" in terminal.screen


def test_N23_at_a_terminal_a_person_decides(place: Place) -> None:
    other = call("write_file", {"file_path": "other.txt", "content": "\x1b[2Jx"}, id="c3")
    with serve_in_thread([turn(READ, WRITE), turn(other), "Done."]) as provider:
        place.connect(provider.base_url)
        with Terminal(place, "run", "-m", "hi", "--approve", "read-only") as terminal:
            terminal.wait_for(r"Allow it\? \[y/n[^]]*\] ")
            terminal.type("perhaps\n")
            terminal.wait_for(r"(?s)Allow it\?.*Allow it\? \[y/n[^]]*\] ")
            terminal.type("y\n")
            terminal.wait_for(r"(?s)other\.txt.*Allow it\? \[y/n[^]]*\] ")
            terminal.type("n\n")
            assert terminal.end() == 0
    assert "wants to call" in terminal.screen
    assert "␛[2Jx" in terminal.screen
    assert (place.workspace / "made.txt").exists()
    assert not (place.workspace / "other.txt").exists()


def test_K6_ctrl_c_at_a_terminal_stops_the_task_even_while_it_asks(place: Place) -> None:
    with serve_in_thread([turn(WRITE)]) as provider:
        place.connect(provider.base_url)
        with Terminal(place, "run", "-m", "hi", "--approve", "always-ask") as terminal:
            terminal.wait_for(r"Allow it\? \[y/n[^]]*\] ")
            terminal.type("\x03")
            assert terminal.end() == 130
    assert "interrupted" in terminal.screen
    assert not (place.workspace / "made.txt").exists()


def test_K12_a_terminal_that_closes_stops_the_task_in_good_order(place: Place) -> None:
    with serve_in_thread([stalled(turn(say("Half of it and never more")), after=400)]) as provider:
        place.connect(provider.base_url)
        with Terminal(place, "run", "-m", "hi") as terminal:
            provider.wait_for_requests(1)
            terminal.hang_up()
        provider.wait_for_departures(1)
    (trace,) = place.traces()
    assert check_trace(trace).ending == "aborted"


def test_K10_a_task_is_never_asked_for(place: Place) -> None:
    with Terminal(place, "run") as terminal:
        assert terminal.end() == 2
    assert "there is no task" in terminal.screen


def test_the_demo_runs_offline_and_leaves_the_configuration_alone(place: Place) -> None:
    done = place.run("demo", "--fast")
    assert done.returncode == 0, done.stderr
    (trace,) = place.traces()
    assert f"  {trace}\n" in done.stdout
    assert f"penguin trace show {trace}" in done.stdout
    assert no_escape_codes(done.stdout)
    assert not (place.home / "default_project" / ".project_config.toml").exists()
    shown = place.run("trace", "show", str(trace))
    assert "● edit_file  colony.py" in shown.stdout
    mended = next(place.home.rglob("workspaces/*/colony.py"))
    assert "divmod" in mended.read_text()


def test_the_demo_goes_elsewhere_when_the_data_root_cannot_be_written(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    variables = {"PENGUIN_HOME": str(tmp_path / "file" / "home"), "TMPDIR": str(tmp_path)}
    done = place.run("demo", "--fast", variables=variables)
    assert done.returncode == 0, done.stderr
    assert "The demo goes to" in done.stderr
    assert os.fspath(tmp_path / "penguin-demo-") in done.stdout
