"""Anthropic Messages: a turn as named events of a stream, or as one JSON body.

Fidelity of a script is what the adapter stores, so that a scripted turn comes back in the next request:
``{"signature": …}`` on thinking, ``{"content_block": {…}}`` on empty thinking for a block of another
kind (redacted thinking, a server tool and its result), ``{"citations": […]}`` on text and
``{"tool_use": {…}}`` for further members of a call. Thinking without a scripted signature gets one, as from
the provider.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from penguin.testing.replies import Refusal
from penguin.testing.turns import Block, Call, Pause, Say, Think, pieces
from penguin.testing.wire import Saying, Streamed, Wire, beat, content_of, encode

ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""What the provider calls an error of a status; other server errors are ``api_error``."""

_STOP_REASONS: Final = {"length": "max_tokens", "stop": "end_turn", "tool_calls": "tool_use"}
_FIRST_SERVER_ERROR: Final = 500


def events(saying: Saying) -> Iterator[Streamed]:
    """The events of a turn, ``message_stop`` at the end."""
    stream = _Stream(saying.style.line_end)
    yield from beat(saying.turn.delay)
    usage = _usage(saying) | {"output_tokens": 1}
    yield stream.event("message_start", {"message": _message(saying, [], None, usage)})
    yield stream.event("ping", {})
    index = 0
    for position, block in enumerate(saying.turn.blocks):
        if isinstance(block, Pause):
            yield block
            continue
        yield from _block(stream, saying, index, position, block)
        index += 1
    yield from _ending(stream, saying)


def whole(saying: Saying) -> bytes:
    """The body of a reply that is not streamed."""
    content = [
        _whole_block(saying, position, block)
        for position, block in enumerate(saying.turn.blocks)
        if not isinstance(block, Pause)
    ]
    return _json(_message(saying, content, _stop_reason(saying) or None, _usage(saying)))


def refusal(status: int, error: Refusal) -> bytes:
    """The body of an error."""
    usual = "api_error" if status >= _FIRST_SERVER_ERROR else "invalid_request_error"
    return _json(_error(error.type or ERROR_TYPES.get(status, usual), error.message))


def error_event(kind: str, message: str, *, line_end: str = "\n") -> bytes:
    """An error inside a stream that began with 200, to be put after a part of one.

    Example::

        raw(begun + error_event("overloaded_error", "Overloaded"))
    """
    return _Stream(line_end).event("error", {"error": {"type": kind, "message": message}})


WIRE: Final = Wire(
    name="anthropic-messages",
    answers=lambda path: path.endswith("/v1/messages"),
    streams=lambda _path, body: body.get("stream") is True,
    events=events,
    whole=whole,
    refusal=refusal,
)


class _Stream:
    """Words events quickly: what is equal in all deltas of a block is encoded once."""

    def __init__(self, line_end: str) -> None:
        self._line_end = line_end.encode()

    def event(self, name: str, members: dict[str, Any]) -> bytes:
        """An event with its name in both places."""
        return self._framed(name, _json({"type": name, **members}))

    def deltas(self, index: int, kind: str, member: str) -> tuple[bytes, bytes]:
        """What stands before and after the text of a delta."""
        inner = b'{"type":' + _json(kind) + b"," + _json(member) + b":"
        outer = b'{"type":"content_block_delta","index":' + _json(index) + b',"delta":'
        head = b"event: content_block_delta" + self._line_end + b"data: " + outer + inner
        return head, b"}}" + self._line_end * 2

    def _framed(self, name: str, data: bytes) -> bytes:
        return b"event: " + name.encode() + self._line_end + b"data: " + data + self._line_end * 2


def _block(stream: _Stream, saying: Saying, index: int, position: int, block: Say | Think | Call) -> Iterator[Streamed]:
    whole_block = _whole_block(saying, position, block)
    yield stream.event("content_block_start", {"index": index, "content_block": _announced(whole_block)})
    match whole_block:
        case {"type": "text"} | {"type": "thinking"}:
            kind = whole_block["type"]
            yield from _pieces(stream, saying, index, (f"{kind}_delta", kind), content_of(block))
        case {"type": "tool_use"}:
            yield from _pieces(stream, saying, index, ("input_json_delta", "partial_json"), content_of(block))
        case _:
            pass
    for delta in _late(whole_block):
        yield stream.event("content_block_delta", {"index": index, "delta": delta})
    yield stream.event("content_block_stop", {"index": index})


def _pieces(stream: _Stream, saying: Saying, index: int, names: tuple[str, str], text: str) -> Iterator[Streamed]:
    before, after = stream.deltas(index, *names)
    in_one = names[0] == "input_json_delta" and saying.style.whole_calls
    for piece in [text] if in_one else pieces(text, saying.turn.delta_size):
        yield from beat(saying.turn.delta_delay)
        yield before + _json(piece) + after


def _announced(block: dict[str, Any]) -> dict[str, Any]:
    """A block as its stream begins: what grows is empty; a block of another kind comes whole."""
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "tool_use":
            return block | {"input": {}}
        case _:
            return block


def _late(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for citation in block.get("citations", []) if block["type"] == "text" else []:
        yield {"type": "citations_delta", "citation": citation}
    if block["type"] == "thinking" and block["signature"]:
        yield {"type": "signature_delta", "signature": block["signature"]}


def _ending(stream: _Stream, saying: Saying) -> Iterator[Streamed]:
    reason = _stop_reason(saying)
    if reason:
        usage = {"output_tokens": _usage(saying)["output_tokens"]}
        delta = {"stop_reason": reason, "stop_sequence": None}
        yield stream.event("message_delta", {"delta": delta, "usage": usage})
    if saying.style.done:
        yield stream.event("message_stop", {})


def _stop_reason(saying: Saying) -> str:
    if saying.style.finish_reason is not None:
        return _STOP_REASONS.get(saying.style.finish_reason, saying.style.finish_reason)
    return "tool_use" if any(isinstance(block, Call) for block in saying.turn.blocks) else "end_turn"


def _whole_block(saying: Saying, position: int, block: Block) -> dict[str, Any]:
    match block:
        case Say(text=text, fidelity=fidelity):
            return {"type": "text", "text": text, **(fidelity or {})}
        case Think(fidelity=fidelity) if fidelity and "content_block" in fidelity:
            return dict(fidelity["content_block"])
        case Think(thinking=thinking, fidelity=fidelity):
            signature = f"sig_{saying.number}_{position}"
            return {"type": "thinking", "thinking": thinking, "signature": signature, **(fidelity or {})}
        case Call(name=name, arguments=arguments, fidelity=fidelity):
            call_id = saying.call_id(position, block)
            extras = (fidelity or {}).get("tool_use", {})
            return {"type": "tool_use", "id": call_id, "name": name, "input": _object(arguments), **extras}
        case Pause():
            raise AssertionError(block)


def _object(arguments: str) -> Any:
    """Scripted arguments may be broken on purpose; a whole body can only hold an object."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return {}


def _message(saying: Saying, content: list[Any], stop_reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"msg_{saying.number}",
        "type": "message",
        "role": "assistant",
        "model": saying.request.get("model") or "scripted",
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def _usage(saying: Saying) -> dict[str, Any]:
    counts = saying.counts()
    if saying.style.usage_at == "never":
        return {"input_tokens": 0, "output_tokens": 0}
    return {
        "input_tokens": counts.cache_write,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cache_read,
        "output_tokens": counts.output,
    }


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}


def _json(value: object) -> bytes:
    return encode(value).encode("utf-8", "surrogatepass")
