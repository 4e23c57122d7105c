"""What is known of a model that was just connected, and what nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from penguin.agent.models import described

if TYPE_CHECKING:
    from penguin.agent.models import ModelChoice
    from penguin.llm.catalog import ModelEntry as CatalogueEntry
    from penguin.state.project import ModelEntry, ProjectConfig


def what_is_known(project: ProjectConfig, entry: ModelEntry) -> Iterator[str]:
    """Lines for a person: what the catalogue fills in where the entry says nothing, and what stays open."""
    choice = described(project, entry.ref)
    if filled := list(_filled_in(choice)):
        known = choice.known
        since = f" (checked {known.checked})" if known is not None else ""
        yield f"From the catalogue{since}: {', '.join(filled)}"
    if missing := list(_unknown(choice)):
        yield f"Nobody knows {'; '.join(missing)}"
    if choice.provider is not None and choice.provider.local and entry.context_window is None:
        yield (
            "How much a server on this machine reads is for it to choose when it loads the model, often less than the"
            " model can: if it is not that, say how much with --context-window"
        )


def _filled_in(choice: ModelChoice) -> Iterator[str]:
    entry, known, provider = choice.entry, choice.known, choice.provider
    if entry.client_type is None and choice.client_type:
        yield choice.client_type
    if entry.base_url is None and provider is not None:
        yield f"at {provider.base_url}"
    if known is None:
        return
    if entry.context_window is None and known.context_window:
        yield f"reads {known.context_window:,} tokens"
    if entry.max_output is None and known.max_output:
        yield f"writes up to {known.max_output:,}"
    if entry.vision is None and known.vision is not None:
        yield "takes images" if known.vision else "takes no images"
    if entry.tool_calls is None and choice.known_tool_calls == "text":
        yield "writes its calls as text"
    if entry.thinking_levels is None and known.thinking_levels:
        yield f"thinks on the levels {' '.join(known.thinking_levels)}" + _but(choice, known)
    if entry.pricing is None and known.pricing is not None and not any(astuple(known.pricing)):
        yield "costs nothing"
    elif entry.pricing is None and (prices := known.pricing) is not None:
        yield (
            f"${prices.cache_read:g} for a million tokens from the cache, ${prices.cache_write:g} for other input,"
            f" ${prices.output:g} for output"
        )


def _but(choice: ModelChoice, known: CatalogueEntry) -> str:
    silent = choice.speaks_chat and not known.chat_thinks_with_tools
    return " (not together with tools over openai-chat)" if silent else ""


def _unknown(choice: ModelChoice) -> Iterator[str]:
    entry, known = choice.entry, choice.known
    if choice.context_window is None:
        yield "how much it can read: 128,000 tokens are assumed (--context-window)"
    if entry.vision is None and (known is None or known.vision is None):
        yield "whether it takes images: it is sent them (--no-vision)"
    if choice.prices is None:
        yield "what it costs: nothing is counted (--pricing)"
