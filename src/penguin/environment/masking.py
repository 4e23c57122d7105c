"""Keeping the vault's values out of what is shown, stored and sent (S6)."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

SHORTEST = 8
"""Characters; a shorter value would be found in innocent text, and is not masked."""


class Secrets:
    """The vault's values in the disguises that tools give them: plain, base64 at any offset, percent-encoded.

    Example::

        secrets = Secrets({"TOKEN": "correct-horse"})
        secrets.masked("curl -H 'Authorization: correct-horse'")  # "… [vault:TOKEN]'"
    """

    def __init__(self, vault: Mapping[str, str]) -> None:
        self._names: dict[str, str] = {}
        for name, value in vault.items():
            for disguise in _disguises(value) if len(value) >= SHORTEST else ():
                self._names.setdefault(disguise, name)
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        self._longest = len(longest_first[0]) if longest_first else 0
        self._first_characters = frozenset(disguise[0] for disguise in longest_first)

    def __bool__(self) -> bool:
        return self._pattern is not None

    def masked(self, text: str) -> str:
        """The text with every value replaced by ``[vault:NAME]``."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: f"[vault:{self._names[found[0]]}]", text)

    def unfinished(self, text: str) -> int:
        """How many characters at the end of ``text`` may be the beginning of a value."""
        start = max(0, len(text) - self._longest + 1)
        for position in range(start, len(text)):
            if text[position] in self._first_characters and self._begins_a_value(text[position:]):
                return len(text) - position
        return 0

    def _begins_a_value(self, tail: str) -> bool:
        return any(disguise.startswith(tail) for disguise in self._names)


class Masker:
    """Masks text that comes in pieces; a value split over writes is still found.

    Only text that may be the beginning of a value is held back, and only until the next piece.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = ""

    def feed(self, text: str) -> str:
        """What can be shown now."""
        masked = self._secrets.masked(self._held + text)
        held = self._secrets.unfinished(masked)
        self._held = masked[len(masked) - held :]
        return masked[: len(masked) - held]

    def flush(self) -> str:
        """What was held back, at the end."""
        rest, self._held = self._held, ""
        return rest


def _disguises(value: str) -> Iterator[str]:
    yield value
    yield from {quote(value, safe=""), quote(value, safe="").lower(), quote(value)} - {value}
    data = value.encode()
    for offset in range(3):
        # Only the characters that depend on the value alone: its neighbours decide about the edges.
        start, end = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
        encoded = base64.b64encode(b"\0" * offset + data).decode("ascii")[start:end]
        yield encoded
        yield encoded.translate(str.maketrans("+/", "-_"))
