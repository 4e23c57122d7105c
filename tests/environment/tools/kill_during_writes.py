"""Kills a session that writes a file without pause, again and again, and looks at what is there right after.

Run as ``kill_during_writes.py WORKSPACE SCRATCHPAD KILLS``; prints one line of JSON: what was found wrong, and how
often the session's own directory held something to clear. One process forks all the sessions: a new interpreter
for each kill would take half a minute.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import anyio
import msgspec

from penguin.environment.environment import Environment, EnvironmentConfig
from penguin.protocol.builders import tool_call
from penguin.protocol.interfaces import ToolExecutionRequest

SIZE = 250_000  # too large for a diff, which would be most of the time


def main() -> None:
    """See the module."""
    workspace, scratchpad, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(kills)  # noqa: S311 - instants, not secrets
    (workspace / "f.txt").write_bytes(b"a" * SIZE)
    anyio.run(_write, workspace, scratchpad, 1)  # imports what would be imported anew in each child
    wrong: list[str] = []
    staged = 0
    for number in range(kills):
        _kill_one(workspace, scratchpad, chance.uniform(0, 0.02))
        wrong += [f"kill {number}: {each}" for each in _found_wrong(workspace)]
        staged += any(scratchpad.rglob("*.penguin-tmp"))
    sys.stdout.write(json.dumps({"wrong": wrong, "staged": staged}))


def _kill_one(workspace: Path, scratchpad: Path, seconds: float) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        anyio.run(_write, workspace, scratchpad, sys.maxsize, writing)
    os.close(writing)
    assert os.read(reading, 1) == b"!"
    os.close(reading)
    time.sleep(seconds)  # it only varies the instant of the kill
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


async def _write(workspace: Path, scratchpad: Path, times: int, ready: int = -1) -> None:
    environment = Environment(EnvironmentConfig(workspace, scratchpad_dir=scratchpad))
    await _call(environment, "read_file", {"file_path": "f.txt"})
    for number in range(times):
        await _call(environment, "write_file", {"file_path": "f.txt", "content": "ab"[number % 2] * SIZE})
        if number == 0 and ready >= 0:
            os.write(ready, b"!")


async def _call(environment: Environment, name: str, arguments: dict[str, str]) -> None:
    call = tool_call(name, msgspec.json.encode(arguments).decode(), "c")
    await environment.execute_tool(ToolExecutionRequest(call), lambda _message: None)


def _found_wrong(workspace: Path) -> list[str]:
    found = [f"{name} is left" for name in os.listdir(workspace) if name != "f.txt"]  # noqa: PTH208 - names
    content = (workspace / "f.txt").read_bytes()
    if len(content) != SIZE or len(set(content)) != 1:
        found.append(f"{len(content)} bytes, {set(content)!r}")
    return found


if __name__ == "__main__":
    main()
