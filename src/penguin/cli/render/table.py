"""Rows in columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penguin.cli.render.text import columns, one_line


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines with aligned columns; the last column is as long as it is.

    Example::

        list(table(("a", "b"), [("long", "x")]))  # ["a     b", "long  x"]
    """
    cells = [header, *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(columns(row[index]) for row in cells) for index in range(len(header))]
    for row in cells:
        padded = (cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()
