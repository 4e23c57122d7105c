"""A workspace with its checkpoints, and what killing somebody in the middle of it means."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penguin.environment.checkpoints.changes import Reversal, Span
from penguin.environment.checkpoints.limits import Limits
from penguin.environment.checkpoints.manifest import Manifest
from penguin.environment.checkpoints.restore import Failure, Restore
from penguin.environment.checkpoints.scan import Seen, Wish
from penguin.environment.checkpoints.store import CheckpointStore, WorkspaceStore

Picture = dict[bytes, tuple[str, int, bytes]]


@dataclass
class Keeper:
    """Takes checkpoints of a workspace and goes back to them."""

    workspace: Path
    directory: Path

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(self.directory)

    @property
    def part(self) -> WorkspaceStore:
        return self.store.of(self.workspace)

    def take(self, limits: Limits | None = None, **wish: Any) -> str:
        with self.store.adding():
            return self.part.take(Wish(limits or Limits(), **wish)).name

    def look(self, limits: Limits | None = None, **wish: Any) -> Seen:
        with self.store.adding():
            return self.part.take(Wish(limits or Limits(), **wish)).seen

    def manifest(self, name: str) -> Manifest:
        return self.part.manifest(name)

    def paths(self, name: str) -> list[bytes]:
        return sorted(entry.path for entry in self.manifest(name).entries)

    def skipped(self, name: str) -> dict[bytes, str]:
        return {each.path: each.why for each in self.manifest(name).skipped}

    def restore(self, name: str, *, force: bool = False) -> list[Failure]:
        wanted = self.manifest(name)
        seen = self.look(kept=frozenset(entry.path for entry in wanted.entries))
        todo = Reversal([Span(wanted)], seen.manifest).todo
        return Restore(self.workspace, self.part.objects, seen, force=force).apply(todo)

    def write(self, path: str | bytes, content: str | bytes = b"", mode: int = 0o644) -> Path:
        place = self.workspace / os.fsdecode(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        place.chmod(mode)
        return place

    def picture(self) -> Picture:
        return picture(self.workspace)


def picture(directory: Path) -> Picture:
    """Everything below a directory: kind, mode and content, links not followed, ``.git`` left out."""
    found: Picture = {}
    for path in directory.rglob("*"):
        relative = os.fsencode(path.relative_to(directory))
        if b".git" in relative.split(b"/"):
            continue
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            found[relative] = ("link", 0, os.fsencode(path.readlink()))
        elif stat.S_ISDIR(status.st_mode):
            found[relative] = ("directory", mode, b"")
        elif stat.S_ISREG(status.st_mode):
            found[relative] = ("file", mode, path.read_bytes())
        else:
            found[relative] = ("special", mode, b"")
    return found


def git(workspace: Path, *words: str) -> None:
    """Run git without anybody's configuration."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(workspace),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }
    subprocess.run(["git", *words], cwd=workspace, env=environment, check=True, capture_output=True)


# ---------------------------------------------------------------- killed in the middle

_CHANGING = ("rename", "replace", "unlink", "mkdir", "rmdir", "symlink", "fchmod", "write")


def killed_after(steps: int, work: Callable[[], object]) -> bool:
    """Run ``work`` in a process that is killed before its change number ``steps``; whether it came so far."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: threads of earlier tests
        child = os.fork()
    if child == 0:
        status = 1
        try:
            _arm(steps)
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in {0, -signal.SIGKILL}, f"the work itself failed: {code}"
    return code != 0


def _arm(steps: int) -> None:
    left = [steps]

    def armed(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    for name in _CHANGING:
        setattr(os, name, armed(getattr(os, name)))


# ---------------------------------------------------------------- somebody without root's powers

NOBODY = 65534


def as_nobody(work: Callable[[], None]) -> None:
    """Run ``work`` in a process for which permissions count; its assertions are ours."""
    if os.geteuid() != 0:
        work()
        return
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
        except BaseException as error:  # noqa: BLE001 - it goes to the parent
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        trouble = said.read().decode()
    os.waitpid(child, 0)
    assert not trouble, trouble
