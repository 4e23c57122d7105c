"""Directories for one user alone. Below the layers, since the trace, the state and the environment each make them."""

from __future__ import annotations

from pathlib import Path

_OWNER_ONLY = 0o700


def private_directory(path: Path) -> Path:
    """Make a directory and what is missing above it (0700); those that exist keep their mode.

    Example::

        file = private_directory(root / "traces" / "2026-01-31") / "a.jsonl"

    Raises:
        OSError: one cannot be made; its ``filename`` says which.
    """
    # mkdir(parents=True) would give the mode to the last one only. Tried first and asked afterwards: most
    # directories are there, or lack nothing but themselves.
    try:
        path.mkdir(_OWNER_ONLY)
    except FileNotFoundError:
        private_directory(path.parent)
        path.mkdir(_OWNER_ONLY, exist_ok=True)
    except OSError:
        if not path.is_dir():
            raise
    return path
