"""The demo task over each wire protocol, every request body against its golden file (C1).

The real loop: HTTP, tools, approvals, trace. Run this file as a module to write the golden files anew::

    python -m tests.e2e.test_demo_on_every_protocol
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest

from penguin import allow_all, create_agent
from penguin.llm.model import ADAPTERS
from penguin.state.agent_files import write_agent_settings
from penguin.state.paths import DataRoot
from penguin.state.project import ClientType, ModelEntry, ProjectConfigFile
from penguin.testing import ScriptedProvider
from penguin.testing.demo_script import DEMO_PROMPT, demo_turns, demo_workspace_files

GOLDEN = Path(__file__).parents[1] / "golden_bodies" / "demo"
PROTOCOLS: tuple[ClientType, ...] = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")


async def play(client_type: ClientType, directory: Path) -> tuple[str, list[Any]]:
    """The final words, and the request bodies with what differs from run to run taken out."""
    workspace, root = directory / "workspace", directory / "data"
    for name, content in demo_workspace_files().items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    paths = DataRoot(root).project()
    write_agent_settings(paths.agent().system_config, {"system_prompt": "You are Penguin."})
    async with ScriptedProvider(demo_turns(delta_delay=0)) as provider:
        base_url = provider.base_url if client_type.startswith("openai") else provider.host_url
        entry = ModelEntry(
            provider="custom", model_id="m", client_type=client_type, base_url=base_url, api_key="k", max_tokens=1000
        )
        ProjectConfigFile(paths.config).add_model(entry, default=True)
        agent = await create_agent(root=root)
        async with await agent.create_session(workspace_dir=workspace) as session:
            answer = await session.ask(DEMO_PROMPT, approve=allow_all)
        assert not provider.problems
        raw = [request.raw.decode() for request in provider.requests]
    return answer, [json.loads(_settled(body, workspace)) for body in raw]


def _settled(body: str, workspace: Path) -> str:
    body = body.replace(str(workspace), "/workspace")
    return re.sub(r"(Ran \d+ tests? in )[\d.]+s", r"\g<1>0.000s", body)


def golden_file(client_type: str) -> Path:
    return GOLDEN / f"{client_type}.json"


def test_C1_every_protocol_of_the_product_is_here() -> None:
    assert set(ADAPTERS) == set(PROTOCOLS)


@pytest.mark.anyio
@pytest.mark.parametrize("client_type", PROTOCOLS)
async def test_C1_the_demo_task_completes_and_every_body_is_golden(client_type: ClientType, tmp_path: Path) -> None:
    answer, bodies = await play(client_type, tmp_path)
    assert "Both tests pass" in answer
    assert bodies == json.loads(golden_file(client_type).read_text())


def _write_anew() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for client_type in PROTOCOLS:
        with tempfile.TemporaryDirectory() as directory:
            _, bodies = anyio.run(play, client_type, Path(directory))
        golden_file(client_type).write_text(json.dumps(bodies, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    _write_anew()
