"""Sockets in the file system: whoever may see one may connect, whatever the mount says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_TABLE = Path("/proc/net/unix")
_ACCEPTS = 0x10000
_CONNECTIONLESS = "0002"


def listening_sockets() -> set[Path]:
    """Those on which a process of this machine waits now, as far as they can be seen from here."""
    try:
        lines = _TABLE.read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return set()
    return {path for line in lines if (path := _path_in(line)) and _is_socket(path)}


def _path_in(line: str) -> Path | None:
    fields = line.split(maxsplit=7)
    if len(fields) < 8 or not fields[7].startswith("/"):  # noqa: PLR2004 - the columns of that table; '@' is abstract
        return None
    waits = int(fields[3], 16) & _ACCEPTS or fields[4] == _CONNECTIONLESS
    return Path(os.path.realpath(fields[7])) if waits else None


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False
