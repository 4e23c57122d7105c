"""The stream of an Anthropic Messages server, event by event, to segments: a small state machine (L3, L4).

When a call is settled. The protocol ends a call with ``content_block_stop``, but it does so too when
the output limit fell inside it, and only the ``stop_reason`` at the end of the message tells. A call
cut there may look complete (``{"command":"rm -rf build"}``), and of a cut message no call may run. So
calls that ended wait, open, until something else than a call begins or the message ends well; they are
then settled in the order they came. A cut, refused or broken message closes them with its own stop
reason, which nobody executes. What this costs: of parallel calls the first starts when the last is
written. What remains: a call followed by text, then by a call that is cut, may have started.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from penguin.llm.adapter import Conclusion
from penguin.llm.outcome import Rejection, rejection_from
from penguin.llm.providers.anthropic_messages_wire import WireDelta, WireEvent, read, read_message
from penguin.llm.providers.lenient import ABSENT, NotJson, document, is_null, kept_members, string
from penguin.llm.segments import CallSegment, Segments
from penguin.llm.sse import StreamEvent
from penguin.protocol.codec import fidelity_bytes
from penguin.protocol.errors import CodecError

Finish: TypeAlias = Literal["plain", "length", "overflow", "refusal", "pause"]

FINISHES: Final[dict[str, Finish]] = {
    "max_tokens": "length",
    "length": "length",
    "model_context_window_exceeded": "overflow",
    "refusal": "refusal",
    "content_filter": "refusal",
    "pause_turn": "pause",
}
"""What the labels that matter mean; any other (``end_turn``, ``tool_use``…) is a plain end (D05)."""

ERROR_STATUSES: Final[dict[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The HTTP status each type of error has outside a stream; inside one the type is all there is (D09)."""

_NOTES: Final[dict[Finish, str]] = {
    "length": "The reply was cut at the output limit.",
    "pause": "The provider paused its own tools before they were done; ask it to go on.",
}
_TALK: Final = frozenset({"text", "thinking"})
_CALL_MEMBERS: Final = frozenset({"type", "id", "name", "input"})


class _Block:
    """One content block under way; ``start`` is how it was announced."""

    __slots__ = ("call", "citations", "kind", "pieces", "start", "stopped")

    def __init__(self, kind: str, start: dict[str, Raw]) -> None:
        self.kind = kind
        self.start = start
        self.call: CallSegment | None = None
        self.citations: list[Raw] = []
        self.pieces: list[str] = []
        self.stopped = False


class MessagesFold:
    """Folds events into segments; pure apart from what it emits.

    Example::

        fold = MessagesFold(segments)
        for event in splitter.feed(chunk):
            fold.fold(event)
        conclusion = fold.conclude()
    """

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._blocks: dict[int | None, _Block] = {}
        self._newest: _Block | None = None
        self._waiting: list[_Block] = []
        self._opened = 0
        self._finish: Finish | None = None
        self._done = False
        self._cut_off = False
        self._explanation = ""
        self._rejection: Rejection | None = None
        self._unreadable = ""
        self._usage: dict[str, Raw] = {}

    def fold(self, event: StreamEvent) -> bool:
        """Take one event and say whether it brought output; never raises."""
        if self.over() or event.data.startswith(b"[DONE]"):
            return False
        try:
            wire = read(event.data)
            self._event(wire, event)
        except (NotJson, RecursionError) as error:
            self._unreadable = f"an event is not JSON: {error}"
            return False
        return _brings_output(wire.type or event.name, wire.delta or WireDelta())

    def delivered(self) -> bool:
        """Whether ``message_stop`` came: what the connection does from now on does not matter (L4)."""
        return self._done

    def over(self) -> bool:
        """Whether nothing more will be taken."""
        return self._done or self._rejection is not None or self._unreadable != ""

    def conclude(self) -> Conclusion:
        """The stream has ended: say what it came to."""
        return Conclusion(
            delivered=self._done,
            rejection=self._rejection or self._overflow(),
            unreadable=self._unreadable,
            cut_off=self._cut_off,
            refusal=self._refusal(),
            note=_NOTES.get(self._finish or "plain"),
            at_limit=self._finish == "length",
            usage=Raw(msgspec.json.encode(self._usage)) if self._usage else None,
        )

    def _overflow(self) -> Rejection | None:
        if self._finish != "overflow":
            return None
        return Rejection("the reply filled the context window", code="model_context_window_exceeded")

    def _refusal(self) -> str:
        if self._finish != "refusal":
            return ""
        return self._explanation or "the model refused to answer"

    # --- one event -----------------------------------------------------------------------------------

    def _event(self, wire: WireEvent, event: StreamEvent) -> None:
        match wire.type or event.name:
            case "content_block_delta":
                self._delta(wire.index, wire.delta or WireDelta())
            case "content_block_start":
                self._start(wire.index, kept_members(wire.content_block))
            case "content_block_stop":
                self._stop(wire.index)
            case "message_start" if wire.message is not None:
                self._note_usage(wire.message.usage)
            case "message_delta":
                delta = wire.delta or WireDelta()
                self._note_usage(wire.usage)
                self._note_finish(delta.stop_reason, delta.stop_details)
            case "message_stop":
                self._end()
            case "error":
                self._rejection = _rejection(document(event.data))
            case "message":
                self._whole(event.data)
            case "" if _is_error(document(event.data)):
                self._rejection = _rejection(document(event.data))
            case _:  # ping, and whatever the protocol will think of next
                pass

    def _whole(self, data: bytes) -> None:
        """A server that does not stream: the message as one document."""
        message = read_message(data)
        self._note_usage(message.usage)
        for index, block in enumerate(message.content or ()):
            self._start(index, kept_members(block))
            self._stop(index)
        self._note_finish(message.stop_reason or "end_turn", message.stop_details)
        self._end()

    def _note_usage(self, usage: Raw) -> None:
        """Counts are cumulative: the last wins, unless it only says that it does not know."""
        for name, value in kept_members(usage).items():
            if bytes(value) not in {b"null", b"0"} or name not in self._usage:
                self._usage[name] = value

    def _note_finish(self, reason: str | None, details: Raw) -> None:
        if not reason:
            return
        finish = FINISHES.get(reason.lower(), "plain")
        # A cut stays a cut, whatever a second label says.
        if self._finish in {None, "plain"}:
            self._finish = finish
            self._explanation = string(kept_members(details).get("explanation")) or self._explanation

    def _end(self) -> None:
        self._done = True
        self._segments.close_talk()
        if self._waiting and self._finish is None:
            self._unreadable = "the message ended without a reason, so its tool calls may be cut"
        elif self._finish == "length":
            self._cut_off = bool(self._waiting)
        elif not all(block.stopped for block in self._waiting):
            self._unreadable = "the message ended inside a tool call"
        elif self._finish in {"plain", "pause"}:
            self._settle_calls()

    # --- blocks --------------------------------------------------------------------------------------

    def _start(self, index: int | None, start: dict[str, Raw]) -> None:
        kind = string(start.get("type"))
        known = self._blocks.get(index)
        if known is not None and not known.stopped and known.start == start:
            return  # the same event twice
        if kind != "tool_use":
            self._settle_calls()
        self._open(index, _Block(kind, start))

    def _open(self, index: int | None, block: _Block) -> None:
        self._segments.close_talk()
        self._blocks[index] = self._newest = block
        self._opened += 1
        match block.kind:
            case "text":
                block.citations += _items(block.start.get("citations"))
                self._say(string(block.start.get("text")))
            case "thinking":
                self._think(string(block.start.get("thinking")))
                self._sign(string(block.start.get("signature")))
            case "tool_use":
                self._open_call(block)
            case _:
                # Not ours to understand: it takes a place among the segments and goes back as it came.
                self._think("")

    def _open_call(self, block: _Block) -> None:
        name = string(block.start.get("name"))
        if not name:
            self._unreadable = "a tool call came without a name"
            return
        block.call = call = self._segments.open_call(name, string(block.start.get("id")) or None)
        self._waiting.append(block)
        extras = {key: value for key, value in block.start.items() if key not in _CALL_MEMBERS and not is_null(value)}
        if extras:
            call.fidelity["tool_use"] = Raw(msgspec.json.encode(extras))

    def _delta(self, index: int | None, delta: WireDelta) -> None:
        block = self._blocks.get(index)
        kind = block.kind if block is not None and block is self._newest and not block.stopped else ""
        match delta.type:
            case "text_delta":
                if kind != "text":
                    self._begin_unannounced(index, "text")
                self._say(delta.text)
            case "thinking_delta":
                if kind != "thinking":
                    self._begin_unannounced(index, "thinking")
                self._think(delta.thinking)
            case "input_json_delta":
                self._argue(block, delta.partial_json)
            case "signature_delta" if kind == "thinking":
                self._sign(delta.signature)
            case "citations_delta" if block is not None and not is_null(delta.citation):
                block.citations.append(Raw(bytes(delta.citation)))
            case _:
                pass

    def _begin_unannounced(self, index: int | None, kind: str) -> None:
        """Words for a block that was never announced, or is over: they begin one of their own."""
        self._settle_calls()
        self._open(index, _Block(kind, {}))

    def _argue(self, block: _Block | None, piece: str) -> None:
        if not piece:
            return
        if block is None or block.stopped:
            # Arguments with a hole must not become a call.
            self._unreadable = "arguments came for a tool call that is not open"
        elif block.call is not None:
            self._segments.argue(block.call, piece)
        else:
            block.pieces.append(piece)

    def _say(self, text: str) -> None:
        if text:
            self._segments.say(text)

    def _think(self, text: str) -> None:
        self._segments.think(text, f"block {self._opened}")

    def _sign(self, signature: str) -> None:
        segment = self._segments.thought(f"block {self._opened}")
        if segment is not None and signature:
            segment.fidelity["signature"] = Raw(msgspec.json.encode(signature))

    def _stop(self, index: int | None) -> None:
        block = self._blocks.get(index)
        if block is None or block.stopped:
            return
        block.stopped = True
        if block.call is not None:
            self._complete_arguments(block, block.call)
        elif block is self._newest:
            self._keep_opaque(block)
            self._segments.close_talk()

    def _complete_arguments(self, block: _Block, call: CallSegment) -> None:
        """No arguments are an empty object (D04); some servers send all of them with the announcement."""
        if not call.content().strip():
            announced = bytes(block.start.get("input", ABSENT))
            self._segments.argue(call, announced.decode() if announced.startswith(b"{") else "{}")

    def _keep_opaque(self, block: _Block) -> None:
        """What goes back with the block: citations of a text, all of a block of another kind."""
        text = self._segments.text()
        if block.kind == "text" and text is not None and block.citations:
            text.fidelity["citations"] = Raw(msgspec.json.encode(block.citations))
        segment = self._segments.thought(f"block {self._opened}")
        if block.kind not in _TALK and segment is not None:
            whole = _with_input(block)
            if whole is not None:
                segment.fidelity["content_block"] = whole

    def _settle_calls(self) -> None:
        """Calls whose arguments are known to be whole; one that never ended stays open and fails the attempt."""
        for block in self._waiting:
            if block.stopped and block.call is not None:
                self._segments.finish_call(block.call)
        self._waiting = [block for block in self._waiting if not block.stopped]


def _brings_output(kind: str, delta: WireDelta) -> bool:
    if kind != "content_block_delta":
        return kind not in {"", "ping"}
    said = delta.text or delta.thinking or delta.partial_json or delta.signature
    return said != "" or not is_null(delta.citation)


def _with_input(block: _Block) -> Raw | None:
    """The block as it was announced, with the input that was streamed; ``None`` when that is not whole."""
    if not block.pieces:
        return Raw(msgspec.json.encode(block.start)) if block.start else None
    try:
        return Raw(msgspec.json.encode(block.start | {"input": fidelity_bytes("".join(block.pieces))}))
    except CodecError:
        return None


def _items(raw: Raw | None) -> list[Raw]:
    try:
        return [Raw(bytes(item)) for item in msgspec.json.decode(raw, type=list[Raw])] if raw is not None else []
    except (msgspec.DecodeError, RecursionError):
        return []


def _is_error(value: Any) -> bool:
    """An error document of a gateway that does not speak the protocol."""
    match value:
        case {"error": error} if error:
            return True
        case {"message": str()} | {"detail": str()}:
            return True
        case {"base_resp": {"status_code": int(code)}}:
            return code != 0
        case _:
            return False


def _rejection(value: Any) -> Rejection:
    rejection = rejection_from(value)
    if rejection.status is None and rejection.kind in ERROR_STATUSES:
        return replace(rejection, stands_for=ERROR_STATUSES[rejection.kind])
    return rejection
