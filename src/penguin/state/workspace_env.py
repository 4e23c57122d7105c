"""The few keys that may be taken from a workspace's ``.env`` (K9).

A cloned repository must not redirect keys or change settings: only names on the catalogue's list
are read, and they go to the caller, never into ``os.environ``.
"""

from __future__ import annotations

import io
import stat
from collections.abc import Collection
from pathlib import Path

_LARGEST = 1_000_000
_NEVER_PREFIX = "PENGUIN_"
_NEVER_SUFFIX = ("_BASE_URL", "_BASE", "_ENDPOINT", "_HOST", "_PROXY")


def read_workspace_keys(workspace: Path, names: Collection[str]) -> dict[str, str]:
    """The values that ``<workspace>/.env`` gives to ``names``; unreadable or damaged lines give nothing.

    Args:
        workspace: only its own ``.env`` is looked at, no parent's.
        names: the key variables of the catalogue, e.g. ``{"OPENAI_API_KEY"}``. Settings and addresses
            are refused even when listed. ``$OTHER`` in a value stays as it stands.

    Example::

        read_workspace_keys(Path.cwd(), {"OPENAI_API_KEY"})     # {"OPENAI_API_KEY": "sk-…"}
    """
    text = _text(workspace / ".env")
    if not text:
        return {}
    # Not dotenv_values: it expands ${NAME} from the process environment and logs what it cannot parse.
    from dotenv.parser import parse_stream  # noqa: PLC0415 - only when there is a file

    wanted = {name for name in names if _is_key_name(name)}
    found = ((line.key, line.value) for line in parse_stream(io.StringIO(text)) if not line.error)
    return {name: value.strip() for name, value in found if name in wanted and value and value.strip()}


def _is_key_name(name: str) -> bool:
    return not name.upper().startswith(_NEVER_PREFIX) and not name.upper().endswith(_NEVER_SUFFIX)


def _text(path: Path) -> str:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return ""
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return ""
