"""Gemini: a turn as chunks of ``streamGenerateContent``, or as one JSON body.

The first call of a reply is signed, as newer models do it, unless the script says what stands beside it.
Calls are whole, and one whose arguments are no JSON object cannot be worded at all: the reply then ends with
MALFORMED_FUNCTION_CALL, as the real server's does. With ``call_index=False`` calls have neither ids nor
signatures, like those of older models. ``fidelity`` of a block goes beside its text or call
(``{"thoughtSignature": …}``); an empty ``say`` with it is a part that is nothing but a signature.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final

from penguin.testing.replies import Refusal
from penguin.testing.turns import Block, Call, Pause, Say, Think, pieces
from penguin.testing.wire import Saying, Streamed, Wire, beat, content_of, encode

_REASONS: Final = {"length": "MAX_TOKENS", "content_filter": "SAFETY", "tool_calls": "STOP"}
_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def events(saying: Saying) -> Iterator[Streamed]:
    """The chunks of a turn; each carries the usage so far, the last one the reason."""
    yield from beat(saying.turn.delay)
    for position, block in enumerate(saying.turn.blocks):
        if isinstance(block, Pause):
            yield block
            continue
        for part in _parts(saying, position, block):
            yield from beat(saying.turn.delta_delay)
            yield _chunk(saying, [part])
    reason, message = _ending(saying)
    if reason:
        yield _chunk(saying, [], {"finishReason": reason, **message}, last=True)


def whole(saying: Saying) -> bytes:
    """The body of a reply that is not streamed."""
    parts: list[dict[str, Any]] = []
    for position, block in enumerate(saying.turn.blocks):
        for part in _parts(saying, position, block):
            if parts and _continues(parts[-1], part):
                parts[-1] = parts[-1] | part | {"text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
    reason, message = _ending(saying)
    return _json(_response(saying, parts, {"finishReason": reason or "STOP", **message}, last=True))


def refusal(status: int, error: Refusal) -> bytes:
    """The body of an error."""
    named = error.code or _STATUSES.get(status, "UNKNOWN")
    return _json({"error": {"code": status, "message": error.message, "status": named}})


WIRE: Final = Wire(
    name="gemini",
    answers=lambda path: path.endswith((":streamGenerateContent", ":generateContent")),
    streams=lambda path, _body: path.endswith(":streamGenerateContent"),
    events=events,
    whole=whole,
    refusal=refusal,
)


def _parts(saying: Saying, position: int, block: Block) -> Iterator[dict[str, Any]]:
    match block:
        case Say(fidelity=fidelity) | Think(fidelity=fidelity):
            thought = {"thought": True} if isinstance(block, Think) else {}
            texts = list(pieces(content_of(block), saying.turn.delta_size))
            if not texts and fidelity:
                texts = [""]
            for number, text in enumerate(texts, 1):
                yield {"text": text, **thought, **((fidelity or {}) if number == len(texts) else {})}
        case Call(name=name, fidelity=fidelity) as call:
            arguments = _arguments(call)
            if arguments is not None:
                given = {"id": saying.call_id(position, call)} if saying.style.call_index else {}
                beside = _signature(saying, position) if fidelity is None else fidelity
                yield {"functionCall": {**given, "name": name, "args": arguments}, **beside}
        case Pause():
            pass


def _signature(saying: Saying, position: int) -> dict[str, Any]:
    first = next(n for n, block in enumerate(saying.turn.blocks) if isinstance(block, Call))
    if position != first or not saying.style.call_index:
        return {}
    return {"thoughtSignature": base64.b64encode(f"thought {saying.number}.{position}".encode()).decode()}


def _arguments(call: Call) -> dict[str, Any] | None:
    """The arguments as an object; ``None`` when they are none."""
    try:
        read = json.loads(call.arguments or "{}")
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


def _continues(known: dict[str, Any], part: dict[str, Any]) -> bool:
    same_kind = "text" in known and "text" in part and known.get("thought") == part.get("thought")
    return same_kind and "thoughtSignature" not in known


def _ending(saying: Saying) -> tuple[str, dict[str, str]]:
    """Reason and message at the end; no reason when the stream stops without."""
    said = saying.style.finish_reason
    if said == "" or not saying.style.done:
        return "", {}
    unreadable = [block for block in saying.turn.blocks if isinstance(block, Call) and _arguments(block) is None]
    if said is not None:
        return _REASONS.get(said, said), {}
    if unreadable:
        return "MALFORMED_FUNCTION_CALL", {"finishMessage": f"Malformed function call: {unreadable[0].arguments}"}
    return "STOP", {}


def _chunk(
    saying: Saying, parts: list[dict[str, Any]], more: dict[str, Any] | None = None, *, last: bool = False
) -> bytes:
    end = saying.style.line_end.encode() * 2
    return b"data: " + _json(_response(saying, parts, more or {}, last=last)) + end


def _response(saying: Saying, parts: list[dict[str, Any]], more: dict[str, Any], *, last: bool) -> dict[str, Any]:
    content = {"content": {"parts": parts, "role": "model"}} if parts or not last else {"content": {}}
    response: dict[str, Any] = {"candidates": [{**content, **more, "index": 0}]}
    if saying.style.usage_at != "never" and (last or saying.style.usage_at != "finish_chunk"):
        response["usageMetadata"] = _usage(saying, last=last)
    model = saying.request.get("model") or "scripted"
    return response | {"modelVersion": model, "responseId": f"resp_{saying.number}"}


def _usage(saying: Saying, *, last: bool) -> dict[str, Any]:
    counts = saying.counts()
    thoughts = min(saying.reasoning_tokens(), counts.output)
    given = counts.cache_read + counts.cache_write
    cached = {"cachedContentTokenCount": counts.cache_read} if counts.cache_read else {}
    if not last:
        return {"promptTokenCount": given, "totalTokenCount": given, **cached}
    thought = {"thoughtsTokenCount": thoughts} if thoughts else {}
    said = {"candidatesTokenCount": counts.output - thoughts, "totalTokenCount": counts.total}
    return {"promptTokenCount": given, **said, **thought, **cached}


def _json(value: object) -> bytes:
    return encode(value).encode("utf-8", "surrogatepass")
