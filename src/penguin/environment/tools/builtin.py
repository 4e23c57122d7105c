"""Which tools come with Penguin: name, default definition, factory.

A factory imports its tool when it is called, so that a session pays for the tools it offers and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from penguin.environment.tool import BuiltinToolFactory, Tool, ToolDefinitionConfig, ToolSetup
from penguin.environment.tools import definitions
from penguin.protocol.errors import ConfigError


def _loaded_when_built(module: str, name: str) -> BuiltinToolFactory:
    def build(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
        tool: Tool = getattr(import_module(f"penguin.environment.tools.{module}"), name)(definition, setup)
        return tool

    return build


SUBAGENT_TOOLS = frozenset({"run_subagent", "input_subagent", "kill_subagent"})
"""The tools that are offered only where the host lends a ``subagent_runner``."""

BUILTIN_TOOL_FACTORIES: dict[str, BuiltinToolFactory] = {
    name: _loaded_when_built(name, tool)
    for name, tool in (
        ("exec_command", "ExecCommand"),
        ("input_command", "InputCommand"),
        ("kill_command", "KillCommand"),
        ("read_file", "ReadFile"),
        ("edit_file", "EditFile"),
        ("write_file", "WriteFile"),
        ("read_image", "ReadImage"),
        ("describe_image", "DescribeImage"),
        ("run_subagent", "RunSubagent"),
        ("input_subagent", "InputSubagent"),
        ("kill_subagent", "KillSubagent"),
    )
}
"""A factory for each name that ``tools.builtin`` may hold."""

BUILTIN_TOOL_DEFINITIONS: dict[str, ToolDefinitionConfig] = {
    each.name: each
    for each in (
        definitions.EXEC_COMMAND,
        definitions.INPUT_COMMAND,
        definitions.KILL_COMMAND,
        definitions.READ_FILE,
        definitions.EDIT_FILE,
        definitions.WRITE_FILE,
        definitions.READ_IMAGE,
        definitions.DESCRIBE_IMAGE,
        definitions.RUN_SUBAGENT,
        definitions.INPUT_SUBAGENT,
        definitions.KILL_SUBAGENT,
    )
}
"""What each built-in tool is when nothing is configured, in the order the model sees them."""

_ALIASES = {"forModel": "for_model", "timeoutMs": "timeout_ms", "maxOutputLength": "max_output_length"}


def builtin_definition(entry: str | Mapping[str, Any]) -> ToolDefinitionConfig:
    """The definition an entry of ``tools.builtin`` stands for: a name, or a name with what differs from the default.

    Raises:
        ConfigError: unknown tool or setting, or a value of the wrong type; the text says what is allowed.

    Example::

        builtin_definition({"name": "read_file", "max_output_length": 50_000})
    """
    fields = (
        {"name": entry} if isinstance(entry, str) else {_ALIASES.get(key, key): value for key, value in entry.items()}
    )
    default = BUILTIN_TOOL_DEFINITIONS.get(str(fields.get("name")))
    if default is None:
        known = ", ".join(BUILTIN_TOOL_DEFINITIONS)
        raise ConfigError(f"tools.builtin: there is no built-in tool {fields.get('name')!r}; there are {known}")
    try:
        return msgspec.convert(msgspec.structs.asdict(default) | fields, ToolDefinitionConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"tools.builtin, {default.name}: {error}") from None
