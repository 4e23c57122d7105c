"""What a caller may hand over as a prompt, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from penguin.protocol.builders import user_text
from penguin.protocol.messages import ImageUrl, InlineData, Message, OmniMessage, Text

Prompt: TypeAlias = str | Message | Sequence[Message]
"""A string, one message, or several: words and images of the user."""


def as_messages(prompt: Prompt) -> list[Message]:
    """The prompt as user-side messages; words that say nothing are left out, no provider takes them.

    Raises:
        TypeError: something in it is not a message.
        ValueError: a message is not one a user can say.

    Example::

        as_messages("hi")[0].payload.text  # "hi"
    """
    if isinstance(prompt, str):
        return [user_text(prompt)] if prompt.strip() else []
    _check_form(prompt)
    messages = [prompt] if isinstance(prompt, OmniMessage) else list(prompt)
    for message in messages:
        _check(message)
    return [message for message in messages if not isinstance(message.payload, Text) or message.payload.text.strip()]


def _check_form(prompt: object) -> None:
    if not isinstance(prompt, OmniMessage | Sequence):
        raise TypeError(f"a prompt is a string or messages (user_text, image_url), not {type(prompt).__name__}")


def _check(message: object) -> None:
    if not isinstance(message, OmniMessage):
        raise TypeError(
            f"a prompt is a string or messages (user_text, image_url), not {type(message).__name__}: {message!r:.80}"
        )
    match message.payload:
        case Text(role="user") | ImageUrl() | InlineData(role="user"):
            pass
        case payload:
            raise ValueError(f"a prompt holds what a user says; {type(payload).__name__} is not part of that")
