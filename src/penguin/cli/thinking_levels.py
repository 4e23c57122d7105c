"""Thinking levels as people write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from penguin.protocol.messages import ThinkingLevel


class ThinkingLevels(click.ParamType["tuple[ThinkingLevel, ...]"]):
    """``none,low,high``: the levels a model accepts; an empty text for a model that does not think."""

    name = "thinking_levels"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[ThinkingLevel, ...]:
        """The levels in their order; raises BadParameter for any other word."""
        from penguin.protocol.messages import THINKING_LEVELS  # noqa: PLC0415 - keeps `--help` cheap

        if isinstance(value, tuple):
            return value
        words = [word.strip() for word in value.split(",") if word.strip()]
        if strange := next((word for word in words if word not in THINKING_LEVELS), None):
            self.fail(f"{strange} is no level; the levels are {', '.join(THINKING_LEVELS)}", param, ctx)
        return tuple(level for level in THINKING_LEVELS if level in words)
