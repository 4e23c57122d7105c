"""What an undo does, and what tasks changed, for reading."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from penguin.agent.undo import Checkpoint, FileChange, PathNote, UndoReport
from penguin.cli.render.look import Look
from penguin.cli.render.table import table
from penguin.cli.render.text import one_line, visible

MOST_SHOWN: Final = 40
_MOST_LEFT: Final = 10
_MARKS: Final = {"created": "+", "modified": "~", "deleted": "-"}


def path_text(path: str) -> str:
    r"""A path in one line; bytes that are no text as ``\xNN``."""
    shown = os.fsencode(path).decode("utf-8", "backslashreplace").replace("\n", "\\n")
    return visible(shown) or "."


def task_table(tasks: Iterable[Checkpoint]) -> Iterator[str]:
    """The tasks of a session, one a line."""
    rows = [(str(task.number), task.started, _files_word(task), task.title or "-") for task in tasks]
    return table(("task", "started (UTC)", "files", "prompt"), rows)


def _files_word(task: Checkpoint) -> str:
    if task.has_files:
        return "kept"
    return f"not kept: {task.problem}" if task.problem else "unchanged"


def undo_lines(report: UndoReport, look: Look, *, verb: str) -> Iterator[str]:
    """What will happen: the task, each file, what is in the way and what is left as it is."""
    later = f" and {report.later} later" if report.later else ""
    yield f"{verb} task {report.number}{later}: {one_line(report.title) or '(no words)'}"
    if report.workspace is not None:
        yield f"in {path_text(str(report.workspace))}:"
        yield from _listed([_change_line(change, look) for change in report.files] or ["  no file differs"], MOST_SHOWN)
    if report.conflicts:
        yield look.bad("In the way:")
        yield from _listed([_note_line(note) for note in report.conflicts], MOST_SHOWN)
    if report.not_covered:
        yield "Left as it is:"
        yield from _listed([_note_line(note) for note in report.not_covered], _MOST_LEFT)
    for note in report.notes:
        yield look.dim(f"Note: {note}.")


def failure_lines(failures: list[PathNote]) -> Iterator[str]:
    """What could not be restored."""
    return _listed([_note_line(note) for note in failures], MOST_SHOWN)


def diff_lines(changes: list[FileChange], look: Look) -> Iterator[str]:
    """A unified diff of all that is text; a line for what is not."""
    for change in changes:
        if change.kind == "directory" and change.change != "modified":
            continue  # the files in it say it too
        name = path_text(change.path)
        yield look.bold(f"{change.change} {change.kind} {name}")
        if change.diff is None:
            yield f"  {change.size:,} bytes, not shown: no text, or too much of it"
        else:
            yield from (_painted(visible(line), look) for line in change.diff.split("\n") if change.diff)


def stat_lines(changes: list[FileChange], look: Look) -> Iterator[str]:
    """One line a path, with the number of lines that were added and removed."""
    for change in changes:
        lines = (change.diff or "").split("\n")
        added, removed = (sum(line.startswith(mark) for line in lines) for mark in "+-")
        counts = f"+{added} -{removed}" if change.kind != "directory" and change.diff is not None else ""
        yield f"{_change_line(change, look)}  {counts}".rstrip()


def _change_line(change: FileChange, look: Look) -> str:
    mark = _MARKS[change.change]
    paint = look.good if mark == "+" else look.bad if mark == "-" else str
    return f"  {paint(mark)} {path_text(change.path)}{'/' if change.kind == 'directory' else ''}"


def _note_line(note: PathNote) -> str:
    return f"  {path_text(note.path)}: {one_line(note.why)}"


def _listed(lines: list[str], most: int) -> Iterator[str]:
    yield from lines[:most]
    if len(lines) > most:
        yield f"  … and {len(lines) - most:,} more"


def _painted(line: str, look: Look) -> str:
    match line[:1]:
        case "+":
            return look.good(line)
        case "-":
            return look.bad(line)
        case "@":
            return look.dim(line)
        case _:
            return line
