"""D22 and N6: what the commands of a session see of the harness's own variables."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.engine_kit import allow, text_of

from penguin import create_agent
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import call, turn

pytestmark = pytest.mark.anyio

KEYS = {"OPENAI_API_KEY": "sk-test-1", "ANTHROPIC_API_KEY": "sk-test-2", "MINE_API_KEY": "sk-test-3"}


async def seen_by_a_command(root: Path, cmd: str) -> str:
    script = ScriptedModel([turn(call("exec_command", {"cmd": cmd, "description": "look"}, id="x")), "ok"])
    agent = await create_agent(root=root)
    async with await agent.create_session(model=script.factory(), workspace_dir=root) as session:
        await session.ask("go", approve=allow)
    return text_of(script.requests[1].new_messages[0])


async def test_D22_keys_stay_with_the_harness_but_those_the_project_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    assert "sk-test" not in await seen_by_a_command(tmp_path, "env")
    config = tmp_path / "default_project/.project_config.toml"
    config.write_text('[commands]\nallowed_variables = ["OPENAI_API_KEY", "MI*_KEY"]\n')
    seen = (await seen_by_a_command(tmp_path, "env")).splitlines()
    assert sorted(line for line in seen if "sk-test" in line) == ["MINE_API_KEY=sk-test-3", "OPENAI_API_KEY=sk-test-1"]
