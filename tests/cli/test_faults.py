"""What the top of the program makes of an error, and what never gets on a screen or into a log."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Penguin

from penguin.cli.complaints import explain
from penguin.cli.own_name import own_name
from penguin.cli.redaction import masked, redacted
from penguin.protocol.errors import TraceError
from penguin.state.project import ProjectConfig, ProjectConfigFile


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object) -> None:
        message = "the key sk-0123456789abcdef broke it"
        raise RuntimeError(message)

    monkeypatch.setattr(ProjectConfigFile, "read", broken)


@pytest.mark.usefixtures("fault")
def test_K12_a_fault_is_one_paragraph_and_says_how_to_get_the_traceback(penguin: Penguin) -> None:
    said = penguin("config", "model", "list")
    assert said.status == 1
    assert len(said.err.splitlines()) == 1
    assert "RuntimeError" in said.err
    assert "--debug" in said.err
    assert "sk-0123456789abcdef" not in said.err


@pytest.mark.usefixtures("fault")
@pytest.mark.parametrize("arguments", [["--debug", "config", "model", "list"], ["config", "model", "list", "--debug"]])
def test_K12_debug_adds_the_traceback_and_a_log_file(penguin: Penguin, tmp_path: Path, arguments: list[str]) -> None:
    said = penguin(*arguments)
    assert said.status == 1
    assert "Traceback" in said.err
    assert "sk-0123456789abcdef" not in said.err
    assert f"logging to {tmp_path / 'home' / 'debug.log'}" in said.err


def test_K13_PENGUIN_LOG_names_the_file_and_the_file_holds_no_key(
    penguin: Penguin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENGUIN_LOG", str(tmp_path / "own.log"))
    monkeypatch.setenv("SOME_API_KEY", "the-value-of-the-key")

    def noisy(self: object) -> ProjectConfig:
        logging.getLogger("penguin.test").warning("Authorization: Bearer abcdef, %s", "the-value-of-the-key")
        return ProjectConfig()

    monkeypatch.setattr(ProjectConfigFile, "read", noisy)
    assert penguin("config", "model", "list").status == 0
    text = (tmp_path / "own.log").read_text()
    assert "penguin.test" in text
    assert "abcdef" not in text
    assert "the-value-of-the-key" not in text
    assert (tmp_path / "own.log").stat().st_mode & 0o077 == 0


def test_a_log_that_cannot_be_written_does_not_stop_the_command(
    penguin: Penguin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENGUIN_LOG", str(tmp_path / "file" / "log"))
    said = penguin("config", "model", "list")
    assert said.status == 0
    assert "cannot write the log" in said.err


@pytest.mark.parametrize(
    ("error", "status", "part"),
    [
        (TraceError("x.jsonl: the trace is empty"), 1, "x.jsonl"),
        (FileNotFoundError(2, "No such file or directory", "/nowhere"), 1, "/nowhere"),
        (ExceptionGroup("group", [TraceError("inner")]), 1, "inner"),
    ],
)
def test_errors_are_told_in_their_own_words(
    error: Exception, status: int, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(error, debug=False) == status
    assert part in capsys.readouterr().err


def test_a_masked_key_can_be_told_apart_but_not_used() -> None:
    assert masked("sk-0123456789abcdef") == "sk-…cdef"
    assert masked("short") == "set"
    assert masked(None) == "none"
    assert redacted("x-api-key: abc", {}) == "x-api-key: [hidden]"
    assert redacted("models[0].api_key: found 5", {}) == "models[0].api_key: found 5"


def test_the_printed_command_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "a b" / "penguin"
    command.parent.mkdir()
    command.write_text("")
    command.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(command)])
    monkeypatch.setenv("PATH", "/nowhere")
    assert own_name() == f"'{command}'"
    monkeypatch.setenv("PATH", str(command.parent))
    assert own_name() == "penguin"
    monkeypatch.setattr(sys, "argv", ["/x/penguin/__main__.py"])
    assert own_name().endswith("-m penguin")
