"""The stream of a Chat Completions server, event by event, to segments: a small state machine (L3, L4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from penguin.llm.adapter import Conclusion
from penguin.llm.outcome import Rejection, rejection_from
from penguin.llm.providers.lenient import ABSENT, NotJson, argument_text, document, is_null
from penguin.llm.providers.made_images import image_address, shown_image
from penguin.llm.providers.openai_chat_wire import WireCall, WireChoice, WireChunk, WireDelta, read
from penguin.llm.providers.think_tags import ThinkTagReader
from penguin.llm.segments import CallSegment, Segments
from penguin.llm.sse import StreamEvent
from penguin.protocol.codec import minify
from penguin.protocol.messages import InlineData

Finish: TypeAlias = Literal["stop", "length", "filter", "broken"]

FINISHES: Final[dict[str, Finish]] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "filter",
    "sensitive": "filter",
    "safety": "filter",
    "refusal": "filter",
    "insufficient_system_resource": "broken",
    "network_error": "broken",
    "engine_overloaded": "broken",
    "error": "broken",
    "abort": "broken",
    "aborted": "broken",
    "cancelled": "broken",
    "canceled": "broken",
}
"""What the labels that matter mean; any other (``stop``, ``tool_calls``, ``eos``…) is a plain end (D05).

``broken``: the server itself ended what the model had not. vLLM says ``abort`` when it shuts down, OpenRouter
``error`` with the reason beside it."""


@dataclass(slots=True)
class _Ending:
    """What the fold learnt about the end; ``finish`` is ``None`` while no terminal label has come."""

    finish: Finish | None = None
    label: str = ""
    done: bool = False
    refusal: str = ""
    rejection: Rejection | None = None
    unreadable: str = ""
    usage: Raw | None = None


_NOTES: Final[dict[Finish, str]] = {
    "length": "The reply was cut at the output limit.",
    "filter": "The reply was cut by the provider's content filter.",
}


class TextCallReader(Protocol):
    """Stands between the content and the text segments where calls may be written as text (L18)."""

    def read(self, text: str) -> None:
        """Take the next piece of text."""
        ...

    def finish(self, *, native_calls: bool, cut: bool) -> bool:
        """The text has ended; says whether a call was cut off in it."""
        ...

    def found_calls(self) -> bool:
        """Whether the text held calls."""
        ...


class _Call:
    """One tool call under way: gathered until its name is known, then streamed."""

    __slots__ = ("ended", "extra", "index", "name", "pieces", "provider_id", "segment")

    def __init__(self, index: int | None, provider_id: str) -> None:
        self.index = index
        self.provider_id = provider_id
        self.name = ""
        self.pieces: list[str] = []
        self.extra: Raw | None = None
        self.segment: CallSegment | None = None

    def arguments(self) -> str:
        return "".join(self.pieces)

    def is_whole(self) -> bool:
        """Whether the arguments so far are a JSON document, so that what follows can only be another call."""
        try:
            json.loads(self.arguments())
        except (ValueError, RecursionError):
            return False
        return True


class ChatFold:
    """Folds events into segments; pure apart from what it emits.

    ``text_calls`` makes the reader for calls written as text from the two things it may do: say
    text, or make a call of a name and arguments.

    Example::

        fold = ChatFold(segments)
        for event in splitter.feed(chunk):
            fold.fold(event)
        conclusion = fold.conclude()
    """

    def __init__(
        self,
        segments: Segments,
        text_calls: Callable[[Callable[[str], object], Callable[[str, str], None]], TextCallReader] | None = None,
    ) -> None:
        self._ending = _Ending()
        self._segments = segments
        self._text_calls = text_calls(segments.say, self._call_from_text) if text_calls else None
        self._say: Callable[[str], object] = self._text_calls.read if self._text_calls else segments.say
        self._content = ThinkTagReader(segments, self._say)
        self._calls: list[_Call] = []
        self._images: set[str] = set()
        self._details = ReasoningDetails()
        self._saw_content = False
        self._said_something = False
        self._brought_output = False

    def fold(self, event: StreamEvent) -> bool:
        """Take one event and say whether it brought output; never raises."""
        data = event.data
        if self.over():
            return False
        if data.startswith(b"[DONE]"):
            self._ending.done = True
            return True
        self._brought_output = False
        try:
            if b"\n" not in data:
                self._chunk(read(data), data, event.name)
            else:
                for part in _documents(data):
                    self._chunk(read(part), part, event.name)
        except (NotJson, RecursionError) as error:
            if not self.delivered():
                self._ending.unreadable = f"an event is not JSON: {error}"
        return self._brought_output

    def delivered(self) -> bool:
        """Whether the reply is complete: what the connection does from now on does not matter (L4)."""
        return self._ending.finish is not None or (self._ending.done and self._saw_content)

    def over(self) -> bool:
        """Whether nothing more will be taken."""
        ending = self._ending
        return ending.done or ending.rejection is not None or ending.unreadable != ""

    def conclude(self) -> Conclusion:
        """The stream has ended: let go of what was held back and say what it came to."""
        ending = self._ending
        cut = ending.finish in {"length", "filter"}
        cut_off = self._settle(cut=cut)
        return Conclusion(
            delivered=self.delivered(),
            rejection=ending.rejection or self._failing_finish(),
            unreadable=ending.unreadable or (self._broken_call() if self.delivered() and not cut_off else ""),
            cut_off=cut_off,
            filtered=ending.finish == "filter",
            refusal=self._refusal(),
            note=_NOTES.get(ending.finish or "stop"),
            at_limit=ending.finish == "length",
            usage=ending.usage,
        )

    def _settle(self, *, cut: bool) -> bool:
        """Open what waits, complete empty arguments; says whether a call was cut off."""
        self._content.finish()
        in_text = False
        if self._text_calls is not None:
            in_text = self._text_calls.finish(native_calls=bool(self._calls), cut=cut)
        for call in self._calls:
            self._open(call)
            if call.segment is not None and not call.arguments().strip() and not cut:
                self._segments.argue(call.segment, "{}")
        return in_text or (cut and self._has_calls())

    def _has_calls(self) -> bool:
        in_text = self._text_calls is not None and self._text_calls.found_calls()
        return in_text or any(call.name for call in self._calls)

    def _broken_call(self) -> str:
        if any(not call.name and call.arguments().strip() for call in self._calls):
            return "a tool call came without a name"
        if self._ending.finish is None and not all(call.is_whole() for call in self._calls if call.arguments().strip()):
            return "the stream ended inside a tool call"
        return ""

    def _failing_finish(self) -> Rejection | None:
        if self._ending.finish != "broken":
            return None
        return Rejection(f"the provider broke the reply off ({self._ending.label})", code="server_error")

    def _refusal(self) -> str:
        ending = self._ending
        if ending.refusal:
            return ending.refusal
        filtered = ending.finish == "filter" and not self._said_something
        return "the provider's content filter stopped the reply before its first word" if filtered else ""

    # --- one chunk -----------------------------------------------------------------------------------

    def _chunk(self, chunk: WireChunk, data: bytes, name: str) -> None:
        if not chunk.choices and _may_be_error(chunk) and _is_error(document(data), name):
            self._reject(document(data))
            return
        if chunk.usage is not ABSENT:
            self._note_usage(chunk.usage)
        if chunk.x_groq is not None:
            self._note_usage(chunk.x_groq.usage)
        for choice in chunk.choices or ():
            self._choice(choice)
        # After the choices: the words beside an error are shown, and an ordinary finish there comes first.
        if chunk.error is not ABSENT:
            self._note_error(chunk.error)

    def _choice(self, choice: WireChoice) -> None:
        delta = choice.delta or choice.message
        if delta is not None:
            self._delta(delta)
        if choice.usage is not ABSENT:
            self._note_usage(choice.usage)
        if choice.finish_reason:
            finish = FINISHES.get(choice.finish_reason.lower(), "stop")
            # A cut stays a cut: servers that send two finish chunks end with a plain one. And what has
            # ended stays delivered, whatever breaks afterwards.
            if self._ending.finish is None or (self._ending.finish == "stop" and finish != "broken"):
                self._ending.finish, self._ending.label = finish, choice.finish_reason
        if choice.error is not ABSENT:
            self._note_error(choice.error)

    def _note_error(self, raw: Raw) -> None:
        error = document(bytes(raw))
        if _says_something(error):
            self._reject({"error": error})

    def _reject(self, value: Any) -> None:
        """The provider's own reason; it says more than a finish that only tells of some error, or ends nothing."""
        if self._ending.finish == "broken" or not self.delivered() or not self._saw_content:
            self._ending.rejection = rejection_from(value)

    def _delta(self, delta: WireDelta) -> None:
        if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
            self._reason(delta)
        if delta.content:
            self._brought_output = self._saw_content = self._said_something = True
            if isinstance(delta.content, str):
                self._speak(delta.content)
            else:
                self._parts(delta.content)
        if delta.refusal:
            self._brought_output = self._saw_content = True
            self._ending.refusal += delta.refusal
            self._speak(delta.refusal)
        for piece in delta.tool_calls or ():
            self._call_piece(piece)
        if delta.function_call is not None:
            self._call_piece(WireCall(function=delta.function_call))
        if delta.extra_content is not ABSENT and not is_null(delta.extra_content):
            self._text_extra(delta.extra_content)
        for image in delta.images or ():
            self._image(image)

    def _speak(self, text: str) -> None:
        if self._calls:
            self._open_named_calls()
        if self._content.plain:
            self._say(text)
        else:
            self._content.read(text)

    def _parts(self, parts: list[Any]) -> None:
        for part in parts:
            match part:
                case {"type": "thinking", "thinking": str(text)} | {"type": "reasoning", "text": str(text)} if text:
                    self._think(text, "content.thinking")
                case {"type": "thinking", "thinking": list(inner)}:
                    for item in inner:
                        match item:
                            case {"text": str(text)} if text:
                                self._think(text, "content.thinking")
                            case _:
                                pass
                case {"text": str(text)} | str(text) if text:
                    self._speak(text)
                case {"type": "image_url"}:
                    self._image(part)
                case _:
                    pass

    def _image(self, part: Any) -> None:
        """An image that the model made: data is shown as such, an address as the link it is."""
        url = image_address(part)
        if not url or url in self._images:
            return  # some servers repeat it in each chunk
        self._images.add(url)
        self._brought_output = self._saw_content = self._said_something = True
        self._open_named_calls()
        # Past the readers of the content: their text goes on behind it, and may be in the middle of a call (L18).
        match shown_image(url):
            case InlineData() as data:
                self._segments.present(data)
            case words:
                self._segments.say(words)

    def _text_extra(self, extra: Raw) -> None:
        segment = self._segments.text()
        if segment is not None:
            segment.fidelity["extra_content"] = Raw(minify(bytes(extra)))

    # --- reasoning -----------------------------------------------------------------------------------

    def _reason(self, delta: WireDelta) -> None:
        self._brought_output = self._saw_content = True
        # A server in transition sends the same words under both names.
        if delta.reasoning_content:
            self._think(delta.reasoning_content, "reasoning_content")
        elif delta.reasoning:
            self._think(delta.reasoning, "reasoning")
        if delta.reasoning_details:
            self._detail(delta.reasoning_details, silent=not (delta.reasoning_content or delta.reasoning))

    def _think(self, text: str, field: str) -> None:
        segment = self._segments.thought("reasoning_details") or self._segments.think("", field)
        if segment.source == field and "reasoning_field" not in segment.fidelity:
            segment.fidelity["reasoning_field"] = Raw(msgspec.json.encode(field))
        self._segments.think(text, segment.source)

    def _detail(self, details: list[dict[str, Raw]], *, silent: bool) -> None:
        source = self._segments.thinking_source() or "reasoning_details"
        segment = self._segments.think("", source)
        if segment.late_fidelity is None:
            self._details = ReasoningDetails()
            segment.late_fidelity = self._details.fidelity
        for detail in details:
            text = self._details.add(detail)
            if silent:
                self._segments.think(text, source)

    # --- calls ---------------------------------------------------------------------------------------

    def _call_piece(self, piece: WireCall) -> None:
        self._saw_content = self._said_something = True
        name, arguments = piece.called.name or "", argument_text(piece.called.arguments)
        if name or arguments:
            self._brought_output = True
        call = self._call_for(piece.index, piece.id or "", name, arguments)
        if piece.id and not call.provider_id:
            call.provider_id = piece.id
        if name and not (call.name and call.arguments()):
            call.name = _joined_name(call.name, name)
        if not is_null(piece.extra_content):
            call.extra = Raw(minify(bytes(piece.extra_content)))
            self._note_extra(call)
        if arguments:
            call.pieces.append(arguments)
            self._stream(call, arguments)

    def _call_for(self, index: int | None, provider_id: str, name: str, arguments: str) -> _Call:
        """By index, else by id, else the call opened last; a label that plainly belongs to another call opens one."""
        call = self._known_call(index, provider_id)
        if call is not None and not _is_another(call, index, provider_id, name, arguments):
            return call
        if call is not None and provider_id:
            same = next((known for known in self._calls if known.provider_id == provider_id), None)
            if same is not None:
                return same
        self._open_named_calls()
        call = _Call(index, provider_id)
        self._calls.append(call)
        return call

    def _known_call(self, index: int | None, provider_id: str) -> _Call | None:
        newest_first = reversed(self._calls)
        if index is not None:
            return next((call for call in newest_first if call.index == index), None)
        if provider_id:
            return next((call for call in newest_first if call.provider_id == provider_id), None)
        return next(newest_first, None)

    def _stream(self, call: _Call, arguments: str) -> None:
        if call.segment is not None:
            self._segments.argue(call.segment, arguments)
        else:
            self._open(call)

    def _open(self, call: _Call) -> None:
        if call.segment is None and call.name:
            self._flush_text()
            call.segment = self._segments.open_call(call.name, call.provider_id)
            self._note_extra(call)
            self._segments.argue(call.segment, call.arguments())

    def _open_named_calls(self) -> None:
        for call in self._calls:
            self._open(call)

    def _note_extra(self, call: _Call) -> None:
        if call.segment is not None and call.extra is not None:
            call.segment.fidelity["extra_content"] = call.extra

    def _flush_text(self) -> None:
        """A native call follows: what the content held back was text after all."""
        if not self._content.plain:
            self._content.finish()
            self._content = ThinkTagReader(self._segments, self._say)
        if self._text_calls is not None:
            self._text_calls.finish(native_calls=True, cut=False)

    def _call_from_text(self, name: str, arguments: str) -> None:
        call = self._segments.open_call(name, None)
        self._segments.argue(call, arguments)

    def _note_usage(self, usage: Raw) -> None:
        if not is_null(usage) and bytes(usage) != b"{}":
            self._ending.usage = Raw(minify(bytes(usage)))


def _documents(data: bytes) -> list[bytes]:
    """The documents of one event: usually one; several lines of them where a server forgets the blank line."""
    try:
        document(data)
    except NotJson:
        lines = [line for line in data.split(b"\n") if line.strip() and line.strip() != b"[DONE]"]
        return lines if all(line.lstrip().startswith(b"{") for line in lines) else [data]
    return [data]


def _may_be_error(chunk: WireChunk) -> bool:
    """Whether to look closer; only the usage that ends most streams has choices, and none in them."""
    return chunk.choices is None or is_null(chunk.usage)


def _is_error(value: Any, name: str) -> bool:
    """An event without choices that is an error document in one of the known shapes."""
    match value:
        case {"error": error} if _says_something(error):
            return True
        case {"object": "error"} | {"type": "error"}:
            return True
        case {"message": str(), "code": _} | {"detail": str()} | {"errors": [_, *_]}:
            return True
        case {"base_resp": {"status_code": int(code)}} if code:
            return True
        case [{"error": _}, *_] | str():
            return True
        case dict():
            return name == "error"
        case _:
            return False


def _says_something(error: Any) -> bool:
    """Some gateways put an error without a message, a code or anything into every chunk."""
    return any(error.values()) if isinstance(error, dict) else bool(error)


def _is_another(call: _Call, index: int | None, provider_id: str, name: str, arguments: str) -> bool:
    """Whether a piece that seems to belong to ``call`` begins another one.

    Some gateways number every call 0 and differ only in the id; others give no id and repeat the
    index; and some give each piece of one call a fresh id, but then without a name.
    """
    if provider_id and call.provider_id and provider_id != call.provider_id:
        return bool(name) or index is None
    if provider_id or not name or not call.pieces or (index is not None and not arguments):
        return False
    begins_anew = arguments.lstrip().startswith("{") and call.is_whole()
    # Arguments may come before the name: a name is another one only where there is one.
    return begins_anew or call.name not in {"", name}


def _joined_name(known: str, piece: str) -> str:
    """A name that came in pieces, repeated, or growing."""
    if piece.startswith(known):
        return piece
    return known if known.endswith(piece) and len(piece) > 1 else known + piece


_STREAMED_DETAILS = {b'"reasoning.text"': "text", b'"reasoning.summary"': "summary"}
_ABSENT = Raw(b"null")


class ReasoningDetails:
    """The ``reasoning_details`` of one block: streamed pieces of a text or summary become the one item they were.

    Anything else (encrypted reasoning, unknown types) is kept as it came.
    """

    def __init__(self) -> None:
        self._items: list[tuple[dict[str, Raw], str, list[str]]] = []

    def add(self, piece: dict[str, Raw]) -> str:
        """Take one piece; returns the readable text it adds."""
        piece = {key: Raw(minify(bytes(value))) for key, value in piece.items()}
        field = _STREAMED_DETAILS.get(bytes(piece.get("type", _ABSENT)), "")
        text = argument_text(piece.pop(field)) if field in piece else ""
        if field and self._continues(piece, field):
            known, _, pieces = self._items[-1]
            known.update({key: value for key, value in piece.items() if not is_null(value)})
            pieces.append(text)
        else:
            self._items.append((piece, field, [text]))
        return text

    def fidelity(self) -> dict[str, Raw]:
        """The items as they go back."""
        items = [
            known | {field: Raw(msgspec.json.encode("".join(pieces)))} if field else known
            for known, field, pieces in self._items
        ]
        return {"reasoning_details": Raw(msgspec.json.encode(items))}

    def _continues(self, piece: dict[str, Raw], field: str) -> bool:
        if not self._items or self._items[-1][1] != field:
            return False
        known = self._items[-1][0]
        # A signature ends a text: what follows it is the next one, even under the same index.
        ended = not is_null(known.get("signature", _ABSENT))
        return not ended and bytes(known.get("index", _ABSENT)) == bytes(piece.get("index", _ABSENT))
