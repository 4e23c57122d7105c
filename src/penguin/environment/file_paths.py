"""From the path a model writes to the place it means, and to words when that place cannot be used (N16)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from penguin.environment.tool import Relocation, ToolError, ToolSetup

_MOST_NAMES = 40


class FilePlace(Struct, frozen=True):
    """Where a path leads: ``shown`` is how to speak of it, ``real`` has every symbolic link resolved.

    ``detour`` names the real place when a link leads somewhere else than the words say, else it is empty.
    """

    shown: str
    real: Path
    detour: str = ""

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Turn an ``OSError`` inside the block into words about this file."""
        try:
            yield
        except OSError as error:
            raise ToolError(f"{self.shown}: {error.strerror or error}{self.detour}") from error


def find_place(setup: ToolSetup, path: str, *, writing: bool) -> FilePlace:
    """Resolve ``path`` against the workspace and ask the confinement, if there is one, about the result.

    Raises:
        ToolError: The path is no path, or it leads where this session may not go.
    """
    if not path.strip() or "\0" in path:
        raise ToolError(f"file_path {path!r} is not a path")
    asked = Path(_without_tilde(path))
    if asked.is_relative_to(setup.workspace_dir):
        asked = asked.relative_to(setup.workspace_dir)  # the workspace itself may be reached through a link
    workspace = Path(os.path.realpath(setup.workspace_dir))
    meant = _as_commands_see_it(setup, workspace / asked)
    real = Path(os.path.realpath(meant))
    written = Path(os.path.normpath(workspace / asked))
    detour = "" if real == Path(os.path.normpath(meant)) else f" (a link leads to {real})"
    refusal = setup.confinement and setup.confinement.refusal(real, writing=writing)
    if refusal:
        raise ToolError(f"{path}{detour}: {refusal}")
    shown = written.relative_to(workspace) if written.is_relative_to(workspace) else written
    return FilePlace(str(shown), real, detour)


def _as_commands_see_it(setup: ToolSetup, path: Path) -> Path:
    confinement: object = setup.confinement
    return confinement.seen_as(path) if isinstance(confinement, Relocation) else path


def _without_tilde(path: str) -> str:
    return os.path.expanduser(path) if path == "~" or path.startswith("~/") else path  # noqa: PTH111 - text in, text out


class Within(Struct, frozen=True):
    """Confines paths to some directories; the sandbox and tests use it.

    Example::

        EnvironmentConfig(workspace, confinement=Within((workspace,)))
    """

    roots: tuple[Path, ...]

    def refusal(self, path: Path, *, writing: bool) -> str | None:
        """Why ``path``, which must be resolved, is out of bounds; the roots are resolved each time they are asked."""
        if any(path.is_relative_to(os.path.realpath(root)) for root in self.roots):
            return None
        return f"not allowed to {'write' if writing else 'read'} outside {', '.join(map(str, self.roots))}"


def stat_regular(place: FilePlace) -> os.stat_result | None:
    """The state of an existing regular file, ``None`` when nothing is there.

    Raises:
        ToolError: A directory, a device, a fifo, a socket, or a place that cannot be looked at.
    """
    with place.told():
        try:
            status = place.real.stat()
        except FileNotFoundError:
            return None
    if stat.S_ISREG(status.st_mode):
        return status
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"{place.shown} is a directory{place.detour}. It holds: {_names_in(place)}")
    raise ToolError(
        f"{place.shown} is {_kind(status.st_mode)}, not a file{place.detour}. It is not opened: it may never end."
    )


def _names_in(place: FilePlace) -> str:
    names: list[str] = []
    with place.told(), os.scandir(place.real) as entries:
        for entry in entries:
            if len(names) == _MOST_NAMES:
                return f"{', '.join(sorted(names))} and more; list it with a command"
            names.append(f"{entry.name}/" if entry.is_dir() else entry.name)
    return ", ".join(sorted(names)) or "nothing"


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a fifo", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(mode), "something else")


def not_found(place: FilePlace) -> ToolError:
    """There is no such file; names what is near."""
    import difflib  # noqa: PLC0415 - 10 ms to import, for a mistake

    try:
        with os.scandir(place.real.parent) as entries:
            names = [entry.name for entry, _ in zip(entries, range(5000), strict=False)]
    except OSError:
        return ToolError(f"There is no file {place.shown}, and no directory for it{place.detour}.")
    near = difflib.get_close_matches(place.real.name, names, 3, 0.5)
    guess = f" Near it: {', '.join(near)}." if near else ""
    return ToolError(f"There is no file {place.shown}{place.detour}.{guess}")
