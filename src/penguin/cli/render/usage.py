"""The line at the end of a task."""

from __future__ import annotations

from penguin.protocol.events import TokenCounts


def usage_line(usage: TokenCounts, *, turns: int, seconds: float, estimated: bool = False) -> str:
    """Turns, tokens and time of one task; a tilde marks numbers that the provider did not report.

    Example::

        usage_line(TokenCounts(800, 434, 56, 1290), turns=2, seconds=4.21)
        # "2 turns, 1,234 tokens in (800 cached), 56 out, 4.2 s"
    """
    about = "~" if estimated else ""
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    came_in = f"{about}{usage.cache_read + usage.cache_write:,} tokens in{cached}"
    return f"{turns} turn{'' if turns == 1 else 's'}, {came_in}, {about}{usage.output:,} out, {seconds:.1f} s"
