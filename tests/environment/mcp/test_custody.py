"""N9 and N22: no server outlives the harness, however that ends; and no task outlives the environment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.environment.mcp.bench import Bench, tool

HARNESS = """
import json, sys, anyio
from pathlib import Path
from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig

async def main():
    servers = json.loads(sys.argv[2])
    environment = Environment(EnvironmentConfig(Path(sys.argv[1]), ToolConfig(builtin=(), mcp_servers=servers)))
    print(len(await environment.list_tools()), flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the guard needs /proc")
def test_N9_servers_and_their_children_end_with_a_killed_harness(
    workspace: Path, scripted: Callable[..., dict[str, Any]], tmp_path: Path, is_running: Callable[[int | str], bool]
) -> None:
    children = [tmp_path / f"child-{number}" for number in range(5)]
    servers = [
        scripted(f"s{number}", tools=[tool("a")], child=str(child), stay=number % 2 == 1)
        for number, child in enumerate(children)
    ]
    arguments = [sys.executable, "-c", HARNESS, str(workspace), json.dumps(servers)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == "5\n"
        pids = [int(child.read_text()) for child in children]
        assert all(is_running(pid) for pid in pids)
        os.kill(harness.pid, signal.SIGKILL)
    deadline = time.monotonic() + 15
    while any(is_running(pid) for pid in pids) or is_running(str(tmp_path / "script")):
        assert time.monotonic() < deadline, "something outlived the harness"
        time.sleep(0.02)


@pytest.mark.anyio
async def test_N22_no_task_outlives_an_environment_closed_in_any_state(
    connect: Callable[..., Bench], scripted: Callable[..., dict[str, Any]]
) -> None:
    before = asyncio.all_tasks()
    ready, silent = scripted("ready", tools=[tool("a")]), scripted("silent", silent=True)
    missing = {"name": "missing", "config": {"command": "penguin-has-no-such-server"}}
    never_asked, at_once, in_the_middle, settled = (connect(ready, silent, missing) for _ in range(4))
    at_once.environment.connect()
    in_the_middle.environment.connect()
    await anyio.sleep(0.05)
    async with anyio.create_task_group() as group:
        group.start_soon(settled.call, "mcp__ready__a")
    for bench in (never_asked, at_once, in_the_middle, settled):
        async with anyio.create_task_group() as group:  # from another task than the one that asked
            group.start_soon(bench.environment.aclose)
    await anyio.lowlevel.checkpoint()
    assert asyncio.all_tasks() == before


def test_N22_an_environment_that_nobody_closes_ends_its_servers_with_the_loop(
    workspace: Path, scripted: Callable[..., dict[str, Any]], tmp_path: Path, is_running: Callable[[int | str], bool]
) -> None:
    program = HARNESS.replace("anyio.sleep_forever()", "anyio.sleep(0)")
    server = json.dumps([scripted(tools=[tool("a")])])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(workspace), server],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert not is_running(str(tmp_path / "script"))


def test_N20_an_environment_without_servers_does_not_load_the_library(workspace: Path) -> None:
    program = HARNESS.replace("anyio.sleep_forever()", "anyio.sleep(0)") + "\nprint('mcp' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, str(workspace), "[]"], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "0\nFalse\n"
