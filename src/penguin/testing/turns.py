"""What a scripted model says, as data: the same turns drive `ScriptedModel` and `ScriptedProvider`.

A turn is a sequence of blocks and, if wanted, a fault::

    turn(
        think("The file is named in the prompt."),
        say("I will read it."),
        call("read_file", {"file_path": "a.txt"}),
    )
    turn(say("These words are cut"), fault=fail("timeout", after=1))

Wherever a turn is expected a single block or a plain string does as well.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from penguin.protocol.events import ErrorKind, TokenCounts
from penguin.protocol.interfaces import GenerateRequest, LLMOutcome, ModelError
from penguin.protocol.messages import Message

FaultStatus: TypeAlias = Literal["timeout", "malformed", "failed"]


@dataclass(frozen=True, slots=True)
class Say:
    """Words of the assistant."""

    text: str
    fidelity: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning of the assistant."""

    thinking: str
    fidelity: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; ``arguments`` is sent exactly as it is, legal JSON or not."""

    name: str
    arguments: str
    id: str | None = None
    fidelity: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Waits ``seconds`` between two blocks, or for ``until()``; a pause without either never ends."""

    seconds: float | None = None
    until: Callable[[], Awaitable[object]] | None = None


Block: TypeAlias = Say | Think | Call | Pause


@dataclass(frozen=True, slots=True)
class Fault:
    """How an attempt fails; see :func:`fail`."""

    status: FaultStatus
    error: ModelError
    after: int | None = None
    cut_off: bool = False

    def outcome(self) -> LLMOutcome:
        """What the model returns."""
        return LLMOutcome(self.status, self.error, cut_off=self.cut_off)


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply to one request; see :func:`turn`."""

    blocks: tuple[Block, ...] = ()
    usage: TokenCounts | None = None
    delay: float = 0.0
    delta_size: int = 8
    delta_delay: float = 0.0
    fault: Fault | None = None
    note: str | None = None
    interleaved: bool = False


ReadyTurn: TypeAlias = Turn | Block | str
"""A turn, or its short form: one block, or the words of one ``say``."""

TurnLike: TypeAlias = ReadyTurn | Callable[[GenerateRequest, list[Message]], ReadyTurn]
"""A ready turn, or a function that makes one from the request and the committed history."""


def say(text: str, *, fidelity: Mapping[str, Any] | None = None) -> Say:
    """Words of the assistant."""
    return Say(text, fidelity)


def think(thinking: str, *, fidelity: Mapping[str, Any] | None = None) -> Think:
    """Reasoning; the text may be empty when only ``fidelity`` matters."""
    return Think(thinking, fidelity)


def call(
    name: str,
    arguments: Mapping[str, Any] | str = "{}",
    *,
    id: str | None = None,  # noqa: A002 - the word of the protocol, and scripts read better with it
    fidelity: Mapping[str, Any] | None = None,
) -> Call:
    """A tool call; text as ``arguments`` is sent as it is, so that broken JSON can be scripted.

    Example::

        call("read_file", {"file_path": "a.txt"}, id="c1")
        call("read_file", '{"file_path": ')
    """
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Call(name, written, id, fidelity)


def pause(length: float | Callable[[], Awaitable[object]]) -> Pause:
    """Wait between two blocks: for seconds, or until something happened.

    Example::

        turn(say("Started."), pause(tool_was_called.wait), say("Done."))
    """
    return Pause(until=length) if callable(length) else Pause(seconds=length)


def hang() -> Pause:
    """Wait for ever; only an interruption ends such a turn."""
    return Pause()


_USUAL_KIND: dict[FaultStatus, ErrorKind] = {"timeout": "network", "malformed": "malformed", "failed": "bad_request"}


def fail(
    status: FaultStatus = "timeout",
    kind: ErrorKind | None = None,
    message: str = "scripted fault",
    *,
    retry_after: float | None = None,
    http_status: int | None = None,
    after: int | None = None,
    cut_off: bool = False,
) -> Fault:
    """The fault of a turn: open segments close with ``status`` as their stop reason.

    Args:
        status: What the attempt ends with.
        kind: Why; without it ``network``, ``malformed`` or ``bad_request``, as the status suggests.
        message: The text for people.
        retry_after: Seconds the provider asks to wait.
        http_status: The provider's answer, if it gave one.
        after: Fails when this many deltas were streamed, in the middle of whatever is open; 0 is
            before anything. Without it the fault comes after the last block was closed.
        cut_off: The output limit cut the reply inside a call.
    """
    error = ModelError(kind or _USUAL_KIND[status], message, http_status, retry_after)
    return Fault(status, error, after, cut_off)


def usage(*, cache_read: int = 0, cache_write: int = 0, output: int = 0) -> TokenCounts:
    """Token counts with their sum."""
    return TokenCounts(cache_read, cache_write, output, cache_read + cache_write + output)


def turn(
    *blocks: Block | str,
    usage: TokenCounts | None = None,
    delay: float = 0.0,
    delta_size: int = 8,
    delta_delay: float = 0.0,
    fault: Fault | None = None,
    note: str | None = None,
    interleaved: bool = False,
) -> Turn:
    """One reply to one request.

    Args:
        blocks: What is said, in order; a string is a ``say``.
        usage: Tokens of this request; without it they are characters / 4.
        delay: Seconds before the first segment.
        delta_size: Characters in one delta.
        delta_delay: Seconds before each delta.
        fault: How the attempt fails; without it the turn completes.
        note: A remark for the user about a completed attempt.
        interleaved: Neighbouring calls are open at the same time and their deltas alternate.
    """
    said = tuple(say(block) if isinstance(block, str) else block for block in blocks)
    return Turn(said, usage, delay, delta_size, delta_delay, fault, note, interleaved)


def as_turn(ready: ReadyTurn) -> Turn:
    """The long form of a turn."""
    return ready if isinstance(ready, Turn) else turn(ready)


def pieces(text: str, size: int) -> Iterator[str]:
    """Cut text into pieces of ``size`` characters."""
    return (text[start : start + size] for start in range(0, len(text), size))
