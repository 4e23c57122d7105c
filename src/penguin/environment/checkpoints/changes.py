"""Taking changes back: which paths, to what, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from penguin.environment.checkpoints.manifest import Entry, Manifest, Uncovered, parents
from penguin.environment.checkpoints.scan import SPECIAL, UNREADABLE

BY_OTHERS: Final = "it was changed since, and not by this task"
NOT_SAVED: Final = "what is there now cannot be kept for a redo"


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs; ``None`` on a side means that it is not there."""

    path: bytes
    old: Entry | None
    new: Entry | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that cannot be restored without destroying something nobody asked to undo."""

    path: bytes
    why: str


class Span:
    """One stretch of work: the tree before it and, if somebody looked, after it."""

    def __init__(self, before: Manifest, after: Manifest | None = None) -> None:
        self.before = before.by_path()
        self.after = after.by_path() if after is not None else None
        self._unknown_before = before.left_out()
        self._unknown_after = after.left_out() if after is not None else Uncovered([])

    def touched(self, present: dict[bytes, Entry] | None = None) -> set[bytes]:
        """The paths it changed, as far as they can be restored; with an end nobody saw, up to the present."""
        after = self.after if self.after is not None else (present or {})
        if self.before == after:
            return set()
        return {
            path
            for path in self.before.keys() | after.keys()
            if self.before.get(path) != after.get(path)
            and (path in self.before or self._unknown_before.why(path) is None)
        }

    def knows_end_of(self, path: bytes) -> bool:
        """Whether the state of a path at the end of the work is known."""
        return self.after is not None and (path in self.after or self._unknown_after.why(path) is None)


class Reversal:
    """What has to be done to the present tree to take some stretches of work back, the oldest first.

    Only what the work itself changed is touched: each of these paths becomes what it was before the first stretch
    that changed it. Whatever others did to other paths stays.

    Attributes:
        todo: the changes, sorted by path; ``old`` is the present side.
        conflicts: those of them that would destroy what is not the work's, or cannot be redone.

    Example::

        reversal = Reversal([Span(checkpoint, at_the_end)], seen.manifest)
        Restore(workspace, objects, seen).apply(reversal.todo)
    """

    def __init__(self, spans: Sequence[Span], present: Manifest) -> None:
        self._spans = spans
        self._present = present.by_path()
        self._unknown = present.left_out()
        self._first: dict[bytes, int] = {}
        for number, span in reversed(list(enumerate(spans))):
            self._first |= dict.fromkeys(span.touched(self._present), number)
        self.todo = sorted(self._planned(), key=lambda change: change.path)
        self.conflicts = [Conflict(change.path, why) for change in self.todo if (why := self._objection(change))]

    def result(self, present: Manifest) -> Manifest:
        """The tree once all of it is done."""
        after = self._present | {change.path: change.new for change in self.todo}
        return Manifest([after[path] for path in sorted(after) if after[path] is not None], present.skipped)  # type: ignore[misc]

    # --- what to do ---------------------------------------------------------------------------------------

    def _planned(self) -> Iterator[Change]:
        target = {path: self._spans[number].before.get(path) for path, number in self._first.items()}
        target |= dict(self._missing_parents(target))
        kept = self._directories_of_others(target)
        for path, new in target.items():
            old = self._present.get(path)
            if old != new and not (new is None and path in kept):
                yield Change(path, old, new)

    def _missing_parents(self, target: dict[bytes, Entry | None]) -> Iterator[tuple[bytes, Entry]]:
        """Directories that others removed and that something coming back needs."""
        for path, new in target.items():
            for above in parents(path) if new is not None else ():
                known = self._spans[self._first[path]].before.get(above)
                if above not in self._present and above not in target and known is not None:
                    yield above, known

    def _directories_of_others(self, target: dict[bytes, Entry | None]) -> set[bytes]:
        """Directories the work made that hold by now what it did not make; they stay."""
        staying = (path for path in self._present if target.get(path, self._present[path]) is not None)
        return {above for path in staying for above in parents(path)}

    # --- what stands in the way -----------------------------------------------------------------------------

    def _objection(self, change: Change) -> str | None:
        if change.old is None:
            # Limits are no reason: what comes back is looked for beyond them, so it is really missing.
            why = self._unknown.why(change.path)
            if why in {UNREADABLE, SPECIAL}:
                return f"{NOT_SAVED}: {why}"
        return BY_OTHERS if self._is_foreign(change) else None

    def _is_foreign(self, change: Change) -> bool:
        path = change.path
        if path not in self._first:
            return False  # a parent that is missing
        spans = self._spans[self._first[path] :]
        edited_between = any(
            one.knows_end_of(path) and one.after is not None and one.after.get(path) != two.before.get(path)
            for one, two in pairwise(spans)
        )
        if edited_between or not spans[-1].knows_end_of(path):
            return edited_between
        # A state the work itself went through is in a checkpoint: nothing is lost with it.
        return all(change.old != tree.get(path) for span in spans for tree in (span.before, span.after or {}))
