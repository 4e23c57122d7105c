"""A checkpoint of 10,000 files in a git repository: the first, and those when nothing or little changed.

The target is for CPU time, git's included. On the clock a busy machine stretches it, since each of 10,000 system
calls can lose the processor; how much is told by a bare walk with one ``lstat`` a file, measured in turn.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _measure import Report, cpu_seconds, median

from penguin.environment.checkpoints.changes import Reversal, Span
from penguin.environment.checkpoints.manifest import Manifest
from penguin.environment.checkpoints.restore import Restore
from penguin.environment.checkpoints.scan import Wish
from penguin.environment.checkpoints.store import CheckpointStore, Snapshot

FILES = 10_000
ROUNDS = 15
SETTLE_S = 2.5
"""Files that were written in the last two seconds are read again, since a clock may not have moved."""


def place_of(workspace: Path, number: int) -> Path:
    return workspace / f"area{number // 1_000}" / f"part{number // 100}" / f"file{number}.py"


def plant(workspace: Path) -> None:
    """Ten thousand small sources in a hundred directories, under git, with a tree that git ignores."""
    for number in range(FILES):
        place = place_of(workspace, number)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"value = {number}\n" * 50)
    for number in range(3_000):
        place = workspace / "node_modules" / f"p{number // 10}" / f"{number}.js"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x")
    (workspace / ".gitignore").write_text("node_modules/\n")
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    subprocess.run(["git", "add", "."], cwd=workspace, check=True)


def walk(workspace: Path) -> int:
    """One ``lstat`` for each file that is covered."""
    count = 0
    for above, names, _ in os.walk(workspace):
        names[:] = [name for name in names if name not in {".git", "node_modules"}]
        with os.scandir(above) as found:
            count += sum(1 for entry in found if entry.stat(follow_symlinks=False))
    return count


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU time in ms; git counts too."""
    cpu, wall = _cpu(), time.perf_counter()
    work()
    return (time.perf_counter() - wall) * 1e3, (_cpu() - cpu) * 1e3


def _cpu() -> float:
    return cpu_seconds() + cpu_seconds(resource.RUSAGE_CHILDREN)


class Keeper:
    """Takes checkpoints as a session does: a lock, a look, a manifest."""

    def __init__(self, workspace: Path, store: Path) -> None:
        self.store = CheckpointStore(store)
        self.part = self.store.of(workspace)
        self.last: Snapshot | None = None

    def take(self) -> Snapshot:
        with self.store.adding():
            self.last = self.part.take(Wish())
        return self.last

    def go_back(self, wanted: Manifest) -> None:
        seen = self.take().seen
        todo = Reversal([Span(wanted)], seen.manifest).todo
        assert Restore(self.part.workspace, self.part.objects, seen).apply(todo) == []


def main() -> int:
    report = Report()
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory, "workspace")
        plant(workspace)
        keeper = Keeper(workspace, Path(directory, "store"))
        time.sleep(SETTLE_S)
        wall, cpu = measured(keeper.take)
        report.figure("checkpoint of 10,000 files, the first", wall, "ms")
        report.figure("  of that CPU", cpu, "ms CPU")
        first = keeper.take().seen.manifest
        assert len(first.entries) == FILES + 111, len(first.entries)
        rounds = [(*measured(keeper.take), measured(lambda: walk(workspace))[0]) for _ in range(ROUNDS)]
        report.figure("checkpoint of 10,000 unchanged files", median(cpu for _, cpu, _ in rounds), "ms CPU", 150)
        report.figure("  on the clock", median(wall for wall, _, _ in rounds), "ms")
        report.figure("  the fastest", min(wall for wall, _, _ in rounds), "ms")
        report.figure("  a bare walk, on the clock", median(bare for _, _, bare in rounds), "ms")
        report.figure("  the fastest", min(bare for _, _, bare in rounds), "ms")
        for number in range(0, FILES, 100):
            place_of(workspace, number).write_text("changed\n")
        wall, cpu = measured(keeper.take)
        report.figure("checkpoint with 100 changed files", wall, "ms")
        wall, cpu = measured(lambda: keeper.go_back(first))
        report.figure("restoring those 100 files", wall, "ms")
    return report.status


if __name__ == "__main__":
    sys.exit(main())
