from __future__ import annotations

import os
from pathlib import Path

import pytest

from penguin.state.workspace_env import read_workspace_keys

NAMES = {"OPENAI_API_KEY", "GEMINI_API_KEY"}


def test_K9_only_the_catalogues_names_are_read_and_nothing_enters_the_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "\ufeff# keys\n"
        "export OPENAI_API_KEY='sk-1' # mine\n"
        "GEMINI_API_KEY=\n"
        "OTHER_API_KEY=x\n"
        "OPENAI_BASE_URL=http://evil.example\n"
        "PENGUIN_HOME=/evil\n"
    )
    before = dict(os.environ)
    assert read_workspace_keys(tmp_path, NAMES) == {"OPENAI_API_KEY": "sk-1"}
    assert dict(os.environ) == before


def test_K9_addresses_and_settings_are_refused_even_when_asked_for(tmp_path: Path) -> None:
    refused = {"OPENAI_BASE_URL", "PENGUIN_API_KEY", "HTTPS_PROXY", "AZURE_ENDPOINT", "OLLAMA_HOST", "penguin_log"}
    (tmp_path / ".env").write_text("".join(f"{name}=x\n" for name in refused))
    assert read_workspace_keys(tmp_path, refused) == {}


def test_K9_values_are_not_expanded_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOTHER_SECRET", "leaked")
    (tmp_path / ".env").write_text("OPENAI_API_KEY=${ANOTHER_SECRET}\n")
    assert read_workspace_keys(tmp_path, NAMES) == {"OPENAI_API_KEY": "${ANOTHER_SECRET}"}


def test_K9_no_file_a_damaged_one_and_what_is_no_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert read_workspace_keys(tmp_path, NAMES) == {}
    (tmp_path / ".env").write_bytes(b"=\xff broken 'line\nOPENAI_API_KEY=sk-2\r\nGEMINI_API_KEY='open\n")
    assert read_workspace_keys(tmp_path, NAMES) == {"OPENAI_API_KEY": "sk-2"}
    (tmp_path / ".env").unlink()
    os.mkfifo(tmp_path / ".env")
    assert read_workspace_keys(tmp_path, NAMES) == {}
    assert capfd.readouterr() == ("", "")
