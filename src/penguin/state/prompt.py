"""Fill the system prompt template, once per session and in one pass (S5).

Example::

    values = gather_values(agent, workspace_dir=Path.cwd(), provider="custom", model_id="m", session_id=session_id)
    prompt = assemble_prompt(SYSTEM_PROMPT, values)
"""

from __future__ import annotations

import datetime as dt
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from penguin.protocol.messages import scrub
from penguin.state.instructions import find_instructions, render_instructions
from penguin.state.paths import AgentPaths
from penguin.state.prompt_texts import MEMORY_PROMPT, SCHEDULES_PROMPT, SKILLS_PROMPT, VAULT_PROMPT

_PLACEHOLDER = re.compile(r"\{\{([A-Z_]+)\}\}")
_HEADING = re.compile(r"#{1,6}\s")


class PromptValues(Struct, frozen=True, kw_only=True):
    """What the placeholders stand for: the field ``project_dir`` fills ``{{PROJECT_DIR}}``, and so on.

    The lists (``vault_keys``, ``skill_metadata``, ``schedule_list``) are text, one item a line; an
    empty value makes its section vanish.
    """

    platform: str
    os_version: str
    date: str
    project_dir: str
    agent_id: str
    cwd: str
    provider: str
    model_id: str
    session_id: str
    agents_md: str = ""
    vault_keys: str = ""
    skill_metadata: str = ""
    user_memory_index: str = ""
    workspace_memory_index: str = ""
    workspace_memory_dir: str = ""
    schedule_list: str = ""

    def by_placeholder(self) -> dict[str, str]:
        """``{"PLATFORM": "linux", …}``."""
        return {name.upper(): value for name, value in asdict(self).items()}


class PromptSections(Struct, frozen=True, kw_only=True):
    """Templates of the parts that can be switched off: ``{{VAULT}}`` and so on; ``None`` is off.

    They are templates like the main one and may use the same placeholders, except each other.
    """

    vault: str | None = VAULT_PROMPT
    skills: str | None = SKILLS_PROMPT
    memory: str | None = MEMORY_PROMPT
    schedules: str | None = SCHEDULES_PROMPT


# A section appears when this value is not empty.
_SECTION_NEEDS = {
    "vault": "VAULT_KEYS",
    "skills": "SKILL_METADATA",
    "memory": "WORKSPACE_MEMORY_DIR",
    "schedules": "SCHEDULE_LIST",
}

PLACEHOLDERS = frozenset(
    {name.upper() for name in (*PromptValues.__struct_fields__, *PromptSections.__struct_fields__)}
)
"""Every placeholder that is filled; any other ``{{NAME}}`` in a template stays as it stands."""


def assemble_prompt(template: str, values: PromptValues, sections: PromptSections | None = None) -> str:
    """The system prompt: pure, in one pass, and what was inserted is never looked at again.

    A line that holds nothing but empty placeholders goes, and so does a heading with nothing else under it.

    Example::

        assemble_prompt("Hello from {{CWD}}. {{UNKNOWN}}", values)   # 'Hello from /home/me. {{UNKNOWN}}'
    """
    texts = values.by_placeholder()
    parts = asdict(sections or PromptSections())
    for name, needed in _SECTION_NEEDS.items():
        part = parts[name]
        texts[name.upper()] = _fill(part, values.by_placeholder()) if part and texts[needed] else ""
    return scrub(_fill(template, texts))


def _fill(template: str, texts: Mapping[str, str]) -> str:
    lines = _without_empty_lines(_without_empty_parts(template.split("\n"), texts), texts)
    return _PLACEHOLDER.sub(lambda found: texts.get(found[1], found[0]), "\n".join(lines)).strip("\n")


def _without_empty_parts(lines: list[str], texts: Mapping[str, str]) -> Iterable[str]:
    for part in _split_at_headings(lines):
        if not (_HEADING.match(part[0]) and _says_nothing("\n".join(part[1:]), texts)):
            yield from part


def _split_at_headings(lines: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if _HEADING.match(line) and parts[-1]:
            parts.append([])
        parts[-1].append(line)
    return parts


def _without_empty_lines(lines: Iterable[str], texts: Mapping[str, str]) -> list[str]:
    kept: list[str] = []
    after_gap = False
    for line in lines:
        if _says_nothing(line, texts):
            after_gap = True
        elif not (after_gap and not line.strip() and (not kept or not kept[-1].strip())):
            after_gap = False
            kept.append(line)
    return kept


def _says_nothing(text: str, texts: Mapping[str, str]) -> bool:
    """Whether ``text`` consists of placeholders, at least one, that are all empty."""
    names = _PLACEHOLDER.findall(text)
    return bool(names) and not any(texts.get(name, name) for name in names) and not _PLACEHOLDER.sub("", text).strip()


# ---------------------------------------------------------------- gathering


def _local_now() -> dt.datetime:
    return dt.datetime.now().astimezone()


def gather_values(
    agent: AgentPaths,
    *,
    workspace_dir: Path,
    provider: str,
    model_id: str,
    session_id: str,
    vault_keys: Iterable[str] = (),
    now: Callable[[], dt.datetime] = _local_now,
) -> PromptValues:
    """Look at the machine, the agent's files and the workspace; skills, memory and schedules stay empty.

    Args:
        agent: whose ``AGENTS.md`` comes before the workspace's.
        workspace_dir: where commands start.
        provider: with ``model_id`` the model that will read the prompt.
        model_id: see ``provider``.
        session_id: of the session that will keep the prompt.
        vault_keys: the names (never the values) of the vault's entries.
        now: the clock behind ``{{DATE}}``.
    """
    return PromptValues(
        platform=sys.platform,
        os_version=_os_version(),
        date=f"{now():%Y-%m-%d (%A)}",
        project_dir=str(agent.project.path),
        agent_id=agent.id,
        cwd=str(workspace_dir),
        provider=provider,
        model_id=model_id,
        session_id=session_id,
        agents_md=render_instructions([agent.agents_md, *find_instructions(workspace_dir)]),
        vault_keys="\n".join(f"- {name}" for name in vault_keys),
    )


def _os_version(release_file: Path = Path("/etc/os-release")) -> str:
    system = os.uname()
    kernel = f"{system.sysname} {system.release}"
    try:
        found = re.search(r'^PRETTY_NAME="?([^"\n]+)', release_file.read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return kernel
    return f"{found[1]} ({kernel})" if found else kernel
