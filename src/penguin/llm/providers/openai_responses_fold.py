"""The stream of a Responses server, event by event, to segments (L3, L4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Raw, Struct

from penguin.llm.adapter import Conclusion
from penguin.llm.outcome import Rejection, rejection_from
from penguin.llm.providers.lenient import ABSENT, EventReader, NotJson, document, kept
from penguin.llm.providers.openai_responses_items import (
    CALL,
    MESSAGE,
    CallItem,
    Item,
    MessageItem,
    WireItem,
    item_reader,
    make_item,
)
from penguin.llm.segments import Segments
from penguin.llm.sse import StreamEvent

End: TypeAlias = Literal["completed", "length", "filter"]

_NOTES: Final[dict[End, str]] = {
    "length": "The reply was cut at the output limit.",
    "filter": "The reply was cut by the provider's content filter.",
}


class WireDetails(Struct):
    """Why a response is incomplete."""

    reason: str | None = None


class WireResponse(Struct):
    """A response as a whole, in the events that begin and end it, or by itself where a server does not stream."""

    object: str | None = None
    status: str | None = None
    output: list[Raw] | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT
    incomplete_details: WireDetails | None = None


class WireEvent(Struct):
    """One event; which fields are there depends on its type."""

    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    summary_index: int | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    item: Raw = ABSENT
    response: Raw = ABSENT


event_reader: Final = EventReader(WireEvent)
_response_reader: Final = EventReader(WireResponse)


class ResponsesFold:
    """Folds events into segments; pure apart from what it emits.

    Items are known by their id, else by their place in the output: some gateways give an item another
    id in each event, others number every item 0.

    Example::

        fold = ResponsesFold(segments)
        for event in splitter.feed(chunk):
            fold.fold(event)
        conclusion = fold.conclude()
    """

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._items: list[Item] = []
        self._first_unfinished = 0
        self._by_id: dict[str, Item] = {}
        self._by_index: dict[int, Item] = {}
        self._end: End | None = None
        self._rejection: Rejection | None = None
        self._unreadable = ""
        self._usage: Raw | None = None
        self._takers: dict[str, Callable[[WireEvent], None]] = {
            "response.output_text.delta": self._text,
            "response.output_text.done": self._text_done,
            "response.refusal.delta": self._refusal,
            "response.refusal.done": self._refusal_done,
            "response.reasoning_summary_text.delta": self._summary,
            "response.reasoning_summary_text.done": self._summary_done,
            "response.reasoning_text.delta": self._reasoning,
            "response.reasoning_text.done": self._reasoning_done,
            "response.function_call_arguments.delta": self._arguments,
            "response.function_call_arguments.done": self._arguments_done,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.completed": self._response_over,
            "response.incomplete": self._response_over,
            "response.failed": self._response_over,
            "response.cancelled": self._response_over,
        }

    def fold(self, event: StreamEvent) -> bool:
        """Take one event and say whether it brought output; never raises."""
        if self.over() or event.data.startswith(b"[DONE]"):
            return False
        try:
            wire = event_reader.read(event.data)
            take = self._takers.get(wire.type)
            if take is not None:
                take(wire)
                return wire.delta != ""
            if not wire.type.startswith("response."):
                self._unannounced(event)
        except (NotJson, RecursionError) as error:
            self._unreadable = f"an event is not JSON: {error}"
        return False

    def delivered(self) -> bool:
        """Whether the reply is complete: what the connection does from now on does not matter (L4)."""
        return self._end is not None

    def over(self) -> bool:
        """Whether nothing more will be taken."""
        return self._end is not None or self._rejection is not None or self._unreadable != ""

    def conclude(self) -> Conclusion:
        """The stream has ended: say what it came to."""
        open_calls = [item for item in self._calls() if not item.settled()]
        cut = self._end in {"length", "filter"}
        # A server may call an item complete that the limit cut; nothing came after it, so nobody can tell.
        last_is_call = bool(self._items) and isinstance(self._items[-1], CallItem)
        cut_off = cut and (bool(open_calls) or last_is_call)
        return Conclusion(
            delivered=self.delivered(),
            rejection=self._rejection,
            unreadable=self._unreadable or ("" if cut_off else self._broken_call(open_calls)),
            cut_off=cut_off,
            filtered=self._end == "filter",
            refusal=self._refusal_words(),
            note=_NOTES.get(self._end or "completed"),
            at_limit=self._end == "length",
            usage=self._usage,
        )

    def _broken_call(self, open_calls: list[CallItem]) -> str:
        if self._end is None or not open_calls:
            return ""
        return open_calls[0].problem or "the reply ended inside a tool call"

    def _refusal_words(self) -> str:
        words = "".join(item.refusal() for item in self._items if isinstance(item, MessageItem))
        if words or self._end != "filter":
            return words
        spoke = any(item.kind in {MESSAGE, CALL} and item.said_something() for item in self._items)
        spoke = spoke or self._segments.spoke()
        return "" if spoke else "the provider's content filter stopped the reply before its first word"

    def _calls(self) -> Iterable[CallItem]:
        return (item for item in self._items if isinstance(item, CallItem))

    # --- pieces of items -------------------------------------------------------------------------------

    def _text(self, event: WireEvent) -> None:
        self._item(event, MESSAGE).add("text", event.content_index or 0, event.delta or "")

    def _text_done(self, event: WireEvent) -> None:
        self._item(event, MESSAGE).complete("text", event.content_index or 0, event.text or "")

    def _refusal(self, event: WireEvent) -> None:
        self._item(event, MESSAGE).add("refusal", event.content_index or 0, event.delta or "")

    def _refusal_done(self, event: WireEvent) -> None:
        self._item(event, MESSAGE).complete("refusal", event.content_index or 0, event.refusal or "")

    def _summary(self, event: WireEvent) -> None:
        self._item(event, "reasoning").add("summary", event.summary_index or 0, event.delta or "")

    def _summary_done(self, event: WireEvent) -> None:
        self._item(event, "reasoning").complete("summary", event.summary_index or 0, event.text or "")

    def _reasoning(self, event: WireEvent) -> None:
        self._item(event, "reasoning").add("content", event.content_index or 0, event.delta or "")

    def _reasoning_done(self, event: WireEvent) -> None:
        self._item(event, "reasoning").complete("content", event.content_index or 0, event.text or "")

    def _arguments(self, event: WireEvent) -> None:
        self._item(event, CALL).add("arguments", 0, event.delta or "")

    def _arguments_done(self, event: WireEvent) -> None:
        if event.arguments is not None:
            self._item(event, CALL).complete("arguments", 0, event.arguments)

    # --- items -----------------------------------------------------------------------------------------

    def _item(self, event: WireEvent, kind: str) -> Item:
        """The item a piece belongs to; one whose beginning never came begins here."""
        item = self._known(event.item_id, event.output_index, kind)
        if item is None:
            item = self._begin(kind, event.item_id, event.output_index)
            self._show_what_may_be_shown()
        return item

    def _known(self, item_id: str | None, index: int | None, kind: str) -> Item | None:
        named = self._by_id.get(item_id) if item_id else None
        if named is not None and named.kind == kind:
            return named
        if index is not None:
            placed = self._by_index.get(index)
            return placed if placed is not None and placed.kind == kind else None
        if item_id:
            return None
        return next((item for item in reversed(self._items) if item.kind == kind), None)

    def _begin(self, kind: str, item_id: str | None, index: int | None) -> Item:
        item = make_item(self._segments, kind)
        item.place = index
        later = (at for at, each in enumerate(self._items) if _is_later(each.place, index))
        self._insert(next(later, len(self._items)), item)
        if item_id:
            self._by_id[item_id] = item
        if index is not None:
            self._by_index[index] = item
        return item

    def _insert(self, at: int, item: Item) -> None:
        """Put an item where it belongs, but not before words that are shown already."""
        shown = (place for place, each in enumerate(self._items) if each.live and each.kind != CALL)
        at = max(at, 1 + max(shown, default=-1))
        self._items.insert(at, item)
        self._first_unfinished = min(self._first_unfinished, at)

    def _item_added(self, event: WireEvent) -> None:
        wire = item_reader.read(event.item)
        named = self._by_id.get(wire.id or "")
        placed = self._by_index.get(-1 if event.output_index is None else event.output_index)
        repeated = placed is not None and placed.kind == wire.type and not (placed.done or wire.id)
        if not wire.type or (named is not None and named.wire.type) or repeated:
            return
        item = named or self._begin(wire.type, wire.id, event.output_index)
        item.announce(wire, event.item)
        self._show_what_may_be_shown()

    def _item_done(self, event: WireEvent) -> None:
        wire = item_reader.read(event.item)
        if not wire.type:
            return
        item = self._known(wire.id, event.output_index, wire.type)
        if item is None or (item.done and wire.id != item.wire.id) or _is_another_call(wire, item):
            item = self._begin(wire.type, wire.id, event.output_index)
        self._finish(item, wire, event.item)

    def _finish(self, item: Item, wire: WireItem, raw: Raw) -> None:
        if not item.done:
            item.learn(wire, raw)
            item.finish()
            self._show_what_may_be_shown()

    def _show_what_may_be_shown(self) -> None:
        """Give each item its turn whose predecessors are done; calls may be open together."""
        while self._first_unfinished < len(self._items) and self._items[self._first_unfinished].is_over():
            self._first_unfinished += 1
        open_call = False
        for item in self._items[self._first_unfinished :]:
            if open_call and item.kind != CALL:
                return
            if not item.live:
                self._give_turn(item)
            if not item.done and item.kind != CALL:
                return
            open_call = open_call or not item.done

    def _give_turn(self, item: Item) -> None:
        if item.kind != CALL:
            self._release_calls(self._items[: self._items.index(item)])
        item.go_live()

    @staticmethod
    def _release_calls(items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, CallItem):
                item.release()

    # --- the end ---------------------------------------------------------------------------------------

    def _response_over(self, event: WireEvent) -> None:
        if event.response is ABSENT:
            self._unreadable = f"{event.type} came without its response"
            return
        self._conclude_with(event.response, event.type.removeprefix("response."))

    def _unannounced(self, event: StreamEvent) -> None:
        """An error, or a whole reply as one document; anything else is some other server's business."""
        value = document(event.data)
        match value:
            case {"object": "response", "status": "queued" | "in_progress" as status}:
                self._unreadable = f"the server answered with a response that is still {status}"
            case {"object": "response"}:
                self._conclude_with(Raw(event.data), "")
            case {"type": "error"} | {"error": dict() | str()} | {"detail": str()} | {"errors": [_, *_]}:
                self._rejection = rejection_from(value)
            case dict() if event.name == "error":
                self._rejection = rejection_from(value)
            case _:
                pass

    def _conclude_with(self, raw: Raw, said: str) -> None:
        response = _response_reader.read(raw)
        self._usage = kept(response.usage) or self._usage
        # A few servers end every stream with response.completed; the status then tells more.
        match response.status if response.status in {"failed", "incomplete", "cancelled"} else said:
            case "failed" | "cancelled" as status:
                self._rejection = _failure(response, status)
            case "incomplete":
                reason = response.incomplete_details.reason if response.incomplete_details else None
                self._take_output(response.output or [], complete=False)
                self._end = "filter" if reason == "content_filter" else "length"
            case "completed" | "":
                self._take_output(response.output or [], complete=True)
                self._end = "completed"
                if all(call.settled() for call in self._calls()):
                    self._release_calls(self._items)
            case status:
                self._unreadable = f"the response ended with the unknown status {status!r}"

    def _take_output(self, output: list[Raw], *, complete: bool) -> None:
        """Finish what the events left open, and add items they never told of."""
        told = [(wire, raw) for raw in output if (wire := item_reader.read(raw)).type]
        at = 0
        for (wire, raw), known in zip(told, _counterparts([wire for wire, _ in told], self._items), strict=True):
            item = known or make_item(self._segments, wire.type)
            if known is None:
                self._insert(at, item)
            at = self._items.index(item) + 1
            self._finish(item, wire, raw)
        for item in self._items:
            if isinstance(item, CallItem):
                if complete:
                    item.end()
            else:
                item.finish()
        for item in self._items:
            if not item.live:
                self._give_turn(item)


def _is_later(place: int | None, than: int | None) -> bool:
    return place is not None and than is not None and place > than


def _counterparts(output: list[WireItem], known: list[Item]) -> list[Item | None]:
    """Which of the items known from events those of the final list are.

    By their ids; where those differ in each event, the next one of the same type.
    """
    unmatched = list(known)
    found: list[Item | None] = []
    for wire in output:
        item = next((item for item in unmatched if item.kind == wire.type and _is_same(wire, item)), None)
        found.append(item)
        if item is not None:
            unmatched.remove(item)
    for place, wire in enumerate(output):
        if found[place] is None:
            alike = (item for item in unmatched if item.kind == wire.type and not _is_another_call(wire, item))
            found[place] = item = next(alike, None)
            if item is not None:
                unmatched.remove(item)
    return found


def _is_same(wire: WireItem, item: Item) -> bool:
    same_id = wire.id == item.wire.id and bool(wire.id)
    return same_id or (wire.call_id == item.wire.call_id and bool(wire.call_id))


def _is_another_call(wire: WireItem, item: Item) -> bool:
    """Whether an item can only be another call: call ids and names are the same in every event of a call."""
    return any(
        one and other and one != other
        for one, other in [(wire.call_id, item.wire.call_id), (wire.name, item.wire.name)]
    )


def _failure(response: WireResponse, status: str) -> Rejection:
    error = document(bytes(response.error))
    if not error:
        return Rejection(f"the provider ended the response as {status} and gave no reason", code="server_error")
    return rejection_from({"error": error})
