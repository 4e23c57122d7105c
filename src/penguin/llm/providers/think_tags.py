"""Thinking that a server leaves inside the content: ``<think>…</think>`` before the answer."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw
from msgspec.json import encode

from penguin.llm.segments import Segments

SOURCE = "think_tag"
_OPEN = "<think>"
_CLOSE = "</think>"


class ThinkTagReader:
    """Cuts a leading ``<think>`` block out of streamed content, wherever the deltas break it.

    Only the very beginning of a reply counts: a model that writes about the tag means the tag. The
    exact tags and the white space around them go into the block's fidelity, since some models must
    get their thinking back the way they wrote it.
    """

    def __init__(self, segments: Segments, say: Callable[[str], object]) -> None:
        self._segments = segments
        self._say = say
        self._held = ""
        self._thought = False
        self._opening = self._closing = ""
        self._step: Callable[[str], None] = self._at_start
        self.plain = False
        """True once nothing but ordinary text can follow: the caller may then skip this class."""

    def read(self, text: str) -> None:
        """Take the next piece of content."""
        held, self._held = self._held, ""
        self._step(held + text)

    def finish(self) -> None:
        """The content has ended: let go of what was held back; blank content alone is dropped."""
        held, self._held = self._held, ""
        if self._step == self._inside:
            self._think(held)
        elif self._step == self._at_start and held.strip():
            self._say(held)

    def _at_start(self, text: str) -> None:
        beginning = text.lstrip()
        if beginning.startswith(_OPEN):
            self._opening = text[: len(text) - len(beginning)] + _OPEN
            self._step = self._after_opening
            self._step(beginning[len(_OPEN) :])
        elif _OPEN.startswith(beginning):
            self._held = text
        else:
            self._pass_on(text)

    def _after_opening(self, text: str) -> None:
        body = text.lstrip()
        self._opening += text[: len(text) - len(body)]
        if body:
            self._step = self._inside
            self._step(body)

    def _inside(self, text: str) -> None:
        body, found, rest = text.partition(_CLOSE)
        if not found:
            body, self._held = _without_possible_end(text)
            self._think(body)
            return
        said = body.rstrip()
        self._think(said)
        self._closing = body[len(said) :] + _CLOSE
        self._step = self._after_closing
        self._step(rest)

    def _after_closing(self, text: str) -> None:
        rest = text.lstrip()
        self._closing += text[: len(text) - len(rest)]
        self._note_tags()
        if rest:
            self._pass_on(rest)

    def _pass_on(self, text: str) -> None:
        self.plain = True
        self._step = self._say_on
        self._say(text)

    def _say_on(self, text: str) -> None:
        self._say(text)

    def _think(self, text: str) -> None:
        if text:
            if self._thought and self._segments.thought(SOURCE) is None:
                self._opening = ""  # something stood between, an image say: this is the rest of the block
            self._thought = True
            self._segments.think(text, SOURCE)
            self._note_tags()

    def _note_tags(self) -> None:
        thought = self._segments.thought(SOURCE)
        if thought is not None:
            thought.fidelity[SOURCE] = Raw(encode([self._opening, self._closing]))


def _without_possible_end(text: str) -> tuple[str, str]:
    """Split off a tail that may yet turn out to be the closing tag, and the white space before it."""
    start = text.rfind("<")
    tail_is_tag = start >= 0 and _CLOSE.startswith(text[start:])
    body = (text[:start] if tail_is_tag else text).rstrip()
    return body, text[len(body) :]
