"""N20 and N21 against servers of other makers: the reference ones from npm, and one from PyPI.

`python3 dev.py test` installs them, those from npm only where npm is: ``reference_servers/`` beside this file locks
them. To take newer ones, write their versions into its ``package.json`` and run there::

    npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT
from tests.environment.mcp.bench import Bench

from penguin.environment import custody

pytestmark = [pytest.mark.anyio, pytest.mark.mcp_servers]
Connect = Callable[..., Bench]
INSTALLED = ROOT / ".venv" / "mcp-servers"


def from_npm(name: str, *args: str) -> dict[str, Any]:
    program = INSTALLED / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    if shutil.which("node") is None or not program.is_file():
        pytest.skip(f"server-{name} is not installed in {INSTALLED}: `python3 dev.py test` does it where npm is")
    return {"name": name, "config": {"command": "node", "args": [str(program), *args], "timeout": 30}}


def from_pypi(name: str) -> dict[str, Any]:
    program = Path(sys.executable).with_name(f"mcp-server-{name}")
    return {"name": name, "config": {"command": str(program), "timeout": 30}}


async def test_N21_everything(connect: Connect, workspace: Path) -> None:
    bench = connect(from_npm("everything"))
    names = await bench.names()
    assert {"mcp__everything__echo", "mcp__everything__get-tiny-image"} <= set(names)
    call = bench.call
    assert (await call("mcp__everything__echo", message="hi")).output == "Echo: hi"
    assert "is 3" in (await call("mcp__everything__get-sum", a=1, b=2)).output
    image = await call("mcp__everything__get-tiny-image")
    # The checksum of its colour profile is wrong, which is no reason not to show it.
    assert [url.partition(",")[0] for url in image.images or ()] == ["data:image/png;base64"]
    structured = await call("mcp__everything__get-structured-content", location="Chicago")
    assert "temperature" in json.loads(structured.output)
    told, deltas = await bench.call_and_watch("mcp__everything__trigger-long-running-operation", duration=0.3, steps=3)
    assert deltas[:3] == ["[1/3]\n", "[2/3]\n", "[3/3]\n"]
    assert "completed" in told.output
    assert workspace.as_uri() in (await call("mcp__everything__get-roots-list")).output
    assert "[resource demo://" in (await call("mcp__everything__get-resource-reference")).output
    assert "demo://" in (await call("mcp__everything__get-resource-links", count=2)).output
    assert (await call("mcp__everything__get-sum", a="x")).stop_reason == "failed"
    assert bench.environment.tool_permission("mcp__everything__echo") == "r"
    assert bench.reports == []


async def test_N21_filesystem(connect: Connect, workspace: Path) -> None:
    bench = connect(from_npm("filesystem", str(workspace)))
    await bench.names()
    path = workspace / "a.txt"
    written = await bench.call("mcp__filesystem__write_file", path=str(path), content="hello")
    assert written.stop_reason is None
    assert path.read_text() == "hello"
    assert (await bench.call("mcp__filesystem__read_text_file", path=str(path))).output == "hello"
    outside = await bench.call("mcp__filesystem__read_text_file", path="/etc/hostname")
    assert outside.stop_reason == "failed"
    assert "outside allowed directories" in outside.output
    assert bench.environment.tool_permission("mcp__filesystem__read_text_file") == "r"
    assert bench.environment.tool_permission("mcp__filesystem__write_file") == "rw"


async def test_N21_a_python_server(connect: Connect) -> None:
    bench = connect(from_pypi("time"))
    assert await bench.names() == ["mcp__time__convert_time", "mcp__time__get_current_time"]
    now = await bench.call("mcp__time__get_current_time", timezone="UTC")
    assert json.loads(now.output)["timezone"] == "UTC"
    wrong = await bench.call("mcp__time__get_current_time", timezone="Nowhere")
    assert wrong.stop_reason == "failed"
    assert "Nowhere" in wrong.output


async def test_N20_all_at_once_and_gone_at_the_end(connect: Connect, workspace: Path) -> None:
    bench = connect(from_npm("everything"), from_npm("filesystem", str(workspace)), from_pypi("time"))
    assert {name.split("__")[1] for name in await bench.names()} == {"everything", "filesystem", "time"}
    ours = custody.of_this_process().scope
    assert len(custody.members(ours)) >= 3
    await bench.environment.aclose()
    assert custody.members(ours) == []
