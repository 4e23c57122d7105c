"""TOML on disk: parse with places, edit without losing what people wrote.

Reading uses the standard library's parser; the round-trip parser (six times the import time) is
loaded by the first edit.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penguin.protocol.errors import ConfigError
from penguin.state.checking import FieldPath, Place, Source
from penguin.state.files import BOM, PRIVATE, config_error, exclusive, read_config_text, replace_file

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

Check: TypeAlias = Callable[[dict[str, Any], Source], object]
"""Validates parsed tables; raises ConfigError."""

_WHERE = re.compile(r"(?P<reason>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL)
_KEY = re.compile(r"""\s*([\w."'-]+)\s*=""")


def parse_toml(path: Path) -> tuple[dict[str, Any], Source]:
    """The tables of ``path`` and a source that finds lines in it; a missing file is empty, a BOM is accepted.

    Raises:
        ConfigError: not readable, or not TOML: with line and column.
    """
    return _parsed(read_config_text(path) or "", path)


def _parsed(text: str, path: Path) -> tuple[dict[str, Any], Source]:
    text = text.removeprefix(BOM)
    try:
        return tomllib.loads(text), Source(path, lambda field: locate(text, field))
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(str(error), text, path) from None


def _syntax_error(complaint: str, text: str, path: Path) -> ConfigError:
    found = _WHERE.match(complaint)
    reason = found["reason"] if found else complaint
    line = int(found["line"]) if found and found["line"] else text.rstrip().count("\n") + 1
    column = int(found["column"]) if found and found["column"] else None
    return config_error(path, f"not valid TOML: {_explained(reason, text.split(chr(10))[line - 1])}", line, column)


def _explained(reason: str, line: str) -> str:
    match reason:
        case "Illegal character '\\n'":
            return "the text is not closed before the end of its line"
        case "Cannot overwrite a value":
            key = _KEY.match(line)  # only the key: the value may be a secret
            return f"the key {key[1]} is given twice" if key else "a key is given twice"
        case _ if reason.startswith("Cannot declare"):
            return f"the table {line.strip()} is given twice"
        case _:
            return reason


def locate(text: str, field: FieldPath) -> Place | None:
    """Where ``field`` is written in valid TOML ``text``; ``None`` when it is not there.

    A prefix of the text parses exactly at the end of a statement, and once a field is there it stays
    there: so the statement is found by bisection with the real parser, not by a second one.
    """
    if not _has(text, field):
        return None
    lines = [line + "\n" for line in text.split("\n")]
    low, high = 0, len(lines)  # the field is not in the first `low` lines, it is in the first `high`
    while (middle := _statement_end_between(lines, low, high)) is not None:
        if _has("".join(lines[:middle]), field):
            high = middle
        else:
            low = middle
    return low + 1, _column(lines[low], field)


def _statement_end_between(lines: list[str], low: int, high: int) -> int | None:
    """A length between the two, near their middle, at which the prefix is valid."""
    middle = (low + high) // 2
    nearest = itertools.chain(range(max(middle, low + 1), high), range(middle - 1, low, -1))
    return next((end for end in nearest if _parses("".join(lines[:end]))), None)


def _parses(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _has(text: str, field: FieldPath) -> bool:
    value: Any = tomllib.loads(text)
    for step in field:
        match value, step:
            case dict(), str() if step in value:
                value = value[step]
            case list(), int() if step < len(value):
                value = value[step]
            case _:
                return False
    return True


def _column(line: str, field: FieldPath) -> int:
    names = [step for step in field if isinstance(step, str)]
    found = line.find(names[-1]) if names else -1
    return (found if found >= 0 else len(line) - len(line.lstrip())) + 1


def edit_toml(path: Path, edit: Callable[[TOMLDocument], None], check: Check) -> None:
    """Change ``path`` under its lock: comments, order, unknown keys, line ends and BOM stay, the mode becomes 0600.

    Args:
        path: created when it does not exist.
        edit: changes the document in place; raises ConfigError to refuse.
        check: validates the tables before and after; raises ConfigError.

    Raises:
        ConfigError: the file was wrong before, or would be after; nothing was written.
    """
    import tomlkit  # noqa: PLC0415 - only a writer needs it
    from tomlkit.exceptions import ConvertError  # noqa: PLC0415 - the same

    with exclusive(path):
        before = read_config_text(path) or ""
        check(*_parsed(before, path))
        document = tomlkit.parse(before.removeprefix(BOM))
        try:
            edit(document)
        except ConvertError as error:
            raise config_error(path, f"TOML cannot hold this value: {error}") from None
        after = tomlkit.dumps(document)
        tables, source = _parsed(after, path)
        check(tables, source)
        if tables != document.unwrap():
            raise config_error(path, "cannot be changed without harm to what is written there; please edit it by hand")
        replace_file(path, BOM + after if before.startswith(BOM) else after, mode=PRIVATE)
