"""What a session would use of each model and where each value comes from, for ``config`` and ``doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penguin.agent.models import ModelChoice, choose_model, is_nowhere, model_config
from penguin.llm import catalog
from penguin.llm.credentials import key_variables_of
from penguin.llm.known import levels_of_control
from penguin.llm.model import refuse_unusable
from penguin.protocol.errors import ConfigError
from penguin.protocol.interfaces import ModelConfig
from penguin.state.agent_files import AgentConfig
from penguin.state.project import ModelEntry, ModelRef, ProjectConfig

ENTRY, CATALOGUE, AGENT = "entry", "catalogue", "agent"


@dataclass(frozen=True, slots=True)
class ModelField:
    """One value; ``source`` is ``entry``, ``catalogue``, ``agent``, ``default`` or the name of a variable."""

    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class ModelReport:
    """A configured model. ``fields`` holds the API key as it is: mask it. ``problem`` says why it cannot be used."""

    ref: ModelRef
    fields: tuple[ModelField, ...]
    problem: str | None = None


def report_models(project: ProjectConfig, agent: AgentConfig, environ: Mapping[str, str]) -> list[ModelReport]:
    """Every configured model, and the default one also when only the catalogue knows it.

    Example::

        [report.problem for report in report_models(ProjectConfig(), AgentConfig(), {})]  # []
    """
    refs = [entry.ref for entry in project.models]
    if project.default_model is not None and project.default_model not in refs:
        refs.append(project.default_model)
    return [_report(project, agent, environ, ref) for ref in refs]


def problem_with(entry: ModelEntry) -> str | None:
    """Why a new entry would be of no use, in words, its key aside; ``None`` when it can be connected.

    Example::

        problem_with(ModelEntry(provider="custom", model_id="m"))  # "custom is no provider of the catalogue (…): …"
    """
    if not is_nowhere(entry):
        asked = ModelConfig(entry.provider, entry.model_id, entry.client_type, base_url=entry.base_url)
        return _refusal(replace(asked, thinking_control=entry.thinking_control, tool_calls=entry.tool_calls or "auto"))
    known = ", ".join(sorted(catalog.providers()))
    return (
        f"{entry.provider} is no provider of the catalogue ({known}): say where it is with --base-url, for example"
        " --client-type openai-chat --base-url http://127.0.0.1:8080/v1"
    )


def keys_in(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Providers whose key is in the environment, each with the variable that holds it."""
    return [
        (name, variable)
        for name, entry in catalog.providers().items()
        for variable in entry.key_variables
        if environ.get(variable, "").strip()
    ]


def _report(project: ProjectConfig, agent: AgentConfig, environ: Mapping[str, str], ref: ModelRef) -> ModelReport:
    try:
        choice = choose_model(project, ref.provider, ref.model_id)
    except ConfigError as error:
        return ModelReport(ref, (), str(error))
    return ModelReport(ref, tuple(_fields(choice, agent, environ)), _problem(choice, agent, environ))


def _problem(choice: ModelChoice, agent: AgentConfig, environ: Mapping[str, str]) -> str | None:
    """What a session would refuse the model for."""
    if problem := problem_with(choice.entry):
        return problem
    try:
        return _refusal(model_config(choice, agent, environ, {}))
    except ConfigError as error:
        return str(error)


def _refusal(config: ModelConfig) -> str | None:
    try:
        refuse_unusable(config)
    except ConfigError as error:
        return str(error)
    return None


def _fields(choice: ModelChoice, agent: AgentConfig, environ: Mapping[str, str]) -> Iterator[ModelField]:
    entry, known, provider = choice.entry, choice.known, choice.provider
    client_type = catalog.usual_client_type(entry.provider, entry.model_id, entry.base_url)
    yield _first("client_type", (entry.client_type, ENTRY), (client_type, CATALOGUE), ("openai-chat", "default"))
    yield _first("base_url", (entry.base_url, ENTRY), (provider and provider.base_url, CATALOGUE))
    yield _first("api_key", (entry.api_key, ENTRY), *_keys(entry.provider, environ))
    yield _first("context_window", (entry.context_window, ENTRY), (known and known.context_window, CATALOGUE))
    yield _first("max_tokens", (entry.max_tokens, ENTRY), (agent.model.max_tokens, AGENT))
    yield _first("max_output", (entry.max_output, ENTRY), (known and known.max_output, CATALOGUE))
    yield _first("vision", (entry.vision, ENTRY), (known and known.vision, CATALOGUE), (choice.vision, "default"))
    yield _first("thinking_level", (entry.thinking_level, ENTRY), (agent.model.thinking_level, AGENT))
    # A provider's own levels and style hold for its models that have none.
    levels = known.thinking_levels if known else (provider.thinking_levels or None) if provider else None
    implied = levels_of_control(entry.thinking_control)
    told = (levels, CATALOGUE) if levels or implied is None else (implied, "default")
    yield _first("thinking_levels", (entry.thinking_levels, ENTRY), told)
    yield _first("thinking_control", (entry.thinking_control, ENTRY), (_control(choice), CATALOGUE))
    yield _first("tool_calls", (entry.tool_calls, ENTRY), (choice.known_tool_calls, CATALOGUE), ("auto", "default"))


def _control(choice: ModelChoice) -> str | None:
    if choice.known and choice.known.thinking_control:
        return choice.known.thinking_control
    return choice.provider.thinking_style if choice.provider and choice.speaks_chat else None


def _keys(provider: str, environ: Mapping[str, str]) -> list[tuple[str | None, str]]:
    return [(environ.get(variable, "").strip() or None, variable) for variable in key_variables_of(provider)]


def _first(name: str, *candidates: tuple[Any, str]) -> ModelField:
    """The first value that is there, as the model's configuration takes it."""
    value, source = next((found for found in candidates if found[0] is not None), (None, "default"))
    return ModelField(name, value, source)
