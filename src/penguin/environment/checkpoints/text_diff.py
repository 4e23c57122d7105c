"""The difference of two contents for people."""

from __future__ import annotations

_MOST_BYTES = 1024 * 1024
_MOST_LINES = 20_000


def text_diff(old: bytes, new: bytes) -> str | None:
    r"""The hunks of a unified diff; ``None`` when the contents are no text or too much of it.

    Lines end at ``\n`` only.

    Example::

        text_diff(b"a\n", b"b\n")  # "@@ -1 +1 @@\n-a\n+b"
    """
    before, after = _lines(old), _lines(new)
    if before is None or after is None or len(before) + len(after) > _MOST_LINES:
        return None
    import difflib  # noqa: PLC0415 - 10 ms to import

    hunks = list(difflib.unified_diff(before, after, lineterm=""))[2:]
    return "\n".join(hunks)


def _lines(data: bytes) -> list[str] | None:
    if len(data) > _MOST_BYTES or b"\0" in data:
        return None
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        return None
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
        return lines
    return lines[:-1]
