"""The sandbox of one session: asked by commands for their arguments and by file tools for permission."""

from __future__ import annotations

import functools
import os
import shutil
import stat
import tempfile
from pathlib import Path

from penguin.environment import custody
from penguin.environment.sandbox.held_names import HeldNames
from penguin.environment.sandbox.keeper import NAME, kept
from penguin.environment.sandbox.probe import NAMESPACES, Mechanism, probe
from penguin.environment.sandbox.settings import SandboxSettings
from penguin.environment.sandbox.sockets import listening_sockets
from penguin.environment.sandbox.zones import TEMPORARY, CannotConfine, Places, Zone, Zones
from penguin.environment.tool import ToolError

_COVERED = {"irq", "bus", "sysrq-trigger"}
_KEEPERS = {"bwrap", NAME}
# A device that cannot be opened through this mount: what lies under it can neither be read nor connected to.
_NOTHING = "/dev/null"


class CommandSandbox:
    """Confines commands and file tools of one session to ``settings``; see there and :class:`Zones`.

    It satisfies ``Confinement``. Nothing runs unconfined when the boundary cannot be drawn: everything is refused
    then, with the reason.

    Args:
        settings: what the person chose; with the mode ``off`` there is no use for this object.
        workspace: the session's workspace.
        private: an own directory that stands for /tmp, removed by :meth:`close`; without one it is made.
        secret: directories to hide beside the settings' list: the data root.
        shown: directories in hidden ones that can be read all the same: the session's scratchpad.

    Example::

        sandbox = CommandSandbox(SandboxSettings("read-only"), workspace)
        sandbox.prepare()
        subprocess.run(sandbox.confine(["bash", "-c", "touch x"], workspace))   # Read-only file system
        sandbox.close()
    """

    def __init__(
        self,
        settings: SandboxSettings,
        workspace: Path,
        *,
        private: Path | None = None,
        secret: tuple[Path, ...] = (),
        shown: tuple[Path, ...] = (),
    ) -> None:
        self.settings = settings
        self._workspace = workspace
        self._private = private
        self._secret = secret
        self._shown = shown
        self._held = HeldNames()
        self._zones: Zones | None = None
        self._mechanism: Mechanism | None = None
        self._fixed: list[str] = []

    # ------------------------------------------------------------ setting up

    @property
    def prepared(self) -> bool:
        """Whether :meth:`prepare` has succeeded."""
        return bool(self._fixed)

    def prepare(self) -> None:
        """Find bubblewrap, try it, and hold the names that must stay absent; blocks for some 20 ms, once.

        Raises:
            ToolError: the boundary cannot be drawn; the text says why and what to do.
        """
        if self.prepared:
            return
        zones = self._drawn()
        found = probe(network=self.settings.network, distrusted=tuple(_writable(zones)))
        if found.mechanism is None:
            raise _refused(f"{found.problem}. {found.advice}")
        try:
            self._held.hold(*_protected_names(zones), zones.places.workspace)
        except CannotConfine as error:
            raise _refused(str(error)) from None
        self._mechanism = found.mechanism
        self._fixed = _mounts(zones)

    def _drawn(self) -> Zones:
        if self._zones is None:
            workspace = Path(os.path.realpath(self._workspace))
            private = self._private_directory()
            try:
                places = Places(workspace, private, self._secret, self._shown)
                self._zones = Zones(self.settings, places)
            except CannotConfine as error:
                raise _refused(str(error)) from None
        return self._zones

    def _private_directory(self) -> Path:
        if self._private is None:
            self._private = Path(tempfile.mkdtemp(prefix="penguin-tmp-"))
        self._private.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(os.path.realpath(self._private))

    def close(self) -> None:
        """Remove the private /tmp and what held names; call it when the commands have ended. Idempotent."""
        self._held.release()
        self._fixed = []
        self._zones = None
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)

    # ------------------------------------------------------------ commands

    def confine(self, arguments: list[str], directory: Path) -> list[str]:
        """The arguments that run ``arguments`` in ``directory`` inside the sandbox.

        The process they start is to lead a session of its own without a terminal of the user's. It ends when the
        command ends, while what that left in the background goes on; how it ended is told to a descriptor whose
        number takes the place of :data:`keeper.UNTOLD`. Without one a death by signal becomes 128 plus its number.

        Raises:
            ToolError: it was not prepared.
        """
        if self._mechanism is None or not self._fixed:
            raise _refused("it was not prepared")
        where = os.path.realpath(directory)
        words = [self._mechanism.bwrap, *self._fixed, *self._sockets(), *self._flags(), "--chdir", where]
        return kept(self._mechanism.perl, words, arguments)

    def _flags(self) -> list[str]:
        return [*NAMESPACES, *(() if self.settings.network else ("--unshare-net",))]

    def _sockets(self) -> list[str]:
        zones = self._drawn()
        seen = [each for each in sorted(listening_sockets()) if zones.enclosing(each).access == "read"]
        return [word for path in seen for word in ("--ro-bind", _NOTHING, str(path))]

    def is_keeper(self, process: custody.Process) -> bool:
        """Whether this is a process of the sandbox itself, which ends with the last one in it."""
        return process.command in _KEEPERS

    # ------------------------------------------------------------ file tools

    def refusal(self, path: Path, *, writing: bool) -> str | None:
        """Why a file tool must not touch ``path``, which must be resolved; ``None`` when it may."""
        try:
            return self._drawn().refusal(path, writing=writing)
        except ToolError as error:
            return str(error)

    def seen_as(self, path: Path) -> Path:
        """Where an absolute path leads that a command would use."""
        try:
            return self._drawn().seen_as(path)
        except ToolError:  # `refusal` will say so
            return path

    def network_refusal(self) -> str | None:
        """Why a tool must not reach for the network, or ``None`` when it may."""
        return None if self.settings.network else "the sandbox of this session has no network"


def _refused(why: str) -> ToolError:
    return ToolError(f"A sandbox was asked for and cannot be set up, so nothing was done: {why}.")


def _writable(zones: Zones) -> list[Path]:
    return [zones.places.private, *(zone.path for zone in zones.table if zone.access == "write"), *TEMPORARY]


def _protected_names(zones: Zones) -> tuple[list[Path], list[Path]]:
    """The names to be held: those that are absent, and those that are there."""
    names = [zone for zone in zones.table if zone.access == "read" and zones.is_protected(zone)]
    return [zone.path for zone in names if zone.absent], [zone.path for zone in names if not zone.absent]


def _mounts(zones: Zones) -> list[str]:
    """Bubblewrap's options for the table, outer zones first."""
    words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    words += [word for knob in _knobs_of_the_kernel() for word in ("--ro-bind", knob, knob)]
    sealed: list[str] = []
    for zone in zones.table[1:]:
        around = zones.around(zone)
        if zone.access == around.access == "read" or (
            zone.access == "hidden" and around.access in {"hidden", "private"}
        ):
            continue
        words += _mount(zone, zones.places.private)
        # Only at the end: inner zones need a place in it first.
        sealed += ["--remount-ro", str(zone.path)] if zone.access == "hidden" and zone.path.is_dir() else []
    return words + sealed


@functools.cache
def _knobs_of_the_kernel() -> tuple[str, ...]:
    """What in /proc is no process and could be written, but for what bubblewrap covers by itself.

    Who is root outside owns these files inside too, and the kernel asks for no more than that: without a read-only
    mount one could set the program that is run, as root and outside, when something dumps core.
    """
    if os.geteuid() != 0:
        return ()
    with os.scandir("/proc") as entries:
        several = [entry for entry in entries if not entry.name.isdigit() and not entry.is_symlink()]
    return tuple(sorted(each.path for each in several if each.name not in _COVERED and _can_be_written(each.path)))


def _can_be_written(path: str) -> bool:
    if path == "/proc/sys":  # thousands of files
        return True
    files = [path, *(os.path.join(place, name) for place, _, names in os.walk(path) for name in names)]  # noqa: PTH118 - many
    return any(_is_writable_file(file) for file in files)


def _is_writable_file(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o222)


def _mount(zone: Zone, private: Path) -> list[str]:
    path = str(zone.path)
    match zone.access:
        case "read":
            return ["--ro-bind-try" if zone.absent else "--ro-bind", path, path]
        case "write":
            return ["--bind", path, path]
        case "private":
            return ["--bind", str(private), path]
        case "hidden":
            return ["--tmpfs", path] if zone.path.is_dir() else ["--ro-bind", _NOTHING, path]
