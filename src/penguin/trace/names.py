"""What sessions and their trace files are called, and where they live (T1)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

_SESSION_ID = re.compile(r"session-(\d{4}-\d{2}-\d{2})-\d{2}-\d{2}-\d{2}-[0-9a-f]{8}", re.ASCII)
# The reference traces are called trace-<session>_<index>.jsonl; such a file is read by its path.
_FILE_NAME = re.compile(r"(?:trace-)?(?P<session>.+)_(?P<index>\d{3,})\.jsonl", re.ASCII)


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


def is_session_id(text: str) -> bool:
    """Whether the text has the form of a session id; such a text is safe as a file name."""
    try:
        created_at(text)
    except (ValueError, OverflowError):
        return False
    return True


def day_of(session_id: str) -> str:
    """The local day of the session's creation, as ``yyyy-mm-dd``.

    Raises:
        ValueError: this is no session id.
    """
    match = _SESSION_ID.fullmatch(session_id)
    if match is None:
        raise ValueError(f"{session_id!r} is no session id; one looks like session-2026-03-01-09-05-00-00c0ffee")
    return match[1]


def created_at(session_id: str) -> datetime:
    """When the session was created, to the second; the id holds local time, read in the zone of this machine.

    Raises:
        ValueError: this is no session id, or its date does not exist.
    """
    moment = session_id.removeprefix(f"session-{day_of(session_id)}-")[: len("09-05-00")]
    return datetime.strptime(f"{day_of(session_id)} {moment}", "%Y-%m-%d %H-%M-%S").astimezone()


def day_directory(traces_dir: Path, session_id: str) -> Path:
    """``traces/<yyyy-mm-dd>``: the local day the session was created, for all its files.

    Raises:
        ValueError: this is no session id.

    Example::

        day_directory(traces, "session-2026-03-01-09-05-00-00c0ffee")  # traces/2026-03-01
    """
    return traces_dir / day_of(session_id)


def trace_path(traces_dir: Path, session_id: str, index: int) -> Path:
    """The file of the session's model context number ``index`` (from 1).

    Raises:
        ValueError: this is no session id.
    """
    return day_directory(traces_dir, session_id) / file_name(session_id, index)


def lock_path(traces_dir: Path, session_id: str) -> Path:
    """The session's lock file (T6).

    Raises:
        ValueError: this is no session id.
    """
    return day_directory(traces_dir, session_id) / f"{session_id}.lock"


def session_of(path: Path) -> str | None:
    """The session id in a trace file's name; ``None`` for a name of another form."""
    match = _FILE_NAME.fullmatch(path.name)
    return match["session"] if match else None


def files_of(traces_dir: Path, session_id: str) -> list[Path]:
    """The session's trace files in the order of their indexes; empty when there are none.

    Raises:
        ValueError: this is no session id.
    """
    day = day_directory(traces_dir, session_id)
    found = {index: path for path in day.glob(f"{session_id}_*.jsonl") if (index := index_of(path)) is not None}
    return [path for _, path in sorted(found.items())]
