from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from penguin.protocol.errors import ConfigError
from penguin.state.paths import DataRoot, make_private_directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_S1_the_layout_is_the_original_one(tmp_path: Path) -> None:
    project = DataRoot(tmp_path).project()
    agent = project.agent()
    assert project.config == tmp_path / "default_project/.project_config.toml"
    assert agent.path == tmp_path / "default_project/agents/default_agent"
    below = {
        name: str(getattr(agent, name).relative_to(agent.path))
        for name in ("system_config", "agents_md", "vault", "skills", "memory", "schedule", "traces", "workspaces")
    }
    assert below == {
        "system_config": "agent_state/system_config.yaml",
        "agents_md": "agent_state/AGENTS.md",
        "vault": "agent_state/.vault.toml",
        "skills": "agent_state/skills",
        "memory": "agent_state/memory",
        "schedule": "agent_state/schedule",
        "traces": "traces",
        "workspaces": "workspaces",
    }
    assert agent.scratchpad("session-1") == agent.path / "scratchpad/session-1"
    assert agent.snapshots == agent.path / "snapshots"


def test_S1_the_root_is_what_the_variable_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert DataRoot.from_environment({}).path == tmp_path / ".penguin/data"
    assert DataRoot.from_environment({"PENGUIN_HOME": ""}).path == tmp_path / ".penguin/data"
    assert DataRoot.from_environment({"PENGUIN_HOME": "~/x"}).path == tmp_path / "x"
    assert DataRoot.from_environment({"PENGUIN_HOME": "here"}).path == tmp_path / "here"


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "a.b", "a\\b", "ä", "a b", "a\n", "a\0", "x" * 201])
def test_S1_an_id_is_checked_before_it_becomes_a_path(tmp_path: Path, bad: str) -> None:
    root = DataRoot(tmp_path)
    with pytest.raises(ConfigError, match="project id"):
        root.project(bad)
    with pytest.raises(ConfigError, match="agent id"):
        root.project().agent(bad)
    with pytest.raises(ConfigError, match="session id"):
        root.project().agent().scratchpad(bad)


def test_S1_what_exists_can_be_listed(tmp_path: Path) -> None:
    root = DataRoot(tmp_path / "root")
    assert root.project_ids() == []
    for path in (root.project("p2").agent("b").path, root.project("p2").agent("a").path, root.project("p1").path):
        path.mkdir(parents=True)
    (root.path / "not.an.id").mkdir()
    (root.path / "file").touch()
    assert root.project_ids() == ["p1", "p2"]
    assert root.project("p2").agent_ids() == ["a", "b"]


def test_a_temporary_workspace_is_new_and_private_up_to_the_root(tmp_path: Path) -> None:
    agent = DataRoot(tmp_path / "root").project().agent()
    first, second = agent.new_temporary_workspace(), agent.new_temporary_workspace()
    assert first != second
    assert re.fullmatch(r"tmp-[0-9a-f]{8}", first.name)
    assert first.parent == agent.workspaces
    made = [first, *first.parents[: first.parents.index(tmp_path)]]
    assert {mode(directory) for directory in made} == {0o700}


def test_a_directory_that_cannot_be_made_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot make the directory: Not a directory"):
        make_private_directory(tmp_path / "file/x")
    (tmp_path / "wide").mkdir(mode=0o755)
    assert mode(make_private_directory(tmp_path / "wide")) == 0o755


def test_a_taken_workspace_name_is_passed_over_and_a_refusal_is_a_config_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = DataRoot(tmp_path).project().agent()
    names = iter([b"\0\0\0\1", b"\0\0\0\1", b"\0\0\0\2"])
    monkeypatch.setattr(os, "urandom", lambda size: next(names))
    assert agent.new_temporary_workspace().name == "tmp-00000001"
    assert agent.new_temporary_workspace().name == "tmp-00000002"
    monkeypatch.setattr(os, "urandom", lambda size: b"\0\0\0\1")
    with pytest.raises(ConfigError, match="no free name"):
        agent.new_temporary_workspace()
