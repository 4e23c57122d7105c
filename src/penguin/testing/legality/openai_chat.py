"""The rules of Chat Completions request bodies."""

from __future__ import annotations

import re
from typing import Any, Final

from penguin.testing.legality.rules import (
    Complaints,
    check_arguments,
    check_image_url,
    check_names,
    check_schema,
    is_count,
    is_filled,
    is_word,
)

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_PARTS: Final = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal", "thinking"},
    "tool": {"text"},
}
_LIMITS: Final = ("max_tokens", "max_completion_tokens")


def check(body: dict[str, Any], model: str = "") -> list[str]:  # noqa: ARG001 - the model is in the body
    """Every reason to refuse the body."""
    complaints = Complaints()
    complaints.unless(is_filled(body.get("model")), "model", "must be the name of a model")
    for limit in _LIMITS:
        complaints.unless(limit not in body or is_count(body[limit]), limit, "must be a whole number of at least 1")
    if "stream_options" in body:
        complaints.unless(body.get("stream") is True, "stream_options", "is only allowed when stream is true")
    _check_tools(body, complaints)
    messages = body.get("messages")
    if complaints.unless(isinstance(messages, list) and messages, "messages", "must be a list with a message"):
        _Conversation(complaints).check(messages or [])
    return complaints.found


def _check_tools(body: dict[str, Any], complaints: Complaints) -> None:
    if "tools" not in body:
        complaints.unless("tool_choice" not in body, "tool_choice", "is only allowed when tools are specified")
        return
    tools = body["tools"]
    if not complaints.unless(isinstance(tools, list) and tools, "tools", "must be a list with a tool; leave it out"):
        return
    functions = [tool.get("function") or {} for tool in tools]
    check_names([function.get("name") for function in functions], _NAME, "tools", complaints)
    for position, function in enumerate(functions):
        complaints.unless(tools[position].get("type") == "function", f"tools[{position}].type", "must be function")
        if "parameters" in function:
            check_schema(function["parameters"], f"tools[{position}].function.parameters", complaints)


class _Conversation:
    """Walks through the messages; knows which calls are open and who spoke last."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._open: list[str] = []
        self._seen: set[str] = set()
        self._last = "system"

    def check(self, messages: list[Any]) -> None:
        for position, message in enumerate(messages):
            place = f"messages[{position}]"
            if not isinstance(message, dict) or message.get("role") not in _PARTS:
                self._complaints.add(f"{place}.role", "unknown role")
                continue
            role = message["role"]
            self._take_turn(role, place, first=position == 0)
            self._check_content(message, role, place)
            match role:
                case "assistant":
                    self._open_calls(message, place)
                case "tool":
                    self._close_call(message, place)
                case _:
                    pass
            self._last = role
        self._expect_answered("messages")
        self._complaints.unless(self._last in {"user", "tool"}, "messages", "the last word must not be the assistant's")

    def _take_turn(self, role: str, place: str, *, first: bool) -> None:
        if role != "tool":
            self._expect_answered(place)
        if role in {"system", "developer"}:
            self._complaints.unless(first, place, "a system message must be the first")
        if role == self._last and role in {"user", "assistant"}:
            self._complaints.add(place, f"roles must alternate, but two {role} messages follow each other")
        if role == "assistant" and self._last == "system":
            self._complaints.add(place, "the user must speak first")

    def _expect_answered(self, place: str) -> None:
        if self._open:
            self._complaints.add(
                place,
                "an assistant message with 'tool_calls' must be followed by tool messages responding to each"
                f" 'tool_call_id'. The following did not have response messages: {', '.join(self._open)}",
            )
            self._open = []

    def _open_calls(self, message: dict[str, Any], place: str) -> None:
        calls = message.get("tool_calls")
        if "tool_calls" in message:
            self._complaints.unless(isinstance(calls, list) and calls, f"{place}.tool_calls", "must not be empty")
        for number, call in enumerate(calls or []):
            where = f"{place}.tool_calls[{number}]"
            function = call.get("function") or {}
            self._complaints.unless(call.get("type") == "function", f"{where}.type", "must be function")
            self._complaints.unless(is_word(call.get("id"), _CALL_ID), f"{where}.id", f"illegal id {call.get('id')!r}")
            self._complaints.unless(
                call.get("id") not in self._seen, f"{where}.id", f"{call.get('id')!r} is used twice"
            )
            self._complaints.unless(is_word(function.get("name"), _NAME), f"{where}.function.name", "illegal name")
            check_arguments(function.get("arguments"), f"{where}.function.arguments", self._complaints)
            self._open.append(str(call.get("id")))
            self._seen.add(str(call.get("id")))

    def _close_call(self, message: dict[str, Any], place: str) -> None:
        call_id = str(message.get("tool_call_id"))
        if call_id in self._open:
            self._open.remove(call_id)
        else:
            self._complaints.add(
                place, "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            )

    def _check_content(self, message: dict[str, Any], role: str, place: str) -> None:
        content = message.get("content")
        where = f"{place}.content"
        match content:
            case None:
                self._complaints.unless(role == "assistant" and message.get("tool_calls"), where, "is required")
            case str():
                empty_allowed = role == "assistant" and message.get("tool_calls")
                self._complaints.unless(content or empty_allowed, where, "must not be empty")
            case [*parts] if parts:
                for number, part in enumerate(parts):
                    self._check_part(part, role, f"{where}[{number}]")
            case _:
                self._complaints.add(where, "must be text or a list with a part")

    def _check_part(self, part: Any, role: str, place: str) -> None:
        kind = part.get("type") if isinstance(part, dict) else None
        if not self._complaints.unless(kind in _PARTS[role], place, f"a {role} message cannot hold {kind!r}"):
            return
        match part:
            case {"type": "text", "text": str(text)}:
                self._complaints.unless(text, place, "text must not be empty")
            case {"type": "image_url", "image_url": {"url": url}}:
                check_image_url(url, place, self._complaints)
            case {"type": "text" | "image_url"}:
                self._complaints.add(place, f"a part of type {kind} without its content")
            case _:
                pass
