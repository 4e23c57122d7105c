"""N9, N22: thirty commands of every kind and five servers; the harness is killed and started again; nothing is left."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import Deadline

from penguin.environment import custody, custody_guard
from penguin.state.paths import DataRoot

HARNESS = Path(__file__).with_name("chaos_harness.py")
SERVER = Path(__file__).parents[1] / "environment" / "mcp" / "scripted_server.py"

DAEMON = """
import os, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.chdir("/")
os.closerange(0, 256)
os.execvp("sleep", ["sleep", sys.argv[1]])
"""
NEW_SESSION = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True).wait()"

# {} is a sleep that nobody else on this machine runs; {n} its number alone.
IN_THE_BACKGROUND = [
    "{}",
    "setsid -f {}; {}",
    "(setsid {} &); {}",
    "( ( {} & ) & ); {}",
    "nohup {} >/dev/null & {}",
    "trap '' TERM INT HUP; while :; do {}; done",
    "(trap '' TERM HUP; {}; {}) & wait",
    "yes | {}",
    "head -c 10000000 /dev/zero; {}",
    "exec 0<&- 1>&- 2>&-; {}; :",
    "env -i {}",
    "env -i setsid {} & {}",
    f"python3 -c {shlex.quote(DAEMON)} {{n}}; {{}}",
    f"python3 -c {shlex.quote(NEW_SESSION)} {{}}",
    "{} & kill -STOP $!; wait",
    "{} & disown; {}",
    "{} | {} | {}",
    "coproc {}; wait",
    "timeout 1000 {}",
    "echo {n} | xargs sleep",
    "mkfifo chaos; cat chaos & {}",
    "bash -c \"bash -c '{}; :'; :\"; :",
]
ON_A_TERMINAL = ["{}", "setsid {}", "trap '' TERM HUP; {}; {}", "({} &); cat", "nohup {} & {}"]
IN_FRONT = [
    "{} & echo started",
    "(env -i setsid {} >/dev/null 2>&1 &); exit 0",
    "setsid -f {} <&- >&- 2>&-; echo started",
]


def thirty_commands(number: str) -> list[dict[str, Any]]:
    def filled(cmd: str) -> str:
        return cmd.replace("{}", f"sleep {number}").replace("{n}", number)

    commands = [{"cmd": filled(cmd), "run_in_background": True} for cmd in IN_THE_BACKGROUND]
    commands += [{"cmd": filled(cmd), "tty": True, "run_in_background": True} for cmd in ON_A_TERMINAL]
    commands += [{"cmd": filled(cmd)} for cmd in IN_FRONT]
    assert len(commands) == 30
    return commands


class Chaos:
    """A data root with five servers, a workspace, and the processes that carry our number."""

    def __init__(self, path: Path) -> None:
        self.number = f"1000.{secrets.randbelow(10**12):012d}"
        self.root, self.workspace = path / f"root-{self.number}", path / "workspace"
        self.workspace.mkdir()
        self.commands = path / "commands.json"
        self.commands.write_text(json.dumps(thirty_commands(self.number)))
        self.children = [path / f"child-{number}" for number in range(5)]
        self.scope = "none."
        config = DataRoot(self.root).project().agent().system_config
        config.parent.mkdir(parents=True)
        servers = [self._server(number, child) for number, child in enumerate(self.children)]
        config.write_text(json.dumps({"tools": {"mcpServers": servers}}))

    def _server(self, number: int, child: Path) -> dict[str, Any]:
        script = self.root / f"server-{number}.json"
        tools = [{"name": "a", "inputSchema": {"type": "object"}}]
        script.write_text(json.dumps({"tools": tools, "child": str(child), "stay": number % 2 == 1}))
        return {"name": f"s{number}", "config": {"command": sys.executable, "args": [str(SERVER), str(script)]}}

    def harness(self, *more: str) -> subprocess.Popen[str]:
        arguments = [sys.executable, str(HARNESS), str(self.root), str(self.workspace), str(self.commands), *more]
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def alive(self, harness: int) -> dict[int, str]:
        """Whatever is left of it: by mark, by what runs, and by the servers' children in sessions of their own."""
        marked = {each.pid: each.command for each in custody.members(self.scope)}
        children = {int(child.read_text()) for child in self.children if child.exists()}
        named = {
            int(entry.name): line
            for entry in Path("/proc").glob("[0-9]*")
            if self.number in (line := _command_line(entry)) or (line and int(entry.name) in children)
        }
        return {pid: what for pid, what in (marked | named).items() if pid != harness}


def _command_line(entry: Path) -> str:
    try:  # empty for a zombie
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    made = Chaos(tmp_path)
    yield made
    custody_guard.end_all(lambda: custody.members(made.scope), 0.0)


@pytest.mark.skipif(not custody_guard.available(), reason="custody by mark needs /proc")
@pytest.mark.parametrize("guard_dies_too", [False, True])
def test_N9_N22_of_thirty_commands_and_five_servers_nothing_survives(chaos: Chaos, guard_dies_too: bool) -> None:
    with chaos.harness() as first:
        told = _told_by(first)
        chaos.scope = told["scope"]
        _wait_until(lambda: len(chaos.alive(first.pid)) >= 60, lambda: chaos.alive(first.pid))
        assert all(child.exists() for child in chaos.children)
        before = set(chaos.alive(first.pid)) | {told["guard"]}
        if guard_dies_too:
            os.kill(told["guard"], signal.SIGKILL)
        first.send_signal(signal.SIGKILL)
    with chaos.harness(told["session"]) as second:
        assert _told_by(second) == {"answer": "Done."}
        assert second.wait(20) == 0
    _wait_until(lambda: not chaos.alive(0), lambda: chaos.alive(0))
    _wait_until(lambda: not _zombies_among(before), lambda: _zombies_among(before))


def _told_by(harness: subprocess.Popen[str]) -> dict[str, Any]:
    assert harness.stdout is not None
    told: dict[str, Any] = json.loads(harness.stdout.readline())
    return told


def _wait_until(condition: Callable[[], bool], seen: Callable[[], object]) -> None:
    deadline = Deadline()
    while not condition():
        deadline.check(seen())


def _zombies_among(pids: set[int]) -> set[int]:
    """Those that have ended and wait for somebody to ask how; only a parent can have left them there."""
    found = set()
    for pid in pids:
        try:
            state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state == "Z":
            found.add(pid)
    return found
