from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.environment.mcp.bench import Bench

from penguin import detached
from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.mcp.report import McpReport

SCRIPTED = Path(__file__).with_name("scripted_server.py")
_scripts = count()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "ws"
    path.mkdir()
    return path


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The entry of a scripted server; keywords are its script, ``config`` further settings."""

    def make(name: str = "scripted", config: dict[str, Any] | None = None, **script: Any) -> dict[str, Any]:
        path = tmp_path / f"script-{next(_scripts)}.json"
        path.write_text(json.dumps(script))
        return {
            "name": name,
            "config": {"command": sys.executable, "args": [str(SCRIPTED), str(path)], **(config or {})},
        }

    return make


@pytest.fixture
async def connect(workspace: Path) -> AsyncIterator[Callable[..., Bench]]:
    """Make an environment with these servers; it is closed after the test."""
    made: list[Environment] = []

    def make(*servers: dict[str, Any], **fields: Any) -> Bench:
        reports: list[McpReport] = []
        config = EnvironmentConfig(
            workspace, ToolConfig(builtin=(), mcp_servers=servers), on_mcp_report=reports.append, **fields
        )
        made.append(Environment(config))
        return Bench(made[-1], reports)

    yield make
    for environment in made:
        await environment.aclose()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No task of ours survives a test that closed its environments."""
    yield
    assert not [task for task in detached._running if not task.done()]
