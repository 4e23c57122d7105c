"""Where checkpoints go and how much one covers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a checkpoint ends; what lies beyond is named in its manifest as not covered.

    Attributes:
        files: entries of all kinds in the whole tree.
        total_bytes: contents of all files together.
        file_bytes: the largest single file.
        ignored_files: files of all trees that git ignores (without git: that are known to be made by tools).
        ignored_bytes: contents of those. What is ignored and small is covered, a ``.env`` for example.
        seconds: the longest a checkpoint may take.
    """

    files: int = 50_000
    total_bytes: int = 1024 * MIB
    file_bytes: int = 50 * MIB
    ignored_files: int = 1_000
    ignored_bytes: int = 16 * MIB
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Where checkpoints go and what they cover.

    ``directory`` is the store, shared by all sessions of an agent. ``excluded`` are directories that are never part
    of a checkpoint, the data root above all.
    """

    directory: Path
    excluded: tuple[Path, ...] = ()
    limits: Limits = field(default_factory=Limits)
