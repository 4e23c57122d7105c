"""Which tools come with Penguin: name, default definition, factory.

A factory imports its tool when it is called, so that a session pays for the tools it offers and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penguin.environment.tool import BuiltinToolFactory, Tool, ToolDefinitionConfig, ToolSetup
from penguin.environment.tools import definitions
from penguin.protocol.errors import ConfigError


def _read_file(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.read_file import ReadFile  # noqa: PLC0415 - see the module's docstring

    return ReadFile(definition, setup)


def _edit_file(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.edit_file import EditFile  # noqa: PLC0415 - see the module's docstring

    return EditFile(definition, setup)


def _write_file(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.write_file import WriteFile  # noqa: PLC0415 - see the module's docstring

    return WriteFile(definition, setup)


def _exec_command(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.exec_command import ExecCommand  # noqa: PLC0415 - see the module's docstring

    return ExecCommand(definition, setup)


def _input_command(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.input_command import InputCommand  # noqa: PLC0415 - see the module's docstring

    return InputCommand(definition, setup)


def _kill_command(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.kill_command import KillCommand  # noqa: PLC0415 - see the module's docstring

    return KillCommand(definition, setup)


def _run_subagent(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.run_subagent import RunSubagent  # noqa: PLC0415 - see the module's docstring

    return RunSubagent(definition, setup)


def _input_subagent(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.input_subagent import InputSubagent  # noqa: PLC0415 - see the module's docstring

    return InputSubagent(definition, setup)


def _kill_subagent(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.kill_subagent import KillSubagent  # noqa: PLC0415 - see the module's docstring

    return KillSubagent(definition, setup)


def _read_image(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.read_image import ReadImage  # noqa: PLC0415 - see the module's docstring

    return ReadImage(definition, setup)


def _describe_image(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    from penguin.environment.tools.describe_image import DescribeImage  # noqa: PLC0415 - see the module's docstring

    return DescribeImage(definition, setup)


SUBAGENT_TOOLS = frozenset({"run_subagent", "input_subagent", "kill_subagent"})
"""The tools that are offered only where the host lends a ``subagent_runner``."""

BUILTIN_TOOL_FACTORIES: dict[str, BuiltinToolFactory] = {
    "exec_command": _exec_command,
    "input_command": _input_command,
    "kill_command": _kill_command,
    "read_image": _read_image,
    "describe_image": _describe_image,
    "run_subagent": _run_subagent,
    "input_subagent": _input_subagent,
    "kill_subagent": _kill_subagent,
    "read_file": _read_file,
    "edit_file": _edit_file,
    "write_file": _write_file,
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
