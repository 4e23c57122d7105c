"""Where traces live and what they are called (T1)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

_SESSION_ID = re.compile(r"session-(\d{4}-\d{2}-\d{2})-\d{2}-\d{2}-\d{2}-[0-9a-f]{8}")
_FILE_NAME = re.compile(r"(?:trace-)?(?P<session>.+)_(?P<index>\d{3,})\.jsonl")


def new_session_id(now: datetime | None = None, random: Callable[[int], str] = secrets.token_hex) -> str:
    """A new id: ``session-YYYY-MM-DD-HH-mm-ss-<8 hex>`` of the local time and four random bytes.

    Example::

        new_session_id(datetime(2026, 3, 1, 9, 5), lambda size: "00c0ffee")
        # "session-2026-03-01-09-05-00-00c0ffee"
    """
    moment = datetime.now().astimezone() if now is None else now
    return f"session-{moment:%Y-%m-%d-%H-%M-%S}-{random(4)}"


def file_name(session_id: str, index: int) -> str:
    """The name of the file of one model context; ``index`` counts from 1."""
    return f"{session_id}_{index:03d}.jsonl"


def index_of(path: Path) -> int | None:
    """The index in a trace file's name; ``None`` for a name of another form."""
    match = _FILE_NAME.fullmatch(path.name)
    return int(match["index"]) if match else None
