"""Session-wide unique tool-call ids (L9)."""

from __future__ import annotations

import re

_ALLOWED = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")
_LONGEST = 40


class ToolCallIdAllocator:
    """Hands out ids of ``[A-Za-z0-9_-]``, at most 40 characters, each once per session.

    Some servers number calls per reply (``call_0``), give no id, or use the function's name. The id
    is fixed here, where it enters, and is the one used towards the provider too. One instance lives
    as long as the session, across compaction; on resume it is fed the ids of the trace.

    Example::

        ids = ToolCallIdAllocator()
        ids.allocate("call_0"), ids.allocate("call_0")  # ("call_0", "call_0_2")
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def observe(self, tool_call_id: str) -> None:
        """Mark an id of the trace as taken."""
        self._taken.add(tool_call_id)

    def allocate(self, wanted: str | None) -> str:
        """The wanted id if it is legal and free, else the nearest one that is."""
        base = legal_call_id(wanted or "call")
        candidate, number = base, self._next.get(base, 1)
        while candidate in self._taken:
            number += 1
            suffix = f"_{number}"
            candidate = base[: _LONGEST - len(suffix)] + suffix
        self._next[base] = number
        self._taken.add(candidate)
        return candidate


def legal_call_id(wanted: str) -> str:
    """Map an id deterministically into the providers' common alphabet and length.

    Ids of the original's traces such as ``same#2`` pass here when they are sent.
    """
    if _ALLOWED.match(wanted):
        return wanted
    return re.sub(r"[^A-Za-z0-9_-]", "_", wanted)[:_LONGEST] or "call"
