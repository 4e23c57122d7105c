"""The wire protocols the scripted provider speaks: one module each, pure data in, bytes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penguin.protocol.events import TokenCounts
from penguin.testing.replies import Refusal, Style
from penguin.testing.turns import Call, Pause, Say, Think, Turn, usage

# json.dumps with options builds a new encoder for every call, which is most of the cost of a small event.
encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Beat:
    """What follows is due this many seconds after what went before was due: the pace does not drift."""

    seconds: float


Streamed: TypeAlias = bytes | Pause | Beat
"""The bytes of some events, or a wait before the next."""


def beat(seconds: float) -> Iterator[Beat]:
    """A beat, none for 0."""
    if seconds > 0:
        yield Beat(seconds)


@dataclass(frozen=True, slots=True)
class Saying:
    """A turn about to be worded: ``request`` is the parsed body it answers, ``number`` counts replies from 1."""

    turn: Turn
    style: Style
    request: dict[str, Any]
    request_size: int
    number: int

    def call_id(self, block: int, call: Call) -> str:
        """The scripted id, else one that no other reply of this server uses."""
        return call.id if call.id is not None else f"call_{self.number}_{block}"

    def counts(self) -> TokenCounts:
        """The scripted usage, else characters / 4."""
        spoken = sum(len(content_of(block)) for block in self.turn.blocks)
        return self.turn.usage or usage(cache_write=max(1, self.request_size // 4), output=max(1, spoken // 4))

    def reasoning_tokens(self) -> int:
        """The part of the output that is reasoning, from characters."""
        return sum(len(block.thinking) for block in self.turn.blocks if isinstance(block, Think)) // 4


@dataclass(frozen=True, slots=True)
class Wire:
    """One protocol: which paths are its own, and how it words turns and refusals.

    Attributes:
        answers: Whether a path belongs to this protocol.
        streams: Whether a request (path, parsed body) asks for a stream.
        events: The event stream of a turn.
        whole: The JSON body of a turn.
        refusal: The JSON body of an error with its status code.
    """

    name: str
    answers: Callable[[str], bool]
    streams: Callable[[str, dict[str, Any]], bool]
    events: Callable[[Saying], Iterator[Streamed]]
    whole: Callable[[Saying], bytes]
    refusal: Callable[[int, Refusal], bytes]


def content_of(block: Say | Think | Call | Pause) -> str:
    """The characters that are streamed of a block."""
    match block:
        case Say(text=content) | Think(thinking=content) | Call(arguments=content):
            return content
        case Pause():
            return ""
