"""Streams of a Gemini server, and a model that reads them from memory."""

from __future__ import annotations

import json
from typing import Any

from tests.support import llm_kit
from tests.support.llm_kit import Answer, MemoryTransport, Said, Step

from penguin.llm.model import GenerativeModel

USAGE = {
    "promptTokenCount": 10,
    "cachedContentTokenCount": 3,
    "candidatesTokenCount": 2,
    "thoughtsTokenCount": 5,
    "totalTokenCount": 17,
}


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\r\n\r\n"


def chunk(*parts: Any, finish: str | None = None, message: str | None = None, **more: Any) -> bytes:
    """One event; ``more`` stands beside the candidates."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)} if parts else {}, "index": 0}
    candidate |= {"finishReason": finish} if finish else {}
    candidate |= {"finishMessage": message} if message else {}
    return event({"candidates": [candidate], **more})


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"text": words} | more


def thought(words: str, **more: Any) -> dict[str, Any]:
    return {"text": words, "thought": True} | more


def call(name: str, args: Any = None, id: str | None = None, **more: Any) -> dict[str, Any]:  # noqa: A002
    """A part with a call; ``more`` stands beside it."""
    given = {"id": id} if id is not None else {}
    return {"functionCall": given | {"name": name} | ({"args": args} if args is not None else {})} | more


STOP = chunk(finish="STOP", usageMetadata=USAGE)


def model(*answers: Answer | Exception, **changes: Any) -> tuple[GenerativeModel, MemoryTransport]:
    return llm_kit.model(*answers, **{"client_type": "gemini", "base_url": "http://127.0.0.1:9"} | changes)


async def fold(*steps: Step, **changes: Any) -> Said:
    """One attempt over these bytes."""
    return await llm_kit.ask(model(Answer(steps), **changes)[0])
