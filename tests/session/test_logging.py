from __future__ import annotations

import subprocess
import sys


def test_K13_the_library_says_nothing_on_stderr_by_itself() -> None:
    code = "import logging, penguin.session; logging.getLogger('penguin.engine').warning('to nobody')"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stderr == b""
