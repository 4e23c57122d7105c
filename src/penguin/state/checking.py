"""Parsed data to typed structs; what does not fit becomes a ConfigError with file, line and field.

Only the error path looks for the line and describes what is allowed, so a good file costs one conversion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, inspect

from penguin.protocol.errors import ConfigError, ConfigProblem

FieldPath: TypeAlias = tuple[str | int, ...]
"""The way to a value: ``("models", 0, "provider")``; indexes count from 0."""

Place: TypeAlias = tuple[int, int]
"""Line and column, both 1-based."""

T = TypeVar("T")

_SHOWN_CHARACTERS = 60
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
# Their values never appear in a message.
_SECRET = re.compile(r"(?i)(^|_)key$|secret|password|authorization|^headers$|^env$")


class Source(Struct, frozen=True):
    """The file that data came from; ``locate`` finds the line of a field, ``None`` when it cannot."""

    path: Path
    locate: Callable[[FieldPath], Place | None]

    def error(self, field: FieldPath, message: str) -> ConfigError:
        """The error about one field of this file."""
        return ConfigError(self.problem(field, message))

    def problem(self, field: FieldPath, message: str) -> ConfigProblem:
        """The description of trouble with one field; the place is the nearest enclosing field that exists."""
        line, column = self._place(field) or (None, None)
        return ConfigProblem(self.path, message, line, column, dotted(field) or None)

    def _place(self, field: FieldPath) -> Place | None:
        for length in range(len(field), 0, -1):
            if place := self.locate(field[:length]):
                return place
        return None


def dotted(field: FieldPath) -> str:
    """``models[0].provider`` for ``("models", 0, "provider")``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in field).removeprefix(".")


def checked(data: object, shape: type[T], source: Source) -> T:
    """``data`` (mappings, lists, scalars) as ``shape``, a msgspec struct.

    Raises:
        ConfigError: names file, line, field, what was found and what is allowed.
    """
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        raise _explained(str(error), data, shape, source) from None
    except RecursionError:
        raise source.error((), "a value contains itself") from None


def unknown_keys(data: object, shape: type[Any], source: Source) -> list[ConfigProblem]:
    """The keys of ``data`` that ``shape`` does not know: kept in the file, without effect, perhaps misspelt."""
    return [source.problem(field, hint) for field, hint in _unknown(data, inspect.type_info(shape), ())]


def _unknown(data: object, info: Any, field: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    if isinstance(data, list):
        for index, item in enumerate(data):
            yield from _unknown(item, _inside(info, index), (*field, index))
    elif isinstance(data, dict) and (names := _field_names(info)) is not None:
        for key, value in data.items():
            if key in names:
                yield from _unknown(value, _inside(info, key), (*field, key))
            else:
                yield (*field, key), _hint(str(key), names)


def _hint(key: str, names: list[str]) -> str:
    import difflib  # noqa: PLC0415 - only for diagnosis

    close = difflib.get_close_matches(key, names, n=1)
    return f"is not a known key and has no effect{f'; did you mean {close[0]}?' if close else ''}"


def _explained(complaint: str, data: object, shape: type[Any], source: Source) -> ConfigError:
    reason, _, where = complaint.partition("`$")
    if reason.endswith("at `key` in "):
        return source.error(_field_path(where), "has a key that is not text")
    # A value inside a free mapping is written as [...]: the mapping is the last thing with a name.
    field = _field_path(where.partition("[...]")[0])
    if missing := _MISSING.search(reason):
        field = (*field, missing["name"])
        return source.error(field, f"is missing; expected {_expected(inspect.type_info(shape), field)}")
    found = _shown(_value_at(data, field), field)
    return source.error(field, f"found {found}, expected {_expected(inspect.type_info(shape), field)}")


def _field_path(where: str) -> FieldPath:
    return tuple(int(step["index"]) if step["index"] else step["key"] for step in _STEP.finditer(where.rstrip("`")))


def _value_at(data: Any, field: FieldPath) -> Any:
    for step in field:
        data = data[step]
    return data


def _shown(value: object, field: FieldPath) -> str:
    kind = _kind(value)
    if isinstance(value, dict | list) or value is None:
        return kind
    if any(isinstance(step, str) and _SECRET.search(step) for step in field):
        return f"{kind} (not shown)"
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return f"{text[:_SHOWN_CHARACTERS]}{'…' if len(text) > _SHOWN_CHARACTERS else ''} ({kind})"


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case dict():
            return "a section with keys"
        case list():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def _expected(info: Any, field: FieldPath) -> str:
    for step in field:
        info = _inside(info, step)
    return _described(info)


def _inside(info: Any, step: str | int) -> Any:
    """The type of the value that ``step`` leads to; ``None`` where anything is allowed."""
    match info:
        case inspect.UnionType():
            inner = (_inside(option, step) for option in info.types)
            return next((found for found in inner if found is not None), None)
        case inspect.StructType():
            return next((field.type for field in info.fields if field.encode_name == step), None)
        case inspect.VarTupleType() | inspect.ListType():
            return info.item_type
        case _:
            return None


def _field_names(info: Any) -> list[str] | None:
    match info:
        case inspect.UnionType():
            return next((names for option in info.types if (names := _field_names(option)) is not None), None)
        case inspect.StructType():
            return [field.encode_name for field in info.fields]
        case _:
            return None


def _described(info: Any) -> str:
    match info:
        case inspect.UnionType():
            options = (option for option in info.types if not isinstance(option, inspect.NoneType))
            return " or ".join(_described(option) for option in options)
        case inspect.LiteralType():
            return f"one of {', '.join(str(value) for value in info.values)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return "a whole number" + _lower_bound(info)
        case inspect.FloatType():
            return "a number" + _lower_bound(info)
        case inspect.StrType():
            words = "text that is not empty" if info.min_length else "text"
            return f"{words}, without control characters" if info.pattern else words
        case inspect.VarTupleType() | inspect.ListType():
            return "a list"
        case inspect.StructType() | inspect.DictType():
            return "a section with keys"
        case _:
            return "another value"


def _lower_bound(info: Any) -> str:
    return "" if info.ge is None else f" of at least {info.ge}"
