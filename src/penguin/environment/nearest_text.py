"""Where a text that was not found comes nearest, and why it differs there."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_LARGEST = 2_000_000
_MOST_LINES = 3_000
_MOST_SHOWN = 15
_LONGEST_LINE = 300
_TYPOGRAPHIC = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201a": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u201e": '"',
        "\u00ab": '"',
        "\u00bb": '"',
        "\u2013": "-",
        "\u2014": "-",
        "\u2212": "-",
        "\u2026": "...",
        "\u00a0": " ",
        "\u202f": " ",
        "\u200b": "",
        "\ufeff": "",
    }
)


def explain_mismatch(text: str, wanted: str) -> str:
    """A sentence or two about the nearest place of ``wanted`` in ``text``, and the lines as they really are.

    Both are compared in ever looser ways; the time is bounded for texts of any size.
    """
    if len(text) > _LARGEST:
        return "The file is large; look at the place with read_file or a search command and copy it exactly."
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if "\r" in wanted and wanted.replace("\r\n", "\n").replace("\r", "\n") in "\n".join(lines):
        return "It differs in line ends only: leave every \\r out of old_string, the file's own line ends are kept."
    for loosen, reason in _LOOSER:
        if (found := _find_loosely(lines, loosen(wanted), loosen)) is not None:
            count = len(wanted.strip("\n").split("\n"))
            return _told(lines, found, count, f"differs in {_difference(lines, found, wanted, reason)}")
    if (stripped := _without_line_numbers(wanted)) != wanted and stripped in text:
        return "old_string contains the line numbers of read_file; leave them and the tab out."
    if "\\n" in wanted and wanted.replace("\\n", "\n").replace("\\t", "\t") in "\n".join(lines):
        return "old_string contains a backslash and an n where the file has a line end; send a real line end."
    return _most_similar(lines, wanted)


def _squeezed(text: str) -> str:
    return "\n".join(squeezed for line in text.split("\n") if (squeezed := " ".join(line.split())))


def _plain(text: str) -> str:
    return _squeezed(unicodedata.normalize("NFKC", text.translate(_TYPOGRAPHIC)))


def _unspaced(text: str) -> str:
    return "\n".join(line.replace(" ", "") for line in _plain(text).split("\n")).casefold()


_LOOSER: list[tuple[Callable[[str], str], str]] = [
    (_squeezed, "white space"),
    (_plain, "quotes, dashes or other typographic characters"),
    (_unspaced, "upper and lower case, or white space inside the line"),
]


def _find_loosely(lines: list[str], wanted: str, loosen: Callable[[str], str]) -> int | None:
    """The index of the line where the loosened text begins."""
    if not wanted:
        return None
    loose = [(loosened, index) for index, line in enumerate(lines) if (loosened := loosen(line))]
    found = "\n".join(line for line, _ in loose).find(wanted)
    if found < 0:
        return None
    return loose["\n".join(line for line, _ in loose)[:found].count("\n")][1]


def _difference(lines: list[str], first: int, wanted: str, reason: str) -> str:
    """Name what kind of white space it is, where that is the whole difference."""
    if reason != "white space":
        return reason
    asked = [line for line in wanted.split("\n") if line.strip()]
    real = [line for line in lines[first:] if line.strip()][: len(asked)]
    pairs = list(zip(real, asked, strict=False))
    if any(("\t" in _indent(one)) != ("\t" in _indent(other)) for one, other in pairs[1:] or pairs):
        return "indentation (tabs against spaces)"
    if any(_indent(one) != _indent(other) for one, other in pairs[1:] or pairs):
        return "indentation"
    if any(one.rstrip() != one for one in real + asked):
        return "white space at the end of a line"
    return "blank lines or white space"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _without_line_numbers(wanted: str) -> str:
    return re.sub(r"(?m)^ *\d+\t", "", wanted)


def _most_similar(lines: list[str], wanted: str) -> str:
    import difflib  # noqa: PLC0415 - 10 ms to import, for a mistake

    asked = [line for line in wanted.split("\n") if line.strip()]
    if not asked or len(lines) > _MOST_LINES:
        return "Nothing like it was found; read the file and copy the text exactly."
    goal = max(asked, key=len)[:_LONGEST_LINE]
    near = difflib.get_close_matches(goal, [line[:_LONGEST_LINE] for line in lines], 1, 0.6)
    if not near:
        return "Nothing like it was found; read the file and copy the text exactly."
    place = next(index for index, line in enumerate(lines) if line.startswith(near[0]))
    first = max(place - wanted.strip("\n").split("\n").index(max(asked, key=len)), 0) if len(asked) > 1 else place
    return _told(lines, first, len(wanted.strip("\n").split("\n")), "has other words")


def _told(lines: list[str], first: int, count: int, how: str) -> str:
    last = min(first + min(count, _MOST_SHOWN), len(lines))
    where = f"line {first + 1}" if last == first + 1 else f"lines {first + 1}-{last}"
    shown = "\n".join(line[:_LONGEST_LINE] for line in lines[first:last])
    return f"The nearest text, {where}, {how}. The file has:\n{shown}"
