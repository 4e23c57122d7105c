r"""What the scripted provider answers over HTTP, as data.

A reply is what is said (a turn, exact bytes, or a refusal) and how it is delivered (whole, byte by
byte, stalled, cut off)::

    reply(turn(think("hm"), say("hello")), reasoning_field="reasoning")
    refuse(429, "slow down", retry_after="2")
    raw(b'data: {"choices": null}\n\n')
    cut(say("half of this"), after=200, reset=True)

Wherever a reply is expected, a turn, a block or a plain string does as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from penguin.testing.turns import Block, Call, Fault, Pause, ReadyTurn, Say, Think, Turn, as_turn

UsageAt: TypeAlias = Literal["when_asked", "own_chunk", "finish_chunk", "every_chunk", "never"]


@dataclass(frozen=True, slots=True)
class Style:
    """How a server of the protocol words a turn; the defaults are those of a clean server.

    Attributes:
        reasoning_field: The key of reasoning text; ``<think>`` puts it into the content, between tags.
        usage_at: Where usage is reported; ``when_asked`` obeys the request.
        whole_calls: A call's arguments come in one piece.
        call_index: Whether pieces of calls carry their index.
        finish_reason: Said at the end instead of what fits the turn; the empty string leaves it out.
        done: Whether the terminal event comes at the end.
        line_end: The line terminator of the event stream.
    """

    reasoning_field: str = "reasoning_content"
    usage_at: UsageAt = "when_asked"
    whole_calls: bool = False
    call_index: bool = True
    finish_reason: str | None = None
    done: bool = True
    line_end: str = "\n"


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the bytes reach the client; counts are bytes of the body.

    Attributes:
        bytes_per_write: Bytes in one write, each flushed; ``None`` is as many as fit.
        write_delay: Seconds between two writes.
        stall: Waits for `release()` before this byte; -1 is before the status line.
        cut: Closes the connection before this byte; -1 is before the status line. A number beyond
            the end closes after the last byte, without the end that HTTP wants.
        reset: The cut is a reset (RST), not an orderly end.
        framing: ``chunked``, ``length`` (content-length), or ``close`` (the body ends with the connection).
    """

    bytes_per_write: int | None = None
    write_delay: float = 0.0
    stall: int | None = None
    cut: int | None = None
    reset: bool = False
    framing: Literal["chunked", "length", "close"] = "chunked"


@dataclass(frozen=True, slots=True)
class Raw:
    """Exact bytes of a body."""

    body: bytes
    content_type: str = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in the words of the protocol."""

    message: str
    type: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer to one request; see :func:`reply`, :func:`raw` and :func:`refuse`."""

    content: Turn | Raw | Refusal
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    style: Style = Style()
    delivery: Delivery = Delivery()


ReadyReply: TypeAlias = Reply | ReadyTurn
ReplyLike: TypeAlias = ReadyReply | Callable[[Any], ReadyReply]
"""A ready reply, or a function that makes one from the parsed body of the request."""

AT_THE_END = 1 << 60
"""A byte no body reaches: `cut` and `stall` there act after the last byte."""


def reply(
    said: ReadyTurn,
    *,
    reasoning_field: str = "reasoning_content",
    usage_at: UsageAt = "when_asked",
    whole_calls: bool = False,
    call_index: bool = True,
    finish_reason: str | None = None,
    done: bool = True,
    line_end: str = "\n",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """A turn in the words of the protocol; see `Style` for the options.

    Example::

        reply(call("read_file", {"file_path": "a"}), call_index=False, finish_reason="stop")
    """
    style = Style(reasoning_field, usage_at, whole_calls, call_index, finish_reason, done, line_end)
    return Reply(as_turn(said), headers=_pairs(headers), style=style)


def raw(
    body: bytes | str,
    *,
    content_type: str = "text/event-stream",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Exact bytes, right or wrong.

    Example::

        raw("<html>Sign in to the hotel network</html>", content_type="text/html")
    """
    content = Raw(body.encode() if isinstance(body, str) else body, content_type)
    return Reply(content, status, _pairs(headers))


def refuse(
    status: int,
    message: str = "scripted refusal",
    *,
    type: str | None = None,  # noqa: A002 - the word of the wire
    code: str | None = None,
    retry_after: str | float | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """A status code with an error body; ``retry_after`` is sent as it is: seconds, a date, or nonsense."""
    pairs = _pairs(headers)
    if retry_after is not None:
        pairs = (*pairs, ("retry-after", str(retry_after)))
    return Reply(Refusal(message, type, code), status, pairs)


def dripped(said: ReadyReply, *, size: int = 1, delay: float = 0.0) -> Reply:
    """Deliver in writes of ``size`` bytes, ``delay`` seconds apart."""
    return _delivered(said, bytes_per_write=size, write_delay=delay)


def stalled(said: ReadyReply, *, after: int = -1) -> Reply:
    """Send nothing more after this many bytes of the body until `release()`; -1 is not even a status line."""
    return _delivered(said, stall=after)


def cut(said: ReadyReply, *, after: int = AT_THE_END, reset: bool = False) -> Reply:
    """Close the connection after this many bytes of the body; -1 is before the status line."""
    return _delivered(said, cut=after, reset=reset)


def framed(said: ReadyReply, framing: Literal["chunked", "length", "close"]) -> Reply:
    """Choose how HTTP knows where the body ends."""
    return _delivered(said, framing=framing)


def as_reply(ready: ReadyReply) -> Reply:
    """The long form, with the fault of a turn turned into what a provider would do.

    A fault with a status code and nothing streamed is a refusal; ``cut_off`` is the finish reason
    ``length``; any other fault resets the connection after the deltas it lets pass.
    """
    long = ready if isinstance(ready, Reply) else Reply(as_turn(ready))
    match long.content:
        case Turn(fault=Fault() as fault) as said:
            return _failing(long, said, fault)
        case _:
            return long


def _failing(long: Reply, said: Turn, fault: Fault) -> Reply:
    error = fault.error
    if error.http_status is not None and not fault.after:
        headers = (*long.headers, *_retry_after(error.retry_after))
        return replace(long, content=Refusal(error.message), status=error.http_status, headers=headers)
    begun = replace(said, blocks=_first_deltas(said, fault.after), fault=None)
    if fault.cut_off:
        return replace(long, content=begun, style=replace(long.style, finish_reason="length"))
    style = replace(long.style, finish_reason="", done=False, usage_at="never")
    return replace(long, content=begun, style=style, delivery=replace(long.delivery, cut=AT_THE_END, reset=True))


def _retry_after(seconds: float | None) -> tuple[tuple[str, str], ...]:
    return () if seconds is None else (("retry-after", f"{seconds:g}"),)


def _first_deltas(said: Turn, count: int | None) -> tuple[Block, ...]:
    """The blocks cut short, so that only ``count`` deltas are left of them."""
    if count is None:
        return said.blocks
    kept: list[Block] = []
    room = count * said.delta_size
    for block in said.blocks:
        if room <= 0:
            break
        kept.append(_shortened(block, room))
        room -= -(-_length(block) // said.delta_size) * said.delta_size
    return tuple(kept)


def _shortened(block: Block, size: int) -> Block:
    match block:
        case Say(text=text):
            return replace(block, text=text[:size])
        case Think(thinking=thinking):
            return replace(block, thinking=thinking[:size])
        case Call(arguments=arguments):
            return replace(block, arguments=arguments[:size])
        case Pause():
            return block


def _length(block: Block) -> int:
    match block:
        case Say(text=content) | Think(thinking=content) | Call(arguments=content):
            return len(content)
        case Pause():
            return 0


def _delivered(said: ReadyReply, **changes: Any) -> Reply:
    long = as_reply(said)
    return replace(long, delivery=replace(long.delivery, **changes))


def _pairs(headers: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value) for name, value in (headers or {}).items())
