"""Can the boundary be drawn on this machine? Said in words, with what to do."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

OLDEST = (0, 8)
"""The first bubblewrap that can forbid user namespaces inside the sandbox."""

NAMESPACES = (
    "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    "--cap-drop", "ALL",
)  # fmt: skip

_INSTALL = "Install bubblewrap and perl (Debian, Ubuntu: apt-get install bubblewrap perl-base), or turn the sandbox off"
_SYSTEM = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin")
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Mechanism:
    """Where the programs are; found in directories that no sandbox lets anybody write."""

    bwrap: str
    perl: str
    version: str


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found: either a ``mechanism`` that works, or a ``problem`` and ``advice``."""

    mechanism: Mechanism | None
    problem: str = ""
    advice: str = ""


_works: dict[tuple[bool, tuple[Path, ...]], Probe] = {}


def probe(*, network: bool = True, distrusted: Iterable[Path] = ()) -> Probe:
    """Try it, once per process when it works; blocks for some 20 ms.

    Args:
        network: whether the network stays; a namespace without one needs more of the kernel.
        distrusted: directories commands may write: a program found in one of them is not run outside the sandbox.

    Example::

        found = probe()
        print(found.problem or f"bubblewrap {found.mechanism.version} works")
    """
    question = (network, tuple(distrusted))
    if question not in _works:
        answer = _tried(network, question[1])
        if answer.mechanism is None:
            return answer
        _works[question] = answer
    return _works[question]


def _tried(network: bool, distrusted: tuple[Path, ...]) -> Probe:  # noqa: FBT001 - private
    if sys.platform != "linux":
        return Probe(None, f"there is no sandbox for {sys.platform}", "Turn it off, or use Linux (in a container)")
    bwrap, perl = (find_program(name, distrusted) for name in ("bwrap", "perl"))
    if bwrap is None or perl is None:
        return Probe(None, f"{'bubblewrap (bwrap)' if bwrap is None else 'perl'} is not installed", _INSTALL)
    if Path(bwrap).stat().st_mode & stat.S_ISUID and os.geteuid() != 0:
        return Probe(
            None, f"{bwrap} runs as root (set-user-id), and its processes could not be ended", f"chmod u-s {bwrap}"
        )
    version = _version_of(bwrap)
    if version < OLDEST:
        words = ".".join(map(str, version)) or "unknown"
        return Probe(None, f"bubblewrap {words} is too old", f"Install {'.'.join(map(str, OLDEST))} or newer")
    complaint = _trial(bwrap, network=network)
    if complaint is not None:
        return Probe(None, f"bubblewrap cannot make a sandbox here: {complaint}", _advice())
    return Probe(Mechanism(bwrap, perl, ".".join(map(str, version))))


def find_program(name: str, distrusted: tuple[Path, ...]) -> str | None:
    """The program of that name, the system's before those of ``PATH``."""
    for directory in (*_SYSTEM, *os.environ.get("PATH", "").split(os.pathsep)):
        found = shutil.which(name, path=directory) if os.path.isabs(directory) else None  # noqa: PTH117 - text
        if found and not any(Path(os.path.realpath(found)).is_relative_to(each) for each in distrusted):
            return found
    return None


def _version_of(bwrap: str) -> tuple[int, ...]:
    answer = _run([bwrap, "--version"])
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout if answer else "")
    return tuple(int(part) for part in found.groups() if part is not None) if found else ()


def _trial(bwrap: str, *, network: bool) -> str | None:
    net = () if network else ("--unshare-net",)
    answer = _run(
        [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *NAMESPACES, *net, bwrap, "--version"]
    )
    if answer is None:
        return "it did not answer"
    if answer.returncode == 0:
        return None
    return answer.stderr.strip().splitlines()[-1] if answer.stderr.strip() else f"exit code {answer.returncode}"


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(  # noqa: S603 - fixed words
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_PATIENCE,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None


def _advice() -> str:
    if _knob("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "This system lets only programs with an AppArmor profile make user namespaces: load one for bwrap"
            " (Ubuntu: apt-get install apparmor-profiles, then enable bwrap-userns-restrict), or turn the sandbox off"
        )
    if _knob("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return "User namespaces are switched off: sysctl kernel.unprivileged_userns_clone=1, or turn the sandbox off"
    if _knob("/proc/sys/user/max_user_namespaces") == "0":
        return "No user namespaces may be made here: raise sysctl user.max_user_namespaces, or turn the sandbox off"
    return (
        "In a container its own restrictions forbid it: let that container be the boundary and turn the sandbox off,"
        " or start it with user namespaces allowed"
    )


def _knob(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
