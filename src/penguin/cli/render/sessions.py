"""Sessions as rows, as facts, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from penguin.agent.sessions import StoredSession, short_name
from penguin.cli.render.table import table
from penguin.cli.render.text import cut
from penguin.trace.lock import LockOwner

HEADER = ("id", "last active", "model", "workspace", "", "title")
NARROW = 90
"""Below so many columns the title is worth more than model and workspace."""
_KEPT = (0, 1, 4, 5)


def session_table(sessions: Iterable[StoredSession], *, width: int | None, end: str = "…") -> Iterator[str]:
    """Aligned lines, the header first, each at most ``width`` columns; ``None`` is as wide as they are."""
    rows = [HEADER, *map(_row, sessions)]
    if width is not None and width < NARROW:
        rows = [tuple(row[column] for column in _KEPT) for row in rows]
    header, *rest = rows
    return (cut(line, width, end) for line in table(header, rest))


def _row(session: StoredSession) -> tuple[str, ...]:
    summary = session.summary
    return (
        short_name(session.session_id),
        moment(summary.modified),
        f"{summary.provider}/{summary.model_id}" if summary.model_id else "-",
        Path(summary.workspace).name or "-",
        state_of(session),
        summary.title or summary.problem or "-",
    )


def state_of(session: StoredSession) -> str:
    """What is special about a session, in a word; usually nothing."""
    if session.summary.problem is not None:
        return "unreadable"
    if session.owner is not None:
        return "open"
    return "subagent" if session.parent is not None else ""


def session_object(session: StoredSession) -> dict[str, Any]:
    """A session for programs: times are ISO 8601 with their offset."""
    summary = session.summary
    return {
        "session_id": summary.session_id,
        "title": summary.title,
        "created": summary.created.isoformat(),
        "modified": summary.modified.isoformat(),
        "contexts": summary.files,
        "provider": summary.provider,
        "model_id": summary.model_id,
        "workspace": summary.workspace,
        "parent": session.parent,
        "open_in_process": session.owner.pid if session.owner else None,
        "problem": summary.problem,
    }


def session_facts(session: StoredSession, *, workspace_exists: bool) -> Iterator[tuple[str, str]]:
    """Names and values of what the list knows of one session."""
    summary = session.summary
    yield "id", summary.session_id
    if summary.problem is not None:
        yield "problem", summary.problem
        return
    yield "title", summary.title or "-"
    yield "created", moment(summary.created)
    yield "last active", moment(summary.modified)
    yield "model", f"{summary.provider}/{summary.model_id}"
    yield "workspace", summary.workspace + ("" if workspace_exists else "  (gone)")
    if session.parent is not None:
        yield "subagent of", session.parent
    if session.owner is not None:
        yield "open in", owner_words(session.owner)


def owner_words(owner: LockOwner) -> str:
    """Who has a session open."""
    return str(owner)


def facts(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Names and values in two columns."""
    known = list(pairs)
    room = max((len(name) for name, _ in known), default=0)
    return (f"{name:<{room}}  {value}" for name, value in known)


def moment(time: datetime) -> str:
    """A time as people here read it, to the minute."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M")
