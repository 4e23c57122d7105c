"""What a session used, as names and values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from penguin.trace.stats import TraceStats


def stats_facts(stats: TraceStats, cost: float | None) -> Iterator[tuple[str, str]]:
    """Names and values; ``cost`` is in US dollars, ``None`` when nobody knows the prices."""
    yield "requests", f"{stats.requests}" + (f", {stats.retries} attempts failed" if stats.retries else "")
    came_in = stats.tokens.cache_read + stats.tokens.cache_write
    yield "tokens in", f"{came_in:,} ({stats.cached_share:.0%} from the cache)"
    yield "tokens out", f"{stats.tokens.output:,}"
    if cost is not None:
        yield "cost", f"${cost:.4f} at the prices known now"
    if stats.tool_calls:
        yield "tool calls", f"{stats.tool_calls.total()}: {_counted(stats.tool_calls)}"
    if stats.tool_failures:
        yield "failed calls", _counted(stats.tool_failures)
    for name, count in (
        ("denied", stats.denied),
        ("interruptions", stats.aborts),
        ("compactions", stats.compactions),
        ("subagents", stats.subagents),
    ):
        if count:
            yield name, str(count)
    if span := _span(stats):
        yield "from first to last record", span


def stats_object(stats: TraceStats, cost: float | None) -> dict[str, Any]:
    """The same for programs."""
    tokens = stats.tokens
    return {
        "requests": stats.requests,
        "retries": stats.retries,
        "tokens": {"cache_read": tokens.cache_read, "cache_write": tokens.cache_write, "output": tokens.output},
        "cached_share": stats.cached_share,
        "usd": cost,
        "tool_calls": dict(stats.tool_calls),
        "tool_failures": dict(stats.tool_failures),
        "denied": stats.denied,
        "aborts": stats.aborts,
        "compactions": stats.compactions,
        "subagents": stats.subagents,
        "first": stats.first,
        "last": stats.last,
    }


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def _span(stats: TraceStats) -> str:
    try:
        took = datetime.fromisoformat(stats.last) - datetime.fromisoformat(stats.first)
    except ValueError:
        return ""
    return str(took).partition(".")[0]
