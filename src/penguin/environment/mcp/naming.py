"""Names that every provider accepts, unique and the same after a restart (D32).

A name is ``mcp__<server>__<tool>``. What a provider would refuse becomes ``_``; where that, or the length, makes two
names equal, or hides a part, a piece of the original's hash is appended. Nothing depends on the order in which servers
answer or list.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

PREFIX = "mcp__"
LONGEST = 64
_LONGEST_SERVER = 24
_HASH = 8
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


def server_prefixes(names: Sequence[str]) -> dict[str, str]:
    """For each configured server the beginning of its tools' names; none is the beginning of another's tool.

    Example::

        server_prefixes(["git", "my server"])  # {"git": "mcp__git__", "my server": "mcp__my_server__"}
    """
    # "__" ends the server's part: with one inside, or a "_" before it, two servers could make the same name.
    plain = {name: re.sub("__+", "_", _ILLEGAL.sub("_", name)).strip("_") or "server" for name in names}
    return {name: f"{PREFIX}{short}__" for name, short in _distinct(plain, _LONGEST_SERVER).items()}


def tool_names(prefix: str, originals: Sequence[str]) -> dict[str, str]:
    """The model's name of each tool of one server.

    Example::

        tool_names("mcp__shop__", ["a.b", "users"])  # {"a.b": "mcp__shop__a_b", "users": "mcp__shop__users"}
    """
    plain = {name: _ILLEGAL.sub("_", name) or "tool" for name in originals}
    return {name: prefix + short for name, short in _distinct(plain, LONGEST - len(prefix)).items()}


def _distinct(plain: dict[str, str], longest: int) -> dict[str, str]:
    """Shorten and tell apart; an original that was legal as it stood keeps its name."""
    holders = Counter(plain.values())
    names: dict[str, str] = {}
    for original, short in plain.items():
        shared = holders[short] > 1 and short != original
        names[original] = _hashed(original, short, longest) if shared or len(short) > longest else short
    return names


def _hashed(original: str, short: str, longest: int) -> str:
    digest = hashlib.sha256(original.encode(errors="surrogatepass")).hexdigest()[:_HASH]
    return f"{short[: longest - _HASH - 1].rstrip('_')}_{digest}"
