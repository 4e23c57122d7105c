"""How two manifests differ, and what of it may be restored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from penguin.environment.checkpoints.manifest import Entry, Manifest
from penguin.environment.checkpoints.scan import SPECIAL, UNREADABLE

BY_OTHERS: Final = "changed since, and not by this task"
NOT_SAVED: Final = "what is there now cannot be kept for a redo"


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs; ``None`` on a side means that it is not there."""

    path: bytes
    old: Entry | None
    new: Entry | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that restoring would take something from that nobody asked to undo."""

    path: bytes
    why: str


def changes(old: Manifest, new: Manifest) -> list[Change]:
    """Every path that differs, sorted; a path that one side does not cover is none of them.

    Example::

        for change in changes(checkpoint, present): ...
    """
    before, after = old.by_path(), new.by_path()
    if before == after:
        return []
    unknown_before, unknown_after = old.left_out(), new.left_out()
    found = [
        Change(path, before.get(path), after.get(path))
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
        and (path in before or unknown_before.why(path) is None)
        and (path in after or unknown_after.why(path) is None)
    ]
    return sorted(found, key=lambda change: change.path)


def to_restore(wanted: Manifest, present: Manifest) -> list[Change]:
    """What must be done to the present tree to make it the wanted one.

    Unlike :func:`changes` this includes paths whose present state is not covered: what was there comes
    back. What the wanted manifest does not cover is left alone.
    """
    before, after = present.by_path(), wanted.by_path()
    unknown = wanted.left_out()
    found = [
        Change(path, before.get(path), after.get(path))
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path) and (path in after or unknown.why(path) is None)
    ]
    return sorted(found, key=lambda change: change.path)


def conflicts(todo: list[Change], present: Manifest, foreign: Iterable[Change]) -> list[Conflict]:
    """Which of the planned changes would destroy what is not the task's, each path once.

    ``foreign`` are the changes that others made between the task's steps and now.
    """
    planned = {change.path for change in todo}
    by_others = {change.path for change in foreign}
    found = [Conflict(path, BY_OTHERS) for path in sorted(planned & by_others)]
    unsaved = ((change.path, why) for change, why in _unsaved(todo, present) if change.path not in by_others)
    return found + [Conflict(path, f"{NOT_SAVED}: {why}") for path, why in unsaved]


def _unsaved(todo: list[Change], present: Manifest) -> Iterator[tuple[Change, str]]:
    """Paths that are there although the present manifest does not have them."""
    unknown = present.left_out()
    for change in todo:
        why = unknown.why(change.path) if change.old is None else None
        # Limits are no reason: what the wanted manifest has is looked for beyond them, so it is really missing.
        if why in {UNREADABLE, SPECIAL}:
            yield change, why
