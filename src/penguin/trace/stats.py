"""What a session used and how it went, counted from its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from penguin.protocol.messages import (
    Abort,
    ApprovalDecision,
    CompactionEnd,
    Message,
    RequestEnd,
    Subagent,
    TokenCounts,
    TokenUsage,
    ToolCall,
    ToolCallOutput,
)


@dataclass(slots=True)
class TraceStats:
    """Counts over one or more trace files of a session.

    ``cached_share`` is the part of all input that came from the provider's cache, between 0 and 1.
    """

    requests: int = 0
    retries: int = 0
    tokens: TokenCounts = field(default_factory=TokenCounts)
    tool_calls: Counter[str] = field(default_factory=Counter)
    tool_failures: Counter[str] = field(default_factory=Counter)
    denied: int = 0
    aborts: int = 0
    compactions: int = 0
    subagents: int = 0
    first: str = ""
    last: str = ""

    @property
    def cached_share(self) -> float:
        """Cache hits as a part of all input."""
        whole = self.tokens.cache_read + self.tokens.cache_write
        return self.tokens.cache_read / whole if whole else 0.0


def stats_of(messages: Iterable[Message]) -> TraceStats:
    """Count.

    Example::

        stats_of(read_trace(path)).tool_calls.most_common(3)
    """
    stats = TraceStats()
    names: dict[str, str] = {}
    for message in messages:
        stats.first = stats.first or message.timestamp
        stats.last = message.timestamp
        _count(stats, message, names)
    return stats


def _count(stats: TraceStats, message: Message, names: dict[str, str]) -> None:
    match message.payload:
        case RequestEnd(status="completed"):
            stats.requests += 1
        case RequestEnd(retry_in_ms=int()):
            stats.retries += 1
        case TokenUsage(session=total):
            stats.tokens = total
        case ToolCall(name=name, tool_call_id=call_id):
            names[call_id] = name
            stats.tool_calls[name] += 1
        case ToolCallOutput(tool_call_id=call_id, stop_reason="failed" | "timeout"):
            stats.tool_failures[names.get(call_id, "?")] += 1
        case ApprovalDecision(decision="deny"):
            stats.denied += 1
        case Abort():
            stats.aborts += 1
        case CompactionEnd(status="completed"):
            stats.compactions += 1
        case Subagent():
            stats.subagents += 1
        case _:
            pass
