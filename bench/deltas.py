"""100,000 text deltas of 8 characters in one turn, from the socket to ``async for``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import msgspec
from _measure import MEGABYTE, Report, cpu_seconds, median, peak_bytes, provider, resident_bytes, session_on

from penguin.protocol.messages import PartialText
from penguin.testing import prepared
from penguin.testing.replies import Raw

DELTAS = 100_000
TEXT = "abcdefgh" * DELTAS
ROUNDS = 7


def spoken(text: str) -> dict[str, str]:
    """A reply of the script whose bytes are ready before anybody asks for them."""
    reply = prepared(text, {"stream_options": {"include_usage": True}})
    assert isinstance(reply.content, Raw)
    return {"raw": reply.content.body.decode()}


async def listen(base_url: str, size: int) -> float:
    """CPU seconds of one task; the reader keeps nothing."""
    async with session_on(base_url) as session:
        heard = 0
        before = cpu_seconds()
        async with session.run("Tell me everything") as stream:
            async for message in stream:
                if isinstance(message.payload, PartialText):
                    heard += len(message.payload.text)
        spent = cpu_seconds() - before
    assert heard == size, f"heard {heard} characters of {size}: {stream.result}"
    return spent


async def drain(base_url: str, parse: Callable[[bytes], Any]) -> float:
    """CPU seconds of the bare minimum: the same client, the same bytes, each event parsed and dropped."""
    url = f"{base_url}/chat/completions"
    body: dict[str, Any] = {
        "model": "m",
        "stream": True,
        "messages": [{"role": "user", "content": "Tell me everything"}],
    }
    parsed = 0
    before = cpu_seconds()
    async with httpx2.AsyncClient(verify=False) as client, client.stream("POST", url, json=body) as response:
        rest = b""
        async for chunk in response.aiter_raw():
            *events, rest = (rest + chunk).split(b"\n\n")
            for event in events:
                if event != b"data: [DONE]":
                    parse(event[6:])
                    parsed += 1
    spent = cpu_seconds() - before
    assert parsed > DELTAS
    return spent


async def main() -> int:
    with provider([spoken("warm up"), spoken(TEXT)], repeat=True) as base_url:
        await listen(base_url, len("warm up"))
        before = resident_bytes()
        await listen(base_url, len(TEXT))
        growth = peak_bytes() - before
        rounds = [
            (await listen(base_url, len(TEXT)), await drain(base_url, json.loads), await drain(base_url, fast))
            for _ in range(ROUNDS)
        ]
    report = Report()
    report.figure("a delta, socket to `async for`", median(ours for ours, *_ in rounds) / DELTAS * 1e6, "us CPU", 20)
    report.figure("  beside draining, and parsing with json", median(ours / bare for ours, bare, _ in rounds), "x", 4)
    report.figure("  beside draining, and parsing with msgspec", median(ours / bare for ours, _, bare in rounds), "x")
    report.figure("  memory growth", growth / MEGABYTE, "MB", 60)
    return report.status


fast = msgspec.json.Decoder().decode

if __name__ == "__main__":
    sys.exit(anyio.run(main))
