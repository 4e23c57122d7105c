"""From the text of a call's arguments to values that are valid to the tool's schema (N4)."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from penguin.environment.tool import ToolDefinitionConfig, ToolError
from penguin.protocol.messages import scrub

if TYPE_CHECKING:
    import jsonschema_rs

_MOST_PROBLEMS = 5
_LONGEST_VALUE = 80
_LONGEST_MESSAGE = 300  # it begins with the value and ends with what is wrong with it
_log = logging.getLogger("penguin.environment")


def parse_arguments(text: str) -> dict[str, Any]:
    """The JSON object in ``text``; an empty text means no arguments.

    Raises:
        ToolError: it is not a JSON object.
    """
    try:
        value = msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, UnicodeEncodeError):
        value = _parse_leniently(text)
    if not isinstance(value, dict):
        raise ToolError(f"The arguments must be a JSON object, not {_kind(value)}.")
    return value


def _parse_leniently(text: str) -> Any:
    # msgspec refuses escaped lone surrogates; the standard library reads them, and they are replaced here.
    try:
        return scrubbed(json.loads(text, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise ToolError(f"The arguments are not valid JSON: {error}") from None


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


def scrubbed(value: Any) -> Any:
    """A JSON value in which every text can be encoded: lone surrogates are replaced."""
    match value:
        case str():
            return scrub(value)
        case list():
            return [scrubbed(item) for item in value]
        case dict():
            return {scrub(key): scrubbed(item) for key, item in value.items()}
        case _:
            return value


class ArgumentCheck:
    """The compiled schema of one tool."""

    def __init__(self, definition: ToolDefinitionConfig) -> None:
        self._definition = definition
        self._compiled: jsonschema_rs.Validator | None = None
        self._unusable = False

    def check(self, args: dict[str, Any]) -> dict[str, Any]:
        """The arguments to run with: an optional one that is ``null`` counts as left out, and 2.0 as 2.

        Raises:
            ToolError: which arguments are wrong and what was expected.
        """
        validator = self._validator()
        if validator is None:
            return args
        try:
            if validator.is_valid(args):
                return self._with_whole_numbers(args)
            args = self._without_nulls(args)
            problems = [_problem(error, self._definition) for error in validator.iter_errors(args)]
        except ValueError as error:
            raise ToolError(f"The arguments of {self._definition.name} cannot be checked: {error}") from None
        if problems:
            raise ToolError(_told(self._definition.name, problems))
        return self._with_whole_numbers(args)

    def _validator(self) -> jsonschema_rs.Validator | None:
        if self._compiled is None and not self._unusable:
            import jsonschema_rs  # noqa: PLC0415 - 20 ms to import, and many a session calls no tool

            try:
                self._compiled = jsonschema_rs.validator_for(
                    self._definition.parameters, validate_formats=False, retriever=_refuse_to_fetch
                )
            except Exception:  # noqa: BLE001 - it raises several kinds; the schema may come from a third party
                self._unusable = True
                _log.warning("the schema of tool %s cannot be used; arguments go unchecked", self._definition.name)
        return self._compiled

    def _without_nulls(self, args: dict[str, Any]) -> dict[str, Any]:
        # Models trained on strict function calling send null for everything they leave out.
        required = self._definition.parameters.get("required", ())
        return {name: value for name, value in args.items() if value is not None or name in required}

    def _with_whole_numbers(self, args: dict[str, Any]) -> dict[str, Any]:
        # To a JSON Schema 2.0 is an integer. What counts with it in Python may need one in type too.
        properties = self._definition.parameters.get("properties", {})
        return {
            name: int(value) if isinstance(value, float) and _wants_integer(properties.get(name)) else value
            for name, value in args.items()
        }


def _wants_integer(schema: Any) -> bool:
    match schema:
        case {"type": "integer"}:
            return True
        case _:
            return False


def _refuse_to_fetch(uri: str) -> Any:
    raise ToolError(f"a schema must not refer to {uri}")


def _told(tool: str, problems: list[str]) -> str:
    shown = problems[:_MOST_PROBLEMS]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    lines = "\n".join(f"- {problem}" for problem in shown)
    return f"Wrong arguments, {tool} was not run:\n{lines}"


def _problem(error: jsonschema_rs.ValidationError, definition: ToolDefinitionConfig) -> str:
    properties = definition.parameters.get("properties", {})
    kind = error.kind.as_dict()
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path).lstrip(".")
    match error.kind.name:
        case "required":
            name = str(kind["property"])
            return (
                f"{_joined(place, name)} is missing; expected {_expected(properties.get(name) if not place else None)}"
            )
        case "additionalProperties" | "unevaluatedProperties":
            known = f"; {definition.name} takes {', '.join(properties) or 'no arguments'}" if not place else ""
            names = ", ".join(_joined(place, str(name)) for name in kind["unexpected"])
            return f"{names} is not known{known}"
        case "type":
            wanted = " or ".join(str(each) for each in kind["types"])
            return (
                f"{place or 'the arguments'}: expected {wanted}, got {_kind(error.instance)} {_shown(error.instance)}"
            )
        case _:
            return f"{place or 'the arguments'}: {_clipped(error.message)}"


def _clipped(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:200]}… {message[-100:]}"


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _expected(schema: Any) -> str:
    match schema:
        case {"type": str(kind), "description": str(description)}:
            return f"{kind} ({description})"
        case {"type": str(kind)}:
            return kind
        case _:
            return "a value"


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
