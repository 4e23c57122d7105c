from __future__ import annotations

import os
from pathlib import Path

from penguin.state.agent_files import AgentConfig, read_agent_config
from penguin.state.paths import DataRoot
from penguin.state.project import ProjectConfig, ProjectConfigFile
from penguin.state.prompt import assemble_prompt, gather_values
from penguin.state.vault import VaultFile
from penguin.state.workspace_env import read_workspace_keys


def test_D57_with_a_fresh_home_everything_can_be_read_and_nothing_is_made(tmp_path: Path) -> None:
    root = DataRoot.from_environment(os.environ)
    agent = root.project().agent()
    config = read_agent_config(agent.system_config)
    values = gather_values(agent, workspace_dir=tmp_path, provider="p", model_id="m", session_id="s")
    assert ProjectConfigFile(root.project().config).read() == ProjectConfig()
    assert config == AgentConfig()
    assert VaultFile(agent.vault).names() == []
    assert read_workspace_keys(tmp_path, {"OPENAI_API_KEY"}) == {}
    assert str(tmp_path) in assemble_prompt(config.system_prompt, values, config.sections)
    assert not root.path.exists()
    assert list(tmp_path.iterdir()) == []
