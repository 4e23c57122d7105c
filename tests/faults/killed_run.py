"""``penguin`` that is killed at a chosen write of its trace: ``python killed_run.py NUMBER WHEN ARGUMENTS…``.

The process, its command line and the SIGKILL are real. Only the moment is chosen from inside, since from outside
nobody can hit the gap between two system calls. ``WHEN`` is ``before`` the write, ``half`` of its bytes, or
``after``.
"""

from __future__ import annotations

import os
import signal
import sys

from penguin.cli.main import main
from penguin.trace.append_file import AppendFile

NUMBER, WHEN = int(sys.argv[1]), sys.argv[2]
_write = AppendFile.write
_count = 0


def _counted(file: AppendFile, data: bytes) -> int:
    global _count  # noqa: PLW0603 - one process, one count
    _count += 1
    if _count != NUMBER:
        return _write(file, data)
    if WHEN != "before":
        _write(file, data if WHEN == "after" else data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


AppendFile.write = _counted  # type: ignore[method-assign,assignment]

if __name__ == "__main__":
    sys.exit(main(sys.argv[3:]))
