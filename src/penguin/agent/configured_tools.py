"""What an agent's configuration says about the tools that ship with Penguin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from penguin.environment.tool import ToolDefinitionConfig
from penguin.environment.tools.builtin import builtin_definition
from penguin.protocol.errors import ConfigError
from penguin.state.agent_files import AgentConfig, ToolSettings, error_about_agent
from penguin.state.checking import FieldPath


def configured_tools(agent: AgentConfig, file: Path) -> list[ToolDefinitionConfig] | None:
    """The definitions ``tools.builtin`` stands for; ``None`` is the default list. ``file`` is where it was read.

    Raises:
        ConfigError: an unknown tool or a value of the wrong type, with its place in the file (S2).
    """
    if agent.tools.builtin is None:
        return None
    return [_definition(entry, index, file) for index, entry in enumerate(agent.tools.builtin)]


def _definition(entry: ToolSettings, index: int, file: Path) -> ToolDefinitionConfig:
    try:
        return builtin_definition(_written(entry))
    except ConfigError as error:
        field: FieldPath = ("tools", "builtin", index, "name")
        raise error_about_agent(file, field, str(error).removeprefix("tools.builtin: ")) from None


def _written(entry: ToolSettings) -> dict[str, Any]:
    """What the file says about a tool; what it leaves out keeps the tool's own definition."""
    return {name: value for name, value in msgspec.structs.asdict(entry).items() if value is not None}
