"""The rules of Gemini ``generateContent`` request bodies."""

from __future__ import annotations

import re
from typing import Any, Final

from penguin.testing.legality.rules import Complaints, check_base64, check_names, check_schema, is_count, is_word

_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_SIGNATURE: Final = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
"""Bytes in JSON are read in either alphabet of base64, with or without padding."""
_DATA: Final = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
_SIGNING: Final = re.compile(r"gemini-(?:[3-9]|[1-9][0-9])")
"""Models that insist on the signature of a call."""


def check(body: dict[str, Any], model: str = "") -> list[str]:
    """Every reason to refuse the body."""
    complaints = Complaints()
    _check_config(body.get("generationConfig", {}), complaints)
    _check_tools(body.get("tools", []), complaints)
    if "systemInstruction" in body:
        parts = _parts(body["systemInstruction"])
        said = parts and all(isinstance(part.get("text"), str) and part["text"] for part in parts)
        complaints.unless(said, "system_instruction", "must have a text part that is not empty")
    contents = body.get("contents")
    if complaints.unless(isinstance(contents, list) and contents, "contents", "contents is not specified"):
        _Conversation(complaints).check(contents or [])
        if _SIGNING.search(model):
            _check_signatures(contents or [], complaints)
    return complaints.found


def _check_config(config: Any, complaints: Complaints) -> None:
    if not complaints.unless(isinstance(config, dict), "generation_config", "must be an object"):
        return
    if "maxOutputTokens" in config:
        complaints.unless(is_count(config["maxOutputTokens"]), "max_output_tokens", "must be at least 1")
    thinking = config.get("thinkingConfig", {})
    both = "thinkingBudget" in thinking and "thinkingLevel" in thinking
    complaints.unless(not both, "thinking_config", "only one of thinking_budget and thinking_level can be set")


def _check_tools(tools: Any, complaints: Complaints) -> None:
    if not complaints.unless(isinstance(tools, list), "tools", "must be a list"):
        return
    declared = [function for tool in tools for function in tool.get("functionDeclarations", [])]
    check_names([function.get("name") for function in declared], _NAME, "function_declarations", complaints)
    for position, function in enumerate(declared):
        complaints.unless(function.get("description"), f"function_declarations[{position}]", "needs a description")
        for name in ("parameters", "parametersJsonSchema"):
            if name in function:
                schema = function[name]
                lowered = (
                    {**schema, "type": str(schema.get("type", "")).lower()} if isinstance(schema, dict) else schema
                )
                check_schema(lowered, f"function_declarations[{position}].{name}", complaints)


def _parts(content: Any) -> list[dict[str, Any]]:
    parts = content.get("parts") if isinstance(content, dict) else None
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _calls(content: Any) -> list[dict[str, Any]]:
    return [part["functionCall"] for part in _parts(content) if isinstance(part.get("functionCall"), dict)]


def _responses(content: Any) -> list[dict[str, Any]]:
    return [part["functionResponse"] for part in _parts(content) if isinstance(part.get("functionResponse"), dict)]


class _Conversation:
    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._open: list[dict[str, Any]] = []

    def check(self, contents: list[Any]) -> None:
        expected = "user"
        for position, content in enumerate(contents):
            place = f"contents[{position}]"
            role = content.get("role") if isinstance(content, dict) else None
            self._complaints.unless(
                role == expected, place, f"please ensure that turns alternate: expected {expected}, found {role!r}"
            )
            parts = _parts(content)
            self._complaints.unless(parts, f"{place}.parts", "must not be empty")
            for number, part in enumerate(parts):
                self._check_part(part, role, f"{place}.parts[{number}]")
            self._pair(content, place)
            expected = "user" if role == "model" else "model"
        self._pair({}, "contents")
        self._complaints.unless(expected == "model", "contents", "the last turn must be the user's")

    def _pair(self, content: Any, place: str) -> None:
        """Calls of the turn before and responses of this one: as many, of the same names and ids, in order."""
        responses = _responses(content)
        if len(responses) != len(self._open):
            self._complaints.add(
                place,
                "please ensure that the number of function response parts is equal to the number of function call parts"
                f" of the function call turn ({len(self._open)} calls, {len(responses)} responses)",
            )
        for call, response in zip(self._open, responses, strict=False):
            same = call.get("name") == response.get("name") and call.get("id") == response.get("id")
            self._complaints.unless(
                same, place, f"the response of {response.get('name')!r} answers {call.get('name')!r}"
            )
        kinds = ["functionResponse" in part for part in _parts(content)]
        self._complaints.unless(kinds == sorted(kinds, reverse=True), place, "function responses must come first")
        self._open = _calls(content)

    def _check_part(self, part: dict[str, Any], role: object, place: str) -> None:
        data = [name for name in _DATA if name in part]
        if len(data) != 1:
            self._complaints.add(place, f"required oneof field 'data' must have one initialized field, found {data}")
            return
        match part:
            case {"text": text}:
                signed = role == "model" and "thoughtSignature" in part
                self._complaints.unless(isinstance(text, str) and (text or signed), place, "text must not be empty")
            case {"inlineData": {"mimeType": str(mime), "data": blob}} if "/" in mime:
                check_base64(blob, place, self._complaints)
            case {"functionCall": call}:
                self._check_named(call, "args", place)
                self._complaints.unless(role == "model", place, "only the model calls functions")
            case {"functionResponse": response}:
                self._check_named(response, "response", place)
                self._complaints.unless("response" in response, place, "a function response needs a response object")
                self._complaints.unless(role == "user", place, "only the user answers calls")
            case {"inlineData": _}:
                self._complaints.add(place, "inline data needs a mime type and data")
            case _:
                pass
        if "thoughtSignature" in part:
            signature = part["thoughtSignature"]
            written = isinstance(signature, str) and _SIGNATURE.fullmatch(signature)
            self._complaints.unless(written, f"{place}.thought_signature", "must be base64 and not empty")

    def _check_named(self, value: Any, member: str, place: str) -> None:
        if not self._complaints.unless(isinstance(value, dict), place, "must be an object"):
            return
        self._complaints.unless(
            is_word(value.get("name"), _NAME), f"{place}.name", f"illegal name {value.get('name')!r}"
        )
        self._complaints.unless(isinstance(value.get(member, {}), dict), f"{place}.{member}", "must be an object")


def _check_signatures(contents: list[Any], complaints: Complaints) -> None:
    """Since the user's last words, the first call of each step must carry a signature."""
    begin = max((n for n, c in enumerate(contents) if _is_words(c)), default=0)
    for position in range(begin, len(contents)):
        called = [part for part in _parts(contents[position]) if "functionCall" in part]
        if called and not called[0].get("thoughtSignature"):
            name = called[0]["functionCall"].get("name")
            complaints.add(
                f"contents[{position}]", f"function call {name!r} is missing a thought_signature in functionCall parts"
            )


def _is_words(content: Any) -> bool:
    return isinstance(content, dict) and content.get("role") == "user" and any("text" in p for p in _parts(content))
