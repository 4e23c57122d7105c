"""Streams of an Anthropic Messages server, and a model that reads them from memory."""

from __future__ import annotations

import json
from typing import Any

from tests.support import llm_kit
from tests.support.llm_kit import Answer, MemoryTransport, Said, Step

from penguin.llm.model import GenerativeModel

USAGE = {"input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}


def event(kind: str, **members: Any) -> bytes:
    """One event, its name in both places."""
    data = json.dumps({"type": kind} | members, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def start(**usage: Any) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m"}
    return event("message_start", message=message | {"usage": USAGE | usage})


def begin(index: int, kind: str, **members: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind} | members)


def delta(index: int, kind: str, **members: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind} | members)


def end(index: int) -> bytes:
    return event("content_block_stop", index=index)


def text(index: int, *pieces: str) -> bytes:
    """A whole text block."""
    deltas = [delta(index, "text_delta", text=piece) for piece in pieces]
    return b"".join([begin(index, "text", text=""), *deltas, end(index)])


def thinking(index: int, *pieces: str, signature: str = "") -> bytes:
    """A whole thinking block."""
    deltas = [delta(index, "thinking_delta", thinking=piece) for piece in pieces]
    deltas += [delta(index, "signature_delta", signature=signature)] if signature else []
    return b"".join([begin(index, "thinking", thinking="", signature=""), *deltas, end(index)])


def call(index: int, name: str, *pieces: str, id: str = "toolu_1", stop: bool = True) -> bytes:  # noqa: A002
    """A tool call, whole unless ``stop`` is false."""
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in pieces]
    opening = begin(index, "tool_use", id=id, name=name, input={})
    return b"".join([opening, *deltas, end(index) if stop else b""])


def finish(reason: str | None = "end_turn", output: int = 9, **more: Any) -> bytes:
    """Why it ends, and that it ends."""
    delta_members = {"stop_reason": reason, "stop_sequence": None} | more
    return event("message_delta", delta=delta_members, usage={"output_tokens": output}) + STOP


def error(kind: str, message: str) -> bytes:
    return event("error", error={"type": kind, "message": message})


PING = event("ping")
STOP = event("message_stop")


def model(*answers: Answer | Exception, **changes: Any) -> tuple[GenerativeModel, MemoryTransport]:
    settings = {"client_type": "anthropic-messages", "base_url": "http://127.0.0.1:9"} | changes
    return llm_kit.model(*answers, **settings)


async def fold(*steps: Step, **changes: Any) -> Said:
    """One attempt over these bytes."""
    return await llm_kit.ask(model(Answer(steps), **changes)[0])
