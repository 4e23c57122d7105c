"""The stream of a Gemini server, chunk by chunk, to segments (L3, L4)."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.json import encode

from penguin.llm.adapter import Conclusion
from penguin.llm.outcome import Rejection, rejection_from
from penguin.llm.providers.lenient import ABSENT, EventReader, NotJson, document, is_null, kept, kept_members, members
from penguin.llm.segments import CallSegment, Segment, Segments
from penguin.llm.sse import StreamEvent
from penguin.protocol.messages import Fidelity, InlineData, InlineThinking

End: TypeAlias = Literal["stop", "length", "filter", "broken_call", "other", "error"]

ENDS: Final[dict[str, End]] = {
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "filter",
    "RECITATION": "filter",
    "LANGUAGE": "filter",
    "BLOCKLIST": "filter",
    "PROHIBITED_CONTENT": "filter",
    "SPII": "filter",
    "IMAGE_SAFETY": "filter",
    "IMAGE_PROHIBITED_CONTENT": "filter",
    "IMAGE_RECITATION": "filter",
    "MODEL_ARMOR": "filter",
    "ESCALATION": "filter",
    "MALFORMED_FUNCTION_CALL": "broken_call",
    "UNEXPECTED_TOOL_CALL": "broken_call",
    "TOO_MANY_TOOL_CALLS": "broken_call",
    "MALFORMED_RESPONSE": "broken_call",
    "OTHER": "other",
    "IMAGE_OTHER": "other",
    "NO_IMAGE": "other",
    "MISSING_THOUGHT_SIGNATURE": "error",
    "PUP_LIMITED_DISABLED": "error",
}
"""What the reasons that matter mean; any other (``STOP``, or one that is new) is a plain end (D05)."""

_THOUGHT: Final = "thought"


class WireBlob(Struct, rename="camel"):
    """Data in base64."""

    mime_type: str | None = None
    data: str | None = None


class WireCall(Struct):
    """A call, always whole; ``args`` is a JSON object."""

    name: str | None = None
    id: str | None = None
    args: Raw = ABSENT


class WirePart(Struct, rename="camel"):
    """One part of a reply; exactly one of text, call and data is filled in those we know."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: Raw = ABSENT
    function_call: WireCall | None = None
    inline_data: WireBlob | None = None


class WireContent(Struct):
    """The parts of one candidate that are new in this chunk."""

    parts: list[WirePart] | None = None


class WireCandidate(Struct, rename="camel"):
    """The one reply that was asked for."""

    content: WireContent | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None


class WireFeedback(Struct, rename="camel"):
    """Why the prompt was not answered."""

    block_reason: str | None = None
    block_reason_message: str | None = None


class WireChunk(Struct, rename="camel"):
    """One event."""

    candidates: list[WireCandidate] | None = None
    prompt_feedback: WireFeedback | None = None
    usage_metadata: Raw = ABSENT
    error: Raw = ABSENT


class _RawContent(Struct):
    parts: list[Raw] | None = None


class _RawCandidate(Struct):
    content: _RawContent | None = None


class _RawChunk(Struct):
    candidates: list[_RawCandidate] | None = None


reader: Final = EventReader(WireChunk)
_raw_reader: Final = EventReader(_RawChunk)


class GeminiFold:
    """Folds events into segments; pure apart from what it emits.

    A call comes whole, and settles when what follows shows that nothing cut the reply: other parts, or a plain end.
    A signature closes the text or thinking it stands on; a part of an unknown kind becomes an empty thinking block
    that carries it. Some servers put a finish reason on every chunk: one that stands on parts is the last word only if
    nothing follows it. ``has_tools`` says whether the request had any.

    Example::

        fold = GeminiFold(segments, has_tools=True)
        for event in splitter.feed(chunk):
            fold.fold(event)
        conclusion = fold.conclude()
    """

    def __init__(self, segments: Segments, *, has_tools: bool = True) -> None:
        self._segments = segments
        self._has_tools = has_tools
        self._finish = ""
        self._finish_message = ""
        self._ended = False
        self._goes_on = False
        self._blocked = ""
        self._rejection: Rejection | None = None
        self._unreadable = ""
        self._usage = ABSENT
        self._counted = False
        self._spoke = False
        self._brought_output = False
        self._calls: set[tuple[str, str, str]] = set()
        self._waiting: list[CallSegment] = []

    def fold(self, event: StreamEvent) -> bool:
        """Take one event and say whether it brought output; never raises."""
        if self._broken() or event.data.startswith(b"[DONE]"):
            return False
        self._brought_output = False
        try:
            self._chunk(reader.read(event.data), event)
        except (NotJson, RecursionError) as error:
            if not self._may_end_here():
                self._unreadable = f"an event is not JSON: {error}"
        return self._brought_output

    def delivered(self) -> bool:
        """Whether the reply is complete: what the connection does from now on does not matter (L4)."""
        return self._may_end_here() and not self._goes_on

    def over(self) -> bool:
        """Whether nothing more is expected; usage may still follow the last words."""
        return self._broken() or (self._counted and (self._ended or self._blocked != ""))

    def _may_end_here(self) -> bool:
        return self._finish != "" or self._blocked != ""

    def _broken(self) -> bool:
        return self._rejection is not None or self._unreadable != ""

    def conclude(self) -> Conclusion:
        """The stream has ended: say what it came to."""
        end = self._end()
        said_something = self._spoke or bool(self._calls)
        # A call that the limit cuts does not show at all, so a cut before the first word may be one if there are tools.
        hidden_call = end == "length" and self._has_tools and not said_something
        cut_off = (end in {"length", "filter"} and bool(self._waiting)) or hidden_call
        return Conclusion(
            delivered=self._may_end_here(),
            rejection=self._rejection or (Rejection(self._reason(), code=self._finish) if end == "error" else None),
            unreadable=self._unreadable or ("" if cut_off else self._no_reply(end, said_something=said_something)),
            cut_off=cut_off,
            filtered=end == "filter",
            refusal=self._refusal(end, said_something=said_something),
            note=self._note(end),
            at_limit=end == "length",
            usage=kept(self._usage),
        )

    def _no_reply(self, end: End, *, said_something: bool) -> str:
        """Why a delivered reply cannot be used (D12): the reason tells a failure apart from a plain end."""
        match end:
            case "broken_call":
                return f"the model wrote a tool call that cannot be read ({self._reason()})"
            case "other" if not said_something:
                return f"the provider ended the reply without a word ({self._reason()})"
            case _:
                return ""

    def _refusal(self, end: End, *, said_something: bool) -> str:
        if self._blocked:
            return f"the provider refused the prompt ({self._blocked})"
        if end == "filter" and not said_something:
            return f"the provider's filter stopped the reply before its first word ({self._reason()})"
        return ""

    def _note(self, end: End) -> str | None:
        match end:
            case "length":
                return "The reply was cut at the output limit."
            case "filter" | "other":
                return f"The provider ended the reply early ({self._reason()})."
            case _:
                return None

    def _reason(self) -> str:
        return ": ".join(part for part in (self._finish, self._finish_message) if part)

    # --- one chunk -----------------------------------------------------------------------------------

    def _chunk(self, chunk: WireChunk, event: StreamEvent) -> None:
        self._counted = chunk.usage_metadata is not ABSENT
        if self._counted and bytes(chunk.usage_metadata).startswith(b"{"):
            self._usage = chunk.usage_metadata
        if self._blocked or self._ended:
            return
        if not chunk.candidates or not is_null(chunk.error):
            self._without_candidates(chunk, event)
            return
        for position, candidate in enumerate(chunk.candidates):
            if not candidate.index:
                self._candidate(candidate, position, event.data)
        self._note_block(chunk)

    def _without_candidates(self, chunk: WireChunk, event: StreamEvent) -> None:
        self._note_block(chunk)
        value = document(event.data)
        match value:
            case {"error": error} if error:
                self._rejection = rejection_from(value)
            case [{"error": _}, *_]:
                self._rejection = rejection_from(value)
            case [dict(), *_]:  # without alt=sse the stream is one list of chunks
                for item in value:
                    self.fold(StreamEvent(msgspec.json.encode(item)))
            case dict() if event.name == "error":
                self._rejection = rejection_from(value)
            case _:
                pass

    def _note_block(self, chunk: WireChunk) -> None:
        feedback = chunk.prompt_feedback
        if feedback is not None and feedback.block_reason and not chunk.candidates:
            reasons = (feedback.block_reason, feedback.block_reason_message)
            self._blocked = ": ".join(reason for reason in reasons if reason)

    def _candidate(self, candidate: WireCandidate, position: int, data: bytes) -> None:
        parts = candidate.content.parts if candidate.content is not None else None
        self._goes_on = self._goes_on or (bool(parts) and self._finish != "")
        for place, part in enumerate(parts or ()):
            if part.thought_signature is ABSENT and part.text is not None and part.function_call is None:
                self._words(part)
            else:
                self._part(part, _raw_part(data, position, place))
        if candidate.finish_reason:
            self._note_finish(candidate.finish_reason, candidate.finish_message or "")
            self._ended = not parts
            self._goes_on = self._goes_on and not self._ended

    def _note_finish(self, reason: str, message: str) -> None:
        # A cut stays a cut, whatever a second label says.
        if self._end() == "stop":
            self._finish, self._finish_message = reason, message
        if self._end() in {"stop", "other"}:
            self._settle_calls()

    def _end(self) -> End:
        return ENDS.get(self._finish.upper(), "stop")

    def _settle_calls(self) -> None:
        for segment in self._waiting:
            self._segments.finish_call(segment)
        self._waiting.clear()

    def _words(self, part: WirePart) -> Segment | None:
        text = part.text
        if not text:
            return None
        self._brought_output = True
        self._settle_calls()
        if part.thought:
            return self._segments.think(text, _THOUGHT)
        self._spoke = True
        return self._segments.say(text)

    def _part(self, part: WirePart, raw: Raw) -> None:
        """A part with more to it than words; ``raw`` is the part as it came."""
        around = kept_members(raw)
        signature = around.pop("thoughtSignature", None)
        signed = {} if signature is None else {"signature": signature}
        if part.function_call is not None:
            self._call(part.function_call, around, signed)
        elif part.inline_data is not None and part.inline_data.data:
            self._data(part, signed)
        elif part.text and signature is not None:
            self._signed_words(part, raw, signed)
        elif not around.keys() - {"text", "thought"} and signature is None:
            self._words(part)
        else:
            self._keep(part, raw)

    def _signed_words(self, part: WirePart, raw: Raw, signed: dict[str, Raw]) -> None:
        segment = self._words(part)
        if segment is not None:
            segment.fidelity |= {"part": _without_text(raw)} if part.thought else signed
        self._segments.close_talk()

    def _keep(self, part: WirePart, raw: Raw) -> None:
        """A signature by itself closes what is open; anything else stands where it came."""
        whole = kept(raw)
        if whole is None:
            return
        self._brought_output = True
        self._settle_calls()
        text = self._segments.text()
        if text is not None and part.text == "" and not part.thought:
            text.fidelity["closing_part"] = whole
        else:
            thought = self._segments.thought(_THOUGHT) if part.thought else None
            thought = thought or self._segments.think("", "part")
            thought.fidelity["part"] = _without_text(raw)
        self._segments.close_talk()

    def _call(self, call: WireCall, around: dict[str, Raw], signed: dict[str, Raw]) -> None:
        if not call.name:
            self._unreadable = "a tool call came without a name"
            return
        arguments = _arguments(call.args)
        same = (call.id or "", call.name, arguments)
        if call.id and same in self._calls:
            return  # the same event twice; two calls that only share an id are two
        self._calls.add(same)
        self._brought_output = True
        segment = self._segments.open_call(call.name, call.id)
        self._segments.argue(segment, arguments)
        own = members(around.pop("functionCall", None))
        rest = {name: value for name, value in own.items() if name not in {"name", "args"}}
        around.pop("thought", None)
        # Kept even when empty: it tells calls of a Gemini model from those of others.
        segment.fidelity |= signed | {"call": Raw(encode(rest))} | ({"part": Raw(encode(around))} if around else {})
        self._waiting.append(segment)

    def _data(self, part: WirePart, signed: dict[str, Raw]) -> None:
        blob = part.inline_data
        if blob is None or not blob.data:
            return
        self._brought_output = True
        self._settle_calls()
        mime = blob.mime_type or "application/octet-stream"
        fidelity: Fidelity = Raw(encode(signed)) if signed else UNSET
        if part.thought:
            self._segments.present(InlineThinking("assistant", blob.data, mime, fidelity))
        else:
            self._spoke = True
            self._segments.present(InlineData("assistant", blob.data, mime, fidelity))


def _arguments(args: Raw) -> str:
    if bytes(args) == b"null":
        return "{}"
    stored = kept(args)
    return bytes(args if stored is None else stored).decode("utf-8", "replace")


def _without_text(raw: Raw) -> Raw:
    """A part without its words, which the message has; an empty text stays, it is what the part consists of."""
    part = kept_members(raw)
    return Raw(encode({name: value for name, value in part.items() if name != "text" or bytes(value) == b'""'}))


def _raw_part(data: bytes, position: int, place: int) -> Raw:
    candidates = _raw_reader.read(data).candidates or []
    content = candidates[position].content if position < len(candidates) else None
    parts = [part for part in (content.parts if content is not None else None) or () if bytes(part).startswith(b"{")]
    return parts[place] if place < len(parts) else ABSENT


def usage_counts(usage: dict[str, Any]) -> tuple[int, int, int]:
    """Cached input, all input, and output with thoughts, from the numbers of a stream (cumulative, the last ones)."""
    numbers = {name: value for name, value in usage.items() if isinstance(value, int) and value > 0}
    given = numbers.get("promptTokenCount", 0) + numbers.get("toolUsePromptTokenCount", 0)
    said = numbers.get("candidatesTokenCount", 0) + numbers.get("thoughtsTokenCount", 0)
    return min(numbers.get("cachedContentTokenCount", 0), given), given, said
