"""Which path may be read, written or neither: one table for the mounts of commands and the checks of file tools."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from penguin.environment.sandbox.repositories import guarded_parts, nested
from penguin.environment.sandbox.settings import NOT_HELD, SandboxSettings

Access: TypeAlias = Literal["hidden", "read", "write", "private"]
"""``private`` is a directory that stands in another place: /tmp."""

TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - these names are what is replaced

_OF_THE_MACHINE = (Path("/proc"), Path("/dev"))
# Sockets of daemons that act for whoever asks (containers, the session bus, the system manager) live in /run, and a
# read-only mount does not keep anybody from connecting to one.
_RUN = ("/run", "/var/run")
_NEEDED_OF_RUN = ("/run/current-system", "/run/opengl-driver", "/run/systemd/resolve/stub-resolv.conf")


MOST_FURTHER_DOWN = 32
"""Protected files and directories below the top of the workspace, without repositories; the outer ones first. Each
costs every command 0.3 ms and more."""


class CannotConfine(Exception):
    """The boundary that was asked for cannot be drawn; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A directory or file with one kind of access, as far as no zone inside it says otherwise."""

    path: Path
    access: Access
    absent: bool = False
    """There is nothing of that name yet, and there must not be."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where one session's things are: all resolved, all directories.

    ``private`` stands for /tmp; ``secret`` is hidden beside the settings' own list (the data root), but for ``shown``.
    """

    workspace: Path
    private: Path
    secret: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Zones:
    """The table of one session, and the file tools' ``Confinement`` by it.

    Raises:
        CannotConfine: a workspace that cannot be told from the home directory, a protected name that is a link.

    Example::

        zones = Zones(SandboxSettings("workspace-write"), Places(workspace, private))
        zones.refusal(Path("/etc/hosts"), writing=True)   # "the sandbox does not allow to write there; …"
    """

    settings: SandboxSettings
    places: Places
    table: tuple[Zone, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", tuple(self._sorted()))

    # ------------------------------------------------------------ the table

    def _sorted(self) -> list[Zone]:
        """Outer ones first; of two with the same path the later one of :meth:`_all` counts."""
        by_path = {zone.path: zone for zone in self._all()}
        return sorted(by_path.values(), key=lambda zone: (len(zone.path.parts), zone.path))

    def _all(self) -> Iterator[Zone]:
        yield Zone(Path("/"), "read")
        hidden: list[str | Path] = [*_RUN, *self.settings.hidden, *self.places.secret]
        yield from (Zone(path, "hidden") for path in _resolved(hidden))
        needed = (*_NEEDED_OF_RUN, "/etc/resolv.conf")
        yield from (Zone(path, "read") for path in _resolved(needed) if not path.is_relative_to("/etc"))
        yield from (Zone(path, "private") for path in TEMPORARY if path.is_dir() and not path.is_symlink())
        yield from (Zone(path, "read") for path in _resolved(self.places.shown))
        yield from self._of_workspace()

    def _of_workspace(self) -> Iterator[Zone]:
        workspace = self.places.workspace
        if self.settings.mode == "read-only":
            yield Zone(workspace, "read")
            return
        _refuse_home(workspace)
        roots = [workspace, *_resolved(self.settings.writable)]
        yield from (Zone(root, "write") for root in roots)
        inside = [*self._protected(), *_own_code(roots), *self._hidden_inside(roots)]
        # A mount holds one name. Whoever may rename a directory above it puts another in its place, so each
        # directory on the way is mounted on itself.
        yield from (Zone(path, "write") for zone in inside for path in _on_the_way(zone.path, roots))
        yield from inside

    def _hidden_inside(self, roots: list[Path]) -> Iterator[Zone]:
        for path in _resolved([*self.settings.hidden, *self.places.secret]):
            if _root_of(path, roots) and not any(root.is_relative_to(path) for root in roots):
                yield Zone(path, "hidden")

    def _protected(self) -> Iterator[Zone]:
        names, workspace = self.settings.protected, self.places.workspace
        held = [name for name in names if name not in NOT_HELD or os.path.lexists(workspace / name)]
        paths = [workspace / name for name in held if not _is_a_second_name(workspace / name, names)]
        # A new one further down cannot be kept from appearing: a mount needs a place, and there is any number.
        further_down = list(nested(workspace, (name for name in names if "/" not in name)))
        paths += [path for path in further_down if path.name == ".git"]
        paths += [path for path in further_down if path.name != ".git" and not path.is_symlink()][:MOST_FURTHER_DOWN]
        for path in paths:
            yield from (_protected(part) for part in (guarded_parts(path) if path.name == ".git" else (path,)))

    # ------------------------------------------------------------ file tools

    def seen_as(self, path: Path) -> Path:
        """Where an absolute ``path`` leads that a command would use: what is below /tmp is elsewhere."""
        zone = self.enclosing(path)
        return self.places.private / path.relative_to(zone.path) if zone.access == "private" else path

    def refusal(self, path: Path, *, writing: bool) -> str | None:
        """Why a file tool must not touch ``path``, which must be resolved; ``None`` when it may."""
        if path.is_relative_to(self.places.private):
            return None
        access = self.enclosing(path).access
        # The harness sees another /proc than commands do: its own, with its keys.
        if access == "hidden" or any(path.is_relative_to(each) for each in _OF_THE_MACHINE):
            return "the sandbox hides it"
        if access == "private":  # reached through a link, so that `seen_as` did not see it
            return "the sandbox hides it: commands and file tools have a /tmp of their own"
        if writing and access != "write":
            return f"the sandbox ({self.settings.mode}) does not allow to write there; {self._where_to_write()}"
        return None

    def network_refusal(self) -> str | None:
        """Why a tool must not reach for the network, or ``None`` when it may."""
        return None if self.settings.network else "the sandbox has no network"

    def _where_to_write(self) -> str:
        if self.settings.mode == "read-only":
            return "it allows /tmp"
        return f"it allows /tmp and {self.places.workspace}, there all but {', '.join(self.settings.protected)}"

    # ------------------------------------------------------------ looking up

    def enclosing(self, path: Path) -> Zone:
        """The innermost zone that holds ``path``, which must be resolved."""
        return next(zone for zone in reversed(self.table) if path.is_relative_to(zone.path))

    def around(self, zone: Zone) -> Zone:
        """The zone next outside of ``zone``."""
        return self.enclosing(zone.path.parent)

    def is_protected(self, zone: Zone) -> bool:
        """Whether this is a name that is kept as it is in a place that can be written."""
        return zone.access == "read" and self.around(zone).access == "write"


def _resolved(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Those that exist and can be reached, with every link resolved: a mount on a link lands on what it leads to."""
    for path in paths:
        real = os.path.realpath(os.path.expanduser(path))  # noqa: PTH111 - also for those with no home
        try:
            os.lstat(real)
        except OSError:
            continue
        yield Path(real)


def _refuse_home(workspace: Path) -> None:
    home = Path(os.path.realpath(Path("~").expanduser()))
    if home.is_relative_to(workspace):
        raise CannotConfine(
            f"the workspace {workspace} holds the home directory, whose start-up files other programs run."
            " Choose a directory inside it as the workspace, or the mode read-only"
        )


def _is_a_second_name(path: Path, names: Iterable[str]) -> bool:
    """Whether this is a link to a protected file beside it: ``CLAUDE.md`` to ``AGENTS.md``, as many projects have it.

    Refusing to work there would help nobody. What it leads to is protected; the link itself cannot be.
    """
    return path.is_symlink() and path.readlink().name in names and path.resolve().parent == path.parent


def _protected(path: Path) -> Zone:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return Zone(path, "read", absent=True)
    if stat.S_ISLNK(mode):
        raise CannotConfine(
            f"{path} is a symbolic link, and no mount can keep a link from being replaced."
            " Put a file or directory in its place, use the mode read-only,"
            " or take the name from `protected` in [sandbox]"
        )
    return Zone(path, "read")


def _own_code(roots: list[Path]) -> Iterator[Zone]:
    """Where the running harness loads its code from, when that lies where commands may write."""
    for path in _resolved({sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])}):
        if any(path != root and path.is_relative_to(root) for root in roots):
            yield Zone(path, "read")


def _on_the_way(path: Path, roots: list[Path]) -> Iterator[Path]:
    root = _root_of(path, roots)
    if root is not None:
        yield from (parent for parent in path.parents if parent != root and parent.is_relative_to(root))


def _root_of(path: Path, roots: list[Path]) -> Path | None:
    return next((root for root in roots if path != root and path.is_relative_to(root)), None)
