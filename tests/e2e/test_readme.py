"""What the README tells people to copy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.command_line import Place

from penguin.testing import call, serve_in_thread, turn

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_library_example_runs_as_it_stands(place: Place) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 12
    (place.workspace / "first.py").write_text(example, encoding="utf-8")
    write = call("write_file", {"file_path": "hello.txt", "content": "hi"}, id="c1")
    with serve_in_thread([turn(write), "It is there."]) as provider:
        place.connect(provider.base_url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "first.py"],
            cwd=place.workspace,
            env=place.environment,
            check=False,
            capture_output=True,
            text=True,
        )
        provider.assert_exhausted()
    assert (done.returncode, done.stderr) == (0, "")
    assert (place.workspace / "hello.txt").read_text() == "hi"
    assert "It is there. TokenCounts(" in done.stdout
