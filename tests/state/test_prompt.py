from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.state import prompt_texts
from penguin.state.agent_files import AgentConfig
from penguin.state.paths import DataRoot
from penguin.state.prompt import (
    PLACEHOLDERS,
    PromptSections,
    PromptValues,
    _os_version,
    assemble_prompt,
    gather_values,
)
from penguin.state.prompt_texts import COMPACTION_PROMPT, SYSTEM_PROMPT

VALUES = PromptValues(
    platform="linux",
    os_version="Debian GNU/Linux 12 (Linux 6.1.0-28-amd64)",
    date="2026-11-30 (Monday)",
    project_dir="/srv/someone/.penguin/data/default_project",
    agent_id="default_agent",
    cwd="/srv/someone/projects/garden",
    provider="openrouter",
    model_id="some-vendor/some-model-30b",
    session_id="session-2026-11-30-10-00-00-0123abcd",
)
FULL = msgspec.structs.replace(
    VALUES,
    agents_md="do this",
    vault_keys="- TOKEN",
    skill_metadata="- pdf: reads",
    user_memory_index="likes tea",
    workspace_memory_index="uses make",
    workspace_memory_dir="/memory",
    schedule_list="- daily",
)


def with_values(**values: str) -> PromptValues:
    return msgspec.structs.replace(VALUES, **values)


def test_S5_the_placeholders_are_those_of_the_specification() -> None:
    specified = (
        "AGENTS_MD VAULT VAULT_KEYS SKILLS SKILL_METADATA MEMORY USER_MEMORY_INDEX WORKSPACE_MEMORY_INDEX "
        "WORKSPACE_MEMORY_DIR SCHEDULES SCHEDULE_LIST PLATFORM OS_VERSION DATE PROJECT_DIR AGENT_ID CWD PROVIDER "
        "MODEL_ID SESSION_ID"
    )
    assert set(specified.split()) == PLACEHOLDERS
    template = "\n".join(f"{name}={{{{{name}}}}}" for name in sorted(PLACEHOLDERS))
    filled = assemble_prompt(template, FULL)
    assert "{{" not in filled
    assert "CWD=/srv/someone/projects/garden\n" in filled
    assert "VAULT_KEYS=- TOKEN\n" in filled


def test_S5_an_unknown_placeholder_stays_as_it_stands() -> None:
    template = "{{NOPE}} {{ CWD }} {{cwd}} {CWD} {{{CWD}}} {{NOPE}}"
    assert (
        assemble_prompt(template, VALUES)
        == f"{{{{NOPE}}}} {{{{ CWD }}}} {{{{cwd}}}} {{CWD}} {{{VALUES.cwd}}} {{{{NOPE}}}}"
    )


def test_S5_what_was_inserted_is_never_looked_at_again() -> None:
    values = with_values(
        cwd="/w/{{SESSION_ID}}", agents_md="{{VAULT}} \\1 \\g<0> {{CWD}}", vault_keys="{{AGENTS_MD}}", provider="{{"
    )
    filled = assemble_prompt(
        "{{CWD}}|{{AGENTS_MD}}|{{VAULT}}|{{PROVIDER}}CWD}}", values, PromptSections(vault="<{{VAULT_KEYS}}>")
    )
    assert filled == "/w/{{SESSION_ID}}|{{VAULT}} \\1 \\g<0> {{CWD}}|<{{AGENTS_MD}}>|{{CWD}}"


@given(st.text(), st.text(), st.lists(st.sampled_from([*sorted(PLACEHOLDERS), "NOPE"])))
def test_S5_text_around_placeholders_is_kept_and_values_appear_verbatim(
    left: str, value: str, names: list[str]
) -> None:
    values = PromptValues(**dict.fromkeys(PromptValues.__struct_fields__, f"<{value}>"))
    sections = PromptSections(vault="v", skills="s", memory="m", schedules="c")
    expected = dict.fromkeys(PLACEHOLDERS, f"<{value}>")
    expected |= {"VAULT": "v", "SKILLS": "s", "MEMORY": "m", "SCHEDULES": "c", "NOPE": "{{NOPE}}"}
    filled = assemble_prompt("x" + left + "|".join(f"{{{{{name}}}}}" for name in names) + "x", values, sections)
    assert filled == "x" + left + "|".join(expected[name] for name in names) + "x"


def test_S5_empty_parts_vanish_with_their_headings() -> None:
    template = """\
# Keep

text
{{AGENTS_MD}}
more

# Gone

{{AGENTS_MD}}
{{SKILLS}}

## Gone too
{{VAULT_KEYS}}

# A heading alone

# Last

{{VAULT}}

{{MEMORY}}

end {{AGENTS_MD}}.

{{SCHEDULES}}
"""
    assert assemble_prompt(template, VALUES) == ("# Keep\n\ntext\nmore\n\n# A heading alone\n\n# Last\n\nend .")


def test_S5_sections_appear_with_their_values_and_can_be_switched_off() -> None:
    filled = assemble_prompt(SYSTEM_PROMPT, FULL)
    for heading in ("Instructions", "Skills", "Memory", "Secrets", "Schedules", "# About the user"):
        assert f"\n# {heading}\n" in filled.replace("## About", "# # About")
    off = assemble_prompt(SYSTEM_PROMPT, FULL, PromptSections(vault=None, skills=None, memory=None, schedules=None))
    assert off.endswith("# Instructions\n\ndo this")
    only_workspace = assemble_prompt("{{MEMORY}}", msgspec.structs.replace(FULL, user_memory_index=""))
    assert "About the user" not in only_workspace
    assert "uses make" in only_workspace


def test_S5_a_lone_surrogate_does_not_reach_the_request() -> None:
    assert assemble_prompt("{{CWD}}", with_values(cwd="/caf\udce9")) == "/caf\ufffd"


def test_the_default_prompt_is_small_and_leaves_nothing_open() -> None:
    filled = assemble_prompt(SYSTEM_PROMPT, VALUES)
    assert len(filled) / 4 <= 1_100
    assert "{{" not in filled
    assert "\n\n\n" not in filled
    assert not filled.endswith("\n")
    assert "# Instructions" not in filled


def test_the_default_prompt_names_no_tool_that_does_not_exist_and_each_block_that_does() -> None:
    named = {word for word in re.split(r"[^a-z_]+", SYSTEM_PROMPT) if word.endswith(("_file", "_command"))}
    assert named == {"read_file", "write_file", "edit_file"}
    for tag in ("user_steering", "context_summary", "turn_aborted", "turn_retried", "background_task_done"):
        assert f"[{tag}]" in SYSTEM_PROMPT


def test_E19_the_compaction_prompt_shows_the_frame_once_and_asks_for_all_that_matters() -> None:
    assert COMPACTION_PROMPT.count("\n[summary]\n") == COMPACTION_PROMPT.count("\n[/summary]\n") == 1
    for heading in ("Goal", "Decisions", "State of the work", "Files", "Commands", "Open problems", "Next step"):
        assert f"\n## {heading}" in COMPACTION_PROMPT
    assert len(COMPACTION_PROMPT) / 4 < 400


def test_the_defaults_of_the_configuration_are_these_texts() -> None:
    assert AgentConfig().system_prompt == SYSTEM_PROMPT
    assert AgentConfig().compaction.prompt == COMPACTION_PROMPT
    assert AgentConfig().sections == PromptSections()
    assert {name for name in vars(prompt_texts) if name.endswith("_PROMPT")} == {
        "SYSTEM_PROMPT",
        "COMPACTION_PROMPT",
        "VAULT_PROMPT",
        "SKILLS_PROMPT",
        "MEMORY_PROMPT",
        "SCHEDULES_PROMPT",
    }


def test_S5_the_values_are_gathered_from_machine_agent_and_workspace(tmp_path: Path) -> None:
    agent = DataRoot(tmp_path / "root").project("p").agent("a")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    agent.agent_state.mkdir(parents=True)
    agent.agents_md.write_text("agent's own")
    (workspace / "AGENTS.md").write_text("workspace's own")
    values = gather_values(
        agent,
        workspace_dir=workspace,
        provider="x",
        model_id="y",
        session_id="z",
        vault_keys=["A", "B"],
        now=lambda: dt.datetime(2026, 2, 3, tzinfo=dt.UTC),
    )
    assert (values.date, values.cwd, values.agent_id) == ("2026-02-03 (Tuesday)", str(workspace), "a")
    assert values.project_dir == str(tmp_path / "root/p")
    assert values.vault_keys == "- A\n- B"
    assert values.platform
    assert values.agents_md.index("agent's own") < values.agents_md.index("workspace's own")
    assert f'from="{workspace / "AGENTS.md"}"' in values.agents_md


@pytest.mark.parametrize(
    ("content", "starts"),
    [(b'NAME=x\nPRETTY_NAME="Some OS 1"\n', "Some OS 1 ("), (b"NAME=x\n", ""), (b"\xff", ""), (None, "")],
)
def test_the_system_is_named_with_or_without_a_release_file(tmp_path: Path, content: bytes | None, starts: str) -> None:
    release = tmp_path / "os-release"
    if content is not None:
        release.write_bytes(content)
    described = _os_version(release)
    assert described.startswith(starts)
    assert ("(" in described) is bool(starts)
