"""What of a git repository other programs obey: its hooks and its configuration, and what could redirect them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_MODULES_DEEP = 4
_HOOKS = re.compile(r"^\s*hookspath\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_INCLUDED = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_NESTED_DEEP = 3
_MOST_DIRECTORIES = 2_000
_NO_SOURCES = {".git", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", "target"}
_LARGEST = 1_000_000


def guarded_parts(git: Path) -> Iterator[Path]:
    """The paths that must stay as they are, existing or not; ``git`` is the ``.git`` of a working directory.

    Git obeys ``commondir`` in any git directory: a file of that name beside ``config`` makes it read another
    ``config``. A ``.git`` that is missing, empty, a link or a file is guarded as a whole; a file (of a worktree or
    submodule) names a directory, whose parts follow.
    """
    if git.is_symlink() or not git.exists() or _is_empty(git):
        yield git
    elif git.is_file():
        yield git
        named = _git_directory_in(git)
        if named is not None and named.is_relative_to(git.parent):
            yield from _parts_of_directory(named, git.parent)
    else:
        yield from _parts_of_directory(git, git.parent)
        for module in _git_directories(git / "modules", _MODULES_DEEP):
            yield from _parts_of_directory(module, git.parent)
        for worktree in _subdirectories(git / "worktrees"):
            yield from (worktree / name for name in ("commondir", "gitdir"))


def nested(workspace: Path, names: Iterable[str]) -> Iterator[Path]:
    """What has one of these names below ``workspace``, three directories deep; looks at 2,000 directories at most.

    What a package manager or a build has put there is left out.
    """
    level, looked_at = [workspace], 0
    wanted = frozenset(names)
    for _ in range(_NESTED_DEEP):
        level = [each for directory in level for each in _subdirectories(directory) if each.name not in _NO_SOURCES]
        looked_at += len(level)
        yield from (found for each in level for found in _named_in(each, wanted))
        if looked_at > _MOST_DIRECTORIES:
            return


def _named_in(directory: Path, names: frozenset[str]) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return [Path(entry.path) for entry in entries if entry.name in names]
    except OSError:
        return []


def _parts_of_directory(directory: Path, top: Path) -> Iterator[Path]:
    yield directory / "hooks"
    yield directory / "config"
    yield directory / "commondir"
    config = _text(directory / "config")
    if "worktreeconfig" in config.lower():
        yield directory / "config.worktree"
    # Hooks are looked for from the top of the working directory, included files beside the configuration.
    for pattern, base in ((_HOOKS, top), (_INCLUDED, directory)):
        yield from (path for written in pattern.findall(config) if (path := _named(written, base, top)))


def _is_empty(git: Path) -> bool:
    return git.is_dir() and not any(git.iterdir())


def _named(written: str, base: Path, top: Path) -> Path | None:
    path = Path(os.path.normpath(base / Path(written.strip('"')).expanduser()))
    return _first_missing(path, top) if path != top and path.is_relative_to(top) else None


def _first_missing(path: Path, top: Path) -> Path:
    """The outermost part of ``path`` below ``top`` that is not there; ``path`` itself when all of it is."""
    missing = path
    while not os.path.lexists(missing.parent) and missing.parent != top:
        missing = missing.parent
    return missing


def _git_directory_in(file: Path) -> Path | None:
    name = _text(file).removeprefix("gitdir:").strip()
    path = Path(os.path.realpath(file.parent / name))
    return path if name and path.is_dir() else None


def _git_directories(directory: Path, deep: int) -> Iterator[Path]:
    for each in _subdirectories(directory):
        if (each / "HEAD").exists():
            yield each
            yield from _git_directories(each / "modules", deep - 1)
        elif deep > 0:
            yield from _git_directories(each, deep - 1)


def _subdirectories(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(_LARGEST)
    except OSError:
        return ""
