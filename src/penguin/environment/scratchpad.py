"""The session's own directory for what is no part of the workspace."""

from __future__ import annotations

from pathlib import Path


def make_private(directory: Path) -> None:
    """Create ``directory`` for this user alone; an existing one keeps its mode.

    Raises:
        OSError: it cannot be made.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
