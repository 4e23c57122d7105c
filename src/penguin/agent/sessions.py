"""The sessions an agent has on disk: found by a short name, listed with who made them, deleted whole.

A session is its trace files, its scratchpad and its lock; a subagent's session belongs to the one that
points to it. Nothing else is ever touched: a workspace is the user's, even a temporary one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from penguin.agent.checkpoint_places import forget_checkpoints
from penguin.protocol.codec import decode
from penguin.protocol.errors import CodecError, ResumeError, SessionError
from penguin.protocol.messages import Subagent
from penguin.state.paths import AgentPaths
from penguin.trace.index import SessionSummary, list_sessions
from penguin.trace.lock import LockOwner, SessionLock, lock_owner
from penguin.trace.names import day_directory, files_of, is_session_id, lock_path

LATEST = "latest"
SHORTEST_TAIL = 4
"""Characters of an id's end that may stand for it, when only one session ends so."""

# A quote inside a text is escaped, so these bytes are never part of what somebody said.
_POINTER = b'"type":"subagent"'

Pointers: TypeAlias = dict[str, list[str]]
"""Session ids to those of the subagents they had."""


class StoredSession(Struct, frozen=True):
    """One session of a list.

    ``parent`` is the session whose subagent it is, ``owner`` the process that has it open.
    """

    summary: SessionSummary
    parent: str | None = None
    owner: LockOwner | None = None

    @property
    def session_id(self) -> str:
        """The whole id."""
        return self.summary.session_id


def stored_sessions(paths: AgentPaths, known: Pointers | None = None) -> Iterator[StoredSession]:
    """Every session with a trace, the newest first; ``known`` as for :func:`family_of`.

    Example::

        [each.summary.title for each in stored_sessions(paths) if each.parent is None]
    """
    known = pointers(paths) if known is None else known
    parents = {child: parent for parent, children in known.items() for child in children}
    for summary in list_sessions(paths.traces):
        yield StoredSession(summary, parents.get(summary.session_id), owner_of(paths, summary.session_id))


def stored_session(paths: AgentPaths, session_id: str) -> StoredSession:
    """One of them.

    Raises:
        ResumeError: there is no such session.
    """
    found = next((each for each in stored_sessions(paths) if each.session_id == session_id), None)
    if found is None:
        raise ResumeError(f"there is no session {session_id} in {paths.traces}")
    return found


def find_session(paths: AgentPaths, name: str = LATEST) -> str:
    """The id that ``name`` stands for: a whole id, the end of one, or ``latest``.

    The latest is the one written to last that is no subagent's.

    Raises:
        ResumeError: there is none, or more than one ends so; the text says which.

    Example::

        find_session(paths, "00c0ffee")  # "session-2026-03-01-09-05-00-00c0ffee"
    """
    if name == LATEST:
        return _latest(paths)
    if is_session_id(name):
        if not files_of(paths.traces, name):
            raise ResumeError(f"there is no session {name} in {paths.traces}")
        return name
    found = sorted(each for each in _ids(paths) if len(name) >= SHORTEST_TAIL and each.endswith(name))
    match found:
        case [only]:
            return only
        case []:
            raise ResumeError(
                f"there is no session {name} in {paths.traces}; a session is named by its id, by the last 8 characters"
                " of it, or as `latest`"
            )
        case _:
            raise ResumeError(f"{len(found)} sessions end in {name}: {', '.join(found)}. Name one of them")


def short_name(session_id: str) -> str:
    """The end of an id, enough to name it: eight hexadecimal digits."""
    return session_id.rpartition("-")[2]


def _latest(paths: AgentPaths) -> str:
    children = {child for found in pointers(paths).values() for child in found}
    own = [each for each in list_sessions(paths.traces) if each.session_id not in children]
    if not own:
        raise ResumeError(f"there is no session in {paths.traces} yet")
    return max(own, key=lambda each: (each.modified, each.session_id)).session_id


def _ids(paths: AgentPaths) -> Iterator[str]:
    for file in paths.traces.glob("*/session-*_001.jsonl"):
        session_id = file.name.removesuffix("_001.jsonl")
        if is_session_id(session_id) and day_directory(paths.traces, session_id) == file.parent:
            yield session_id


# ---------------------------------------------------------------- subagents


def pointers(paths: AgentPaths) -> Pointers:
    """Which sessions point to which as their subagents', over all agents of the project.

    Another agent's session may have asked this one's agent for help, so its traces count too.
    """
    found: Pointers = {}
    for agent_id in paths.project.agent_ids():
        for file in paths.project.agent(agent_id).traces.glob("*/session-*.jsonl"):
            children = list(_pointers_in(file))
            if children:
                found.setdefault(file.name.rpartition("_")[0], []).extend(children)
    return found


def _pointers_in(file: Path) -> Iterator[str]:
    with contextlib.suppress(OSError), file.open("rb") as lines:
        for line in lines:
            if _POINTER in line:
                yield from _pointed_to(line)


def _pointed_to(line: bytes) -> Iterator[str]:
    with contextlib.suppress(CodecError):
        payload = decode(line, default_timestamp="").payload
        if isinstance(payload, Subagent):
            yield payload.session_id


def family_of(paths: AgentPaths, session_id: str, known: Pointers | None = None) -> list[str]:
    """A session and the subagents' sessions that nobody else points to, as far as this agent has them.

    A fork points to the subagents of its source, which are kept as long as one of the two is there. ``known``
    is the result of :func:`pointers`, for a caller that asks more than once.
    """
    known = pointers(paths) if known is None else known
    family = [session_id]
    for member in family:
        family += [
            child
            for child in dict.fromkeys(known.get(member, ()))
            if child not in family and _only_pointed_to_by(family, child, known) and _is_here(paths, child)
        ]
    return family


def _only_pointed_to_by(family: list[str], child: str, known: Pointers) -> bool:
    return all(parent in family for parent, children in known.items() if child in children)


def _is_here(paths: AgentPaths, session_id: str) -> bool:
    return is_session_id(session_id) and bool(files_of(paths.traces, session_id))


# ---------------------------------------------------------------- open ones


def owner_of(paths: AgentPaths, session_id: str) -> LockOwner | None:
    """The process that has a session open, as far as its lock file tells; for a list, not for a decision.

    Not by trying the lock: that would refuse the session to whoever opens it in that very moment.
    """
    owner = lock_owner(lock_path(paths.traces, session_id))
    if owner is None or owner.host != socket.gethostname():
        return owner
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return owner


# ---------------------------------------------------------------- the end of a session


def idle_since(paths: AgentPaths, moment: datetime, known: Pointers) -> list[StoredSession]:
    """The sessions that were not written to after ``moment``, nor their subagents'; none is a subagent's own."""
    everything = list(stored_sessions(paths, known))
    modified = {each.session_id: each.summary.modified for each in everything}

    def last_active(session: StoredSession) -> datetime:
        return max(modified[member] for member in family_of(paths, session.session_id, known) if member in modified)

    return [each for each in everything if each.parent is None and last_active(each) < moment]


def delete_session(paths: AgentPaths, session_id: str, known: Pointers | None = None) -> list[str]:
    """Delete a session with its subagents' sessions and return their ids; they are taken out of ``known``.

    Raises:
        SessionLocked: one of them is open; nothing was deleted.
        SessionError: its directory leads out of the agent's; nothing was deleted.
        OSError: the disk refused.
    """
    known = pointers(paths) if known is None else known
    family = family_of(paths, session_id, known)
    for member in family:
        _refuse_foreign_directory(paths, member)
    with contextlib.ExitStack() as locks:
        for member in family:
            locks.enter_context(SessionLock(lock_path(paths.traces, member)))
        # The scratchpad first: what an interruption leaves is then still a session that can be listed and deleted.
        for member in reversed(family):
            _delete_scratchpad(paths.scratchpad(member))
            forget_checkpoints(paths, member)
            _delete_files(reversed(files_of(paths.traces, member)))
            known.pop(member, None)
    for member in family:
        with contextlib.suppress(OSError):  # other sessions of that day
            day_directory(paths.traces, member).rmdir()
    return family


def _refuse_foreign_directory(paths: AgentPaths, session_id: str) -> None:
    day = day_directory(paths.traces, session_id)
    if os.path.realpath(day) != os.path.join(os.path.realpath(paths.traces), day.name):  # noqa: PTH118 - as realpath
        raise SessionError(f"{day} is a link that leads out of {paths.traces}: nothing was deleted")


def _delete_scratchpad(directory: Path) -> None:
    if directory.is_symlink():
        directory.unlink()
    elif directory.is_dir():
        shutil.rmtree(directory)


def _delete_files(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
