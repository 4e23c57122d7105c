"""The summary a compaction leaves behind: found in the model's reply, wrapped for the next context."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penguin.protocol.blocks import block, read_blocks
from penguin.protocol.messages import Message, Text

_TAGS = re.compile(r"\[/?summary\]")


def summary_of(reply: Sequence[Message]) -> str:
    """The summary text in a reply: the first non-empty ``[summary]`` block, else the text without tags.

    Empty when the reply has no words at all: then there is no usable summary.
    """
    text = "".join(message.payload.text for message in reply if isinstance(message.payload, Text))
    for body in read_blocks("summary", text):
        if body.strip():
            return body.strip()
    return _TAGS.sub("", text).strip() or text.strip()


def context_summary(summary: str) -> str:
    """The text that opens the next context."""
    return block("context_summary", summary)
