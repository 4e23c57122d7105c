"""Spans of time as people write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import click

_SPAN: Final = re.compile(r"(\d{1,6})\s*([mhdw])", re.ASCII)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Duration(click.ParamType[timedelta]):
    """``90m``, ``12h``, ``30d``, ``8w``."""

    name = "duration"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The span; raises BadParameter for anything else."""
        if isinstance(value, timedelta):
            return value
        found = _SPAN.fullmatch(value.strip())
        if found is None:
            self.fail(f"{value} is no span of time; one looks like 90m, 12h, 30d or 8w", param, ctx)
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
