"""Which key is used, and what to say when there is none (L17)."""

from __future__ import annotations

from collections.abc import Mapping

from penguin.llm import catalog
from penguin.protocol.errors import CredentialError


def resolve_api_key(provider: str, entry_key: str | None, environ: Mapping[str, str]) -> str | None:
    """The entry's own key, else the first of the provider's environment variables that is set, else ``None``.

    Example::

        resolve_api_key("openai", None, {"OPENAI_API_KEY": "k"})  # "k"
    """
    if entry_key and entry_key.strip():
        return entry_key.strip()
    found = (environ.get(name, "").strip() for name in key_variables_of(provider))
    return next((key for key in found if key), None)


def key_variables_of(provider: str) -> tuple[str, ...]:
    """The environment variables that may hold the key of ``provider``; none for one nobody knows."""
    entry = catalog.provider(provider)
    return entry.key_variables if entry else ()


def missing_key(provider: str, model_id: str, config_file: str | None = None) -> CredentialError:
    """The error for a provider that wants a key and has none; names the variable and the config entry."""
    variables = " or ".join(key_variables_of(provider))
    by_variable = f"set the environment variable {variables}, or " if variables else ""
    return CredentialError(
        f"no API key for {provider}: {by_variable}put `api_key` into the [[models]] entry of"
        f" {provider}/{model_id} in {config_file or '.project_config.toml'}"
        f" (`penguin config model add --provider {provider} --model-id {model_id} --api-key KEY`)"
    )
