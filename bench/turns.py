"""200 turns with one trivial ``read_file`` each, history growing."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from typing import Any

import anyio
import httpx2
from _measure import Report, cpu_seconds, median, provider, session_on

from penguin.protocol.messages import RequestEnd
from penguin.session.approval import allow_all

TURNS = 200
ROUNDS = 5
# Two files in turn: a model that asks for the same thing over and over is told so and then refused.
CALLS = [
    {"blocks": ["I will look.", {"call": "read_file", "arguments": {"file_path": name}}]} for name in ("a.txt", "b.txt")
]
SCRIPT = [*CALLS * (TURNS // 2), "Done."]


async def work(base_url: str) -> list[float]:
    """CPU seconds of each turn."""
    async with session_on(base_url) as session:
        assert session.workspace_dir is not None
        for name in ("a.txt", "b.txt"):
            await anyio.Path(session.workspace_dir, name).write_text("one line\n")
        stamps = [cpu_seconds()]
        async with session.run("Read a.txt", approve=allow_all) as stream:
            async for message in stream:
                if isinstance(message.payload, RequestEnd):
                    stamps += [cpu_seconds()]
        assert stream.result.stop_reason == "completed", stream.result
        assert stream.result.turns == TURNS + 1
    return [after - before for before, after in pairwise(stamps)]


async def ask_bare(base_url: str) -> float:
    """CPU seconds a turn of the bare minimum: the same client, as long a history, each event parsed."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read a.txt"}]
    before = cpu_seconds()
    async with httpx2.AsyncClient(verify=False) as client:
        for number in range(TURNS + 1):
            body = {"model": "m", "stream": True, "messages": messages}
            async with client.stream("POST", f"{base_url}/chat/completions", json=body) as response:
                events = (await response.aread()).split(b"\n\n")
            assert all(json.loads(event[6:]) for event in events if event and event != b"data: [DONE]")
            function = {"name": "read_file", "arguments": '{"file_path": "a.txt"}'}
            call = {"id": f"call_{number}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": "I will look.", "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": "     1\tone line"})
    return (cpu_seconds() - before) / (TURNS + 1)


async def main() -> int:
    with provider(SCRIPT * 2 * (ROUNDS + 1)) as base_url:
        await work(base_url)
        await ask_bare(base_url)
        rounds = [(await work(base_url), await ask_bare(base_url)) for _ in range(ROUNDS)]
    report = Report()
    milliseconds = median(sum(turns) / len(turns) * 1e3 for turns, _ in rounds)
    report.figure("a turn with one read_file", milliseconds, "ms CPU", 6)
    report.figure("  beside a bare request with the same history", median(sum(t) / len(t) / b for t, b in rounds), "x")
    growth = median(sum(turns[-51:-1]) / sum(turns[1:51]) for turns, _ in rounds)
    report.figure("  turns 150 to 200 beside turns 1 to 50", growth, "x")
    return report.status


if __name__ == "__main__":
    sys.exit(anyio.run(main))
