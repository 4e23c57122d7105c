"""Summary requests for a context that no longer fits: smaller inputs, never sent twice (E15)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penguin.protocol.builders import user_text
from penguin.protocol.messages import Message, Text, Thinking, ToolCall, ToolCallOutput

_CLIPPED_OUTPUT = 2_000
_CHARACTERS_A_TOKEN = 3  # on the safe side: prose has about four


def clipped_input(messages: Sequence[Message]) -> list[Message]:
    """The same input with long tool outputs cut to their head and tail and without their images."""
    return [_clipped(message) for message in messages]


def _clipped(message: Message) -> Message:
    match message.payload:
        case ToolCallOutput(output=output) as payload if len(output) > _CLIPPED_OUTPUT or payload.images:
            shorter = msgspec.structs.replace(payload, output=_middle_out(output, _CLIPPED_OUTPUT), images=None)
            return msgspec.structs.replace(message, payload=shorter)
        case _:
            return message


def transcript_input(history: Sequence[Message], request: Sequence[Message], room: int) -> list[Message]:
    """The conversation as one text that fits into ``room`` tokens, then the request for the summary.

    For a context of its own: the old one is too large to be sent at all. The middle is left out first,
    since the beginning holds the goal and the end the state of the work.
    """
    *earlier, ask = request
    lines = [line for message in [*history, *earlier] if (line := _told(message))]
    transcript = _middle_out("\n\n".join(lines), max(room * _CHARACTERS_A_TOKEN, 4 * _CLIPPED_OUTPUT))
    return [user_text(f"This is the conversation so far, as a transcript:\n\n{transcript}"), ask]


def _told(message: Message) -> str:
    match message.payload:
        case Text(role=role, text=text):
            return f"{role}: {text}"
        case Thinking():
            return ""
        case ToolCall(name=name, arguments=arguments):
            return f"assistant calls {name}: {_middle_out(arguments, _CLIPPED_OUTPUT)}"
        case ToolCallOutput(output=output):
            return f"result: {_middle_out(output, _CLIPPED_OUTPUT)}"
        case payload:
            return f"[{type(payload).__name__}]"


def _middle_out(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
