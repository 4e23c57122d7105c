"""N3, D19 and E5: whatever a command writes, memory stays bounded; measured in a harness process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MEGABYTE = 1_000_000
GIGABYTE = 1_000 * MEGABYTE
GROWTH = 64 * MEGABYTE
"""Bytes of memory that any amount of output may cost."""

HARNESS = """
import json, sys, anyio
from pathlib import Path
from penguin.environment.environment import Environment, EnvironmentConfig
from penguin.protocol.builders import tool_call
from penguin.protocol.interfaces import ToolExecutionRequest

def peak():
    # Not what getrusage says: that begins with the memory of the process we were forked from.
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

async def main(workspace, arguments, vault):
    environment = Environment(EnvironmentConfig(Path(workspace), scratchpad_dir=Path(workspace, "s"), vault=vault))
    said = []

    async def call(name, **arguments):
        request = ToolExecutionRequest(tool_call(name, json.dumps(arguments), "c1"))
        await environment.execute_tool(request, said.append)
        return said[-1].payload.output

    await call("exec_command", cmd="seq 100000", description="so that everything is loaded")
    before = peak()
    answer = await call("exec_command", **arguments)
    last = answer
    while "in the background" in answer and "has ended" not in last:
        last = await call("input_command", process_id="p1")
    print(json.dumps({"growth": peak() - before, "answer": last[-300:], "length": len(last)}))
    await environment.aclose()

anyio.run(main, sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))
"""

LINES = "yes 'a line as a compiler or a test run prints it' | head -c {}"
ONE_LINE = "head -c {} /dev/zero | tr '\\0' x"

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure memory")


def outcome_of(workspace: Path, cmd: str, seconds: float = 50, vault: Any = None, **arguments: Any) -> Any:
    """Run the command in a harness of its own: by how many bytes that one grew, and what the last call returned."""
    arguments |= {"cmd": f"{cmd}; echo; echo the end", "description": "much", "yield_time_ms": 600_000}
    program = [sys.executable, "-c", HARNESS, str(workspace), json.dumps(arguments), json.dumps(vault or {})]
    variables = os.environ | {"SHELL": "/bin/sh"}
    done = subprocess.run(program, capture_output=True, check=True, timeout=seconds, env=variables)
    return json.loads(done.stdout)


# Takes 6 s on a machine that does nothing else.
@pytest.mark.timeout(120)
def test_N3_D19_two_gigabytes_cost_less_than_64_MB(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, LINES.format(2 * GIGABYTE), seconds=110)
    assert outcome["growth"] < GROWTH
    assert outcome["length"] < 17_000
    assert "output cut" in outcome["answer"]


@pytest.mark.parametrize(
    "how",
    [{}, {"vault": {"TOKEN": "secretvalue-0123456789abcdef"}}, {"run_in_background": True}, {"tty": True}],
    ids=["pipe", "vault", "background", "tty"],
)
def test_N3_N11_a_line_of_100_MB_costs_less_than_64_MB(tmp_path: Path, how: Any) -> None:
    outcome = outcome_of(tmp_path, ONE_LINE.format(100 * MEGABYTE), **how)
    assert outcome["growth"] < GROWTH
    assert outcome["length"] < 17_000
    assert "output cut" in outcome["answer"]


# A terminal passes on 4 KiB at a time, so it gets less to do.
@pytest.mark.parametrize(
    ("how", "size"),
    [({"run_in_background": True}, 200 * MEGABYTE), ({"tty": True}, 20 * MEGABYTE)],
    ids=["background", "tty"],
)
def test_N3_N7_lines_cost_no_more_in_the_background_or_on_a_terminal(tmp_path: Path, how: Any, size: int) -> None:
    outcome = outcome_of(tmp_path, LINES.format(size), **how)
    assert outcome["growth"] < GROWTH
    assert outcome["length"] < 17_000


@pytest.mark.long
@pytest.mark.timeout(600)
def test_N3_D19_ten_gigabytes_cost_less_than_64_MB(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, LINES.format(10 * GIGABYTE), seconds=500)
    assert outcome["growth"] < GROWTH
