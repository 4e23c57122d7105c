from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.checkpoint_kit import Keeper


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    return Keeper(workspace, tmp_path / "store")
