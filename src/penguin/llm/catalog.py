"""Known providers and models, from ``catalog.toml``, read when first asked for (L15).

A model is named by the pair ``(provider, model_id)``; neither half is ever guessed from the other. What is known
of a pair is mostly a row of its own. Two kinds of providers have other people's models under names that follow
a rule: one that passes them on (``vendor/model``), and the servers on one's own machine.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct, convert
from msgspec.structs import replace

from penguin.protocol.interfaces import ThinkingControl, ToolCalls
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
    vendors: dict[str, str] = {}

    @property
    def needs_key(self) -> bool:
        """Whether requests without a key are pointless; a server on this machine wants none."""
        return bool(self.key_variables)


class ModelEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model; sizes in tokens, ``None`` means not known. One that cannot be told not to think does not list ``none``.

    ``vision`` is never ``None`` in the file, only for what somebody derived from an open model.

    ``checked`` is the day its numbers were compared with a public registry.
    """

    provider: str
    model_id: str
    checked: dt.date
    client_type: str | None = None
    context_window: int | None = None
    max_output: int | None = None
    vision: bool | None = False
    thinking_levels: tuple[ThinkingLevel, ...] = ()
    thinking_control: ThinkingControl | None = None
    chat_thinks_with_tools: bool = True
    tool_calls: ToolCalls | None = None
    pricing: Pricing | None = None


class OpenModel(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Models whose names begin like ``pattern``, on a server of one's own; see the file about the window."""

    pattern: str
    checked: dt.date
    context_window: int
    vision: bool
    thinking_levels: tuple[ThinkingLevel, ...] = ()
    tool_calls: ToolCalls | None = None


class _Catalog(Struct, frozen=True, forbid_unknown_fields=True):
    providers: dict[str, ProviderEntry]
    models: list[ModelEntry]
    open_models: list[OpenModel]


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
        lookup("openrouter", "openai/gpt-5").context_window  # 400000
        lookup("openai", "gpt-5-2025-08-07").context_window  # 400000
        lookup("ollama", "gpt-oss:20b").context_window  # 32768
    """
    return (
        _by_pair().get((provider, model_id))
        or _dated(provider, model_id)
        or _passed_on(provider, model_id)
        or _open_model(provider, model_id)
    )


def _dated(provider: str, model_id: str) -> ModelEntry | None:
    """A vendor's own name for the model as it was on a day; it is the model of the name without one."""
    name = re.sub(r"-20\d\d(-?)[01]\d\1[0-3]\d$", "", model_id)
    own = _by_pair().get((provider, name)) if name != model_id else None
    return None if own is None else replace(own, model_id=model_id)


@lru_cache(maxsize=1)
def _by_plain_name() -> Mapping[tuple[str, str], ModelEntry]:
    return MappingProxyType({(model.provider, _plain(model.model_id)): model for model in _catalog().models})


def _plain(model_id: str) -> str:
    """The name without the differences in spelling: ``claude-sonnet-4.6`` is Anthropic's ``claude-sonnet-4-6``."""
    return model_id.lower().replace(".", "-")


def _passed_on(provider_name: str, model_id: str) -> ModelEntry | None:
    """The vendor's model as its provider passes it on: in the protocol, and with the levels, of the latter."""
    through = provider(provider_name)
    vendor, _, rest = model_id.partition("/")
    if through is None or vendor not in through.vendors:
        return None
    name, _, variant = rest.partition(":")
    own = _by_plain_name().get((through.vendors[vendor], _plain(name)))
    if own is None:
        return None
    entry = replace(
        own,
        provider=provider_name,
        model_id=model_id,
        client_type=None,
        # What the vendor would refuse (not to think, for one that must) is refused through another as well.
        thinking_levels=tuple(level for level in own.thinking_levels if level in through.thinking_levels),
        thinking_control=None,
        chat_thinks_with_tools=True,
    )
    # `:free`, `:exacto` and the like go to other machines, for another price and often with another window.
    return replace(entry, context_window=None, max_output=None, pricing=None) if variant else entry


_OTHER_BUILDS = re.compile(r"cloud|embed|rerank|guard|asr|tts|omni|audio|speech|ocr|image|mmproj")
# `qwen3_vl`, `llama3-llava-next`, `MiniCPM-Llama3-V`, `InternVL`: eyes that were put on a model without.
_EYES = re.compile(r"(?<![a-z])vlm?(?![a-z])|llava|vision|visual|vila|minicpm|intern|multimodal|(?<![a-z])mm(?![a-z])")
_USUAL_WORD = re.compile(
    r"\d+[bmke]?|[ae]\d+b?|v\d+"  # sizes, dates, versions
    r"|i?q\d\w*|[kmls]|x?xs|xl|nl|b?f(p|loat)?\d+|(mx|nv)fp\d+|int\d+|\d+bit|w\d+a\d+"  # precision
    r"|qat|awq|gptq|bnb|ud|dwq|gguf|mlx|dynamic"
    r"|latest|it|instruct|chat|text|base|thinking|coder|next|distill|small|qwen3?|llama3?"
)


def _open_model(provider_name: str, model_id: str) -> ModelEntry | None:
    server, name = provider(provider_name), re.split(r"[/\\]", model_id.lower())[-1]
    if server is None or not server.local or _OTHER_BUILDS.search(name):
        return None
    fitting = ((each, match) for each in _catalog().open_models if (match := re.match(each.pattern, name)))
    known, match = next(fitting, (None, None))
    if known is None or match is None or (not known.vision and _EYES.search(model_id.lower())):
        return None
    rest = [word for word in re.split(r"[-_.:]", name[match.end() :]) if word]
    derived = not all(_USUAL_WORD.fullmatch(word) for word in rest) and not known.vision
    return ModelEntry(
        provider=provider_name,
        model_id=model_id,
        checked=known.checked,
        context_window=known.context_window,
        vision=None if derived else known.vision,
        thinking_levels=known.thinking_levels,
        tool_calls=known.tool_calls,
        pricing=Pricing(0.0, 0.0, 0.0),
    )


def provider(name: str) -> ProviderEntry | None:
    """What is known of a provider, or ``None``."""
    return _catalog().providers.get(name)


def is_usual_address(name: str, base_url: str | None) -> bool:
    """Whether requests to the provider go where the catalogue says it is; ``None`` as the address means just that.

    Example::

        is_usual_address("openai", "https://proxy.example/v1")  # False
    """
    known = provider(name)
    return known is not None and (base_url or known.base_url).rstrip("/") == known.base_url.rstrip("/")


def usual_client_type(name: str, model_id: str, base_url: str | None) -> str | None:
    """The protocol where nobody named one; ``None`` when the catalogue does not know the provider.

    A model's own protocol holds at its provider's own address only: a proxy has the same models, but may speak
    nothing beyond what every proxy of that provider speaks.

    Example::

        usual_client_type("openai", "gpt-5", None)  # "openai-responses"
        usual_client_type("openai", "gpt-5", "https://proxy.example/v1")  # "openai-chat"
    """
    model, known = lookup(name, model_id), provider(name)
    if model is not None and model.client_type is not None and is_usual_address(name, base_url):
        return model.client_type
    return known.client_type if known is not None else None


def providers() -> Mapping[str, ProviderEntry]:
    """All known providers by name."""
    return MappingProxyType(_catalog().providers)


def models() -> tuple[ModelEntry, ...]:
    """All models that are known by their pair, in the order of the file."""
    return tuple(_catalog().models)


def key_variables() -> frozenset[str]:
    """Every environment variable that may hold a provider's key."""
    return frozenset(name for entry in _catalog().providers.values() for name in entry.key_variables)
