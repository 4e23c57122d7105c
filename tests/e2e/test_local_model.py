"""A real, small model does the one-step task (B5). Opt-in: needs a model file and the engine to run it.

``PENGUIN_LOCAL_MODEL`` names a GGUF file, ``PENGUIN_LOCAL_PYTHON`` an interpreter that has the package
``xllamacpp`` (this one without it), ``PENGUIN_LOCAL_REPEATS`` how often the task is done (5). A run takes
minutes: run it as ``PENGUIN_LOCAL_MODEL=… python3 dev.py test -m local_model --timeout 7200``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penguin.state.project import ModelEntry, ProjectConfigFile

pytestmark = [pytest.mark.local_model, pytest.mark.timeout(7200)]

SERVER = Path(__file__).parents[1] / "support" / "local_model_server.py"
MODEL = os.environ.get("PENGUIN_LOCAL_MODEL", "")
PYTHON = os.environ.get("PENGUIN_LOCAL_PYTHON", sys.executable)
REPEATS = int(os.environ.get("PENGUIN_LOCAL_REPEATS", "5"))


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    if not MODEL:
        pytest.skip("no local model: PENGUIN_LOCAL_MODEL names a GGUF file")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    arguments = [PYTHON, str(SERVER), MODEL, str(port)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        yield json.loads(server.stdout.readline())["url"] + "/v1"
        server.stdin.close()
        server.terminate()


@pytest.mark.parametrize("number", range(REPEATS))
def test_B5_a_small_local_model_creates_the_file(base_url: str, tmp_path: Path, number: int) -> None:
    workspace, root = tmp_path / "ws", tmp_path / "data"
    workspace.mkdir()
    entry = ModelEntry(
        provider="local",
        model_id="qwen",
        base_url=base_url,
        context_window=8192,
        max_tokens=1024,
        request_timeout_ms=600_000,
    )
    ProjectConfigFile(root / "default_project" / ".project_config.toml").add_model(entry, default=True)
    penguin = [sys.executable, "-m", "penguin", "run", "--root", str(root), "-m", "Create hello.txt containing hi"]
    done = subprocess.run(penguin, cwd=workspace, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (workspace / "hello.txt").read_text().strip() == "hi"
