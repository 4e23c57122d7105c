"""What the scripts of this directory share: clocks, a provider in another process, a session on it, one line a figure.

CPU time is preferred to wall time and medians to means, because the machine is rarely idle; and where a
target is a ratio, both sides of it are measured in turn, in the same run.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from penguin.agent.agent import create_agent
from penguin.environment.environment import Environment, EnvironmentConfig
from penguin.protocol.builders import tool_call
from penguin.protocol.interfaces import ToolExecutionRequest
from penguin.protocol.messages import Message, ToolCallOutput
from penguin.session.session import Session
from penguin.state.paths import DataRoot
from penguin.state.project import ModelEntry, ProjectConfigFile

median = statistics.median
MEGABYTE = 1_000_000


class Report:
    """Prints figures beside their targets; `status` is 1 as soon as one is over."""

    def __init__(self) -> None:
        self.status = 0

    def figure(self, what: str, value: float, unit: str, target: float | None = None) -> None:
        """One line: what, figure, target, how much of it, ok or over."""
        line = f"{what:<58}{value:>9.2f} {unit:<6}"
        if target is not None:
            over = value > target
            self.status |= over
            line += f" target {target:>7.2f}  {value / target:>5.0%}  {'OVER' if over else 'ok'}"
        print(line, flush=True)


def cpu_seconds(who: int = resource.RUSAGE_SELF) -> float:
    """User and system time of this process so far, all its threads; or of its ended children."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def peak_bytes() -> int:
    """The most memory this process ever had resident."""
    # On Linux in kB, on macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def provider(replies: list[Any], *, repeat: bool = False) -> Iterator[str]:
    """The scripted provider as a process of its own; the value is its base URL."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "script.json")
        script.write_text(json.dumps({"replies": replies, "when_exhausted": "repeat" if repeat else "error"}))
        command = [sys.executable, "-m", "penguin.testing.provider_server", str(script)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                yield json.loads(process.stdout.readline())["base_url"]
            finally:
                process.terminate()


def memory() -> str | None:
    """A directory in memory for `tempfile`, where there is one: what a disk makes of many new files is not ours.

    ext4, for one, takes a millisecond for a new file when hundreds were deleted in the minutes before, as after any
    benchmark.
    """
    place = "/dev/shm"
    return place if os.access(place, os.W_OK) else None


def connect(root: Path, base_url: str) -> None:
    """Make the model behind ``base_url`` the default of a fresh data root."""
    entry = ModelEntry(
        provider="custom", model_id="m", client_type="openai-chat", base_url=base_url, context_window=10_000_000
    )
    ProjectConfigFile(DataRoot(root).project().config).add_model(entry, default=True)


@asynccontextmanager
async def session_on(base_url: str) -> AsyncIterator[Session]:
    """A session as the product makes it, trace and all, in a workspace of its own."""
    with tempfile.TemporaryDirectory() as directory:
        connect(Path(directory), base_url)
        agent = await create_agent(root=directory)
        async with await agent.create_session(workspace_dir=directory, max_turns=0) as session:
            yield session


@asynccontextmanager
async def plain_environment() -> AsyncIterator[Environment]:
    """An environment in a directory of its own, whose login shell has no start-up files of anybody."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["HOME"] = directory
        environment = Environment(EnvironmentConfig(Path(directory), scratchpad_dir=Path(directory, "scratch")))
        try:
            yield environment
        finally:
            await environment.aclose()


async def execute(environment: Environment, command: str) -> tuple[str, float]:
    """Run a command with ``exec_command``: its output, and the seconds from the call to that."""
    said: list[Message] = []
    call = tool_call("exec_command", json.dumps({"cmd": command, "description": "a benchmark"}), "c1")
    started = time.perf_counter()
    await environment.execute_tool(ToolExecutionRequest(call), said.append)
    taken = time.perf_counter() - started
    match said[-1].payload:
        case ToolCallOutput(stop_reason=None, output=output):
            return output, taken
        case payload:
            raise AssertionError(payload)


def resident_bytes() -> int:
    """The memory this process has resident now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
