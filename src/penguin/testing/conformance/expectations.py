"""How the kits complain."""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 30.0
"""How long anything may take, in seconds."""


def expect(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads like the assert it stands for
    """Raise `AssertionError` with the text unless the condition holds.

    A function, because ``python -O`` leaves out assert statements and a kit must not pass for that.
    """
    if not holds:
        raise AssertionError(otherwise)
