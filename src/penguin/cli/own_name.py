"""How this very command can be called again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


def own_name() -> str:
    """``penguin`` where that is what a shell would find; otherwise what was really started.

    Example::

        print(f"{own_name()} trace show {path}")  # works when pasted, also without an activated environment
    """
    started = sys.argv[0]
    if Path(started).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m penguin"
    found = shutil.which("penguin")
    if found is None or os.path.realpath(found) != os.path.realpath(started):
        return shlex.quote(started) if Path(started).name == "penguin" else "penguin"
    return "penguin"
