"""YAML on disk: parse with places, edit without losing what people wrote.

The parser (YAML 1.2) costs more to import than the rest of a start, so it is loaded only when there
is a file to read or write.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penguin.protocol.errors import ConfigError
from penguin.state.checking import FieldPath, Place, Source
from penguin.state.files import BOM, config_error, exclusive, read_config_text, replace_file

if TYPE_CHECKING:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

_WIDTH = 1_000_000  # a long prompt line must not be folded by an edit of another key


def parse_yaml(path: Path) -> tuple[dict[str, Any], Source]:
    """The mapping in ``path`` and a source that finds lines in it; a missing or empty file is empty.

    Raises:
        ConfigError: not readable, not YAML (with line and column), or not a mapping.
    """
    return _parsed(read_config_text(path) or "", path)


def _parsed(text: str, path: Path) -> tuple[dict[str, Any], Source]:
    text = text.removeprefix(BOM)
    if not text.strip():
        return {}, Source(path, lambda _field: None)
    from ruamel.yaml import YAML  # noqa: PLC0415 - see the module
    from ruamel.yaml.error import MarkedYAMLError, YAMLError  # noqa: PLC0415 - see the module

    try:
        data = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        raise _syntax_error(error, path) from None
    except (YAMLError, ValueError) as error:
        before = text[: getattr(error, "position", 0)]
        line = before.count("\n") + 1 if before else None
        raise config_error(path, f"not valid YAML: {str(error).splitlines()[0]}", line) from None
    if data is not None and not isinstance(data, dict):
        raise config_error(path, f"expected keys with values, found a {type(data).__name__}", 1)
    return data or {}, Source(path, lambda field: locate(text, field))


def _syntax_error(error: MarkedYAMLError, path: Path) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    reason = str(error.problem or error.context or "cannot be read")
    if "\\t" in reason:
        reason = "a line is indented with a tab; YAML wants spaces"
    if reason.startswith("found duplicate key"):
        # The library quotes both values of the key, which may be secrets.
        reason = f"the {reason.partition(' with value')[0].removeprefix('found duplicate ')} is given twice"
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    return config_error(path, f"not valid YAML: {reason}", line, column)


def locate(text: str, field: FieldPath) -> Place | None:
    """Where the key or list item ``field`` is written in valid YAML ``text``; ``None`` when it is not there."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - see the module

    node = YAML(typ="safe", pure=True).compose(text)
    mark = None
    for step in field:
        match node.value, step:
            case [(_, _), *_] as pairs, str():
                found = next(((key.start_mark, value) for key, value in pairs if key.value == step), None)
            case [*items], int() if step < len(items):
                found = items[step].start_mark, items[step]
            case _:
                found = None
        if found is None:
            return None
        mark, node = found
    return (mark.line + 1, mark.column + 1) if mark else None


def edit_yaml(path: Path, edit: Callable[[Any], None], check: Callable[[dict[str, Any], Source], object]) -> None:
    """Change ``path`` under its lock: comments, order, unknown keys, quotes and mode stay; a new file is private.

    Args:
        path: created when it does not exist.
        edit: changes the mapping in place; raises ConfigError to refuse.
        check: validates the mapping before and after; raises ConfigError.

    Raises:
        ConfigError: the file was wrong before, or would be after; nothing was written.
    """
    with exclusive(path):
        before = read_config_text(path) or ""
        check(*_parsed(before, path))
        after = _edited(before.removeprefix(BOM), edit)
        check(*_parsed(after, path))
        replace_file(path, BOM + after if before.startswith(BOM) else after)


def readable(value: object) -> object:
    """``value``, as a block of lines when it is text of several lines."""
    if isinstance(value, str) and "\n" in value:
        from ruamel.yaml.scalarstring import LiteralScalarString  # noqa: PLC0415 - see the module

        return LiteralScalarString(value)
    return value


def _edited(text: str, edit: Callable[[Any], None]) -> str:
    from ruamel.yaml.comments import CommentedMap  # noqa: PLC0415 - see the module

    yaml = _round_trip_yaml(text)
    document = yaml.load(text)
    # A file of nothing but comments loads as nothing; they go back in front of what is added.
    preface = text if document is None else ""
    document = CommentedMap() if document is None else document
    edit(document)
    written = io.StringIO()
    yaml.dump(document, written)
    return preface + ("" if not preface or preface.endswith("\n") else "\n") + written.getvalue()


def _round_trip_yaml(text: str) -> YAML:
    from ruamel.yaml import YAML  # noqa: PLC0415 - see the module
    from ruamel.yaml.util import load_yaml_guess_indent  # noqa: PLC0415 - see the module

    _, indent, offset = load_yaml_guess_indent(text) if text.strip() else (None, None, None)
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    if indent:
        yaml.indent(mapping=2, sequence=indent, offset=offset or 0)
    return yaml
