"""Text from models and tools on its way to a terminal."""

from __future__ import annotations

import re
import unicodedata

_TAB = "    "
# Escape sequences of a model or a tool could move the cursor, rewrite what was shown or type answers; the
# bidirectional controls can make a command read as another one.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CONTROL_PICTURES = 0x2400
_SPACE, _DELETE = 0x20, 0x7F


def visible(text: str) -> str:
    r"""``text`` with each control character as a visible one; newlines and tabs stay, carriage returns go.

    Works fragment by fragment: no fragment can complete what an earlier one began.

    Example::

        visible("a\x1b[31mb")  # "a␛[31mb"
    """
    return _UNSAFE.sub(_picture, text.replace("\r", ""))


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < _SPACE:
        return chr(_CONTROL_PICTURES + code)
    return "␡" if code == _DELETE else f"<U+{code:04X}>"


def one_line(text: str) -> str:
    """``text`` in one line: runs of white space become one space."""
    return visible(" ".join(text.split()))


def columns(text: str) -> int:
    """The number of terminal columns ``text`` takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Cf", "Me", "Mn"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int | None, end: str = "…") -> str:
    """``text`` in at most ``width`` columns, tabs as spaces; ``end`` shows that something is missing.

    Example::

        cut("abcdef", 4)  # "abc…"
    """
    text = text.replace("\t", _TAB)
    if width is None or columns(text) <= width:
        return text
    room = max(0, width - columns(end))
    kept = []
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + end
