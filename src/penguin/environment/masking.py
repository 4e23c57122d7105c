"""Keeping the vault's values out of what is shown, stored and sent (S6)."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

SHORTEST = 8
"""Characters; a shorter value would be found in innocent text, and is not masked."""
TELLING = 4
"""Characters of a value that tell something of it; fewer stand at the end of any text."""


class _Disguise(NamedTuple):
    """One form of a value: ``text`` without line breaks; with ``wraps`` they may stand anywhere in it."""

    text: str
    wraps: bool


class Found(NamedTuple):
    """The value of the vault's entry ``name`` at ``start`` to ``end`` of a text."""

    start: int
    end: int
    name: str


class Secrets:
    """The vault's values in the disguises that tools give them: plain, base64 at any offset, percent-encoded.

    The encoded ones are found across line breaks too: ``base64`` wraps at 76 columns, others elsewhere. A plain value
    is not: its characters below each other may be anything (``seq 8`` is not the value ``12345678``).

    Example::

        secrets = Secrets({"TOKEN": "correct-horse"})
        secrets.masked("curl -H 'Authorization: correct-horse'")  # "… [vault:TOKEN]'"
    """

    def __init__(self, vault: Mapping[str, str]) -> None:
        self._names: dict[_Disguise, str] = {}
        for name, value in vault.items():
            for disguise in _disguises(value) if len(value) >= SHORTEST else ():
                self._names.setdefault(disguise, name)
        self.longest = max((len(disguise.text) for disguise in self._names), default=0)
        """Characters of the longest form, without line breaks."""

    def __bool__(self) -> bool:
        return bool(self._names)

    def found(self, text: str) -> list[Found]:
        """Every value in the text, from left to right; of two that overlap the earlier, then the longer."""
        # Plain searches, no pattern: nearly all text holds no value, and they say so five times faster.
        joined = _joined(text)
        candidates = [
            Found(start, end, name)
            for disguise, name in self._names.items()
            for start, end in _occurrences(disguise, text, joined)
        ]
        candidates.sort(key=lambda each: (each.start, -each.end))
        found: list[Found] = []
        for each in candidates:
            if not found or each.start >= found[-1].end:
                found.append(each)
        return found

    def masked(self, text: str) -> str:
        """The text with every value replaced by ``[vault:NAME]``."""
        masker = Masker(self)
        return masker.feed(text) + masker.flush()

    def beginnings(self, text: str) -> list[int]:
        """Where in ``text``, in ascending order, a value may begin that goes on after its end."""
        window = text[-3 * self.longest :]  # a line break of two characters after each of its own
        joined, offset = _joined(window), len(text) - len(window)
        places = _places(window, joined)
        starts = set()
        for disguise in self._names:
            if disguise.wraps:
                starts |= {offset + places[start] for start in _open_starts(joined, disguise.text)}
            else:
                starts |= {offset + start for start in _open_starts(window, disguise.text)}
        return sorted(starts)


class Masker:
    """Masks text that comes in pieces; a value split over writes is still found.

    Only text that may be the beginning of a value is held back, and only until the next piece.

    Example::

        masker = Masker(Secrets({"TOKEN": "correct-horse"}))
        masker.feed("it is correct-")  # "it is "
        masker.feed("horse!")          # "[vault:TOKEN]!"
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = ""
        self._shown = 0  # characters of what is held that were handed out all the same
        self._skipped = 0  # characters still to be left out

    def feed(self, text: str) -> str:
        """What can be shown now."""
        self._held += text
        return self._advance(self._secrets.beginnings(self._held))

    @property
    def resting(self) -> bool:
        """Whether :meth:`rest` would return something."""
        return self._shown < len(self._held) and len(_joined(self._held)) < TELLING

    def rest(self) -> str:
        """What is held back and tells nothing, for a pause in the text; the rest of its value would be masked still.

        Without it an output that pauses after ``port 3000`` might be read as ``port 300``.
        """
        if not self.resting:
            return ""
        rest = self._held[self._shown :]
        self._shown = len(self._held)
        return rest

    def flush(self) -> str:
        """What was held back, at the end."""
        return self._advance([])

    def gap(self) -> None:
        """Text is missing here. What may be half of a value before or after it is never shown."""
        self._held, self._shown, self._skipped = "", 0, self._secrets.longest

    def _advance(self, beginnings: list[int]) -> str:
        """Hand out the text up to the first of ``beginnings`` that is in no finished value."""
        text, pieces, done = self._held, [], 0
        for start, end, name in self._secrets.found(text):
            if any(done <= place <= start for place in beginnings):
                break
            pieces += [text[max(done, self._shown) : start], f"[vault:{name}]"]
            done = end
        hold = next((place for place in beginnings if place >= done), len(text))
        pieces.append(text[max(done, self._shown) : hold])
        self._held, self._shown = text[hold:], max(0, self._shown - hold)
        shown = "".join(pieces)
        skipped = min(self._skipped, len(shown))
        self._skipped -= skipped
        return shown[skipped:]


def _joined(text: str) -> str:
    return text.replace("\r", "").replace("\n", "")


def _places(text: str, joined: str) -> Sequence[int]:
    """Where each character of ``joined`` stands in ``text``."""
    if len(joined) == len(text):
        return range(len(text))
    return [place for place, character in enumerate(text) if character not in "\r\n"]


def _occurrences(disguise: _Disguise, text: str, joined: str) -> Iterator[tuple[int, int]]:
    """Where in ``text`` it begins and ends."""
    searched = joined if disguise.wraps else text
    start = searched.find(disguise.text)
    if start < 0:
        return
    places = _places(text, joined) if disguise.wraps else range(len(text))
    while start >= 0:
        last = start + len(disguise.text) - 1
        yield places[start], places[last] + 1
        start = searched.find(disguise.text, start + 1)


def _open_starts(text: str, form: str) -> Iterator[int]:
    """Where in ``text`` a part of ``form`` begins that reaches the end of ``text`` and is not all of ``form``."""
    first = max(0, len(text) - len(form) + 1)
    start = text.find(form[:TELLING], first)
    while start >= 0:
        if form.startswith(text[start:]):
            yield start
        start = text.find(form[:TELLING], start + 1)
    for start in range(max(first, len(text) - TELLING + 1), len(text)):
        if form.startswith(text[start:]):
            yield start


def _disguises(value: str) -> Iterator[_Disguise]:
    # A value of several lines, a private key say, may come with the line ends of a terminal.
    yield _Disguise(_joined(value) or value, wraps=bool(_joined(value)) and len(_joined(value)) < len(value))
    for encoded in {*_percent_encoded(value), *_base64(value)} - {value}:
        yield _Disguise(encoded, wraps=True)


def _percent_encoded(value: str) -> Iterator[str]:
    yield from (quote(value, safe=""), quote(value, safe="").lower(), quote(value))


def _base64(value: str) -> Iterator[str]:
    data = value.encode()
    for offset in range(3):
        # Only the characters that depend on the value alone: its neighbours decide about the edges.
        start, end = -(-offset * 8 // 6), (offset + len(data)) * 8 // 6
        encoded = base64.b64encode(b"\0" * offset + data).decode("ascii")[start:end]
        yield encoded
        yield encoded.translate(str.maketrans("+/", "-_"))
