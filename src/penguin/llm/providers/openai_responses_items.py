"""The output items of one Responses stream: what has come of each, and when it may be shown.

A stream may work on several items at once, but a reply is read from top to bottom: one text or
thinking block is open at a time, and only calls may be open together. So an item is shown live once
everything before it is done (calls: once everything but calls is); until then its pieces wait.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.json import encode

from penguin.llm.providers.lenient import ABSENT, EventReader, argument_text, kept, kept_members, members, string
from penguin.llm.providers.made_images import image_type
from penguin.llm.segments import CallSegment, Segments
from penguin.protocol.messages import InlineData

CALL: Final = "function_call"
MESSAGE: Final = "message"


class WirePart(Struct):
    """One part of a message or of reasoning."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None


class WireItem(Struct):
    """What is read of an output item; all the rest is kept raw."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    status: str | None = None
    name: str | None = None
    arguments: Raw = ABSENT
    content: list[WirePart] | None = None
    summary: list[WirePart] | None = None


item_reader: Final = EventReader(WireItem)


class Part:
    """The pieces of one text, refusal, summary or argument string."""

    __slots__ = ("index", "pieces", "place", "shown")

    def __init__(self, place: str, index: int) -> None:
        self.place = place
        self.index = index
        self.pieces: list[str] = []
        self.shown = False

    def content(self) -> str:
        """Everything so far."""
        return "".join(self.pieces)


class Item:
    """One output item; subclasses say how it is shown.

    Attributes:
        place: Where it stands in the output, if an event said so.
        live: Whether it is its turn to be shown.
        done: Whether the protocol said that it is complete.
        problem: What cannot be right about it.
    """

    def __init__(self, segments: Segments, kind: str) -> None:
        self.kind = kind
        self.place: int | None = None
        self.wire = WireItem()
        self.raw = ABSENT
        self.live = False
        self.done = False
        self.problem = ""
        self.parts: dict[tuple[str, int], Part] = {}
        self._segments = segments

    def announce(self, wire: WireItem, raw: Raw) -> None:
        """The item as it begins."""
        self.learn(wire, raw)

    def learn(self, wire: WireItem, raw: Raw) -> None:
        """Take over what an event says about the item as a whole."""
        self.wire, self.raw = wire, raw

    def add(self, place: str, index: int, text: str) -> None:
        """The next piece of a part; what comes after the item's end is a repetition."""
        if self.done:
            return
        part = self.parts.get((place, index))
        if part is None:
            part = self.parts[place, index] = Part(place, index)
        part.pieces.append(text)
        if self.live:
            self._show(part, text)

    def complete(self, place: str, index: int, whole: str) -> None:
        """The whole of a part: adds what the pieces left out.

        Text that differs from its pieces stays as it was shown; some servers trim it at the end.
        """
        part = self.parts.get((place, index))
        known = part.content() if part is not None else ""
        if len(whole) > len(known) and whole.startswith(known):
            self.add(place, index, whole[len(known) :])

    def finish(self) -> None:
        """The protocol says that the item is complete."""
        if not self.done:
            self._complete_parts()
            self.done = True
            if self.live:
                self._settle()

    def go_live(self) -> None:
        """Its turn has come: show what has gathered."""
        self.live = True
        for part in list(self.parts.values()):
            for piece in part.pieces:
                self._show(part, piece)
        if self.done:
            self._settle()

    def is_over(self) -> bool:
        """Whether it is shown and complete."""
        return self.live and self.done

    def said_something(self) -> bool:
        """Whether any of its parts has content."""
        return any(piece for part in self.parts.values() for piece in part.pieces)

    def _complete_parts(self) -> None:
        raise NotImplementedError

    def _show(self, part: Part, piece: str) -> None:
        raise NotImplementedError

    def _settle(self) -> None:
        raise NotImplementedError


class MessageItem(Item):
    """Words of the model: each part becomes a text with the item and the part around it as fidelity.

    The item is known as a whole only at its end, so that is when the first text closes and further
    parts (hardly ever seen) are shown.
    """

    def __init__(self, segments: Segments, kind: str) -> None:
        super().__init__(segments, kind)
        self._first: Part | None = None

    def refusal(self) -> str:
        """The model's words of refusal."""
        return "".join(part.content() for part in self.parts.values() if part.place == "refusal")

    def _complete_parts(self) -> None:
        for index, part in enumerate(self.wire.content or ()):
            place = "refusal" if part.type == "refusal" else "text"
            self.complete(place, index, part.refusal or part.text or "")

    def _show(self, part: Part, piece: str) -> None:
        if self._first is None and piece:
            self._first = part
        if part is self._first and piece:
            self._segments.say(piece)

    def _settle(self) -> None:
        item = kept_members(self.raw)
        contents = _list_of_members(item.pop("content", None))
        item = {name: value for name, value in item.items() if value not in _SAYS_NOTHING}
        for part in self.parts.values():
            if part is not self._first and any(part.pieces):
                self._segments.say(part.content())
            text = self._segments.text()
            if text is not None:
                around = contents[part.index] if part.index < len(contents) else {}
                text.fidelity |= _text_fidelity(dict(item), around)
                self._segments.close_talk()


def _text_fidelity(item: dict[str, Raw], part: dict[str, Raw]) -> dict[str, Raw]:
    """``phase`` by itself, as everywhere; the rest of the message and of its part, without the words."""
    phase = {"phase": item.pop("phase")} if "phase" in item else {}
    part = {name: value for name, value in part.items() if name not in {"text", "refusal", "logprobs"}}
    around = {"item": item, "part": part}
    return phase | {name: Raw(encode(given)) for name, given in around.items() if given}


# Empty and unfinished members only cost tokens when they are sent back, or are refused.
_SAYS_NOTHING: Final = (ABSENT, Raw(b'"in_progress"'))


class KeptItem(Item):
    """Reasoning, or an item of a type nobody here knows: a thinking block that carries the raw item.

    What can be read of it (summary parts, or the reasoning itself on open servers) is the thinking's
    text; a search or another server-side tool leaves it empty.
    """

    def announce(self, wire: WireItem, raw: Raw) -> None:  # noqa: ARG002 - the raw item is what is not kept
        """Encrypted reasoning is incomplete in the first event, so nothing is kept of that."""
        self.wire = wire

    def _complete_parts(self) -> None:
        for place, parts in (("summary", self.wire.summary), ("content", self.wire.content)):
            for index, part in enumerate(parts or ()):
                if self.kind == "reasoning":
                    self.complete(place, index, part.text or "")

    def _show(self, part: Part, piece: str) -> None:
        shown = next(iter(self.parts.values()))
        if part.place != shown.place or not piece:
            return
        if part is not shown and not part.shown:
            self._segments.think("\n\n", self._source())
        part.shown = True
        self._segments.think(piece, self._source())

    def _settle(self) -> None:
        raw = kept(self.raw)
        if raw is not None:
            self._segments.think("", self._source()).fidelity["item"] = raw
        self._segments.close_talk()

    def _source(self) -> str:
        return f"{self.kind} {id(self)}"


class ImageItem(KeptItem):
    """An image the server made for the model: data with the item around it as fidelity, its content stored once.

    Without a result (it failed, or was cut) it is kept like any other item.
    """

    def _settle(self) -> None:
        around = kept_members(self.raw)
        data = string(around.pop("result", None))
        if not data:
            super()._settle()
            return
        declared = string(around.get("output_format")) or "png"
        mime = image_type(data, f"image/{declared}")
        self._segments.present(InlineData("assistant", data, mime, Raw(encode({"item": around}))))


class CallItem(Item):
    """A call: open from its name on, complete when its item is and what follows shows that nothing cut it."""

    def __init__(self, segments: Segments, kind: str) -> None:
        super().__init__(segments, kind)
        self._segment: CallSegment | None = None
        self._arguments_ended = False

    def complete(self, place: str, index: int, whole: str) -> None:
        """The whole arguments; pieces that say something else mean that the stream was damaged."""
        part = self.parts.get((place, index))
        known = part.content() if part is not None else ""
        if whole.startswith(known):
            super().complete(place, index, whole)
        elif not _same_json(known, whole):
            self.problem = "the pieces of a tool call are not what its end says"
        self._arguments_ended = True

    def settled(self) -> bool:
        """Whether the call came whole."""
        return self.done and not self.problem and self.wire.status != "incomplete"

    def end(self) -> None:
        """The reply is complete: so is a call whose arguments were, even if its own last event is missing."""
        if self._arguments_ended:
            self.finish()

    def _complete_parts(self) -> None:
        whole = argument_text(self.wire.arguments)
        if whole or not self._arguments_ended:
            self.complete("arguments", 0, whole)
        if not self.wire.name:
            self.problem = "a tool call came without a name"

    def learn(self, wire: WireItem, raw: Raw) -> None:
        """Take over the item; where its first event was missing, its name comes only now."""
        wire.name = wire.name or self.wire.name
        wire.call_id = wire.call_id or self.wire.call_id
        super().learn(wire, raw)
        if self.live and self._segment is None:
            self.go_live()

    def go_live(self) -> None:
        """Its turn has come: open it if its name is known."""
        if self.wire.name:
            self._segment = self._segments.open_call(self.wire.name, self.wire.call_id)
        super().go_live()

    def _show(self, part: Part, piece: str) -> None:  # noqa: ARG002 - a call has one part
        if self._segment is not None:
            self._segments.argue(self._segment, piece)

    def _settle(self) -> None:
        """Not yet: a server may call an item complete that the limit cut, and says so only at the end (D06)."""

    def release(self) -> None:
        """The reply went on after the call, or ended as it should: from here on it may run."""
        if self._segment is None or not self.settled():
            return
        if not "".join(self._segment.parts).strip():
            self._segments.argue(self._segment, "{}")
        own = {"type", "call_id", "name", "arguments"}
        rest = {name: value for name, value in kept_members(self.raw).items() if name not in own}
        if rest:
            self._segment.fidelity["item"] = Raw(encode(rest))
        self._segments.finish_call(self._segment)


def make_item(segments: Segments, kind: str) -> Item:
    """A fresh item of a type."""
    match kind:
        case "message":
            return MessageItem(segments, kind)
        case "function_call":
            return CallItem(segments, kind)
        case "image_generation_call":
            return ImageItem(segments, kind)
        case _:
            return KeptItem(segments, kind)


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


_raw_list: Final = msgspec.json.Decoder(list[Raw])


def _list_of_members(raw: Raw | None) -> list[dict[str, Raw]]:
    try:
        return [members(part) for part in _raw_list.decode(raw or b"[]")]
    except (msgspec.DecodeError, RecursionError):
        return []
