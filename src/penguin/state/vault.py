"""``.vault.toml``: secrets that tool subprocesses find in their environment; the model sees the names.

Example::

    vault = VaultFile(agent.vault)
    vault.set("DEPLOY_TOKEN", "…")
    vault.names()            # ['DEPLOY_TOKEN']
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penguin.protocol.errors import ConfigError
from penguin.state.checking import Source
from penguin.state.files import config_error
from penguin.state.toml_file import edit_toml, parse_toml

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

SHORTEST_MASKED = 8
"""Values with fewer characters are not masked in output; whoever sets one should be told."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class VaultFile:
    """Read and change one vault; always written with mode 0600, and no message ever holds a value."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"VaultFile({str(self.path)!r})"

    def names(self) -> list[str]:
        """The names in the order of the file; raises ConfigError when the file is wrong."""
        return list(self.read())

    def read(self) -> dict[str, str]:
        """Names to values, for the environment of a subprocess; empty when there is no file.

        Raises:
            ConfigError: a name that no environment could hold, a value that is not text, or not TOML.
        """
        return _checked_entries(*parse_toml(self.path))

    def get(self, name: str) -> str | None:
        """The value of ``name``, ``None`` when there is none; raises ConfigError when the file is wrong."""
        return self.read().get(name)

    def set(self, name: str, value: str) -> None:
        """Add or replace an entry.

        Raises:
            ConfigError: the name or value cannot be in an environment, or the file is wrong.
        """
        if complaint := _complaint(name, value):
            raise ConfigError(f"vault: {complaint}")

        def edit(document: TOMLDocument) -> None:
            document[name] = value

        self._edit(edit)

    def remove(self, name: str) -> None:
        """Remove an entry; raises ConfigError when there is none, or the file is wrong."""

        def edit(document: TOMLDocument) -> None:
            if name not in document:
                raise config_error(self.path, f"there is no entry {name}; there are: {', '.join(document) or 'none'}")
            del document[name]

        self._edit(edit)

    def _edit(self, edit: Callable[[TOMLDocument], None]) -> None:
        edit_toml(self.path, edit, _checked_entries)


def _checked_entries(tables: dict[str, Any], source: Source) -> dict[str, str]:
    for name, value in tables.items():
        if complaint := _complaint(name, value):
            raise source.error((name,), complaint)
    return tables


def _complaint(name: str, value: object) -> str | None:
    if not _NAME.fullmatch(name):
        return f"{name!r} is no name; allowed are letters, digits and _, not starting with a digit"
    if not isinstance(value, str):
        return f"found a {type(value).__name__} (not shown), expected text"
    if "\0" in value:
        return f"the value of {name} has a NUL character, which no environment can hold"
    return None
