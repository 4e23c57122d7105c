"""Leaving out an item that a provider refuses for good, in the model's view only (E26)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from penguin.protocol.interfaces import ModelError
from penguin.protocol.messages import (
    UNSET,
    ImageUrl,
    InlineData,
    InlineThinking,
    Message,
    OmniMessage,
    Text,
    Thinking,
    ToolCallOutput,
)

_ABOUT_IMAGES = re.compile(
    r"\b(images?|image_url|pictures?|photos?|pixels?|media[ _]types?|vision|multimodal)\b", re.IGNORECASE
)
# Words of servers that could not read a part and do not say of what kind it was.
_ABOUT_A_PART = re.compile(
    r"\b(contents?|parts?|base64|mime|mime_type|decod\w*|inline_?data|media|data ur[li]|unprocessable|attachments?)\b",
    re.IGNORECASE,
)
_ABOUT_REASONING = re.compile(r"\b(signatures?|thinking|reasoning|encrypted_content|thought)\b", re.IGNORECASE)
_IMAGE_LEFT_OUT = "[an image was left out here: the provider could not read it]"


class View:
    """What the model is shown of the messages: the same, but for items that were hidden.

    Nothing of it is recorded: a resumed session is refused once more and finds the item again.
    """

    def __init__(self) -> None:
        self._shown: dict[int, Message] = {}
        self._originals: list[Message] = []  # keeps the ids in use

    def of(self, messages: Sequence[Message]) -> list[Message]:
        """The messages as they are shown."""
        if not self._shown:
            return list(messages)
        return [self._shown.get(id(message), message) for message in messages]

    def isolate(self, error: ModelError, history: Sequence[Message], new: Sequence[Message]) -> str | None:
        """Hide what the error names or implies; says what was left out, ``None`` when nothing fits.

        Only the newest images go while there are some: those of the request that was refused.
        """
        if _ABOUT_REASONING.search(error.message):
            hidden = self._hide(history, _without_reasoning)
            return "the reasoning of earlier turns, which the provider no longer accepts" if hidden else None
        about_images = _ABOUT_IMAGES.search(error.message) is not None
        hidden = 0
        if about_images or _ABOUT_A_PART.search(error.message):
            hidden = self._hide(new, _without_image)
        if not hidden and about_images:
            hidden = self._hide(history, _without_image)
        return f"{hidden} image{'s' * (hidden > 1)} the provider could not read" if hidden else None

    def _hide(self, messages: Iterable[Message], without: Callable[[Message], Message | None]) -> int:
        hidden = 0
        for message in messages:
            shown = without(message) if id(message) not in self._shown else None
            if shown is not None:
                self._shown[id(message)] = shown
                self._originals.append(message)
                hidden += 1
        return hidden


def _without_image(message: Message) -> Message | None:
    match message.payload:
        case ImageUrl(role=role) | InlineData(role=role):
            return OmniMessage(message.timestamp, "model_msg", Text(role, _IMAGE_LEFT_OUT))
        case ToolCallOutput(output=output, images=[_, *_]) as payload:
            shorter = msgspec.structs.replace(payload, output=f"{output}\n{_IMAGE_LEFT_OUT}".lstrip(), images=None)
            return msgspec.structs.replace(message, payload=shorter)
        case _:
            return None


def _without_reasoning(message: Message) -> Message | None:
    match message.payload:
        case Thinking() | InlineThinking() as payload if payload.fidelity is not UNSET:
            return msgspec.structs.replace(message, payload=msgspec.structs.replace(payload, fidelity=UNSET))
        case _:
            return None
