"""Which model a session talks to: the request's wish, the project's entries, the catalogue, the keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from penguin.engine.budget import Prices
from penguin.llm import catalog
from penguin.llm.credentials import missing_key, resolve_api_key
from penguin.protocol.errors import ConfigError, NoModelError
from penguin.protocol.interfaces import ModelConfig, ToolCalls
from penguin.state.agent_files import AgentConfig
from penguin.state.project import ModelEntry, ModelRef, ProjectConfig


class ModelChoice(Struct, frozen=True):
    """A model with what the project and the catalogue know of it; ``entry`` is empty when only the latter does."""

    entry: ModelEntry
    known: catalog.ModelEntry | None
    provider: catalog.ProviderEntry | None

    @property
    def ref(self) -> ModelRef:
        """The pair that names it."""
        return self.entry.ref

    @property
    def context_window(self) -> int | None:
        """Tokens, or ``None`` when nobody knows."""
        return self.entry.context_window or (self.known.context_window if self.known else None)

    @property
    def client_type(self) -> str | None:
        """The protocol it speaks; ``None`` is the default one."""
        entry = self.entry
        return entry.client_type or catalog.usual_client_type(entry.provider, entry.model_id, entry.base_url)

    @property
    def speaks_chat(self) -> bool:
        """Whether that protocol is Chat Completions."""
        return self.client_type in {None, "openai", "openai-chat"}

    @property
    def known_tool_calls(self) -> ToolCalls | None:
        """How the catalogue says it writes its calls, which is a matter of Chat Completions only."""
        return self.known.tool_calls if self.known and self.speaks_chat else None

    @property
    def prices(self) -> Prices | None:
        """US dollars per million tokens, as far as somebody knows; a class nobody knows costs nothing."""
        own, known = self.entry.pricing, self.known.pricing if self.known else None
        if own is None and known is None:
            return None
        return Prices(*(_first(own, known, name) for name in ("cache_read", "cache_write", "output")))

    @property
    def vision(self) -> bool:
        """Whether it takes images; a model nobody knows is asked to."""
        if self.entry.vision is not None:
            return self.entry.vision
        return self.known is None or self.known.vision is not False


def _first(own: object, known: object, name: str) -> float:
    for source in (own, known):
        price = getattr(source, name, None)
        if price is not None:
            return float(price)
    return 0.0


def choose_model(project: ProjectConfig, provider: str | None = None, model_id: str | None = None) -> ModelChoice:
    """The named model, else the project's default, else its only one.

    Raises:
        ConfigError: half a name, or a model neither the project nor the catalogue knows.
        NoModelError: nothing is named and nothing configured.
    """
    if (provider is None) != (model_id is None):
        raise ConfigError("a model is named by provider and model id together: give both or neither")
    if provider is not None and model_id is not None:
        return _known_to_somebody(project, ModelRef(provider, model_id))
    if project.default_model is not None:
        return _known_to_somebody(project, project.default_model)
    if len(project.models) == 1:
        return _described(project.models[0])
    if project.models:
        names = ", ".join(f"{entry.provider} {entry.model_id}" for entry in project.models)
        raise ConfigError(
            f"several models are configured and none is the default ({names}): choose one with"
            " `penguin config model default PROVIDER MODEL_ID` or --provider and --model-id"
        )
    raise NoModelError("no model is configured")


def is_nowhere(entry: ModelEntry) -> bool:
    """Whether nobody knows where the model is: no address, and no provider of the catalogue."""
    return entry.base_url is None and catalog.provider(entry.provider) is None


def described(project: ProjectConfig, ref: ModelRef) -> ModelChoice:
    """What is known of a model, configured or not; never refuses."""
    return _described(project.model(ref) or ModelEntry(provider=ref.provider or "?", model_id=ref.model_id or "?"))


def _known_to_somebody(project: ProjectConfig, ref: ModelRef) -> ModelChoice:
    entry = project.model(ref)
    if entry is not None:
        return _described(entry)
    choice = _described(ModelEntry(provider=ref.provider, model_id=ref.model_id))
    if choice.provider is None:
        raise ConfigError(
            f"the model ({ref.provider}, {ref.model_id}) is not configured and {ref.provider!r} is no provider of the"
            f" catalogue: add it with `penguin config model add --provider {ref.provider} --model-id {ref.model_id}"
            " --base-url URL`"
        )
    return choice


def _described(entry: ModelEntry) -> ModelChoice:
    return ModelChoice(entry, catalog.lookup(entry.provider, entry.model_id), catalog.provider(entry.provider))


def model_config(
    choice: ModelChoice,
    agent: AgentConfig,
    environ: Mapping[str, str],
    workspace_keys: Mapping[str, str],
    *,
    key_needed: bool = True,
    config_file: Path | None = None,
) -> ModelConfig:
    """Everything a model factory needs, system prompt and tools aside.

    ``key_needed`` is false when nothing will be sent; ``config_file`` is named when something is to be changed.

    Raises:
        CredentialError: the provider wants a key and there is none; the text names entry and variable.
    """
    entry, known, provider = choice.entry, choice.known, choice.provider
    base_url = entry.base_url or (provider.base_url if provider else None)
    named = None if config_file is None else str(config_file)
    key = resolve_api_key(entry.provider, entry.api_key, {**workspace_keys, **environ})
    if key is None and key_needed and _wants_key(choice):
        raise missing_key(entry.provider, entry.model_id, named)
    most = entry.max_output or (known.max_output if known else None)
    limits = [limit for limit in (entry.max_tokens or agent.model.max_tokens, most) if limit]
    return ModelConfig(
        provider=entry.provider,
        model_id=entry.model_id,
        client_type=choice.client_type,
        api_key=key,
        base_url=base_url,
        context_window=choice.context_window,
        max_tokens=min(limits),
        thinking_level=entry.thinking_level or agent.model.thinking_level,
        request_timeout_ms=agent.model.timeout_ms if entry.request_timeout_ms is None else entry.request_timeout_ms,
        vision=choice.vision,
        tool_calls=entry.tool_calls or choice.known_tool_calls or "auto",
        extra_body=dict(entry.extra_body or {}),
        config_file=named,
        max_output=entry.max_output,
        thinking_levels=entry.thinking_levels,
        thinking_control=entry.thinking_control,
        max_tokens_named=entry.max_tokens is not None,
    )


def _wants_key(choice: ModelChoice) -> bool:
    """Local servers and custom endpoints may have none; the usual providers always want one."""
    return choice.provider is not None and choice.provider.needs_key
