"""What sessions used, in tokens and money."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from penguin.agent.models import described
from penguin.protocol.errors import ConfigError, TraceError
from penguin.protocol.messages import Message, SessionMeta
from penguin.state.project import ModelRef, ProjectConfigFile
from penguin.trace.check import check_trace
from penguin.trace.names import files_of
from penguin.trace.reader import read_trace
from penguin.trace.stats import TraceStats, stats_of

if TYPE_CHECKING:
    from penguin.agent.sessions import StoredSession
    from penguin.state.paths import AgentPaths


class Used(Struct):
    """Counts of some trace files; ``usd`` is ``None`` when the price of their model is not known."""

    files: list[Path]
    stats: TraceStats
    usd: float | None = None
    ending: str = ""


def used_by(paths: AgentPaths, session: StoredSession) -> Used:
    """What a session used, and how its last file ends; nothing for one that cannot be read."""
    files = files_of(paths.traces, session.session_id)
    try:
        used = used_in(files, paths.project.config)
        used.ending = check_trace(files[-1]).ending_words
    except TraceError:
        return Used(files, TraceStats())
    return used


def used_in(files: list[Path], project_config: Path) -> Used:
    """What the session in these files used.

    Raises:
        TraceError: one of them is no readable trace.
    """
    meta: list[SessionMeta] = []

    def records() -> Iterable[Message]:
        for file in files:
            for message in read_trace(file):
                if isinstance(message.payload, SessionMeta):
                    meta.append(message.payload)
                yield message

    stats = stats_of(records())
    return Used(files, stats, _cost(stats, meta[-1], project_config) if meta else None)


def _cost(stats: TraceStats, meta: SessionMeta, project_config: Path) -> float | None:
    try:
        project = ProjectConfigFile(project_config).read()
    except ConfigError:  # a trace can be looked at whatever the configuration is like
        return None
    prices = described(project, ModelRef(meta.provider, meta.model_id)).prices
    return None if prices is None else prices.cost(stats.tokens)
