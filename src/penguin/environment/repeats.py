"""Noticing a model that asks for the same thing over and over (E24)."""

from __future__ import annotations

from dataclasses import dataclass

POLLING_TOOLS = frozenset({"input_command", "input_subagent"})
"""Tools whose repeated call is ordinary work."""


@dataclass(frozen=True, slots=True)
class RepeatLimits:
    """After how many same calls in a row a note is given, and which one is refused; 0 turns either off."""

    note: int = 3
    refuse: int = 5


class Repeats:
    """Counts calls in a row with the same name, arguments and result.

    Example::

        repeats = Repeats(RepeatLimits())
        if refusal := repeats.refusal("read_file", arguments):
            ...                                    # answer with it, run nothing
        note = repeats.note("read_file", arguments, output)
    """

    def __init__(self, limits: RepeatLimits) -> None:
        self._limits = limits
        self._call: tuple[str, str] = ("", "")
        self._output = ""
        self._count = 0

    def refusal(self, name: str, arguments: str) -> str | None:
        """Why this call is not run, if it is the same once too often."""
        limit = self._limits.refuse
        if not limit or name in POLLING_TOOLS or self._call != (name, arguments) or self._count < limit - 1:
            return None
        return (
            f"This exact call gave the same result {self._count} times in a row, so it was not run again."
            " Change the arguments, use another tool, or tell the user what keeps you from going on."
        )

    def note(self, name: str, arguments: str, output: str) -> str | None:
        """Count a finished call; a note for its output when it begins to look like a loop."""
        if name in POLLING_TOOLS:
            return None
        call = (name, arguments)
        # A refused call is not a new result: it must not open the way for the next one.
        if self._limits.refuse and self._call == call and self._count >= self._limits.refuse - 1:
            return None
        same = self._call == call and self._output == output
        self._count = self._count + 1 if same else 1
        self._call, self._output = call, output
        if not self._limits.note or self._count < self._limits.note:
            return None
        return f"[this is the same call with the same result for the {_ordinal(self._count)} time in a row]"


def _ordinal(number: int) -> str:
    return (
        f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') if number % 100 not in range(11, 14) else 'th' }"
    )
