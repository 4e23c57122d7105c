"""A unified diff that stays short and cheap, whatever changed."""

from __future__ import annotations

from itertools import takewhile

_CONTEXT = 3
_MOST_COMPARED = 3_000
_MOST_SHOWN = 120
_LONGEST_LINE = 300


def short_diff(before: str, after: str, first_line: int = 1) -> str:
    r"""The hunks of a unified diff, without file names; empty when nothing changed.

    Lines end at ``\n`` only. ``first_line`` is the number of the first line of both texts, when they are whole lines
    from the middle of a file.
    """
    old, new = _lines(before), _lines(after)
    same_start = _equal_at_start(old, new)
    same_end = _equal_at_start(old[same_start:][::-1], new[same_start:][::-1])
    start = max(same_start - _CONTEXT, 0)
    spare = max(same_end - _CONTEXT, 0)
    old, new = old[start : len(old) - spare], new[start : len(new) - spare]
    if old == new:
        return ""
    if len(old) + len(new) > _MOST_COMPARED:
        return f"[{len(old):,} lines became {len(new):,}; too many for a diff]"
    return _bounded(_hunks(old, new, first_line + start))


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
        return lines
    return lines[:-1]


def _equal_at_start(old: list[str], new: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _hunks(old: list[str], new: list[str], first_line: int) -> list[str]:
    import difflib  # noqa: PLC0415 - 10 ms to import, and a session may never edit

    lines: list[str] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT):
        (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        lines.append(
            f"@@ -{first_line + old_start},{old_end - old_start} +{first_line + new_start},{new_end - new_start} @@"
        )
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [f" {line}" for line in old[i1:i2]]
                continue
            lines += [f"-{line}" for line in old[i1:i2]]
            lines += [f"+{line}" for line in new[j1:j2]]
    return lines


def _bounded(lines: list[str]) -> str:
    shown = [_shortened(line) for line in lines[:_MOST_SHOWN]]
    if len(lines) > len(shown):
        shown.append(f"[{len(lines) - len(shown)} more lines of the diff]")
    return "\n".join(shown)


def _shortened(line: str) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
