"""From a typed Python function to a description and a JSON Schema (N5)."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from penguin.environment.tool import ToolContext

_DEFINITION = "#/$defs/"
_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?|Attributes|See Also):\s*")
_ARGUMENT = re.compile(r"(\s*)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


class FunctionSchema(Struct, frozen=True):
    """What was read from a function: ``types`` holds the annotation of each argument the model gives."""

    description: str
    parameters: dict[str, Any]
    types: dict[str, Any]
    ctx_name: str | None


def function_schema(function: Callable[..., Any]) -> FunctionSchema:
    """Read the signature, annotations and Google-style docstring of ``function``.

    Raises:
        TypeError: An argument cannot be given as JSON by name; the text says which and why.
    """
    hints = _type_hints(function)
    description, documented = read_docstring(inspect.getdoc(function) or "")
    parameters = inspect.signature(function).parameters
    ctx_name = next((name for name in parameters if _is_context(name, hints.get(name))), None)
    given = {name: each for name, each in parameters.items() if name != ctx_name}
    for each in given.values():
        _refuse_unnameable(function, each)
    types = {name: hints.get(name, Any) for name in given}
    schemas, definitions = _schemas(function, {name: _without_none(types[name], given[name]) for name in given})
    for name, schema in schemas.items():
        schemas[name] = _annotated(schema, documented.get(name), given[name])
    whole = {
        "type": "object",
        "properties": schemas,
        "required": [name for name, each in given.items() if each.default is each.empty],
        "additionalProperties": False,
    }
    return FunctionSchema(description, whole | ({"$defs": definitions} if definitions else {}), types, ctx_name)


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{_name(function)}: {error}; define the types of a tool's arguments at module level"
        ) from error


def _is_context(name: str, hint: Any) -> bool:
    return hint is ToolContext or (name == "ctx" and hint is None)


def _refuse_unnameable(function: Callable[..., Any], parameter: inspect.Parameter) -> None:
    if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
        raise TypeError(f"{_name(function)}: a model gives arguments by name, which {parameter} does not allow")


def _without_none(hint: Any, parameter: inspect.Parameter) -> Any:
    """``X | None = None`` is offered as an optional ``X``: a plain type is understood by more models and providers."""
    if parameter.default is None and get_origin(hint) in {Union, UnionType}:
        members = tuple(each for each in get_args(hint) if each is not NoneType)
        return Union[members]  # noqa: UP007 - the members are only known now
    return hint


def _schemas(function: Callable[..., Any], types: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    schemas: dict[str, Any] = {}
    components: dict[str, Any] = {}
    for name, hint in types.items():
        try:
            (schemas[name],), found = msgspec.json.schema_components((hint,), ref_template=_DEFINITION + "{name}")
        except (TypeError, ValueError, NameError) as error:
            raise TypeError(f"{_name(function)}: argument {name!r} cannot be given as JSON: {error}") from error
        components |= found
    recursive = {name for name in components if _reaches(name, components[name], components, frozenset())}
    inlined = {name: _inlined(schema, components, recursive) for name, schema in schemas.items()}
    return inlined, {name: _inlined(components[name], components, recursive) for name in sorted(recursive)}


def _reference(schema: Any) -> str | None:
    match schema:
        case {"$ref": str(target)} if target.startswith(_DEFINITION):
            return target.removeprefix(_DEFINITION)
        case _:
            return None


def _reaches(goal: str, schema: Any, components: dict[str, Any], seen: frozenset[str]) -> bool:
    match schema:
        case dict():
            name = _reference(schema)
            if name == goal:
                return True
            if name is not None and name not in seen:
                return _reaches(goal, components[name], components, seen | {name})
            return any(_reaches(goal, each, components, seen) for each in schema.values())
        case list():
            return any(_reaches(goal, each, components, seen) for each in schema)
        case _:
            return False


def _inlined(schema: Any, components: dict[str, Any], recursive: set[str]) -> Any:
    """Replace references by what they name, for several providers reject them; only recursive types keep theirs."""
    name = _reference(schema)
    if name is not None and name not in recursive:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return _inlined(components[name] | rest, components, recursive)
    match schema:
        case dict():
            return {key: _inlined(value, components, recursive) for key, value in schema.items()}
        case list():
            return [_inlined(value, components, recursive) for value in schema]
        case _:
            return schema


def _annotated(schema: dict[str, Any], description: str | None, parameter: inspect.Parameter) -> dict[str, Any]:
    added: dict[str, Any] = {}
    if description and "description" not in schema:
        added["description"] = description
    if parameter.default is not parameter.empty and parameter.default is not None:
        # A default that is no JSON value still works, it is only not shown.
        with contextlib.suppress(TypeError):
            added["default"] = msgspec.to_builtins(parameter.default)
    return schema | added


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    r"""The description before the first section, and what ``Args:`` says about each argument.

    Example::

        read_docstring("Look up.\n\nArgs:\n    key: What to find.")  # ("Look up.", {"key": "What to find."})
    """
    description: list[str] = []
    arguments: dict[str, str] = {}
    section, current, indent = "", "", 0
    for line in text.splitlines():
        if heading := _SECTION.fullmatch(line):
            section, current = heading[1], ""
        elif not section:
            description.append(line)
        elif section in {"Args", "Arguments", "Parameters"} and line.strip():
            found = _ARGUMENT.fullmatch(line)
            if found and (not current or len(found[1]) <= indent):
                current, indent = found[2], len(found[1])
                arguments[current] = found[3].strip()
            elif current:
                arguments[current] = f"{arguments[current]} {line.strip()}".strip()
    return "\n".join(description).strip(), arguments
