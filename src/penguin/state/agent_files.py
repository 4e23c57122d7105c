"""``agent_state/system_config.yaml``: prompt, limits and tools of one agent.

An agent needs no files: what is absent has its default, what is written is used as it stands.

Example::

    agent = DataRoot.from_environment(os.environ).project().agent()
    read_agent_config(agent.system_config).model.max_tokens      # 32000
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from penguin.protocol.errors import ConfigError, ConfigProblem
from penguin.protocol.interfaces import Permission
from penguin.protocol.messages import ThinkingLevel
from penguin.state.checking import FieldPath, Source, checked, unknown_keys
from penguin.state.prompt import PromptSections
from penguin.state.prompt_texts import (
    COMPACTION_PROMPT,
    MEMORY_PROMPT,
    SCHEDULES_PROMPT,
    SKILLS_PROMPT,
    SYSTEM_PROMPT,
    VAULT_PROMPT,
)
from penguin.state.yaml_file import edit_yaml, parse_yaml, readable

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
CompactionMode: TypeAlias = Literal["summarize", "discard"]


class ModelSettings(Struct, frozen=True):
    """How models are asked: ``max_tokens`` per reply; ``timeout_ms <= 0`` is off (``timeoutMs`` in the file)."""

    max_tokens: Annotated[int, Meta(ge=1)] = 32_000
    thinking_level: ThinkingLevel = "medium"
    timeout_ms: int = msgspec.field(name="timeoutMs", default=120_000)


class CompactionSettings(Struct, frozen=True):
    """When and how a long context is replaced: sizes in tokens; ``max_session_turns`` -1 is off."""

    max_context_length: int = 256_000
    max_session_turns: int = -1
    mode: CompactionMode = "summarize"
    prompt: str = COMPACTION_PROMPT


class VaultSection(Struct, frozen=True):
    """The prompt's part about secrets."""

    enabled: bool = True
    prompt: str = VAULT_PROMPT


class SkillsSection(Struct, frozen=True):
    """The prompt's part about skills."""

    enabled: bool = True
    prompt: str = SKILLS_PROMPT


class MemorySection(Struct, frozen=True):
    """The prompt's part about memory."""

    enabled: bool = True
    prompt: str = MEMORY_PROMPT


class SchedulesSection(Struct, frozen=True):
    """The prompt's part about schedules."""

    enabled: bool = True
    prompt: str = SCHEDULES_PROMPT


class ToolSettings(Struct, frozen=True):
    """One tool: what is ``None`` keeps the tool's own definition.

    ``timeout_ms`` and ``max_output_length`` (characters) ``<= 0`` are off. In the file
    ``forModel``, ``timeoutMs``, ``maxOutputLength``; the spelling with underscores is accepted too.
    """

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    permission: Permission | None = None
    for_model: Literal["vision", "text-only"] | None = msgspec.field(name="forModel", default=None)
    timeout_ms: int | None = msgspec.field(name="timeoutMs", default=None)
    max_output_length: int | None = msgspec.field(name="maxOutputLength", default=None)


class McpServer(Struct, frozen=True):
    """One MCP server; ``config`` is interpreted by the environment. ``repr`` hides it: it may hold keys."""

    name: Name
    config: dict[str, Any]

    def __repr__(self) -> str:
        return f"McpServer(name={self.name!r})"


class ToolsSection(Struct, frozen=True):
    """``builtin`` replaces the default list as a whole; ``None`` is the default list."""

    builtin: tuple[ToolSettings, ...] | None = None
    mcp_servers: tuple[McpServer, ...] = msgspec.field(name="mcpServers", default=())


class AgentConfig(Struct, frozen=True):
    """The whole file; ``AgentConfig()`` is the agent without one. ``max_turns`` -1 is unlimited."""

    name: str | None = None
    description: str = ""
    version: str | int | float | None = None
    system_prompt: str = SYSTEM_PROMPT
    max_turns: int = -1
    model: ModelSettings = ModelSettings()
    compaction: CompactionSettings = CompactionSettings()
    memory: MemorySection = MemorySection()
    vault: VaultSection = VaultSection()
    skills: SkillsSection = SkillsSection()
    schedules: SchedulesSection = SchedulesSection()
    tools: ToolsSection = ToolsSection()

    @property
    def sections(self) -> PromptSections:
        """The templates of the sections that are on, for :func:`~penguin.state.prompt.assemble_prompt`."""
        return PromptSections(
            vault=self.vault.prompt if self.vault.enabled else None,
            skills=self.skills.prompt if self.skills.enabled else None,
            memory=self.memory.prompt if self.memory.enabled else None,
            schedules=self.schedules.prompt if self.schedules.enabled else None,
        )


_SECTIONS = ("model", "compaction", "memory", "vault", "skills", "schedules", "tools")
_OTHER_SPELLING = {
    "for_model": "forModel",
    "timeout_ms": "timeoutMs",
    "max_output_length": "maxOutputLength",
}


def read_agent_config(path: Path) -> AgentConfig:
    """The configuration in ``path``; the default one when there is no file.

    Raises:
        ConfigError: with file, line and field; nothing falls back to a default silently.
    """
    return _checked_config(*parse_yaml(path))


def unknown_agent_keys(path: Path) -> list[ConfigProblem]:
    """Keys without effect, perhaps misspelt: worth a warning, kept in the file."""
    data, source = parse_yaml(path)
    return unknown_keys(_normalised(data), AgentConfig, source)


def error_about_agent(path: Path, field: FieldPath, message: str) -> ConfigError:
    """An error about one field of ``path``, with its line: for a fault only a reader of the values can see."""
    _, source = parse_yaml(path)
    return source.error(field, message)


def write_agent_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Change single settings, keeping comments, order and unknown keys.

    Args:
        path: the ``system_config.yaml``; made when it does not exist.
        settings: dotted names as in the file to values, e.g. ``{"model.timeoutMs": 60000}``; ``None``
            removes the setting, so that its default holds again.

    Raises:
        ConfigError: the file or a value is wrong; nothing was written.
    """

    def edit(document: Any) -> None:
        for name, value in settings.items():
            _put(document, name.split("."), value)

    edit_yaml(path, edit, _checked_config)


def _put(mapping: Any, steps: list[str], value: object) -> None:
    *sections, last = steps
    for section in sections:
        if mapping.get(section) is None:
            mapping[section] = {}
        mapping = mapping[section]
    if value is None:
        mapping.pop(last, None)
    else:
        mapping[last] = readable(value)


def _checked_config(data: dict[str, Any], source: Source) -> AgentConfig:
    config = checked(_normalised(data), AgentConfig, source)
    _refuse_doubled_names(config, source)
    return config


def _refuse_doubled_names(config: AgentConfig, source: Source) -> None:
    names = {
        "builtin": [tool.name for tool in config.tools.builtin or ()],
        "mcpServers": [server.name for server in config.tools.mcp_servers],
    }
    for kind, given in names.items():
        for index, name in enumerate(given):
            if name in given[:index]:
                raise source.error(("tools", kind, index, "name"), f"{name} is given twice")


def _normalised(data: dict[str, Any]) -> dict[str, Any]:
    """The forms people write that mean the same as the one form of the structs."""
    # A section whose lines are all commented out is "nothing" to YAML, and means what an absent one means.
    kept = {name: value for name, value in data.items() if value is not None or name not in _SECTIONS}
    match kept.get("tools"):
        case {"builtin": [*entries], **others}:
            kept["tools"] = {**others, "builtin": [_normalised_tool(entry) for entry in entries]}
        case _:
            pass
    return kept


def _normalised_tool(entry: object) -> object:
    match entry:
        case str():
            return {"name": entry}
        case dict():
            return {_OTHER_SPELLING.get(key, key): value for key, value in entry.items()}
        case _:
            return entry
