"""Known providers and models, from ``catalog.toml``, read when first asked for (L15).

A model is named by the pair ``(provider, model_id)``; neither half is ever guessed from the other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct, convert

from penguin.protocol.interfaces import ThinkingControl
from penguin.protocol.messages import ThinkingLevel

ThinkingStyle: TypeAlias = Literal["effort", "openrouter", "type", "type-and-effort", "enable"]
"""Those words of ``ThinkingControl`` that a Chat Completions server understands."""


class Pricing(Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars per million tokens, in the classes of ``token_usage``."""

    cache_read: float
    cache_write: float
    output: float


class ProviderEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A provider: where it is, how it is spoken to, which environment variables may hold its key."""

    name: str
    client_type: str
    base_url: str
    key_variables: tuple[str, ...]
    docs: str
    local: bool = False
    max_tokens_field: str = "max_tokens"
    thinking_style: ThinkingStyle = "effort"
    thinking_levels: tuple[ThinkingLevel, ...] = ()
    plain_content: bool = False
    returns_reasoning: bool = True

    @property
    def needs_key(self) -> bool:
        """Whether requests without a key are pointless; a server on this machine wants none."""
        return bool(self.key_variables)


class ModelEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model; sizes in tokens, ``None`` means not known. One that cannot be told not to think does not list ``none``.

    ``checked`` is the day its numbers were compared with a public registry.
    """

    provider: str
    model_id: str
    checked: dt.date
    client_type: str | None = None
    context_window: int | None = None
    max_output: int | None = None
    vision: bool = False
    thinking_levels: tuple[ThinkingLevel, ...] = ()
    thinking_control: ThinkingControl | None = None
    chat_thinks_with_tools: bool = True
    pricing: Pricing | None = None


class _Catalog(Struct, frozen=True, forbid_unknown_fields=True):
    providers: dict[str, ProviderEntry]
    models: list[ModelEntry]


@lru_cache(maxsize=1)
def _catalog() -> _Catalog:
    import tomllib  # noqa: PLC0415 - not needed before the first look-up

    text = Path(__file__).with_name("catalog.toml").read_text("utf-8")
    return convert(tomllib.loads(text), _Catalog)


@lru_cache(maxsize=1)
def _by_pair() -> Mapping[tuple[str, str], ModelEntry]:
    return MappingProxyType({(model.provider, model.model_id): model for model in _catalog().models})


def lookup(provider: str, model_id: str) -> ModelEntry | None:
    """What is known of a model, or ``None``.

    Example::

        lookup("openai", "gpt-5").context_window  # 400000
    """
    return _by_pair().get((provider, model_id))


def provider(name: str) -> ProviderEntry | None:
    """What is known of a provider, or ``None``."""
    return _catalog().providers.get(name)


def providers() -> Mapping[str, ProviderEntry]:
    """All known providers by name."""
    return MappingProxyType(_catalog().providers)


def models() -> tuple[ModelEntry, ...]:
    """All known models, in the order of the file."""
    return tuple(_catalog().models)


def key_variables() -> frozenset[str]:
    """Every environment variable that may hold a provider's key."""
    return frozenset(name for entry in _catalog().providers.values() for name in entry.key_variables)
