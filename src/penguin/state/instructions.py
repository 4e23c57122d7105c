"""The ``AGENTS.md`` files that apply to a workspace, each marked with its path and cut to a size.

Looked for: at the root of the repository that holds the workspace (the workspace itself when there is
none), then the nearest one on the way down to the workspace.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from pathlib import Path

FILE_NAME = "AGENTS.md"
LONGEST = 20_000
"""Characters of one file that go into the prompt; the rest is left to the model to read."""

_PREFACE = (
    "From the user and the project. Follow them; a later one wins over an earlier one, the user's words over all."
)


def find_instructions(workspace: Path) -> list[Path]:
    """The workspace's instruction files, the root's first, the nearest last; at most two.

    A link is followed inside the repository only.
    """
    workspace = workspace.resolve()
    root = _repository_root(workspace)
    on_the_way = [workspace, *workspace.parents]
    candidates = [directory / FILE_NAME for directory in on_the_way[: on_the_way.index(root) + 1]]
    there = [path for path in candidates if _is_regular_file(path) and _lies_in(root, path)]
    nearest = there[:1]
    at_root = [path for path in there[-1:] if path.parent == root and path not in nearest]
    return at_root + nearest


def render_instructions(files: Iterable[Path]) -> str:
    """What the prompt says in place of ``{{AGENTS_MD}}``; empty when no file says anything."""
    blocks = [_block(path, text) for path in files if (text := _read(path))]
    return "\n\n".join([_PREFACE, *blocks]) if blocks else ""


def _block(path: Path, text: str) -> str:
    # The file must not be able to end its own block and speak as the prompt.
    body = re.sub(r"<(?=/?\s*instructions)", "&lt;", text, flags=re.IGNORECASE)
    return f'<instructions from="{path}">\n{body}\n</instructions>'


def _read(path: Path) -> str:
    if not _is_regular_file(path):
        return ""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            text = file.read(LONGEST + 1)
    except OSError:
        return ""
    if len(text) <= LONGEST:
        return text.strip()
    kept = text[:LONGEST].rpartition("\n")[0] or text[:LONGEST]
    return f"{kept.strip()}\n[cut here; the rest is in {path}]"


def _is_regular_file(path: Path) -> bool:
    # A fifo of that name would block the start of the session.
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _lies_in(root: Path, path: Path) -> bool:
    """Whether a link leads outside: a cloned repository could send any of the user's files to the provider."""
    try:
        return path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _repository_root(workspace: Path) -> Path:
    return next((directory for directory in (workspace, *workspace.parents) if _exists(directory / ".git")), workspace)


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except OSError:
        return False
    return True
