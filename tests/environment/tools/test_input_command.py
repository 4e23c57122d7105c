"""N7: background commands are typed into, polled and ended; real processes."""

# ruff: noqa: ASYNC240 - a test may look at a file while nothing else runs

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from tests.support.deadline import Deadline

from penguin.environment import following, processes
from penguin.environment.processes import CommandSessions, CommandState
from penguin.environment.running_command import RunningCommand
from penguin.environment.shell_environment import ShellEnvironment
from penguin.environment.tool import Services
from penguin.environment.tools import input_command
from penguin.environment.tools.builtin import BUILTIN_TOOL_DEFINITIONS
from penguin.environment.tools.definitions import INPUT_COMMAND, KILL_COMMAND

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A short silence is enough here. Children inherit ignored signals, and a run started with ``&`` ignores SIGINT."""
    monkeypatch.setattr(input_command, "SETTLED", 0.1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Shell:
    """The three tools as short methods."""

    def __init__(self, desk: Any) -> None:
        self.desk = desk

    async def start(self, cmd: str, **args: Any) -> str:
        answer = await self.desk.call(
            "exec_command", **({"cmd": cmd, "description": "test", "run_in_background": True} | args)
        )
        return str(answer.output)

    async def type(self, chars: str = "", process_id: str = "p1", **args: Any) -> str:
        answer = await self.desk.call("input_command", process_id=process_id, chars=chars, **args)
        return str(answer.output)

    async def hear(self, wanted: str, chars: str = "", process_id: str = "p1") -> str:
        """Type, and poll until the last answer holds ``wanted``: on a busy machine output comes in pieces."""
        heard, answer = "", await self.type(chars, process_id)
        deadline = Deadline()
        while wanted not in answer:
            deadline.check(heard + answer)
            heard += answer.removesuffix(RUNNING).removesuffix(WAITING)
            answer = await self.type(process_id=process_id)
        return heard + answer

    async def kill(self, process_id: str = "p1") -> str:
        return str((await self.desk.call("kill_command", process_id=process_id)).output)


@pytest.fixture
def sh(shell: Any) -> Shell:
    return Shell(shell)


RUNNING = "[process p1 is still running]"
WAITING = "[process p1 is waiting for input]"

can_see_waiting = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "aarch64", "riscv64"} or not os.access("/proc/self/syscall", os.R_OK),
    reason="this system does not tell what a process waits for",
)


def said(answer: str) -> str:
    """The output of a live process; whether it is seen to wait for input is N10's business."""
    output = answer.removesuffix(WAITING).removesuffix(RUNNING)
    assert output != answer
    return output


def test_N7_the_definitions_are_short() -> None:
    assert len(msgspec.json.encode(INPUT_COMMAND.for_the_model())) / 4 <= 120
    assert len(msgspec.json.encode(KILL_COMMAND.for_the_model())) / 4 <= 120
    assert list(INPUT_COMMAND.parameters["properties"]) == ["process_id", "chars", "yield_time_ms"]


async def test_N7_a_line_is_typed_and_answered(sh: Shell) -> None:
    await sh.start("while read line; do echo got $line; done; echo over")
    assert said(await sh.type("one\n")) == "got one\n"
    assert said(await sh.hear("three", "two\nthree\n")) == "got two\ngot three\n"
    assert await sh.hear("has ended", "\u0004") == "over\n[process p1 has ended, exit code: 0]"


async def test_N7_a_poll_returns_only_what_was_not_yet_delivered(sh: Shell, workspace: Path) -> None:
    await sh.start("echo one; read; echo two; read; echo three; read")
    assert said(await sh.type()) == "one\n"
    assert said(await sh.type(yield_time_ms=0)) == ""
    assert said(await sh.type("\n")) == "two\n"
    assert said(await sh.type("\n")) == "three\n"


async def test_N7_what_came_before_the_yield_is_not_repeated(sh: Shell, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = await sh.start(f"echo early; cat {gate}; echo late", run_in_background=False, yield_time_ms=1_000)
    assert first.startswith("early\n[still running after 1 s")
    await anyio.Path(gate).write_text("")
    assert await sh.hear("has ended") == "late\n[process p1 has ended, exit code: 0]"
    assert await sh.type() == "[process p1 has ended, exit code: 0]"
    assert await sh.type("x\n") == "[nothing was typed, the process has ended]\n[process p1 has ended, exit code: 0]"


async def test_N7_ctrl_c_interrupts_the_group(sh: Shell) -> None:
    await sh.start("trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.01; done")
    assert said(await sh.type()) == "ready\n"
    assert await sh.hear("has ended", "\u0003") == "interrupted\n[process p1 has ended, exit code: 7]"


async def test_N7_ctrl_c_reaches_what_runs_in_a_terminal(sh: Shell) -> None:
    await sh.start("python3 -c 'input(\"name? \")'", tty=True)
    assert (await sh.type()).startswith("name? ")
    assert "KeyboardInterrupt" in await sh.hear("has ended", "\u0003")


async def test_N7_a_terminal_echoes_and_a_prompt_is_shown(sh: Shell) -> None:
    await sh.start("read -p 'name? ' name; echo hello $name", tty=True, run_in_background=False, yield_time_ms=200)
    answer = await sh.hear("has ended", "penguin\n")
    assert answer.endswith("penguin\nhello penguin\n[process p1 has ended, exit code: 0]")


async def test_N7_a_command_started_in_front_has_no_input(sh: Shell) -> None:
    await sh.start("sleep 1000", run_in_background=False, yield_time_ms=0)
    assert "it was started without tty and not in the background" in await sh.type("x\n", yield_time_ms=0)
    assert "killed by SIGINT" in await sh.type("\u0003")


async def test_N7_a_command_that_does_not_read_does_not_hold_the_call(sh: Shell) -> None:
    await sh.start("sleep 1000")
    assert "does not read its input" in await sh.type("x" * 1_000_000, yield_time_ms=0)


async def test_N7_a_large_input_and_its_echo_do_not_block_each_other(sh: Shell) -> None:
    await sh.start("cat")
    line = "x" * 99 + "\n"
    output = said(await sh.type(line * 2_000))
    assert output.startswith(line * 100)
    assert "200,000 characters" in output


async def test_N7_an_interruption_ends_the_wait_but_not_the_command(sh: Shell, commands: CommandSessions) -> None:
    await sh.start("echo ready; read; echo go on; read")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(sh.type)
            deadline = Deadline()
            while "ready\n" not in sh.desk.deltas:
                deadline.check()
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    assert sh.desk.answer().stop_reason == "aborted"
    assert [each.words for each in commands.states()] == ["running"]
    assert said(await sh.type("\n")) == "go on\n"


async def test_N7_unknown_processes_are_answered_with_those_there_are(sh: Shell) -> None:
    assert "There is no process 'p9'. Processes: none." in await sh.type(process_id="p9")
    await sh.start("sleep 1000")
    assert "Processes: p1 (sleep 1000)." in await sh.kill("p9")


async def test_N7_kill_ends_the_process_and_what_it_started(sh: Shell, is_running: Any, long_sleep: str) -> None:
    await sh.start(f"echo ready; setsid -f {long_sleep}; {long_sleep}")
    await sh.type()
    assert await sh.kill() == "[process p1 has ended, killed by SIGTERM]"
    assert not is_running(long_sleep)
    assert "Processes: none" in await sh.type()


async def test_N7_kill_does_not_stop_at_a_process_that_ignores_TERM(
    sh: Shell, is_running: Any, long_sleep: str
) -> None:
    await sh.start(f"trap 'echo no' TERM; echo ready; while :; do {long_sleep}; done")
    await sh.type()
    output = await sh.kill()
    assert "no\n" in output
    assert output.endswith("[process p1 has ended, killed by SIGKILL]")
    assert not is_running(long_sleep)


async def test_N8_a_survivor_can_be_read_and_killed(sh: Shell, is_running: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    cmd = f"(tail -f {gate} & ) ; exit 0"
    assert "still running in the background as process p1: tail" in await sh.start(cmd, run_in_background=False)
    gate.write_text("written later\n")
    output = await sh.type()
    assert output.startswith("written later\n[process p1 has ended, exit code: 0; still running: tail (pid ")
    assert "has ended, exit code: 0" in await sh.kill()
    assert not is_running(f"tail -f {gate}")


@pytest.mark.parametrize("launcher", ["env -i", "env -i setsid", "setsid"])
async def test_N8_D15_a_silent_survivor_is_listed_and_killed(
    sh: Shell, is_running: Any, long_sleep: str, launcher: str
) -> None:
    output = await sh.start(f"{launcher} {long_sleep} >/dev/null 2>&1 & exit 0", run_in_background=False)
    assert "process p1: " in output
    assert output.count("(pid ") == 1
    # The shell forks and exits; a moment later the other is no shell any more.
    deadline = Deadline()
    while "still running: sleep (pid " not in (output := await sh.type(yield_time_ms=0)):
        deadline.check()
        assert output.count("(pid ") == 1
    await sh.kill()
    assert not is_running(long_sleep)


async def test_N7_output_nobody_asks_for_neither_blocks_nor_grows(sh: Shell) -> None:
    await sh.start("yes | head -c 50000000; echo the end")
    output = ""
    deadline = Deadline()
    while "has ended" not in output:
        deadline.check()
        output = await sh.type()
    assert output.startswith("y\ny\n")
    assert "bytes of output were not kept" in await _all_of(sh, "yes | head -c 50000000; echo the end", "p2")


async def _all_of(sh: Shell, cmd: str, process_id: str) -> str:
    await sh.start(cmd)
    deadline = Deadline()
    while any(each.returncode is None for each in _states(sh)):
        deadline.check()
        await anyio.lowlevel.checkpoint()
    answer = await sh.desk.call("input_command", process_id=process_id)
    archive = str(answer.output).rpartition(" in ")[2].partition("]")[0]
    return await anyio.Path(archive).read_text()


def _states(sh: Shell) -> list[CommandState]:
    sessions = sh.desk.environment.setup.services.command_sessions
    assert isinstance(sessions, CommandSessions)
    return sessions.states()


async def test_N7_at_most_64_ended_ones_go_first(
    sh: Shell, commands: CommandSessions, monkeypatch: pytest.MonkeyPatch, is_running: Any, long_sleep: str
) -> None:
    assert processes.MOST_COMMANDS == 64
    monkeypatch.setattr(processes, "MOST_COMMANDS", 3)
    await sh.start(f"{long_sleep}1")
    await sh.start("true")
    await sh.start(f"{long_sleep}3")
    await sh.type(process_id="p2")
    await sh.type(process_id="p1", yield_time_ms=0)
    await sh.start(f"{long_sleep}4")
    assert [each.process_id for each in commands.states()] == ["p1", "p3", "p4"]
    await sh.start(f"{long_sleep}5")
    assert [each.process_id for each in commands.states()] == ["p1", "p4", "p5"]
    assert is_running(f"{long_sleep}1")
    assert not is_running(f"{long_sleep}3")


async def test_E17_the_end_of_a_background_command_is_told_with_its_last_words(make_desk: Callable[..., Any]) -> None:
    ended: list[CommandState] = []
    sessions = CommandSessions(environment=ShellEnvironment(login_shell=False), on_exit=ended.append)
    desk = make_desk(
        builtin=[BUILTIN_TOOL_DEFINITIONS["exec_command"], INPUT_COMMAND, KILL_COMMAND],
        services=Services(command_sessions=sessions),
    )
    sh = Shell(desk)
    assert "its end will be reported" in await sh.start("seq 10000; exit 3")
    deadline = Deadline()
    while not ended:
        deadline.check()
        await anyio.lowlevel.checkpoint()
    (state,) = ended
    assert (state.process_id, state.cmd, state.words, state.asked_for_background) == (
        "p1", "seq 10000; exit 3", "exit code: 3", True,
    )  # fmt: skip
    assert state.undelivered.endswith("9999\n10000\n")
    assert len(state.undelivered) == 4_000
    assert (await sh.type()).startswith("1\n2\n")
    assert sessions.states()[0].undelivered == ""
    await sh.start("sleep 1000")
    await sh.start("sleep 1000")
    await sh.kill("p2")
    await sessions.aclose()
    assert len(ended) == 1  # whoever ends a command, or its session, knows


async def test_N9_closing_takes_commands_from_the_reader_before_it_looks_how_they_ended(
    sh: Shell, commands: CommandSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sh.start("sleep 1000")
    notice_exit, read_by_two = RunningCommand.notice_exit, []

    def noted(command: RunningCommand) -> None:
        if threading.current_thread() is threading.main_thread():
            read_by_two.append(command.adopted)
        notice_exit(command)

    monkeypatch.setattr(RunningCommand, "notice_exit", noted)
    await commands.aclose()
    assert read_by_two == [False]


async def test_N7_trouble_with_one_command_does_not_end_the_reading_of_others(
    sh: Shell, commands: CommandSessions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await sh.start("read; exit 0")
    await sh.start("read; echo well; exit 0")
    absorb = RunningCommand.absorb

    def troubled(command: RunningCommand) -> None:
        if command.process_id == "p1":
            raise OSError("made up")
        absorb(command)

    monkeypatch.setattr(RunningCommand, "absorb", troubled)
    for process_id in ("p1", "p2"):
        await commands.find(process_id).type("\n")
    deadline = Deadline()
    while commands.find("p2").returncode is None:
        deadline.check("the reader has stopped")
        await anyio.sleep(0.01)
    assert "well" in await sh.type(process_id="p2")
    assert "p1 can no longer be read" in caplog.text


async def test_no_descriptor_and_no_zombie_stays(sh: Shell, commands: CommandSessions) -> None:
    await sh.start("true", run_in_background=False)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(1, 4):
        await sh.start("cat", tty=number == 2)
        await sh.hear("has ended", "\u0004", process_id=f"p{number}")
    await sh.start("sleep 1000")
    await sh.kill("p4")
    await sh.start("echo x", run_in_background=False)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    await sh.start("sleep 1000")
    await commands.aclose()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert "Z" not in _states_of_children()


def _states_of_children() -> list[str]:

    states = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            states.append(fields[0])
    return states


# ---------------------------------------------------------------- what is served where

SERVER = "python3 -u -m http.server 0 --bind 127.0.0.1"
can_see_sockets = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not list sockets")


@can_see_sockets
async def test_N7_lists_of_processes_say_what_is_served_where(sh: Shell, commands: CommandSessions) -> None:
    await sh.start(f"{SERVER} & wait")
    await sh.start("sleep 1000")
    port = (await sh.hear("Serving HTTP")).partition(" port ")[2].split()[0]
    serves = f"serves http://127.0.0.1:{port}/"
    first, second = commands.states()
    assert (first.serves, second.serves) == (serves, "")
    assert f"Processes: p1 ({SERVER} & wait; {serves}), p2 (sleep 1000)." in await sh.kill("p9")
    assert await sh.type(yield_time_ms=0) == f"[process p1 is still running and {serves}]"
    assert commands.context_notes().splitlines() == [
        f"Running in the background: p1: {SERVER} & wait ({serves})", "Running in the background: p2: sleep 1000",
    ]  # fmt: skip
    await sh.kill()
    assert [each.process_id for each in commands.states()] == ["p2"]


@can_see_sockets
@pytest.mark.parametrize(("end", "ending"), [("wait", "now in the background"), ("sleep 1", "still running in the")])
async def test_N7_N8_a_port_is_seen_where_no_address_was_printed(sh: Shell, end: str, ending: str) -> None:
    serve = "s = socket.create_server(('::1', 0), family=socket.AF_INET6); print(s.getsockname()[1], flush=True)"
    cmd = shlex.join(["python3", "-c", f"import socket; {serve}; s.accept()"])
    answer = await sh.start(f"{cmd} & {end}", run_in_background=False, yield_time_ms=1_500)
    assert ending in answer
    assert answer.endswith(f"; it serves port {answer.split()[0]}]")


async def test_N7_an_address_that_was_only_printed_is_told_as_such(sh: Shell) -> None:
    await sh.start("echo open http://localhost:59999/x; exec sleep 1000")
    deadline = Deadline()
    while (serves := _states(sh)[0].serves) != "printed http://localhost:59999/x":
        deadline.check(serves)
    assert "http://localhost:59999/x" in await sh.type()
    assert _states(sh)[0].serves == serves


# ---------------------------------------------------------------- N10


@can_see_waiting
async def test_N10_a_question_in_a_terminal_is_reported_with_its_prompt(
    sh: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SILENCE", 0.1)
    answer = await sh.start("read -p 'Overwrite? [y/N] ' x; echo $x", tty=True, run_in_background=False)
    assert answer == (
        "Overwrite? [y/N] \n[waiting for input at 'Overwrite? [y/N]', now in the background as process p1]"
    )
    assert await sh.hear("has ended", "y\n") == "y\ny\n[process p1 has ended, exit code: 0]"


@can_see_waiting
@pytest.mark.parametrize(
    "cmd", ["cat", "python3 -c 'input()'", "bash --norc -i", "(sleep 1000.61 & cat)", "sh -c 'read x'"]
)
async def test_N10_readers_of_a_terminal_are_recognised(sh: Shell, monkeypatch: pytest.MonkeyPatch, cmd: str) -> None:
    monkeypatch.setattr(following, "SILENCE", 0.1)
    answer = await sh.start(cmd, tty=True, run_in_background=False, yield_time_ms=10_000)
    assert "waiting for input" in answer


@can_see_waiting
async def test_N10_a_pipe_is_recognised_too(sh: Shell) -> None:
    await sh.start("printf 'name? '; read name; echo hello $name; sleep 1000.62")
    assert (await sh.hear("waiting")).endswith("[process p1 is waiting for input at 'name?']")
    assert await sh.hear("hello", "penguin\n") == f"hello penguin\n{RUNNING}"


NODE_QUESTION = (
    "const r = require('readline').createInterface({input: process.stdin, output: process.stdout});"
    " r.question('name? ', a => { console.log('hello ' + a); process.exit() })"
)
IN_A_LOOP = """
import asyncio, sys
async def main():
    typed = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, typed.set)
    print("name? ", end="", flush=True)
    await typed.wait()
    print("hello", sys.stdin.readline())
asyncio.run(main())
"""
IN_A_THREAD = """
import threading
reading = threading.Thread(target=lambda: print("hello", input("name? ")))
reading.start()
reading.join()
"""
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm on this machine")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")


@can_see_waiting
@pytest.mark.parametrize("tty", [True, False])
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(["node", "-e", NODE_QUESTION], marks=needs_node, id="node"),
        pytest.param(["python3", "-c", IN_A_LOOP], id="asyncio"),
        pytest.param(["python3", "-c", IN_A_THREAD], id="thread"),
    ],
)
async def test_N10_who_waits_in_an_event_loop_or_a_thread_is_recognised(
    sh: Shell, monkeypatch: pytest.MonkeyPatch, program: list[str], tty: bool
) -> None:
    monkeypatch.setattr(following, "SILENCE", 0.2)
    await sh.start(shlex.join(program), tty=tty)
    assert (await sh.hear("waiting")).endswith("[process p1 is waiting for input at 'name?']")
    assert "hello penguin" in await sh.hear("has ended", "penguin\n")


@can_see_waiting
@needs_node
@pytest.mark.parametrize(("question", "recognised"), [("name? ", True), ("loading\\n", False)])
async def test_N10_a_connection_beside_the_terminal_counts_unless_there_is_a_prompt(
    sh: Shell, monkeypatch: pytest.MonkeyPatch, question: str, recognised: bool
) -> None:
    monkeypatch.setattr(following, "SILENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"require('net').connect({server.getsockname()[1]}, '127.0.0.1')"
        cmd = shlex.join(["node", "-e", f"process.stdin.resume(); {connect}; process.stdout.write('{question}')"])
        answer = await sh.start(cmd, tty=True, run_in_background=False, yield_time_ms=5_000 if recognised else 1_500)
    assert ("waiting for input" in answer) is recognised


@can_see_waiting
@needs_node
@pytest.mark.parametrize("cmd", ["node -i", pytest.param("npm init --no-update-notifier", marks=needs_npm)])
async def test_N10_interactive_programs_on_node_are_recognised(
    sh: Shell, monkeypatch: pytest.MonkeyPatch, cmd: str
) -> None:
    monkeypatch.setattr(following, "SILENCE", 0.5)
    answer = await sh.start(cmd, tty=True, run_in_background=False, yield_time_ms=20_000)
    assert "waiting for input" in answer


BUSY_BESIDE_A_READER = """
import sys, threading, time
threading.Thread(target=sys.stdin.read, daemon=True).start()
print("begun", flush=True)
"""


@pytest.mark.parametrize(
    "work",
    [
        "while True: pass",
        "while True: time.sleep(0.2)",
        "import socket; s = socket.create_server(('127.0.0.1', 0)); s.accept()",
        "import subprocess; subprocess.run(['sleep', '1000.64'])",
        (
            "import selectors as m, socket; s = m.DefaultSelector(); a, b = socket.socketpair();"
            " s.register(socket.create_server(('127.0.0.1', 0)), 1); s.select()"
        ),
    ],
)
async def test_N10_a_program_with_work_beside_its_reader_is_not_said_to_wait(
    sh: Shell, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    monkeypatch.setattr(following, "SILENCE", 0.05)
    cmd = shlex.join(["python3", "-c", BUSY_BESIDE_A_READER + work])
    answer = await sh.start(cmd, tty=True, run_in_background=False, yield_time_ms=700)
    assert answer.startswith("begun\n[still running after 0.7 s")


@needs_node
@pytest.mark.parametrize(
    "work",
    ["require('net').createServer().listen(0, '127.0.0.1')", "setInterval(() => {}, 200)", "for (;;) {}"],
)
async def test_N10_a_server_or_a_busy_program_on_node_is_not_said_to_wait(
    sh: Shell, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    monkeypatch.setattr(following, "SILENCE", 0.05)
    cmd = shlex.join(["node", "-e", f"process.stdin.resume(); console.log('begun'); {work}"])
    answer = await sh.start(cmd, tty=True, run_in_background=False, yield_time_ms=1_000)
    assert answer.startswith("begun\n[still running after 1 s")


async def test_N10_who_computes_or_serves_is_not_said_to_wait(sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SILENCE", 0.05)
    listening = "s.register(socket.create_server(('127.0.0.1', 0)), 1)"
    server = (
        "import selectors,socket,sys; s = selectors.DefaultSelector();"
        f" {listening}; s.register(sys.stdin, 1); print('served', flush=True); s.select()"
    )
    for cmd in ("sleep 1000.63", f'python3 -c "{server}"', "read <&- ; sleep 1000.63"):
        assert "still running after 0.5 s" in await sh.start(cmd, tty=True, run_in_background=False, yield_time_ms=500)
