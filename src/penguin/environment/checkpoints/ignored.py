"""What git ignores in a workspace, asked of git itself; without git, what tools are known to make."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penguin.environment.sandbox.probe import find_program

TOOL_MADE: Final = frozenset(
    [
        b"node_modules",
        b".venv",
        b"venv",
        b"__pycache__",
        b".tox",
        b".nox",
        b".mypy_cache",
        b".pytest_cache",
        b".ruff_cache",
        b".gradle",
        b".cache",
    ]
)
"""Names of directories that their makers can make again, for where git is not asked."""

_PATIENCE_S = 10.0
_POLL_S = 0.02
# A repository's own configuration can name programs (fsmonitor) and transports (a missing object of a partial clone),
# and this runs without any sandbox.
_ASK: Final = (
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "protocol.allow=never",
    "ls-files",
    "--others",
    "--ignored",
    "--exclude-standard",
    "--directory",
    "-z",
)


class GitQuestion:
    """A question to git that is answered while we do something else.

    Example::

        question = GitQuestion(workspace)
        ...
        question.answer()   # {b"node_modules", b"src/a.o"}, or None when git does not speak for this directory
    """

    def __init__(self, workspace: Path) -> None:
        self._process = _asked(workspace) if _in_repository(workspace) else None

    def answer(self, step: Callable[[], None] = lambda: None) -> frozenset[bytes] | None:
        """The ignored paths, relative to the workspace; directories stand for all they hold.

        ``step`` is called now and then and may raise to give up.
        """
        if self._process is None:
            return None
        waited = 0.0
        while waited < _PATIENCE_S:
            step()
            try:
                said, _ = self._process.communicate(timeout=_POLL_S)
            except subprocess.TimeoutExpired:
                waited += _POLL_S
                continue
            return _paths(said) if self._process.returncode == 0 else None
        return None

    def close(self) -> None:
        """End the question, answered or not."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def _in_repository(workspace: Path) -> bool:
    return any((directory / ".git").exists() for directory in (workspace, *workspace.parents))


def _asked(workspace: Path) -> subprocess.Popen[bytes] | None:
    # By its full path, and never one from the workspace: a confined command could have planted that.
    git = find_program("git", (Path(os.path.realpath(workspace)),))
    if git is None:
        return None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.Popen(  # noqa: S603 - fixed words, no shell
            (git, *_ASK),
            cwd=workspace,
            env=environment | {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:  # it cannot be started
        return None


def _paths(said: bytes) -> frozenset[bytes] | None:
    paths = frozenset(path.rstrip(b"/") for path in said.split(b"\0") if path)
    # The workspace itself lies in an ignored directory: then git has no opinion about what is in it.
    return None if b"." in paths else paths
