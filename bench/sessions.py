"""Many sessions in one process: 300 on a scripted model, and 100 over HTTP at 50 deltas a second each."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from pathlib import Path

import anyio
from _measure import Report, connect, memory, provider

from penguin.agent.agent import create_agent
from penguin.protocol.messages import PartialText
from penguin.session.session import Session
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import say, turn

DELTAS = 500
PACE = 0.010
SESSIONS = 300
HTTP_SESSIONS = 100
HTTP_DELTAS = 250
HTTP_PACE = 0.020


async def watch(session: Session, pace: float, lags: list[float]) -> None:
    """Read one task to its end; a lag is how much later a delta is than the pace of the earliest of them allows."""
    moments: list[float] = []
    async with session.run("go") as stream:
        async for message in stream:
            match message.payload:
                case PartialText(event_type="delta"):
                    moments.append(time.perf_counter() - len(moments) * pace)
                case _:
                    pass
    # Measured from the first delta alone, one that came late itself would hide the lag of all others.
    earliest = min(moments)
    lags += [moment - earliest for moment in moments]
    assert stream.result.stop_reason == "completed", stream.result


def percentile(lags: list[float], share: float) -> float:
    return sorted(lags)[math.ceil(len(lags) * share) - 1]


async def all_at_once(sessions: list[Session], pace: float, lags: list[float]) -> float:
    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for session in sessions:
            tasks.start_soon(watch, session, pace, lags)
    taken = time.perf_counter() - started
    for session in sessions:
        await session.close()
    return taken


async def scripted(report: Report) -> None:
    lags: list[float] = []
    words = "12345678" * DELTAS
    with tempfile.TemporaryDirectory(dir=memory()) as directory:
        agent = await create_agent(root=directory)
        sessions = [
            await agent.create_session(
                model=ScriptedModel([turn(say(words), delta_delay=PACE)]), workspace_dir=directory
            )
            for _ in range(SESSIONS)
        ]
        taken = await all_at_once(sessions, PACE, lags)
    report.figure(f"{SESSIONS} scripted sessions, {DELTAS} deltas at 10 ms each", taken / (DELTAS * PACE), "x", 1.15)
    report.figure("  p99 lag of a delta behind its pace", percentile(lags, 0.99) * 1e3, "ms", 150)


async def over_http(report: Report) -> None:
    reply = {"blocks": ["12345678" * HTTP_DELTAS], "delta_delay": HTTP_PACE}
    lags: list[float] = []
    with provider([reply], repeat=True) as base_url, tempfile.TemporaryDirectory(dir=memory()) as directory:
        connect(Path(directory), base_url)
        agent = await create_agent(root=directory)
        sessions = [await agent.create_session(workspace_dir=directory) for _ in range(HTTP_SESSIONS)]
        await all_at_once(sessions, HTTP_PACE, lags)
    what = f"{HTTP_SESSIONS} sessions over HTTP at 50 deltas a second, p99 lag"
    report.figure(what, percentile(lags, 0.99) * 1e3, "ms", 100)


async def main() -> int:
    report = Report()
    await scripted(report)
    await over_http(report)
    return report.status


if __name__ == "__main__":
    sys.exit(anyio.run(main))
