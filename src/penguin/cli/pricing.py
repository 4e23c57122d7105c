"""Prices as people write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from penguin.state.project import Pricing as Prices

_CLASSES = 3


class Pricing(click.ParamType["Prices"]):
    """``0.3,3.75,15``: US dollars per million tokens of cached input, other input, output."""

    name = "pricing"

    def convert(self, value: str | Prices, param: click.Parameter | None, ctx: click.Context | None) -> Prices:
        """The prices; raises BadParameter for anything else."""
        from penguin.state.project import Pricing as Prices  # noqa: PLC0415 - keeps `--help` cheap

        if isinstance(value, Prices):
            return value
        try:
            numbers = [float(part) for part in value.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) != _CLASSES or not all(0 <= number < float("inf") for number in numbers):
            self.fail(f"{value} is no pricing; one looks like 0.3,3.75,15", param, ctx)
        cached, given, said = numbers
        return Prices(cache_read=cached, cache_write=given, output=said)
