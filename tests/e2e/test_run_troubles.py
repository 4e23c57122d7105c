"""``penguin run`` where something is wrong outside of it: impatience, a full disk, names of nothing."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.test_run import running, until
from tests.support.command_line import COMMAND, Place

from penguin.protocol.codec import decode
from penguin.protocol.messages import Abort
from penguin.state.paths import DataRoot
from penguin.testing import call, refuse, reply, serve_in_thread, turn

STUBBORN = "trap '' TERM; echo x > started; while :; do sleep 0.19; done"


def test_K6_a_second_signal_does_not_wait_for_a_command_and_still_says_how_to_go_on(place: Place) -> None:
    command = call("exec_command", {"cmd": STUBBORN, "description": "stay"}, id="c1")
    with serve_in_thread([turn(command)]) as provider:
        place.connect(provider.base_url)
        process = place.start("run", "-m", "hi")
        until((place.workspace / "started").exists)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # a person presses twice; at once would be one signal to the kernel
        assert process.poll() is None
        pressed = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=15)
        took = time.monotonic() - pressed
    assert process.returncode == 130, errors.decode()
    assert took < 1.2  # the grace of the first signal alone is two seconds
    assert len(re.findall(r"--resume [0-9a-f]{8} -m TEXT", errors.decode())) == 1
    assert not running("sleep 0.19")
    (trace,) = place.traces()
    assert isinstance(decode(trace.read_bytes().splitlines()[-1]).payload, Abort)


def test_K6_E11_a_signal_while_a_server_of_tools_starts_says_that_nothing_began(place: Place) -> None:
    slow = "import pathlib, time; pathlib.Path('started').touch(); time.sleep(60.7)"
    server = {"name": "slow", "config": {"command": sys.executable, "args": ["-c", slow]}}
    settings = DataRoot(place.home).project().agent().system_config
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"tools": {"mcpServers": [server]}}))  # JSON is YAML
    with serve_in_thread([]) as provider:
        place.connect(provider.base_url)
        process = place.start("run", "-m", "hi")
        until((place.workspace / "started").exists)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=15)
    assert process.returncode == 130, errors.decode()
    assert "interrupted before the task began" in errors.decode()
    assert not running("time.sleep(60.7)")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", ["run -m hi", "run --json -m hi", "schema", "--help", "config show"])
def test_K12_a_full_output_device_is_called_that(place: Place, arguments: str) -> None:
    with serve_in_thread(["An answer."] * 2) as provider:
        place.connect(provider.base_url)
        line = f"{' '.join(COMMAND)} {arguments} >/dev/full </dev/null"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=place.workspace,
            env=place.environment,
            check=False,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("is full") == 1
    assert "fault of its own" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_T5_records_a_full_disk_refused_are_said_to_be_lost_at_the_end(place: Place) -> None:
    def no_large_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    words = "word " * 20_000
    with serve_in_thread([words]) as provider:
        place.connect(provider.base_url)
        done = subprocess.run(
            [*COMMAND, "run", "-m", "hi"],
            cwd=place.workspace,
            env=place.environment,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            preexec_fn=no_large_files,
        )
    assert words.strip() in done.stdout
    assert done.returncode == 1, done.stderr
    assert "were not written" in done.stderr
    assert "when the disk allows" not in done.stderr
    assert done.stderr.count("not safely on disk") == 1


@pytest.mark.parametrize("arguments", [["run", "--resume", "nosuch"], ["sessions", "resume", "nosuch"]])
def test_K6_a_session_that_is_not_there_is_a_wrong_command_line(place: Place, arguments: list[str]) -> None:
    place.connect("http://127.0.0.1:9/v1")
    done = place.run(*arguments, "-m", "hi")
    assert done.returncode == 2
    assert "nosuch" in done.stderr


@pytest.mark.parametrize("arguments", [["--resume"], ["--resume", "-m", "x"], ["-m", "x", "--resume"], ["--resume="]])
def test_K6_resume_without_a_session_says_what_it_wants(place: Place, arguments: list[str]) -> None:
    done = place.run("run", *arguments)
    assert done.returncode == 2
    assert "the last 8 characters of it, or `latest`" in done.stderr


def test_trace_commands_take_latest(place: Place) -> None:
    with serve_in_thread(["First."]) as provider:
        place.connect(provider.base_url)
        assert place.run("run", "-m", "hi").returncode == 0
    for command in ("show", "check", "stats"):
        done = place.run("trace", command, "latest")
        assert done.returncode == 0, done.stderr
    assert "First." in place.run("trace", "show", "latest").stdout


def test_L4_a_cut_reply_is_told_on_stderr_and_in_the_trace(place: Place) -> None:
    with serve_in_thread([reply("Half of", finish_reason="length")]) as provider:
        place.connect(provider.base_url)
        done = place.run("run", "-m", "hi")
    assert (done.returncode, done.stdout) == (0, "Half of\n")
    assert "[The reply was cut at the output limit.]" in done.stderr
    assert "[The reply was cut at the output limit.]" in place.run("trace", "show").stdout


def test_K13_the_debug_log_holds_how_a_request_ended(place: Place) -> None:
    with serve_in_thread([refuse(401, "who are you?")]) as provider:
        place.connect(provider.base_url)
        done = place.run("--debug", "run", "-m", "hi")
    assert done.returncode == 1
    assert str(place.home / "default_project" / ".project_config.toml") in done.stderr
    assert done.stderr.count("401") == 1
    assert "HTTP 401: who are you?" in done.stderr
    log = (place.home / "debug.log").read_text()
    assert "custom/m: the request ended as failed, auth: " in log
    assert "who are you?" in log
    assert "k-of-the-test" not in log


def test_a_nul_on_standard_input_is_left_out(place: Place) -> None:
    with serve_in_thread(["Fine."]) as provider:
        place.connect(provider.base_url)
        assert place.run("run", typed=b"one\0two").returncode == 0
        assert "onetwo" in str(provider.requests[0].body["messages"])
