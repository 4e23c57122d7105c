"""The rules of Anthropic Messages request bodies."""

from __future__ import annotations

import re
from typing import Any, Final

from penguin.testing.legality.rules import (
    Complaints,
    check_base64,
    check_base64_image,
    check_names,
    check_schema,
    is_count,
    is_filled,
    is_word,
)

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SMALLEST_BUDGET: Final = 1024
_MOST_MARKERS: Final = 4
_THINKING: Final = {"thinking", "redacted_thinking"}


def check(body: dict[str, Any], model: str = "") -> list[str]:  # noqa: ARG001 - the model is in the body
    """Every reason to refuse the body."""
    complaints = Complaints()
    complaints.unless(is_filled(body.get("model")), "model", "must be the name of a model")
    complaints.unless(is_count(body.get("max_tokens")), "max_tokens", "is required and must be at least 1")
    _check_thinking(body, complaints)
    _check_system(body.get("system"), complaints)
    _check_tools(body.get("tools"), complaints)
    _check_markers(body, complaints)
    messages = body.get("messages")
    if complaints.unless(isinstance(messages, list) and messages, "messages", "at least one message is required"):
        _Conversation(complaints).check(messages or [], thinks=_thinks(body))
    return complaints.found


def _thinks(body: dict[str, Any]) -> bool:
    """Whether thinking has a budget; adaptive thinking does not mind turns without it."""
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def _check_thinking(body: dict[str, Any], complaints: Complaints) -> None:
    match body.get("thinking"):
        case None | {"type": "disabled" | "adaptive" | "between_tools"}:
            return
        case {"type": "enabled", "budget_tokens": int(budget)}:
            complaints.unless(
                budget >= _SMALLEST_BUDGET, "thinking.budget_tokens", f"must be at least {_SMALLEST_BUDGET}"
            )
            complaints.unless(
                budget < (body.get("max_tokens") or 0), "max_tokens", "must be greater than thinking.budget_tokens"
            )
            complaints.unless(body.get("temperature", 1) == 1, "temperature", "must be 1 when thinking is enabled")
        case _:
            complaints.add("thinking", "unknown form")


def _check_system(system: Any, complaints: Complaints) -> None:
    match system:
        case None:
            pass
        case str():
            complaints.unless(system, "system", "must not be empty")
        case [*blocks] if blocks:
            for number, block in enumerate(blocks):
                right = isinstance(block, dict) and block.get("type") == "text" and is_filled(block.get("text"))
                complaints.unless(right, f"system[{number}]", "text content blocks must contain non-whitespace text")
        case _:
            complaints.add("system", "must be text or a list with a text block")


def _check_tools(tools: Any, complaints: Complaints) -> None:
    if tools is None:
        return
    if not complaints.unless(isinstance(tools, list), "tools", "must be a list"):
        return
    check_names([tool.get("name") for tool in tools], _TOOL_NAME, "tools", complaints)
    for position, tool in enumerate(tools):
        if tool.get("type") in (None, "custom"):
            check_schema(tool.get("input_schema"), f"tools[{position}].input_schema", complaints)


def _check_markers(body: dict[str, Any], complaints: Complaints) -> None:
    blocks = [*_list(body.get("system")), *_list(body.get("tools"))]
    for message in _list(body.get("messages")):
        for block in _list(message.get("content") if isinstance(message, dict) else None):
            blocks += [block, *_list(block.get("content") if isinstance(block, dict) else None)]
    marked = [block for block in blocks if isinstance(block, dict) and block.get("cache_control")]
    complaints.unless(len(marked) <= _MOST_MARKERS, "cache_control", f"at most {_MOST_MARKERS}, found {len(marked)}")
    for block in marked:
        complaints.unless(block.get("type") not in _THINKING, "cache_control", "cannot be set for thinking blocks")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


class _Conversation:
    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._open: list[str] = []
        self._seen: set[str] = set()

    def check(self, messages: list[Any], *, thinks: bool) -> None:
        expected = "user"
        for position, message in enumerate(messages):
            place = f"messages.{position}"
            role = message.get("role") if isinstance(message, dict) else None
            self._complaints.unless(
                role == expected, place, f"roles must alternate, beginning with user: expected {expected}, found {role}"
            )
            content = message.get("content") if isinstance(message, dict) else None
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _list(content)
            self._complaints.unless(blocks, place, "all messages must have non-empty content")
            self._check_blocks(blocks, role, place)
            expected = "user" if role == "assistant" else "assistant"
        self._expect_answered("messages")
        self._complaints.unless(expected == "assistant", "messages", "the conversation must end with a user message")
        if thinks:
            self._check_last_tool_turn(messages)

    def _check_blocks(self, blocks: list[Any], role: object, place: str) -> None:
        if role == "user":
            self._check_results_first(blocks, place)
        for number, block in enumerate(blocks):
            where = f"{place}.content.{number}"
            kind = block.get("type") if isinstance(block, dict) else None
            match kind:
                case "text":
                    self._complaints.unless(
                        is_filled(block.get("text")), where, "text content blocks must contain non-whitespace text"
                    )
                case "image" | "document" if role == "user":
                    check_source(block, where, self._complaints)
                case "tool_result" if role == "user":
                    self._close_call(block, where)
                case "tool_use" if role == "assistant":
                    self._open_call(block, where)
                case "thinking" | "redacted_thinking" if role == "assistant":
                    self._check_thinking(block, where)
                case str() if role == "assistant" and kind.endswith(("_tool_use", "_tool_result")):
                    pass
                case _:
                    self._complaints.add(where, f"a {role} message cannot hold {kind!r}")
        if role == "user":
            self._expect_answered(place)
        else:
            self._check_server_tools(blocks, place)
            last = blocks[-1].get("type") if blocks and isinstance(blocks[-1], dict) else None
            self._complaints.unless(
                last not in _THINKING, place, f"the final block in an assistant message cannot be `{last}`"
            )

    def _check_results_first(self, blocks: list[Any], place: str) -> None:
        results = [block.get("type") == "tool_result" for block in blocks if isinstance(block, dict)]
        in_order = results == sorted(results, reverse=True)
        self._complaints.unless(in_order, place, "tool_result blocks must come first in the message")

    def _open_call(self, block: dict[str, Any], place: str) -> None:
        call_id = block.get("id")
        self._complaints.unless(is_word(call_id, _CALL_ID), f"{place}.tool_use.id", f"illegal id {call_id!r}")
        self._complaints.unless(call_id not in self._seen, place, "`tool_use` ids must be unique")
        name = block.get("name")
        self._complaints.unless(is_word(name, _TOOL_NAME), f"{place}.tool_use.name", f"illegal name {name!r}")
        self._complaints.unless(isinstance(block.get("input"), dict), f"{place}.tool_use.input", "must be an object")
        self._open.append(str(call_id))
        self._seen.add(str(call_id))

    def _close_call(self, block: dict[str, Any], place: str) -> None:
        call_id = str(block.get("tool_use_id"))
        if call_id in self._open:
            self._open.remove(call_id)
        else:
            self._complaints.add(
                place,
                f"unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` block must have"
                " exactly one corresponding `tool_use` block in the previous message",
            )
        content = block.get("content")
        self._complaints.unless(content != "", f"{place}.content", "must not be empty text")
        for number, inner in enumerate(_list(content)):
            where = f"{place}.content.{number}"
            match inner:
                case {"type": "text", "text": text}:
                    self._complaints.unless(
                        is_filled(text), where, "text content blocks must contain non-whitespace text"
                    )
                case {"type": "image" | "document"}:
                    check_source(inner, where, self._complaints)
                case _:
                    self._complaints.add(where, "a tool_result holds text, images and documents")

    def _check_thinking(self, block: dict[str, Any], place: str) -> None:
        match block:
            case {"type": "thinking", "thinking": str(), "signature": str(signature)} if signature:
                pass
            case {"type": "redacted_thinking", "data": str(data)} if data:
                pass
            case _:
                self._complaints.add(
                    place, "thinking must come back with its signature, redacted thinking with its data"
                )

    def _check_server_tools(self, blocks: list[Any], place: str) -> None:
        used = {block.get("id") for block in blocks if block.get("type") == "server_tool_use"}
        answered = {block.get("tool_use_id") for block in blocks if str(block.get("type")).endswith("_tool_result")}
        for call_id in used - answered:
            self._complaints.add(place, f"server tool use {call_id} was found without its result block")

    def _expect_answered(self, place: str) -> None:
        if self._open:
            self._complaints.add(
                place,
                f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(self._open)}."
                " Each `tool_use` block must have a corresponding `tool_result` block in the next message",
            )
            self._open = []

    def _check_last_tool_turn(self, messages: list[Any]) -> None:
        """With a budget, the turn whose results are being sent must begin with its thinking."""
        if [block for block in _content(messages[-1]) if block.get("type") == "tool_result"]:
            turn = _content(messages[-2]) if len(messages) > 1 else []
            kind = turn[0].get("type") if turn else None
            self._complaints.unless(
                kind in _THINKING,
                f"messages.{len(messages) - 2}.content.0.type",
                f"expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is enabled, a final"
                " `assistant` message must start with a thinking block",
            )


def _content(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in _list(content) if isinstance(block, dict)]


def check_source(block: dict[str, Any], place: str, complaints: Complaints) -> None:
    """An image or a document: base64 of a type that is read, or an address."""
    match block:
        case {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}:
            check_base64_image(mime, data, place, complaints)
        case {"type": "document", "source": {"type": "base64", "media_type": mime, "data": data}}:
            complaints.unless(mime == "application/pdf", place, f"a document cannot be {mime!r}")
            check_base64(data, place, complaints)
        case {"source": {"type": "url", "url": str(url)}}:
            complaints.unless(url.startswith(("https://", "http://")), place, "only web addresses")
        case {"type": "document", "source": {"type": "text" | "content" | "file"}} | {"source": {"type": "file"}}:
            pass
        case _:
            complaints.add(place, "unknown source")
