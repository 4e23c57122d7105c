from __future__ import annotations

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penguin.protocol.errors import ConfigError
from penguin.state.agent_files import (
    AgentConfig,
    McpServer,
    ToolSettings,
    read_agent_config,
    unknown_agent_keys,
    write_agent_settings,
)

WRITTEN_BY_HAND = """\
# the gardener
name: "Fern"   # shown in the list
system_prompt: |
  You water plants in {{CWD}}.
  # not a comment

  Be brief.
model:
  max_tokens: 100
  odd: kept   # somebody's note
tools:
  mcpServers:
    - name: weather
      config: {command: weather-server, args: [--now]}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "system_config.yaml"


def test_S4_an_agent_needs_no_file_and_has_these_defaults(path: Path) -> None:
    config = read_agent_config(path)
    assert config == AgentConfig()
    assert (config.max_turns, config.model.max_tokens, config.model.thinking_level) == (-1, 32_000, "medium")
    assert config.model.timeout_ms == 120_000
    assert (config.compaction.max_context_length, config.compaction.max_session_turns) == (256_000, -1)
    assert config.compaction.mode == "summarize"
    assert (config.tools.builtin, config.tools.mcp_servers) == (None, ())
    assert not path.exists()


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "\ufeff", "---\n", "model:\ntools:\n"])
def test_S4_an_empty_file_or_section_means_the_defaults(path: Path, text: str) -> None:
    path.write_text(text)
    assert read_agent_config(path) == AgentConfig()


def test_S4_what_is_written_is_used_as_it_stands(path: Path) -> None:
    path.write_text(
        "\ufeffname: n\ndescription: d\nversion: 2\nsystem_prompt: ''\nmax_turns: 7\n"
        "model: {max_tokens: 1, thinking_level: max, timeoutMs: 0}\n"
        "compaction: {max_context_length: 10, max_session_turns: 3, mode: discard, prompt: p}\n"
        "vault: {enabled: false}\nskills: {prompt: s}\n"
        "tools:\n  builtin: []\n  mcpServers: [{name: a, config: {url: u}}]\n"
    )
    config = read_agent_config(path)
    assert (config.name, config.description, config.version, config.system_prompt) == ("n", "d", 2, "")
    assert (config.max_turns, config.model.max_tokens, config.model.thinking_level) == (7, 1, "max")
    assert config.model.timeout_ms == 0
    assert (config.compaction.mode, config.compaction.prompt) == ("discard", "p")
    assert (config.sections.vault, config.sections.skills) == (None, "s")
    assert config.sections.memory == AgentConfig().memory.prompt
    assert config.tools.builtin == ()
    assert config.tools.mcp_servers == (McpServer("a", {"url": "u"}),)
    assert unknown_agent_keys(path) == []


def test_S4_the_tool_list_replaces_the_default_and_takes_three_spellings(path: Path) -> None:
    path.write_text(
        "tools:\n  builtin:\n    - read_file\n"
        "    - {name: a, forModel: vision, timeoutMs: 5, maxOutputLength: -1, permission: r}\n"
        "    - {name: b, for_model: vision, timeout_ms: 5, max_output_length: -1, permission: r}\n"
    )
    assert read_agent_config(path).tools.builtin == (
        ToolSettings("read_file"),
        *(ToolSettings(name, permission="r", for_model="vision", timeout_ms=5, max_output_length=-1) for name in "ab"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model:\n\tmax_tokens: 3\n", "2:1: not valid YAML: a line is indented with a tab"),
        (
            "name: x\nmodel:\n  max_tokens: 1\n  max_tokens: 2\n",
            '4:3: not valid YAML: the key "max_tokens" is given twice',
        ),
        ("a: [1\nb: 2\n", "2:2: not valid YAML: "),
        ("a: b\x01\n", "1: not valid YAML: unacceptable character"),
        ("- a\n", "1: expected keys with values, found a list"),
        ("a: 1\n--- \nb: 1\n", "2:1: not valid YAML: but found another document"),
        ("x: !!python/object:os.system {}\n", "1:4: not valid YAML: could not determine a constructor"),
        ("model:\n  timeoutMs: eighty\n", "2:3: model.timeoutMs: found 'eighty' (text), expected a whole number"),
        ("name: a\nmax_turns:\n", "2:1: max_turns: found nothing, expected a whole number"),
        ("compaction: {mode: x}\n", "1:14: compaction.mode: found 'x' (text), expected one of discard, summarize"),
        ("tools:\n  builtin:\n    - a\n    - timeoutMs: 3\n", "4:7: tools.builtin[1].name: is missing; expected text"),
        (
            "tools:\n  builtin:\n    - a\n    - [b]\n",
            "4:7: tools.builtin[1]: found a list, expected a section with keys",
        ),
        ("tools:\n  builtin: [a, b, a]\n", "2:19: tools.builtin[2].name: a is given twice"),
        ("tools:\n  mcpServers: {a: {}}\n", "2:3: tools.mcpServers: found a section with keys, expected a list"),
        ("model:\n  3: 4\n", "1:1: model: has a key that is not text"),
    ],
)
def test_D56_what_is_wrong_is_named_with_line_and_field(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_agent_config(path)
    assert str(caught.value).removeprefix(f"{path}:").startswith(said)
    with pytest.raises(ConfigError):
        write_agent_settings(path, {"max_turns": 1})
    assert path.read_text() == text


def test_D56_a_doubled_key_does_not_show_its_values(path: Path) -> None:
    path.write_text("tools:\n  mcpServers:\n  - name: a\n    config: {key: sk-secret-1, key: sk-secret-2}\n")
    with pytest.raises(ConfigError, match=r":4:\d+: .*given twice") as caught:
        read_agent_config(path)
    assert "sk-secret" not in str(caught.value)


def test_D56_values_that_contain_themselves_end_in_an_error_or_are_unused(path: Path) -> None:
    path.write_text("model: &m\n  max_tokens: *m\n")
    with pytest.raises(ConfigError):
        read_agent_config(path)


def test_S2_misspelt_keys_can_be_listed(path: Path) -> None:
    path.write_text("max_turn: 3\nmodel:\n  timeoutms: 1\n")
    assert [str(problem).removeprefix(f"{path}:") for problem in unknown_agent_keys(path)] == [
        "1:1: max_turn: is not a known key and has no effect; did you mean max_turns?",
        "3:3: model.timeoutms: is not a known key and has no effect; did you mean timeoutMs?",
    ]


def test_S2_an_edit_keeps_comments_order_unknown_keys_and_mode(path: Path) -> None:
    path.write_text(WRITTEN_BY_HAND)
    path.chmod(0o640)
    write_agent_settings(path, {"model.max_tokens": 200, "compaction.mode": "discard", "compaction.prompt": "a\nb\n"})
    assert path.read_text() == (
        WRITTEN_BY_HAND.replace("max_tokens: 100", "max_tokens: 200")
        + "compaction:\n  mode: discard\n  prompt: |\n    a\n    b\n"
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    write_agent_settings(path, {"compaction.mode": None, "compaction.prompt": None, "model.max_tokens": 100})
    assert path.read_text() == WRITTEN_BY_HAND + "compaction: {}\n"


def test_S2_a_new_file_is_private_and_a_file_of_comments_keeps_them(path: Path) -> None:
    write_agent_settings(path, {"model.timeoutMs": 5})
    assert path.read_text() == "model:\n  timeoutMs: 5\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("\ufeff# only this")
    write_agent_settings(path, {"max_turns": 5})
    assert path.read_text() == "\ufeff# only this\nmax_turns: 5\n"


@pytest.mark.parametrize("settings", [{"model.max_tokens": "many"}, {"compaction.mode": "x"}, {"model.timeoutMs": [1]}])
def test_S2_a_wrong_setting_is_refused_and_nothing_is_written(path: Path, settings: dict[str, Any]) -> None:
    path.write_text(WRITTEN_BY_HAND)
    with pytest.raises(ConfigError):
        write_agent_settings(path, settings)
    assert path.read_text() == WRITTEN_BY_HAND


def test_S2_writers_at_the_same_time_lose_nothing(path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: write_agent_settings(path, {f"mine.k{number}": number}), range(8)))
    assert {problem.field for problem in unknown_agent_keys(path)} == {"mine"}
    assert all(f"k{number}: {number}" in path.read_text() for number in range(8))


def test_L17_the_repr_of_an_mcp_server_hides_its_settings() -> None:
    assert repr(McpServer("a", {"env": {"KEY": "sk-secret"}})) == "McpServer(name='a')"


def test_K11_without_a_file_the_yaml_parser_is_not_loaded(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from penguin.state import agent_files, prompt, project, vault, workspace_env\n"
        "agent_files.read_agent_config(Path(sys.argv[1]))\n"
        "print(*sorted(name for name in sys.modules if name.partition('.')[0] in {'ruamel', 'tomlkit', 'dotenv'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
