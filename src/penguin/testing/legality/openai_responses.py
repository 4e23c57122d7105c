"""The rules of Responses request bodies, for a client that stores nothing at the server."""

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
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_ID: Final = 64
_PREFIXES: Final = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_PARTS: Final = {
    "user": {"input_text", "input_image", "input_file"},
    "system": {"input_text"},
    "developer": {"input_text"},
    "assistant": {"output_text", "refusal"},
}
_OUTPUT_PARTS: Final = {"input_text", "input_image", "input_file"}
_SMALLEST_LIMIT: Final = 16


def check(body: dict[str, Any], model: str = "") -> list[str]:  # noqa: ARG001 - the model is in the body
    """Every reason to refuse the body."""
    complaints = Complaints()
    complaints.unless(is_filled(body.get("model")), "model", "must be the name of a model")
    if "max_output_tokens" in body:
        fits = is_count(body["max_output_tokens"], _SMALLEST_LIMIT)
        complaints.unless(fits, "max_output_tokens", f"must be at least {_SMALLEST_LIMIT}")
    if "instructions" in body:
        complaints.unless(isinstance(body["instructions"], str), "instructions", "must be text")
    _check_tools(body.get("tools"), complaints)
    match body.get("input"):
        case str(text):
            complaints.unless(text, "input", "must not be empty")
        case [*items] if items:
            _Items(complaints, stored=body.get("store", True) is not False).check(items)
        case _:
            complaints.add("input", "must be text or a list with an item")
    return complaints.found


def _check_tools(tools: Any, complaints: Complaints) -> None:
    if tools is None:
        return
    if not complaints.unless(isinstance(tools, list), "tools", "must be a list"):
        return
    functions = [tool for tool in tools if isinstance(tool, dict) and tool.get("type") == "function"]
    check_names([function.get("name") for function in functions], _NAME, "tools", complaints)
    for position, function in enumerate(functions):
        check_schema(function.get("parameters"), f"tools[{position}].parameters", complaints)


class _Items:
    """Walks through the items; knows which calls are open and which reasoning waits for what it led to."""

    def __init__(self, complaints: Complaints, *, stored: bool) -> None:
        self._complaints = complaints
        self._stored = stored
        self._open: list[str] = []
        self._calls: set[str] = set()
        self._ids: set[str] = set()
        self._reasoning: str | None = None
        self._answering = False
        self._from_user = False

    def check(self, items: list[Any]) -> None:
        for position, item in enumerate(items):
            place = f"input[{position}]"
            if not isinstance(item, dict):
                self._complaints.add(place, "an item must be an object")
                continue
            kind = item.get("type", "message" if "role" in item else None)
            self._check_id(item, kind, place)
            self._expect_following(kind, item, place)
            match kind:
                case "message":
                    self._check_message(item, place)
                case "function_call":
                    self._check_call(item, place)
                case "function_call_output":
                    self._check_output(item, place)
                case "reasoning":
                    self._check_reasoning(item, place)
                case None:
                    self._complaints.add(place, "an item needs a type")
                case _:
                    self._from_user = False
        self._finish()

    def _finish(self) -> None:
        self._expect_answered("input")
        if self._reasoning is not None:
            self._lacks_following("input")
        self._complaints.unless(self._from_user, "input", "the last item must be the user's or a tool's")

    def _check_id(self, item: dict[str, Any], kind: object, place: str) -> None:
        if item.get("id") is None:
            return
        item_id = str(item["id"])
        if item_id in self._ids:
            self._complaints.add(f"{place}.id", f"duplicate item found with id {item_id}")
        self._ids.add(item_id)
        self._complaints.unless(0 < len(item_id) <= _LONGEST_ID, f"{place}.id", f"longer than {_LONGEST_ID} characters")
        prefix = _PREFIXES.get(str(kind), "")
        of_user = kind == "message" and item.get("role") != "assistant"
        fits = of_user or item_id.startswith(prefix)
        self._complaints.unless(fits, f"{place}.id", f"{item_id!r}: expected an id that begins with {prefix!r}")

    def _expect_following(self, kind: object, item: dict[str, Any], place: str) -> None:
        """Reasoning goes with the next item of the same reply."""
        if self._reasoning is None or kind == "reasoning":
            return
        of_model = kind not in {"message", "function_call_output"} or item.get("role") == "assistant"
        if not of_model:
            self._lacks_following(place)
        self._reasoning = None

    def _lacks_following(self, place: str) -> None:
        self._complaints.add(
            place,
            f"item {self._reasoning!r} of type 'reasoning' was provided without its required following item",
        )
        self._reasoning = None

    def _check_message(self, item: dict[str, Any], place: str) -> None:
        role = item.get("role")
        if role not in _PARTS:
            self._complaints.add(f"{place}.role", f"unknown role {role!r}")
            return
        if role != "assistant" or self._answering:
            self._expect_answered(place)
        self._from_user, self._answering = role != "assistant", False
        match item.get("content"):
            case str(text):
                self._complaints.unless(text, f"{place}.content", "must not be empty")
            case [*parts] if parts:
                for number, part in enumerate(parts):
                    self._check_part(part, _PARTS[role], f"{place}.content[{number}]")
            case _:
                self._complaints.add(f"{place}.content", "must be text or a list with a part")

    def _check_call(self, item: dict[str, Any], place: str) -> None:
        call_id = item.get("call_id")
        if self._answering:
            self._expect_answered(place)
            self._answering = False
        self._complaints.unless(is_word(call_id, _CALL_ID), f"{place}.call_id", f"illegal id {call_id!r}")
        self._complaints.unless(call_id not in self._calls, f"{place}.call_id", f"{call_id!r} is used twice")
        self._complaints.unless(is_word(item.get("name"), _NAME), f"{place}.name", f"illegal name {item.get('name')!r}")
        check_arguments(item.get("arguments"), f"{place}.arguments", self._complaints)
        self._open.append(str(call_id))
        self._calls.add(str(call_id))
        self._from_user = False

    def _check_output(self, item: dict[str, Any], place: str) -> None:
        call_id = str(item.get("call_id"))
        if call_id in self._open:
            self._open.remove(call_id)
        else:
            self._complaints.add(place, f"no tool call found for function call output with call_id {call_id}")
        self._from_user = self._answering = True
        match item.get("output"):
            case str(text):
                self._complaints.unless(text, f"{place}.output", "must not be empty")
            case [*parts] if parts:
                for number, part in enumerate(parts):
                    self._check_part(part, _OUTPUT_PARTS, f"{place}.output[{number}]")
            case _:
                self._complaints.add(f"{place}.output", "must be text or a list with a part")

    def _check_reasoning(self, item: dict[str, Any], place: str) -> None:
        if self._answering:
            self._expect_answered(place)
        self._answering = self._from_user = False
        self._complaints.unless(isinstance(item.get("summary"), list), f"{place}.summary", "is required")
        readable = item.get("encrypted_content") or item.get("content")
        if not self._stored and not readable:
            self._complaints.add(place, f"item {item.get('id')!r} not found: nothing is stored when store is false")
        self._reasoning = str(item.get("id"))

    def _check_part(self, part: Any, allowed: set[str], place: str) -> None:
        kind = part.get("type") if isinstance(part, dict) else None
        if not self._complaints.unless(kind in allowed, place, f"invalid value {kind!r}; use {sorted(allowed)}"):
            return
        match part:
            case {"type": "input_text" | "output_text", "text": str(text)}:
                self._complaints.unless(text, place, "text must not be empty")
            case {"type": "refusal", "refusal": str(text)}:
                self._complaints.unless(text, place, "a refusal must not be empty")
            case {"type": "input_image", "image_url": url}:
                check_image_url(url, place, self._complaints)
            case {"type": "input_image", "file_id": _} | {"type": "input_file"}:
                pass
            case _:
                self._complaints.add(place, f"a part of type {kind} without its content")

    def _expect_answered(self, place: str) -> None:
        for call_id in self._open:
            self._complaints.add(place, f"no tool output found for function call {call_id}")
        self._open = []
