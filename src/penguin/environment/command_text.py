"""What a command writes, as it may be shown: text without escapes and without the vault's values (N11, S6)."""

from __future__ import annotations

import copy
import re

from penguin.environment.masking import Masker, Secrets
from penguin.environment.terminal_text import TerminalText

PROMPT_LENGTH = 200
"""Characters remembered of an unfinished line that was handed out."""
_MOST_ADDRESSES = 8
_ADDRESS = re.compile(
    r"https?://(?:localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[::1?\])(?::(?P<port>\d{1,5}))?(?:/[\w./~%+=&?#-]{0,200})?"
)


class CommandText:
    r"""Bytes in, text out; lives as long as the command, not as long as the call that reads it.

    A value may be split by the moment at which a call returns. What can be its beginning is then kept for the next
    call, or for the end of the output.

    Example::

        text = CommandText(Secrets({"TOKEN": "correct-horse"}))
        text.feed(b"it is correct-")  # ""
        text.pause()                  # "it is "
        text.feed(b"horse\n")          # "[vault:TOKEN]\n"
    """

    def __init__(self, secrets: Secrets | None = None) -> None:
        self._text = TerminalText()
        self._masker = Masker(secrets) if secrets else None
        self.margin = 3 * secrets.longest if secrets else 0  # characters a value may take, line breaks included
        self.prompt = ""  # the end of what was handed out of the current line
        self.addresses: dict[str, int] = {}  # URLs of this machine it named, with their ports; at most eight

    @property
    def holding(self) -> bool:
        """Whether :meth:`pause` would return something."""
        return self._text.holding or bool(self._masker and self._masker.resting)

    def feed(self, data: bytes) -> str:
        """Take the next bytes; returns the lines they finish."""
        return self._shown(self._text.feed(data))

    def pause(self) -> str:
        """Hand out the unfinished line as it stands, but for what may be the beginning of a value."""
        shown = self._shown(self._text.flush())
        return shown + self._handed_out(self._masker.rest()) if self._masker else shown

    def gap(self) -> str:
        """As :meth:`pause`, when what comes next does not follow on it."""
        shown = self.pause()
        if self._masker:
            self._masker.gap()
        return shown

    def close(self) -> str:
        """Hand out everything; no more bytes follow."""
        shown = self._shown(self._text.close())
        return shown + self._handed_out(self._masker.flush()) if self._masker else shown

    def preview(self, text: str, *, ended: bool) -> str:
        """How ``text`` would be shown if it came next; changes nothing."""
        if self._masker is None:
            return text
        masker = copy.copy(self._masker)
        return masker.feed(text) + (masker.flush() if ended else masker.rest())

    def _shown(self, text: str) -> str:
        return self._handed_out(self._masker.feed(text) if self._masker else text)

    def _handed_out(self, text: str) -> str:
        if text:
            self.prompt = (self.prompt + text[-PROMPT_LENGTH:]).rpartition("\n")[2][-PROMPT_LENGTH:]
            if "://" in text and len(self.addresses) < _MOST_ADDRESSES:
                self.addresses |= addresses_in(text)
        return text


def addresses_in(text: str) -> dict[str, int]:
    """The first few URLs of this machine in ``text``, each with its port.

    Example::

        addresses_in("  Local: http://localhost:5173/")  # {"http://localhost:5173/": 5173}
    """
    found: dict[str, int] = {}
    for match in _ADDRESS.finditer(text):
        usual = 443 if match[0].startswith("https") else 80
        found[match[0].rstrip(".")] = int(match["port"] or usual)
        if len(found) == _MOST_ADDRESSES:
            break
    return found
