"""What is wrong in a configuration, and where (S2); what may be said in several ways."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from tests.cli.conftest import Penguin

from penguin.cli.commands.config_model import CLIENT_TYPES
from penguin.state.paths import ProjectPaths
from penguin.state.project import ClientType, ModelRef, ProjectConfigFile

PLACE = "http://127.0.0.1:9/v1"
OWN = '[[models]]\nprovider = "own"\nmodel_id = "M"\n'


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        (OWN, 1, ["models[0].base_url", "is missing", "http://"]),
        (OWN + 'base_ulr = "http://127.0.0.1:9/v1"\n', 1, ["models[0].base_url", "is missing", "base_ulr"]),
        (OWN + 'base_url = "ftp://host/v1"\n', 4, ["models[0].base_url", "'ftp://host/v1'", "http://"]),
        (
            OWN + f'base_url = "{PLACE}"\nthinking_control = "budget"\n',
            5,
            ["models[0].thinking_control", "'budget' is not known to openai-chat; allowed: effort"],
        ),
        (
            OWN + f'base_url = "{PLACE}"\nclient_type = "gemini"\ntool_calls = "text"\n',
            6,
            ["models[0].tool_calls", "set client_type to openai-chat"],
        ),
        (OWN + 'base_url = "http://"\n', 4, ["models[0].base_url", "'http://'"]),
        (
            'default_model = {provider = "own", model_id = "other"}\n' + OWN + 'base_url = "http://127.0.0.1:9/v1"\n',
            1,
            ["default_model", "own/other", "own/M"],
        ),
        ('[[models]]\nprovider = "own"\nmodel_id = "a\\nb"\n', 3, ["models[0].model_id", "control characters"]),
    ],
)
def test_S2_run_names_file_line_field_found_and_allowed(
    penguin: Penguin, project: ProjectPaths, text: str, line: int, parts: list[str]
) -> None:
    file = write(project.config, text)
    said = penguin("run", "-m", "x", "--no-stdin")
    assert said.status == 2
    assert f"{file}:{line}:" in said.err
    for part in parts:
        assert part in said.err
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("entries", ["[read_file, fly]", "\n    - read_file\n    - name: fly"])
def test_S2_an_unknown_tool_is_named_with_its_place(penguin: Penguin, project: ProjectPaths, entries: str) -> None:
    write(project.config, OWN + 'base_url = "http://127.0.0.1:9/v1"\n')
    file = write(project.agent().system_config, f"tools:\n  builtin: {entries}\n")
    for command in (["run", "-m", "x", "--no-stdin"], ["doctor"]):
        said = penguin(*command)
        text = said.err + said.out
        assert said.status in {1, 2}
        assert f"{file}:" in text
        assert "tools.builtin[1].name" in text
        assert "'fly'" in text
        assert "read_file, edit_file" in text


@pytest.mark.parametrize(
    "entry",
    [
        "",
        'base_url = "http://127.0.0.1:9/v1"\n[[models]]\nprovider = "x"\nmodel_id = "y"\n',
    ],
)
def test_doctor_ticks_no_model_that_run_refuses(penguin: Penguin, project: ProjectPaths, entry: str) -> None:
    write(project.config, OWN + entry)
    refused = ModelRef("x", "y") if entry else ModelRef("own", "M")
    lines = [line for line in penguin("doctor").out.splitlines() if str(refused) in line]
    assert lines
    assert not any(line.startswith(("✓", "ok")) for line in lines)


def test_L7_the_command_line_takes_the_names_of_protocols_that_the_file_takes(
    penguin: Penguin, project: ProjectPaths
) -> None:
    assert set(CLIENT_TYPES) == set(get_args(ClientType))
    add = ("config", "model", "add", "--provider", "own", "--model-id", "M", "--base-url", "http://127.0.0.1:9/v1")
    assert penguin(*add, "--client-type", "ant-messages").status == 0
    assert ProjectConfigFile(project.config).list_models()[0].client_type == "ant-messages"


@pytest.mark.parametrize("command", ["default", "vision", "remove"])
def test_L15_a_model_may_be_named_as_it_is_printed(penguin: Penguin, project: ProjectPaths, command: str) -> None:
    write(project.config, '[[models]]\nprovider = "own"\nmodel_id = "a/b"\nbase_url = "http://127.0.0.1:9/v1"\n')
    said = penguin("config", "model", command, "own/a/b")
    assert (said.status, said.err) == (0, "")
    assert "own/a/b" in said.out
    assert penguin("config", "model", command, "own/").status == 2
    assert penguin("config", "model", command, "own").status == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api-key", ""],
        ["--api-key", " "],
        ["--model-id", "a\x07b"],
        ["--model-id", "a\nb"],
        ["--provider", "a\x1b[2J"],
    ],
)
def test_S2_empty_keys_and_control_characters_are_refused(
    penguin: Penguin, project: ProjectPaths, arguments: list[str]
) -> None:
    add = ["config", "model", "add", "--provider", "own", "--model-id", "M", "--base-url", "http://127.0.0.1:9/v1"]
    said = penguin(*add, *arguments)
    assert said.status == 2
    assert "\x1b" not in said.err
    assert not project.config.exists()
