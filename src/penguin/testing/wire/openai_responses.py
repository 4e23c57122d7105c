"""Responses: a turn as typed events, or as one JSON body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from penguin.testing.turns import Block, Call, Pause, Say, Think, pieces
from penguin.testing.wire import Saying, Streamed, Wire, beat, content_of, encode
from penguin.testing.wire.openai_chat import refusal

_CUTS: Final = {"length": "max_output_tokens", "max_output_tokens": "max_output_tokens"}
_NONE: Final[dict[str, Any]] = {}


def events(saying: Saying) -> Iterator[Streamed]:
    """The events of a turn, numbered in sequence; the last one carries the whole response."""
    stream = _Stream(saying)
    yield from beat(saying.turn.delay)
    yield stream.lifecycle("response.created", "in_progress", [])
    yield stream.lifecycle("response.in_progress", "in_progress", [])
    spoken = [position for position, block in enumerate(saying.turn.blocks) if not isinstance(block, Pause)]
    output: list[dict[str, Any]] = []
    for position, block in enumerate(saying.turn.blocks):
        if isinstance(block, Pause):
            yield block
            continue
        last = position == spoken[-1]
        item = _Item(saying, position, block, _Place(len(output), indexed=_is_indexed(saying, block)))
        yield from item.events(stream, whole=not (last and _ending(saying) is None), cut=last and _is_cut(saying))
        output.append(item.finished(_status(saying, last=last)))
    status = _ending(saying)
    if status is not None:
        yield stream.lifecycle(f"response.{status}", status, output)


def whole(saying: Saying) -> bytes:
    """The body of a reply that is not streamed."""
    spoken = [(n, block) for n, block in enumerate(saying.turn.blocks) if not isinstance(block, Pause)]
    output = [
        _Item(saying, n, block, _Place(index)).finished(_status(saying, last=index == len(spoken) - 1))
        for index, (n, block) in enumerate(spoken)
    ]
    return _json(_response(saying, _ending(saying) or "completed", output))


WIRE: Final = Wire(
    name="openai-responses",
    answers=lambda path: path.endswith("/responses"),
    streams=lambda _path, body: body.get("stream") is True,
    events=events,
    whole=whole,
    refusal=refusal,
)


@dataclass(slots=True)
class _Stream:
    """Words events and counts them."""

    saying: Saying
    number: int = -1

    def event(self, kind: str, **members: Any) -> bytes:
        self.number += 1
        end = self.saying.style.line_end.encode()
        data = _json({"type": kind, "sequence_number": self.number, **members})
        return b"event: " + kind.encode() + end + b"data: " + data + end * 2

    def lifecycle(self, kind: str, status: str, output: list[dict[str, Any]]) -> bytes:
        return self.event(kind, response=_response(self.saying, status, output))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an item stands in the output; a careless server does not say."""

    index: int
    indexed: bool = True

    def members(self) -> dict[str, Any]:
        return {"output_index": self.index} if self.indexed else {}


@dataclass(slots=True)
class _Item:
    """One block as an output item."""

    saying: Saying
    position: int
    block: Block
    place: _Place
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        self.prefix = {Say: "msg", Think: "rs", Call: "fc"}.get(type(self.block), "item")

    def id(self) -> str:
        return f"{self.prefix}_{self.saying.number}_{self.position}"

    def where(self) -> dict[str, Any]:
        return {"item_id": self.id(), **self.place.members()}

    def started(self) -> dict[str, Any]:
        match self.block:
            case Say(fidelity=fidelity):
                head = {"id": self.id(), "type": "message", "status": "in_progress", "role": "assistant"}
                return {**head, "content": [], **(fidelity or _NONE)}
            case Think():
                return {"id": self.id(), "type": "reasoning", "summary": []}
            case Call(name=name) as call:
                head = {"id": self.id(), "type": "function_call", "status": "in_progress", "arguments": ""}
                return {**head, "call_id": self.saying.call_id(self.position, call), "name": name}
            case Pause():
                raise AssertionError(self.block)

    def finished(self, status: str) -> dict[str, Any]:
        match self.block:
            case Say(text=text):
                return {**self.started(), "status": status, "content": [_text_part(text)]}
            case Think(thinking=thinking, fidelity=fidelity):
                asked = "reasoning.encrypted_content" in (self.saying.request.get("include") or [])
                secret = {"encrypted_content": f"encrypted {self.id()}"} if asked else {}
                return {**self.started(), **secret, "summary": _summary(thinking), **(fidelity or _NONE)}
            case Call(arguments=arguments, fidelity=fidelity):
                return {**self.started(), "status": status, "arguments": arguments, **(fidelity or _NONE)}
            case Pause():
                raise AssertionError(self.block)

    def events(self, stream: _Stream, *, whole: bool, cut: bool) -> Iterator[Streamed]:
        """From ``added`` to ``done``; without the end when the stream breaks off inside."""
        yield stream.event("response.output_item.added", **self.place.members(), item=self.started())
        yield from self._content(stream, whole=whole)
        if whole:
            done = self.finished("incomplete" if cut else "completed")
            yield stream.event("response.output_item.done", **self.place.members(), item=done)

    def _content(self, stream: _Stream, *, whole: bool) -> Iterator[Streamed]:
        match self.block:
            case Say(text=text):
                begin = {"content_index": 0, **self.where()}
                yield stream.event("response.content_part.added", **begin, part=_text_part(""))
                yield from self._deltas(stream, "response.output_text.delta", begin | {"logprobs": []})
                if whole:
                    yield stream.event("response.output_text.done", **begin, text=text, logprobs=[])
                    yield stream.event("response.content_part.done", **begin, part=_text_part(text))
            case Think(thinking=thinking) if thinking:
                begin = {"summary_index": 0, **self.where()}
                yield stream.event("response.reasoning_summary_part.added", **begin, part=_summary_part(""))
                yield from self._deltas(stream, "response.reasoning_summary_text.delta", begin)
                if whole:
                    yield stream.event("response.reasoning_summary_text.done", **begin, text=thinking)
                    yield stream.event("response.reasoning_summary_part.done", **begin, part=_summary_part(thinking))
            case Call(name=name, arguments=arguments):
                if not self.saying.style.whole_calls:
                    yield from self._deltas(stream, "response.function_call_arguments.delta", self.where())
                if whole:
                    ended = "response.function_call_arguments.done"
                    yield stream.event(ended, **self.where(), name=name, arguments=arguments)
            case _:
                pass

    def _deltas(self, stream: _Stream, kind: str, begin: dict[str, Any]) -> Iterator[Streamed]:
        for piece in pieces(content_of(self.block), self.saying.turn.delta_size):
            yield from beat(self.saying.turn.delta_delay)
            yield stream.event(kind, **begin, delta=piece)


def _ending(saying: Saying) -> str | None:
    """The status at the end; ``None`` when the stream stops without its terminal event."""
    reason = saying.style.finish_reason
    if reason == "" or not saying.style.done:
        return None
    return "incomplete" if _is_cut(saying) else "completed"


def _is_cut(saying: Saying) -> bool:
    return saying.style.finish_reason in {*_CUTS, "content_filter"}


def _status(saying: Saying, *, last: bool) -> str:
    return "incomplete" if last and _is_cut(saying) else "completed"


def _is_indexed(saying: Saying, block: Block) -> bool:
    return saying.style.call_index or not isinstance(block, Call)


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _summary_part(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _summary(text: str) -> list[dict[str, Any]]:
    return [_summary_part(text)] if text else []


def _response(saying: Saying, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    reason = saying.style.finish_reason or ""
    over = status != "in_progress"
    return {
        "id": f"resp_{saying.number}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": _CUTS.get(reason, reason)} if status == "incomplete" else None,
        "instructions": None,
        "metadata": {},
        "model": saying.request.get("model") or "scripted",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": _usage(saying) if over and saying.style.usage_at != "never" else None,
    }


def _usage(saying: Saying) -> dict[str, Any]:
    counts = saying.counts()
    return {
        "input_tokens": counts.cache_read + counts.cache_write,
        "input_tokens_details": {"cached_tokens": counts.cache_read, "cache_write_tokens": 0},
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": min(saying.reasoning_tokens(), counts.output)},
        "total_tokens": counts.total,
    }


def _json(value: object) -> bytes:
    return encode(value).encode("utf-8", "surrogatepass")
