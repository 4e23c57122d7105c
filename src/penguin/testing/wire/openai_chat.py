"""Chat Completions: a turn as chunks of an event stream, or as one JSON body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penguin.testing.replies import Refusal
from penguin.testing.turns import Block, Call, Pause, Say, Think, pieces
from penguin.testing.wire import Saying, Streamed, Wire, beat, content_of, encode

_THINK_TAGS: Final = "<think>"
_USUAL_TYPE: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_FIRST_SERVER_ERROR: Final = 500


def events(saying: Saying) -> Iterator[Streamed]:
    """The chunks of a turn, ``[DONE]`` at the end."""
    stream = _Stream(saying)
    yield from beat(saying.turn.delay)
    yield stream.chunk({"role": "assistant", "content": ""})
    numbers = _call_numbers(saying.turn.blocks)
    for position, block in enumerate(saying.turn.blocks):
        match block:
            case Pause():
                yield block
            case Call():
                yield from _call(stream, saying, numbers[position], saying.call_id(position, block), block)
            case Say() | Think():
                yield from _words(stream, saying, block)
    yield from _ending(stream, saying)


def whole(saying: Saying) -> bytes:
    """The body of a reply that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": _said(saying)}
    thought = "".join(block.thinking for block in saying.turn.blocks if isinstance(block, Think))
    if thought and saying.style.reasoning_field != _THINK_TAGS:
        message[saying.style.reasoning_field] = thought
    calls = [_whole_call(saying, n, block) for n, block in enumerate(saying.turn.blocks) if isinstance(block, Call)]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(saying)}
    body = {**_head(saying, "chat.completion"), "choices": [choice]}
    if saying.style.usage_at != "never":
        body["usage"] = _usage(saying)
    return _json(body)


def refusal(status: int, error: Refusal) -> bytes:
    """The body of an error."""
    usual = "server_error" if status >= _FIRST_SERVER_ERROR else "invalid_request_error"
    kind = error.type or _USUAL_TYPE.get(status, usual)
    return _json({"error": {"message": error.message, "type": kind, "param": None, "code": error.code}})


WIRE: Final = Wire(
    name="openai-chat",
    answers=lambda path: path.endswith("/chat/completions"),
    streams=lambda _path, body: body.get("stream") is True,
    events=events,
    whole=whole,
    refusal=refusal,
)


class _Stream:
    """Words chunks quickly: what is equal in all of them is encoded once."""

    def __init__(self, saying: Saying) -> None:
        head = _json(_head(saying, "chat.completion.chunk"))[:-1]
        usage = b',"usage":' + _json(_usage(saying)) if saying.style.usage_at == "every_chunk" else b""
        self._end_of_event = saying.style.line_end.encode() * 2
        self._before = b"data: " + head + b',"choices":[{"index":0,"delta":'
        self._after = b',"finish_reason":null}]' + usage + b"}" + self._end_of_event
        self._saying = saying

    def chunk(self, delta: dict[str, Any]) -> bytes:
        """A chunk with something said."""
        return self._before + _json(delta) + self._after

    def finish(self, reason: str, usage: dict[str, Any] | None) -> bytes:
        """The chunk that says why the reply ends."""
        return self._other({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}, usage)

    def only_usage(self, usage: dict[str, Any]) -> bytes:
        """The chunk without choices that reports usage."""
        return self._other({"choices": []}, usage)

    def done(self) -> bytes:
        """The terminal event."""
        return b"data: [DONE]" + self._end_of_event

    def _other(self, body: dict[str, Any], usage: dict[str, Any] | None) -> bytes:
        reported = {} if usage is None else {"usage": usage}
        full = {**_head(self._saying, "chat.completion.chunk"), **body, **reported}
        return b"data: " + _json(full) + self._end_of_event


def _words(stream: _Stream, saying: Saying, block: Say | Think) -> Iterator[Streamed]:
    in_tags = isinstance(block, Think) and saying.style.reasoning_field == _THINK_TAGS
    key = saying.style.reasoning_field if isinstance(block, Think) and not in_tags else "content"
    text = f"<think>{block.thinking}</think>" if in_tags and isinstance(block, Think) else content_of(block)
    fidelity = dict(block.fidelity or {})
    for piece in pieces(text, saying.turn.delta_size):
        yield from beat(saying.turn.delta_delay)
        yield stream.chunk({key: piece, **fidelity})
        fidelity = {}
    if fidelity:
        yield stream.chunk(fidelity)


def _call(stream: _Stream, saying: Saying, number: int, call_id: str, call: Call) -> Iterator[Streamed]:
    index = {"index": number} if saying.style.call_index else {}
    opening = {**index, "id": call_id, "type": "function", **(call.fidelity or {})}
    if saying.style.whole_calls:
        yield from beat(saying.turn.delta_delay)
        yield stream.chunk({"tool_calls": [{**opening, "function": {"name": call.name, "arguments": call.arguments}}]})
        return
    yield stream.chunk({"tool_calls": [{**opening, "function": {"name": call.name, "arguments": ""}}]})
    for piece in pieces(call.arguments, saying.turn.delta_size):
        yield from beat(saying.turn.delta_delay)
        yield stream.chunk({"tool_calls": [{**index, "function": {"arguments": piece}}]})


def _ending(stream: _Stream, saying: Saying) -> Iterator[Streamed]:
    reason = _finish_reason(saying)
    if reason:
        in_finish = saying.style.usage_at in {"finish_chunk", "every_chunk"}
        yield stream.finish(reason, _usage(saying) if in_finish else None)
    asked = (saying.request.get("stream_options") or {}).get("include_usage") is True
    if saying.style.usage_at == "own_chunk" or (saying.style.usage_at == "when_asked" and asked):
        yield stream.only_usage(_usage(saying))
    if saying.style.done:
        yield stream.done()


def _finish_reason(saying: Saying) -> str:
    if saying.style.finish_reason is not None:
        return saying.style.finish_reason
    return "tool_calls" if any(isinstance(block, Call) for block in saying.turn.blocks) else "stop"


def _call_numbers(blocks: tuple[Block, ...]) -> dict[int, int]:
    """Which call, counted from 0, stands at a position."""
    positions = [position for position, block in enumerate(blocks) if isinstance(block, Call)]
    return {position: number for number, position in enumerate(positions)}


def _whole_call(saying: Saying, position: int, call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": saying.call_id(position, call), "type": "function", "function": function, **(call.fidelity or {})}


def _said(saying: Saying) -> str | None:
    in_tags = saying.style.reasoning_field == _THINK_TAGS
    said = [
        f"<think>{content_of(block)}</think>" if isinstance(block, Think) else content_of(block)
        for block in saying.turn.blocks
        if isinstance(block, Say) or (in_tags and isinstance(block, Think))
    ]
    return "".join(said) or None


def _head(saying: Saying, kind: str) -> dict[str, Any]:
    model = saying.request.get("model") or "scripted"
    return {"id": f"chatcmpl-{saying.number}", "object": kind, "created": 1, "model": model}


def _usage(saying: Saying) -> dict[str, Any]:
    counts = saying.counts()
    return {
        "prompt_tokens": counts.cache_read + counts.cache_write,
        "completion_tokens": counts.output,
        "total_tokens": counts.total,
        "prompt_tokens_details": {"cached_tokens": counts.cache_read},
        "completion_tokens_details": {"reasoning_tokens": min(saying.reasoning_tokens(), counts.output)},
    }


def _json(value: object) -> bytes:
    return encode(value).encode("utf-8", "surrogatepass")
