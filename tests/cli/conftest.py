from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from penguin.agent import probing
from penguin.cli.main import main
from penguin.state.paths import DataRoot, ProjectPaths


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


Penguin = Callable[..., Said]


@pytest.fixture(autouse=True)
def no_servers_of_whoever_runs_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What listens on the usual ports of this machine is no part of a test."""
    monkeypatch.setattr(probing, "local_places", dict)


@pytest.fixture
def penguin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Penguin:
    """The command in this process: cheap, where the process itself is not the subject."""
    monkeypatch.setenv("PENGUIN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Said:
        status = main(list(arguments))
        captured = capsys.readouterr()
        return Said(status, captured.out, captured.err)

    return run


@pytest.fixture
def project(tmp_path: Path) -> ProjectPaths:
    return DataRoot(tmp_path / "home").project()
