"""Commands that need no model, and what they say when something is wrong."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from importlib import resources
from pathlib import Path

import click
import pytest
from tests.cli.conftest import Penguin

from penguin._version import VERSION
from penguin.cli.app import app
from penguin.cli.lazy_group import LazyGroup
from penguin.environment.sandbox.probe import Probe
from penguin.protocol import builders as b
from penguin.protocol.messages import Message
from penguin.state.paths import ProjectPaths
from penguin.state.project import ModelRef, ProjectConfigFile

ADD = ("config", "model", "add", "--provider", "custom", "--model-id", "M", "--base-url", "http://127.0.0.1:9/v1")
KEY = "sk-0123456789abcdef"


def test_the_version_is_the_one_of_the_package(penguin: Penguin) -> None:
    pyproject = Path(__file__).resolve().parents[2] / "pyproject.toml"
    assert f'version = "{VERSION}"' in pyproject.read_text(encoding="utf-8")
    assert penguin("--version").out == f"penguin {VERSION}\n"
    assert penguin("--debug", "--version").out.startswith(f"penguin {VERSION}")


def test_K11_the_version_is_told_without_loading_the_command_line() -> None:
    code = "import sys; from penguin.cli.main import main; main(['--version']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stderr.split())
    assert not loaded & {"click", "anyio", "msgspec", "asyncio", "httpx2", "logging", "importlib.metadata"}


def test_every_command_in_the_tables_exists_and_has_the_help_its_group_promises(penguin: Penguin) -> None:
    def commands(group: LazyGroup, *path: str) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            found += commands(command, *path, name) if isinstance(command, LazyGroup) else [(*path, name)]
        return found

    everything = commands(app)
    assert len(everything) >= 21
    for path in everything:
        said = penguin(*path, "--help")
        assert said.status == 0
        assert "--debug" in said.out, path


@pytest.mark.parametrize("arguments", [[], ["config"], ["config", "model"], ["sessions"], ["trace"]])
def test_D54_without_a_command_there_is_help_and_status_2(penguin: Penguin, arguments: list[str]) -> None:
    said = penguin(*arguments)
    assert (said.status, said.out) == (2, "")
    assert "Usage: penguin" in said.err


def test_the_help_says_how_to_begin(penguin: Penguin) -> None:
    assert "penguin run -m TEXT" in penguin("--help").out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nope"], "nope"),
        (["run", "--frobnicate"], "--frobnicate"),
        (["run", "-m", "x", "--provider", "openai"], "--model-id"),
        (["run", "-m", "x", "--model-id", "m"], "--provider"),
        (["run", "-m", "x", "--resume", "latest", "--provider", "p", "--model-id", "m"], "keeps its model"),
        (["run", "-m", "  "], "-m"),
        (["run", "--no-stdin"], "-m TEXT"),
        (["run", "-m", "x", "--workspace", "absent"], "absent"),
        (["run", "-m", "x", "--max-turns", "0"], "--max-turns"),
        (["run", "-m", "x", "--approve", "maybe"], "allow-all"),
        (["run", "-m", "x", "--budget-usd", "-1"], "--budget-usd"),
        (["run", "-m", "x", "--project-id", "../up"], "project id"),
        (["trace", "show", "absent.jsonl"], "absent.jsonl"),
        (["trace", "show"], "no session in"),
        (["trace", "check", "session-2026-03-01-10-00-00-00c0ffee"], "no session session-2026"),
        ([*ADD[:-2]], "--base-url"),
        ([*ADD[:-1], "127.0.0.1:9"], "http://"),
        ([*ADD, "--api-key", "k", "--api-key-stdin"], "not both"),
        (["config", "model", "default", "custom"], "provider and model id"),
        (["config", "model", "default", "custom", "X"], "custom/X"),
        (["config", "vault", "remove", "X"], "X"),
        (["config", "vault", "set", "1X", "value"], "1X"),
    ],
)
def test_K12_wrong_usage_is_one_message_with_what_is_wrong_and_status_2(
    penguin: Penguin, arguments: list[str], named: str
) -> None:
    said = penguin(*arguments)
    assert said.status == 2
    assert named in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_A4_K10_D57_without_a_model_five_lines_say_what_to_do_and_nothing_is_sent(penguin: Penguin) -> None:
    said = penguin("run", "-m", "x")
    assert (said.status, said.out) == (2, "")
    lines = said.err.splitlines()
    assert len(lines) == 5
    for part in ("OPENAI_API_KEY", "penguin config model add", "--base-url", "penguin demo", "nothing was sent"):
        assert part in said.err


def test_D57_a_missing_key_is_named_with_its_variable_and_its_setting(penguin: Penguin) -> None:
    said = penguin("run", "-m", "x", "--provider", "openai", "--model-id", "gpt-5")
    assert said.status == 2
    assert "OPENAI_API_KEY" in said.err
    assert "api_key" in said.err
    assert len(said.err.splitlines()) <= 2


@pytest.mark.parametrize(
    "arguments", [["--help"], ["config", "show"], ["config", "path"], ["config", "model", "list"], ["schema"]]
)
def test_D57_what_needs_no_model_works_without_one(penguin: Penguin, arguments: list[str]) -> None:
    assert penguin(*arguments).status == 0


BROKEN = [
    ('[agent]\nmodel = "m\n', ":2"),
    ('name = "a"\nname = "b"\n', ":2"),
    ('default_model = "eighty"\n', ":1"),
    ('[[models]]\nprovider = "p"\nmodel_id = "m"\ncontext_window = "eighty"\n', ":4"),
    ('[approvals]\nmode = "maybe"\n', ":2"),
]


@pytest.mark.parametrize(("text", "line"), BROKEN)
def test_A4_D56_a_broken_configuration_is_one_message_with_file_and_line(
    penguin: Penguin, project: ProjectPaths, text: str, line: str
) -> None:
    project.path.mkdir(parents=True)
    project.config.write_text(text)
    for arguments in (["run", "-m", "x"], ["config", "show"], ["config", "model", "list"], [*ADD]):
        said = penguin(*arguments)
        assert (said.status, said.out) == (2, "")
        assert f"{project.config}{line}" in said.err
        assert "Traceback" not in said.err
        assert len(said.err.splitlines()) == 1
    assert project.config.read_text() == text


def test_D56_a_tab_in_the_agent_configuration_is_named_and_a_BOM_is_accepted(
    penguin: Penguin, project: ProjectPaths
) -> None:
    file = project.agent().system_config
    file.parent.mkdir(parents=True)
    file.write_text("model:\n\tmax_tokens: 5\n")
    said = penguin("config", "show")
    assert said.status == 2
    assert f"{file}:2" in said.err
    file.write_text("\ufeffmax_turns: 7\n")
    rows = [row.split() for row in penguin("config", "show").out.splitlines()]
    assert ["agent.max_turns", "7", str(file)] in rows


def test_D56_a_directory_in_place_of_the_file_is_no_traceback(penguin: Penguin, project: ProjectPaths) -> None:
    project.config.mkdir(parents=True)
    said = penguin("run", "-m", "x")
    assert said.status == 2
    assert str(project.config) in said.err


# ---------------------------------------------------------------- config


def test_K8_models_are_added_listed_chosen_and_removed_without_showing_a_key(
    penguin: Penguin, project: ProjectPaths
) -> None:
    file = ProjectConfigFile(project.config)
    options = ["--client-type", "openai-chat", "--api-key", KEY, "--context-window", "8192", "--max-tokens", "512"]
    said = penguin(*ADD, *options, "--no-vision", "--display-name", "Mine", "--tool-calls", "text", "--set-default")
    assert said.status == 0
    (entry,) = file.list_models()
    assert (entry.context_window, entry.max_tokens, entry.vision) == (8_192, 512, False)
    assert (entry.display_name, entry.tool_calls, entry.api_key) == ("Mine", "text", KEY)
    assert file.read().default_model == ModelRef("custom", "M")
    assert stat.S_IMODE(project.config.stat().st_mode) == 0o600

    second = ["--provider", "openai", "--model-id", "gpt-5"]
    assert "penguin config model default openai gpt-5" in penguin("config", "model", "add", *second).out
    listed = penguin("config", "model", "list").out
    assert [row.split()[:2] for row in listed.splitlines()[1:]] == [["*", "custom"], ["openai", "gpt-5"]]
    assert penguin("config", "model", "default", "openai", "gpt-5").status == 0
    assert file.read().default_model == ModelRef("openai", "gpt-5")
    assert penguin("config", "model", "remove", *second).status == 0
    assert file.read().default_model is None
    assert KEY not in said.out + said.err + listed + penguin("config", "show").out


def test_config_show_names_where_each_value_comes_from(
    penguin: Penguin, project: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    penguin("config", "model", "add", "--provider", "openai", "--model-id", "gpt-5", "--max-tokens", "99")
    rows = {row.split()[0]: row.split()[1:] for row in penguin("config", "show").out.splitlines()}
    assert rows["data_root"] == [str(project.path.parent), "PENGUIN_HOME"]
    assert rows["models.openai/gpt-5.max_tokens"] == ["99", str(project.config)]
    assert rows["models.openai/gpt-5.base_url"] == ["https://api.openai.com/v1", "catalogue"]
    assert rows["models.openai/gpt-5.api_key"] == ["sk-…cdef", "OPENAI_API_KEY"]
    assert rows["agent.model.max_tokens"] == ["32000", "default"]


def test_config_show_warns_of_keys_without_effect(penguin: Penguin, project: ProjectPaths) -> None:
    project.path.mkdir(parents=True)
    project.config.write_text("defualt_model = 1\n")
    assert f"unknown: {project.config}:1" in penguin("config", "show").out


def test_config_path_says_which_files_there_are(penguin: Penguin, project: ProjectPaths) -> None:
    penguin(*ADD)
    lines = penguin("config", "path").out.splitlines()
    assert lines[0] == str(project.config)
    assert lines[1] == f"{project.agent().system_config}  (not there yet)"
    assert penguin("config", "path", "--root", "/elsewhere").out.startswith("/elsewhere/default_project/")


def test_vault_entries_are_set_listed_and_removed_without_showing_a_value(
    penguin: Penguin, project: ProjectPaths
) -> None:
    said = penguin("config", "vault", "set", "TOKEN", "a-long-secret")
    short = penguin("config", "vault", "set", "PIN", "1234")
    assert "not masked" in short.out
    assert "not masked" not in said.out
    listed = penguin("config", "vault", "list")
    assert listed.out == "TOKEN\nPIN\n"
    assert penguin("config", "vault", "remove", "PIN").status == 0
    assert penguin("config", "vault", "list").out == "TOKEN\n"
    assert "a-long-secret" in project.agent().vault.read_text()
    assert "a-long-secret" not in said.out + said.err + listed.out


# ---------------------------------------------------------------- doctor


def test_doctor_says_what_is_missing_and_what_to_do(penguin: Penguin) -> None:
    said = penguin("doctor")
    assert said.status == 1
    assert "no model is configured" in said.out
    assert "penguin config model add" in said.out


def test_doctor_finds_a_key_that_has_no_model(penguin: Penguin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    said = penguin("doctor")
    assert "there is a key in DEEPSEEK_API_KEY" in said.out
    assert "--provider deepseek" in said.out
    assert KEY not in said.out


def test_doctor_is_content_with_a_model_and_its_key(penguin: Penguin) -> None:
    penguin(*ADD, "--api-key", KEY, "--set-default")
    said = penguin("doctor")
    assert said.status == 0, said.out
    assert "custom/M (default) at http://127.0.0.1:9/v1, key from the project configuration" in said.out


def test_doctor_misses_the_key_of_the_default_model(penguin: Penguin) -> None:
    penguin("config", "model", "add", "--provider", "openai", "--model-id", "gpt-5", "--set-default")
    said = penguin("doctor")
    assert said.status == 1
    assert "OPENAI_API_KEY" in said.out


@pytest.mark.parametrize(("mode", "status"), [("off", 0), ("read-only", 1)])
def test_N25_doctor_tells_what_a_sandbox_lacks_before_commands_are_refused(
    penguin: Penguin, project: ProjectPaths, monkeypatch: pytest.MonkeyPatch, mode: str, status: int
) -> None:
    penguin("config", "model", "add", "--provider", "custom", "--model-id", "m", "--base-url", "http://127.0.0.1:9/v1")
    with project.config.open("a") as config:
        config.write(f"[sandbox]\nmode = '{mode}'\n")
    monkeypatch.setattr(
        "penguin.environment.sandbox.probe.probe", lambda **_: Probe(None, "bubblewrap is not installed", "Install it")
    )
    said = penguin("doctor")
    assert said.status == status, said.out
    assert "bubblewrap is not installed\n    Install it.\n" in said.out
    assert ("every command is refused" in said.out) == (mode != "off")


def test_doctor_names_a_broken_file_and_keys_others_can_read(penguin: Penguin, project: ProjectPaths) -> None:
    penguin(*ADD, "--set-default")
    project.config.chmod(0o644)
    assert f"chmod 600 {project.config}" in penguin("doctor").out
    project.config.write_text("[broken\n")
    said = penguin("doctor")
    assert said.status == 1
    assert f"{project.config}:1" in said.out


def test_doctor_sees_a_data_root_that_cannot_be_made(penguin: Penguin, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    said = penguin("doctor", "--root", str(tmp_path / "file" / "home"))
    assert said.status == 1
    assert f"{tmp_path / 'file'} cannot be written" in said.out


# ---------------------------------------------------------------- trace, schema, completion


def trace_file(directory: Path, *lines: bytes) -> Path:
    meta = b.session_meta(
        session_id="session-2026-03-01-10-00-00-00c0ffee",
        provider="p",
        model_id="m",
        system_prompt="the whole system prompt",
        workspace="/w",
    )
    messages: list[Message] = [
        meta,
        b.user_text("hello"),
        b.request_begin(),
        b.assistant_text("hi there"),
        b.request_end("completed"),
    ]
    file = directory / "traces.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in (*(message.line for message in messages), *lines)))
    return file


def test_trace_show_renders_prints_records_and_keeps_unknown_ones(penguin: Penguin, tmp_path: Path) -> None:
    unknown = b'{"timestamp":"2026-03-01T10:00:00.000Z","type":"event_msg","payload":{"type":"confetti","n":1.0}}'
    file = trace_file(tmp_path, unknown)
    shown = penguin("trace", "show", str(file)).out
    assert "> hello" in shown
    assert "hi there" in shown
    assert "the whole system prompt" not in shown
    assert "the whole system prompt" in penguin("trace", "show", "--full", str(file)).out
    assert penguin("trace", "show", "--json", str(file)).out == file.read_text()


def test_trace_show_finds_a_session_by_its_id_and_the_latest_without(penguin: Penguin, project: ProjectPaths) -> None:
    day = project.agent().traces / "2026-03-01"
    day.mkdir(parents=True)
    trace_file(day).rename(day / "session-2026-03-01-10-00-00-00c0ffee_001.jsonl")
    assert "hi there" in penguin("trace", "show", "session-2026-03-01-10-00-00-00c0ffee").out
    assert "hi there" in penguin("trace", "show").out


def test_trace_check_reports_damage_with_its_line_and_status_1(penguin: Penguin, tmp_path: Path) -> None:
    good = penguin("trace", "check", str(trace_file(tmp_path)))
    assert (good.status, len(good.out.splitlines())) == (0, 1)
    file = trace_file(tmp_path, b"damage", b.user_text("after").line)
    bad = penguin("trace", "check", str(file))
    assert bad.status == 1
    assert f"{file}:6" in bad.out
    shown = penguin("trace", "show", str(file))
    assert "> after" in shown.out
    assert f"{file}:6" in shown.err


def test_T4_what_is_no_trace_is_one_message(penguin: Penguin, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    for action in ("show", "check"):
        said = penguin("trace", action, "x.jsonl")
        assert said.status == 1
        assert "x.jsonl" in said.err
        assert "Traceback" not in said.err


def test_P15_schema_prints_what_the_package_ships(penguin: Penguin) -> None:
    shipped = resources.files("penguin.protocol").joinpath("omni-message.schema.json").read_text(encoding="utf-8")
    assert json.loads(penguin("schema").out) == json.loads(shipped)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(penguin: Penguin, shell: str) -> None:
    assert "_PENGUIN_COMPLETE" in penguin("completion", shell).out
