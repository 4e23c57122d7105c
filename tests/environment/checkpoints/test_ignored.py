"""What is ignored is asked of the system's git, never of one that lies in the workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penguin.environment.sandbox import probe

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.support.checkpoint_kit import Keeper


def test_a_git_in_the_workspace_is_never_run(keeper: Keeper, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    keeper.write(".git/HEAD", "ref: refs/heads/main\n")
    keeper.write("bin/git", f"#!/bin/sh\n: > {ran}\n", 0o755)
    keeper.write("file", "x")
    monkeypatch.setenv("PATH", str(keeper.workspace / "bin"))
    monkeypatch.setattr(probe, "_SYSTEM", ())
    assert b"file" in keeper.paths(keeper.take())
    assert not ran.exists()
