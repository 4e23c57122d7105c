"""Every setting in force, with the place it comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penguin.agent.model_report import report_models
from penguin.cli.redaction import masked, without_login
from penguin.state.agent_files import read_agent_config, unknown_agent_keys
from penguin.state.paths import HOME_VARIABLE
from penguin.state.project import ProjectConfigFile
from penguin.state.toml_file import parse_toml
from penguin.state.yaml_file import parse_yaml

if TYPE_CHECKING:
    from penguin.agent.model_report import ModelField
    from penguin.protocol.errors import ConfigProblem
    from penguin.state.paths import AgentPaths

_LONG = 60
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One value for people; ``source`` is a file, a variable, an option, the catalogue, or ``default``."""

    name: str
    value: str
    source: str


def effective_settings(paths: AgentPaths, *, root_given: bool) -> list[Setting]:
    """What holds for this agent, keys masked.

    Raises:
        ConfigError: a file is broken.
    """
    return [_data_root(paths, root_given=root_given), *_project(paths), *_models(paths), *_agent(paths)]


def unknown_settings(paths: AgentPaths) -> list[ConfigProblem]:
    """Keys without effect, perhaps misspelt."""
    return [*ProjectConfigFile(paths.project.config).unknown_keys(), *unknown_agent_keys(paths.system_config)]


def _data_root(paths: AgentPaths, *, root_given: bool) -> Setting:
    source = "--root" if root_given else HOME_VARIABLE if os.environ.get(HOME_VARIABLE) else _DEFAULT
    return Setting("data_root", str(paths.project.path.parent), source)


def _project(paths: AgentPaths) -> Iterator[Setting]:
    file = paths.project.config
    values = msgspec.to_builtins(ProjectConfigFile(file).read())
    del values["models"]
    for choice in ("default_model", "vision_model"):
        pair = values[choice]
        values[choice] = f"{pair['provider']}/{pair['model_id']}" if pair else None
    written, _ = parse_toml(file)
    yield from _flat("", values, written, str(file))


def _models(paths: AgentPaths) -> Iterator[Setting]:
    project = ProjectConfigFile(paths.project.config).read()
    for report in report_models(project, read_agent_config(paths.system_config), os.environ):
        for field in report.fields:
            source = str(paths.project.config) if field.source == "entry" else field.source
            yield Setting(f"models.{report.ref}.{field.name}", _of_model(field), source)


def _of_model(field: ModelField) -> str:
    match field.name, field.value:
        case "api_key", secret:
            return masked(secret)
        case "base_url", str(url):
            return without_login(url)
        case _, value:
            return _shown(value)


def _agent(paths: AgentPaths) -> Iterator[Setting]:
    file = paths.system_config
    values = msgspec.to_builtins(read_agent_config(file))
    tools = values.pop("tools")
    written, _ = parse_yaml(file)
    yield from _flat("agent.", values, written, str(file))
    source = str(file) if written.get("tools") else _DEFAULT
    builtin = tools["builtin"]
    yield Setting("agent.tools.builtin", "all" if builtin is None else _names(builtin), source)
    # The configuration of a server may hold keys in any field.
    yield Setting("agent.tools.mcpServers", _names(tools["mcpServers"]), source)


def _names(entries: list[dict[str, Any]]) -> str:
    return ", ".join(entry["name"] for entry in entries) or "none"


def _flat(prefix: str, values: Mapping[str, Any], written: Any, file: str) -> Iterator[Setting]:
    for name, value in values.items():
        found = written.get(name) if isinstance(written, Mapping) else None
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value, found, file)
        else:
            yield Setting(f"{prefix}{name}", _shown(value), _DEFAULT if found is None else file)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "-"
        case str() if len(value) > _LONG or "\n" in value:
            return f"({len(value):,} characters)"
        case str():
            return value
        case _:
            return msgspec.json.encode(value).decode()
