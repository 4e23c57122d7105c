"""How lines may look in the place they go to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TextIO

_DEFAULT_WIDTH = 80
_NARROWEST = 20


@dataclass(frozen=True, slots=True)
class Look:
    """Colour or none, which symbols, and how wide.

    ``width`` is asked for each line, since a terminal can be resized; ``None`` means as wide as the line is.
    """

    colour: bool = False
    unicode: bool = True
    width: Callable[[], int | None] = lambda: None

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str] = os.environ) -> Look:
        """What ``stream`` can show: escape codes only on a terminal that wants them."""
        plain = bool(environment.get("NO_COLOR")) or environment.get("TERM", "") in {"", "dumb"}
        return cls(
            colour=stream.isatty() and not plain,
            unicode=(stream.encoding or "").lower().replace("-", "").startswith("utf"),
            width=lambda: _width(stream, environment),
        )

    def dim(self, text: str) -> str:
        """Less important than the rest."""
        return self._painted("2", text)

    def bold(self, text: str) -> str:
        """What the eye should find."""
        return self._painted("1", text)

    def good(self, text: str) -> str:
        """It worked."""
        return self._painted("32", text)

    def bad(self, text: str) -> str:
        """It did not."""
        return self._painted("31", text)

    def _painted(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def symbol(self, fine: str, plain: str) -> str:
        """``fine`` where it can be shown, ``plain`` otherwise."""
        return fine if self.unicode else plain


def _width(stream: TextIO, environment: Mapping[str, str]) -> int:
    try:
        return max(_NARROWEST, os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH)
    except (OSError, ValueError):
        told = environment.get("COLUMNS", "")
        return max(_NARROWEST, int(told)) if told.isdecimal() else _DEFAULT_WIDTH
