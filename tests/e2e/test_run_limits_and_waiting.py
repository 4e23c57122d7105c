"""``penguin run``: what it may use, and what it leaves running (K6, K9, E17, E23, N20)."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.command_line import Place

from penguin.state.paths import DataRoot
from penguin.state.project import Budgets, Pricing, ProjectConfigFile
from penguin.testing import call, say, serve_in_thread, turn, usage
from penguin.trace.check import check_trace

READ = call("read_file", {"file_path": "note.txt"}, id="c1")
PRICES = Pricing(cache_read=1.0, cache_write=10.0, output=10.0)
DEAR = usage(cache_write=90_000, output=10_000)  # a dollar


def in_background(cmd: str) -> Any:
    return call("exec_command", {"cmd": cmd, "description": "work", "run_in_background": True}, id="b1")


def running(command: str) -> bool:
    """Whether a process with this command line is there."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended just now
            if command.encode() in file.read_bytes().replace(b"\0", b" "):
                return True
    return False


@contextmanager
def started(place: Place, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """``penguin`` with pipes; ended with the block when the test did not get that far."""
    with place.start(*arguments) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def errors_until(process: subprocess.Popen[bytes], words: str) -> str:
    """What a process says on standard error, up to the line with these words."""
    assert process.stderr is not None
    said = ""
    for line in iter(process.stderr.readline, b""):
        said += line.decode()
        if words in said:
            return said
    raise AssertionError(f"{words!r} was not said: {said}")


# ---------------------------------------------------------------- budgets


def test_K6_E23_a_budget_in_dollars_ends_the_task_before_the_request_that_could_exceed_it(place: Place) -> None:
    with serve_in_thread([turn(READ, usage=DEAR), turn(READ, usage=DEAR), "Done."]) as provider:
        place.connect(provider.base_url, pricing=PRICES)
        done = place.run("run", "-m", "hi", "--budget-usd", "2.05")
        assert len(provider.requests) == 2
        went_on = place.run("run", "-m", "go on", "--resume", "latest", "--budget-usd", "0.5")
        provider.assert_exhausted()
    assert done.returncode == 3
    assert "$2.0000 of $2.0500 are used" in done.stderr
    assert "To go on: penguin run --resume" in done.stderr
    assert (went_on.returncode, went_on.stdout) == (0, "Done.\n"), went_on.stderr


def test_E23_a_budget_in_dollars_that_would_limit_nothing_is_refused(place: Place) -> None:
    with serve_in_thread([]) as provider:
        place.connect(provider.base_url)
        done = place.run("run", "-m", "hi", "--budget-usd", "1")
        assert provider.requests == []
    assert done.returncode == 2
    assert "custom/m are not known" in done.stderr
    assert place.traces() == []


def test_E23_a_limit_of_the_command_line_replaces_that_one_of_the_project_and_no_other(place: Place) -> None:
    replies = [turn(READ, usage=usage(cache_write=100, output=10)) for _ in range(4)]
    with serve_in_thread(replies) as provider:
        place.connect(provider.base_url)
        config = ProjectConfigFile(DataRoot(place.home).project().config)
        with config.path.open("a") as file:
            file.write("\n[budgets]\nturns = 3\ntokens = 5\n")
        assert config.read().budgets == Budgets(turns=3, tokens=5)
        done = place.run("run", "-m", "hi", "--budget-tokens", "10000")
        assert len(provider.requests) == 3
    assert done.returncode == 3
    assert "3 of 3 requests are used" in done.stderr


# ---------------------------------------------------------------- background work


def test_K9_background_work_ends_with_the_task_and_is_named(place: Place) -> None:
    with serve_in_thread([turn(in_background("sleep 71.33")), "Started."]) as provider:
        place.connect(provider.base_url)
        done = place.run("run", "-m", "hi")
    assert (done.returncode, done.stdout) == (0, "Started.\n")
    assert "ended with the task: process p1 (sleep 71.33). --wait waits for such work." in done.stderr
    assert not running("sleep 71.33")


def test_K9_E17_wait_tells_the_model_of_each_end_until_nothing_runs(place: Place) -> None:
    work = in_background("until [ -e go ]; do sleep 0.02; done; echo all 12 passed")
    with serve_in_thread([turn(work), "Started.", "They passed."]) as provider:
        place.connect(provider.base_url)
        with started(place, "run", "-m", "run the tests", "--wait") as process:
            said = errors_until(process, "waiting for process p1")
            assert len(provider.requests) == 2
            (place.workspace / "go").touch()
            output, errors = process.communicate(timeout=20)
            provider.assert_exhausted()
            told = provider.requests[-1].body["messages"][-1]["content"]
    assert process.returncode == 0, said + errors.decode()
    assert output.decode() == "Started.\nThey passed.\n"
    assert "exit code: 0" in errors.decode()
    assert "ended with the task" not in errors.decode()
    assert "all 12 passed" in str(told)
    assert "background_task_done" in str(told)
    (trace,) = place.traces()
    assert check_trace(trace).ending == "complete"


def test_K9_wait_for_a_subagent_in_the_background(place: Place) -> None:
    delegate = call(
        "run_subagent", {"prompt": "count to three", "description": "counting", "run_in_background": True}, id="s1"
    )

    def answer(body: dict[str, Any]) -> Any:
        """Two sessions ask at once: who is told by what was said last."""
        last = str(body["messages"][-1]["content"])
        if "count to three" in last:
            return "One, two, three."
        return "It counted." if "background_task_done" in last else turn(delegate) if "go!" in last else "Delegated."

    with serve_in_thread([answer], when_exhausted="repeat") as provider:
        place.connect(provider.base_url)
        done = place.run("run", "-m", "go!", "--wait")
        last = str(provider.requests[-1].body["messages"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("It counted.\n")
    assert "One, two, three." in last
    listed = place.run("sessions", "list")
    assert len(listed.stdout.splitlines()) == 2, "the subagent's session is hidden"


def test_K9_ctrl_c_ends_the_wait_and_the_work(place: Place) -> None:
    with serve_in_thread([turn(in_background("sleep 71.44")), "Started."]) as provider:
        place.connect(provider.base_url)
        with started(place, "run", "-m", "hi", "--wait") as process:
            errors_until(process, "waiting for process p1")
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=15)
    assert (process.returncode, output) == (130, b"Started.\n")
    assert "ended with the task: process p1" in errors.decode()
    assert not running("sleep 71.44")


def test_E23_the_reports_that_are_waited_for_draw_on_the_same_budget(place: Place) -> None:
    work = in_background("until [ -e go ]; do sleep 0.02; done")
    with serve_in_thread([turn(work, usage=DEAR), turn(say("Started."), usage=DEAR)]) as provider:
        place.connect(provider.base_url, pricing=PRICES)
        with started(place, "run", "-m", "hi", "--wait", "--budget-usd", "2.05") as process:
            errors_until(process, "waiting for process p1")
            (place.workspace / "go").touch()
            _, errors = process.communicate(timeout=15)
            provider.assert_exhausted()
    assert process.returncode == 3
    assert "$2.0000 of $2.0500 are used" in errors.decode()


# ---------------------------------------------------------------- MCP servers


def test_N20_a_server_that_cannot_be_reached_is_named_once(place: Place) -> None:
    file = DataRoot(place.home).project().agent().system_config
    file.parent.mkdir(parents=True)
    file.write_text("tools:\n  mcpServers:\n    - name: search\n      config: {command: no-such-program-here}\n")
    with serve_in_thread(["ok"]) as provider:
        place.connect(provider.base_url)
        done = place.run("run", "-m", "hi")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert done.stderr.count("MCP server search: ") == 1
    assert "its tools are missing" in done.stderr


# ---------------------------------------------------------------- the sandbox


def test_K9_N25_a_read_only_sandbox_lets_nothing_be_written(place: Place) -> None:
    write = call("write_file", {"file_path": "made.txt", "content": "made"}, id="c2")
    with serve_in_thread([turn(write), "I was not able to."]) as provider:
        place.connect(provider.base_url)
        done = place.run("run", "-m", "hi", "--sandbox", "read-only")
        told = str(provider.requests[-1].body["messages"][-1])
    assert done.returncode == 0, done.stderr
    assert not (place.workspace / "made.txt").exists()
    assert "sandbox" in told
