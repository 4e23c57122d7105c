"""What is known of one configured model: its own entry first, then the catalogue (L15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from msgspec import Struct

from penguin.llm import catalog
from penguin.protocol.interfaces import ModelConfig, ThinkingControl
from penguin.protocol.messages import ThinkingLevel

CONTROLS: Mapping[str, tuple[str, ...]] = {
    "openai-chat": get_args(catalog.ThinkingStyle),
    "openai-responses": (),
    "anthropic-messages": ("budget", "adaptive", "adaptive-on", "adaptive-between-tools"),
    "gemini": ("budget", "level"),
}
"""The words of ``ThinkingControl`` by the protocol that understands them."""


CHAT_LEVELS: Mapping[str, tuple[ThinkingLevel, ...]] = {
    "effort": ("low", "medium", "high"),
    "openrouter": ("none", "low", "medium", "high", "xhigh"),
    "type": ("none", "high"),
    "type-and-effort": ("none", "low", "medium", "high"),
    "enable": ("none", "high"),
}
"""What a control of Chat Completions can express, for an entry that names it and no levels. ``effort`` has no ``none``:
only some servers have that word for it, and refuse the others."""


class Known(Struct, frozen=True):
    """Sizes in tokens. ``thinking_levels`` is ``None`` when nobody knows, and empty when the model does not think.

    ``chat_thinks_with_tools`` is false when Chat Completions refuses tools and thinking in one request.
    """

    context_window: int | None
    max_output: int | None
    thinking_levels: tuple[ThinkingLevel, ...] | None
    thinking_control: ThinkingControl | None
    chat_thinks_with_tools: bool = True


def known_of(config: ModelConfig) -> Known:
    """What holds for the model, wherever it comes from.

    Example::

        known_of(ModelConfig("google", "gemini-2.5-pro", max_output=9_000)).max_output  # 9000
        known_of(ModelConfig("custom", "m")).thinking_levels  # None
    """
    row = catalog.lookup(config.provider, config.model_id)
    levels = config.thinking_levels
    if levels is None and row is not None:
        levels = row.thinking_levels
    if config.thinking_levels is None:
        levels = levels or levels_of_control(config.thinking_control, levels)
    return Known(
        config.context_window or (row.context_window if row else None),
        config.max_output or (row.max_output if row else None),
        levels,
        config.thinking_control or (row.thinking_control if row else None),
        row.chat_thinks_with_tools if row else True,
    )


def levels_of_control(
    control: str | None, otherwise: tuple[ThinkingLevel, ...] | None = None
) -> tuple[ThinkingLevel, ...] | None:
    """The levels that an entry's control stands for where nobody names any: over Chat it had no effect otherwise.

    Example::

        levels_of_control("enable")  # ("none", "high")
        levels_of_control("budget")  # None
    """
    return CHAT_LEVELS.get(control or "", otherwise)


class Unfit(Struct, frozen=True):
    """A setting that a protocol has no words for, and why in words that follow its name."""

    setting: str
    why: str


def unfit_setting(config: ModelConfig, client_type: str) -> Unfit | None:
    """What would be ignored: the model then thinks as it likes, or is sent tools that its server refuses.

    Example::

        unfit_setting(ModelConfig("custom", "m", thinking_control="effort"), "gemini").setting  # "thinking_control"
    """
    if config.tool_calls == "text" and client_type != "openai-chat":
        way_out = "set client_type to openai-chat, or take the key out"
        return Unfit("tool_calls", f'"text" is not known to {client_type}: {way_out}')
    control, fitting = config.thinking_control, CONTROLS[client_type]
    if control is None or control in fitting:
        return None
    allowed = f"allowed: {', '.join(fitting)}" if fitting else "it has one way only: take the key out"
    return Unfit("thinking_control", f"{control!r} is not known to {client_type}; {allowed}")
