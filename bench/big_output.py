"""A command that prints a gigabyte, beside the same pipe into ``cat >/dev/null``, in wall time."""

from __future__ import annotations

import subprocess
import sys
import time

import anyio
from _measure import MEGABYTE, Report, execute, median, peak_bytes, plain_environment

from penguin.environment.environment import Environment

SIZE = 1_000_000_000
ROUNDS = 3
LINES = f"yes 'a line as a compiler or a test run prints it' | head -c {SIZE}"
ONE_LINE = f"head -c {SIZE} /dev/zero | tr '\\0' x"
COLOURED = f"yes $'\\e[32mok\\e[0m tests/test_something.py::test_it' | head -c {SIZE // 4}"


def bare(command: str) -> float:
    """Seconds."""
    started = time.perf_counter()
    subprocess.run(["bash", "-c", f"{command} | cat >/dev/null"], check=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - started


async def through(environment: Environment, command: str) -> float:
    """Seconds from the call to its complete output."""
    output, seconds = await execute(environment, command)
    assert "[output cut:" in output, output
    return seconds


async def ratio(environment: Environment, command: str) -> float:
    """How much longer it takes through us; the two take turns."""
    return median([await through(environment, command) / bare(command) for _ in range(ROUNDS)])


async def main() -> int:
    report = Report()
    async with plain_environment() as environment:
        report.figure("1 GB of lines, beside cat >/dev/null", await ratio(environment, LINES), "x", 2.5)
        report.figure("  in one line", await ratio(environment, ONE_LINE), "x", 2.5)
        report.figure("  250 MB of coloured lines", await ratio(environment, COLOURED), "x")
    report.figure("  the most memory of this process", peak_bytes() / MEGABYTE, "MB", 120)
    return report.status


if __name__ == "__main__":
    sys.exit(anyio.run(main))
