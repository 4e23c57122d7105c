"""What the sandbox adds to a command: from the request to its end, confined and not, in turn.

Nearly all of it is waiting for the kernel, in six processes one after the other, so CPU time would say little and a
busy machine much. As root it therefore runs ahead of everybody else.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

import anyio
from _measure import Report, median

from penguin.environment.following import follow
from penguin.environment.processes import CommandSessions
from penguin.environment.sandbox.command_sandbox import CommandSandbox
from penguin.environment.sandbox.probe import probe
from penguin.environment.sandbox.settings import SandboxMode, SandboxSettings
from penguin.environment.shell_environment import ShellEnvironment

COMMANDS = 150


async def once(sessions: CommandSessions, workspace: Path) -> float:
    before = time.perf_counter()
    command = await sessions.start("true", workspace)
    assert await follow(command, lambda _text: None, 60) == "over"
    spent = time.perf_counter() - before
    assert command.returncode == 0
    sessions.forget(command)
    return spent


def sessions_in(workspace: Path, mode: SandboxMode, *, network: bool) -> CommandSessions:
    sandbox = None if mode == "off" else CommandSandbox(SandboxSettings(mode, network), workspace)
    return CommandSessions(environment=ShellEnvironment(login_shell=False), sandbox=sandbox)


async def compare(report: Report, workspace: Path, mode: SandboxMode, *, network: bool) -> None:
    plain, confined = (sessions_in(workspace, each, network=network) for each in ("off", mode))
    before = time.perf_counter()
    await once(confined, workspace)
    first = time.perf_counter() - before
    # In pairs, and the median of the differences: whatever else the machine does meanwhile hits both.
    over = [await once(confined, workspace) - await once(plain, workspace) for _ in range(COMMANDS)]
    what = f"sandbox: {mode}, network {'on' if network else 'off'}"
    report.figure(f"{what}, over a plain command", median(over) * 1000, "ms", 15.0)
    report.figure(f"{what}, the first command", first * 1000, "ms")
    await plain.aclose()
    await confined.aclose()


async def main() -> int:
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    found = probe()
    if found.mechanism is None:
        print(f"sandbox: not measured, {found.problem}. {found.advice}")
        return 0
    report = Report()
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory)
        await compare(report, workspace, "read-only", network=True)
        await compare(report, workspace, "workspace-write", network=True)
        await compare(report, workspace, "workspace-write", network=False)
    return int(report.status)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
