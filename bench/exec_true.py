"""``exec_command true`` beside ``bash -c true``, in wall time: what the harness adds to a command."""

from __future__ import annotations

import subprocess
import sys
import time

import anyio
from _measure import Report, cpu_seconds, execute, median, plain_environment

from penguin.environment.environment import Environment

ROUNDS = 101


def bare() -> float:
    """Milliseconds."""
    started = time.perf_counter()
    subprocess.run(["bash", "-c", "true"], check=True, stdin=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1e3


async def through(environment: Environment, number: int) -> float:
    """Milliseconds from the call to its complete output; the number keeps the calls from being repetitions."""
    output, seconds = await execute(environment, f"true {number}")
    assert output.endswith("[exit code: 0]"), output
    return seconds * 1e3


async def main() -> int:
    async with plain_environment() as environment:
        first = await through(environment, 0)
        before = cpu_seconds()
        rounds = [(await through(environment, number), bare()) for number in range(1, ROUNDS + 1)]
        spent = cpu_seconds() - before
    report = Report()
    report.figure("bash -c true", median(alone for _, alone in rounds), "ms")
    report.figure("exec_command true, beyond that", median(ours - alone for ours, alone in rounds), "ms", 10)
    report.figure("  both together, in this process", spent / ROUNDS * 1e3, "ms CPU")
    report.figure("  the first of a session, which asks the login shell", first, "ms")
    return report.status


if __name__ == "__main__":
    sys.exit(anyio.run(main))
