"""Rules that span requests: what was signed comes back unchanged, and what was sent stays as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_CONVERSATION: Final = {
    "openai-chat": "messages",
    "openai-responses": "input",
    "anthropic-messages": "messages",
    "gemini": "contents",
}
_PLACEHOLDERS: Final = {"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}
"""What Google documents for calls that its model did not make."""
_MODEL_ROLES: Final = {"assistant", "model"}
_MODEL_ITEMS: Final = {"reasoning", "function_call"}


class SignatureWatch:
    """Knows what a provider has signed, and refuses what it has not, or not in this place.

    Signed are thinking blocks, reasoning items, parts with a thought signature, and calls with extra
    content. They come back unchanged, in the order they were issued, each at most once; a call comes back
    together with what was signed before it in its reply, unless nothing signed is sent at all.

    Example::

        watch = SignatureWatch("anthropic-messages")
        watch.issue({"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]})
        watch.check({"messages": [...]})  # complaints
    """

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._issued: dict[str, int] = {}
        self._with_call: dict[str, list[str]] = {}

    def issue(self, reply: dict[str, Any]) -> None:
        """A reply as the provider words it when it does not stream."""
        before: list[str] = []
        for entry in _entries_of_reply(self._protocol, reply):
            if entry.signed:
                self._issued.setdefault(entry.signed, len(self._issued))
                before.append(entry.signed)
            if entry.call_id:
                # An id that comes twice is made unique on the way, and no longer tells which call it was.
                known = entry.call_id in self._with_call
                self._with_call[entry.call_id] = [] if known else list(before)

    def check(self, body: dict[str, Any]) -> list[str]:
        """What is wrong with the signed items of a request."""
        entries = list(_entries_of_body(self._protocol, body))
        signed = [entry.signed for entry in entries if entry.signed]
        complaints = [
            f"invalid signature: {text[:200]} was never issued" for text in signed if text not in self._issued
        ]
        places = [self._issued[text] for text in signed if text in self._issued]
        if places != sorted(set(places)):
            complaints.append("signed items came back in another order, or twice")
        if signed:
            complaints += self._left_alone(entries, set(signed))
        return complaints

    def _left_alone(self, entries: list[_Entry], signed: set[str]) -> Iterator[str]:
        for entry in entries:
            missing = [text for text in self._with_call.get(entry.call_id, ()) if text not in signed]
            if missing:
                yield f"call {entry.call_id} came back without what was signed with it: {missing[0][:200]}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A piece of the model's side: what is signed of it, and the id if it is a call."""

    signed: str = ""
    call_id: str = ""


def _entries_of_reply(protocol: str, reply: dict[str, Any]) -> Iterator[_Entry]:
    match protocol:
        case "openai-chat":
            for choice in reply.get("choices", []):
                yield from _of_chat(choice.get("message", {}))
        case "openai-responses":
            yield from _of_responses(reply.get("output", []))
        case "anthropic-messages":
            yield from _of_messages(reply.get("content", []))
        case _:
            for candidate in reply.get("candidates", []):
                yield from _of_gemini(candidate.get("content", {}))


def _entries_of_body(protocol: str, body: dict[str, Any]) -> Iterator[_Entry]:
    items = body.get(_CONVERSATION[protocol]) or []
    match protocol:
        case "openai-chat":
            for message in items:
                yield from _of_chat(message)
        case "openai-responses":
            yield from _of_responses(items)
        case "anthropic-messages":
            for message in items:
                content = message.get("content")
                yield from _of_messages(content if isinstance(content, list) else [])
        case _:
            for content in items:
                yield from _of_gemini(content)


def _of_chat(message: dict[str, Any]) -> Iterator[_Entry]:
    for detail in message.get("reasoning_details") or []:
        yield _Entry(_text(detail))
    for call in message.get("tool_calls") or []:
        extra = call.get("extra_content")
        yield _Entry(_text(extra) if extra else "", str(call.get("id")))


def _of_responses(items: list[Any]) -> Iterator[_Entry]:
    for item in items:
        match item:
            case {"type": "reasoning", "encrypted_content": str(secret)}:
                yield _Entry(_text({"id": item.get("id"), "encrypted": secret, "summary": item.get("summary")}))
            case {"type": "function_call", "call_id": str(call_id)}:
                yield _Entry(call_id=call_id)
            case _:
                pass


def _of_messages(blocks: list[Any]) -> Iterator[_Entry]:
    for block in blocks:
        match block:
            case {"type": "thinking" | "redacted_thinking"}:
                yield _Entry(_text(block))
            case {"type": "tool_use", "id": str(call_id)}:
                yield _Entry(call_id=call_id)
            case _:
                pass


def _of_gemini(content: dict[str, Any]) -> Iterator[_Entry]:
    for part in content.get("parts") or []:
        call_id = str((part.get("functionCall") or {}).get("id") or "")
        if "thoughtSignature" in part and part["thoughtSignature"] not in _PLACEHOLDERS:
            yield _Entry(_text({name: value for name, value in part.items() if name != "functionCall"}), call_id)
        elif call_id:
            yield _Entry(call_id=call_id)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


class PrefixWatch:
    """What a completed request has sent is the beginning of the next one, cache markers aside (T12).

    A request without a word of the model begins a new context. The last item may grow: after a reply
    that said nothing the user's words are joined to those before.

    Example::

        watch = PrefixWatch("openai-chat")
        complaints = watch.check(body)
        ...  # the reply completed
        watch.commit(body)
    """

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._sent: list[Any] = []

    def check(self, body: dict[str, Any]) -> list[str]:
        """Where a request differs from what it must begin with."""
        items = self._items(body)
        if not any(_is_of_model(item) for item in items):
            return []
        for position, sent in enumerate(self._sent):
            now = items[position] if position < len(items) else None
            if now != sent and not (position == len(self._sent) - 1 and _grew(sent, now)):
                place = f"{_CONVERSATION[self._protocol]}[{position}]"
                return [f"{place} was changed: {_text(sent)[:300]} is now {_text(now)[:300]}"]
        return []

    def commit(self, body: dict[str, Any]) -> None:
        """The request was answered to the end."""
        self._sent = self._items(body)

    def _items(self, body: dict[str, Any]) -> list[Any]:
        items: list[Any] = _unmarked(body.get(_CONVERSATION[self._protocol]) or [])
        return items


def _is_of_model(item: Any) -> bool:
    return isinstance(item, dict) and (item.get("role") in _MODEL_ROLES or item.get("type") in _MODEL_ITEMS)


def _grew(sent: Any, now: Any) -> bool:
    """Whether a message has only got more parts."""
    if not isinstance(sent, dict) or not isinstance(now, dict):
        return False
    for name in ("content", "parts"):
        before, after = sent.get(name), now.get(name)
        if isinstance(before, list) and isinstance(after, list):
            rest = {key: value for key, value in now.items() if key != name}
            return after[: len(before)] == before and rest == {k: v for k, v in sent.items() if k != name}
    return False


def _unmarked(value: Any) -> Any:
    match value:
        case dict():
            return {name: _unmarked(inner) for name, inner in value.items() if name != "cache_control"}
        case list():
            return [_unmarked(inner) for inner in value]
        case _:
            return value
