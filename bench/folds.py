"""What folding one delta costs in each protocol, decoding its JSON left out; no sockets, no clocks of the model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from _measure import Report, cpu_seconds, median

from penguin.llm.adapter import StreamFold
from penguin.llm.providers import anthropic_messages_wire, gemini_fold, openai_chat_wire, openai_responses_fold
from penguin.llm.providers.anthropic_messages_fold import MessagesFold
from penguin.llm.providers.gemini_fold import GeminiFold
from penguin.llm.providers.openai_chat_fold import ChatFold
from penguin.llm.providers.openai_responses_fold import ResponsesFold
from penguin.llm.segments import Segments
from penguin.llm.sse import StreamEvent
from penguin.protocol.call_ids import ToolCallIdAllocator

DELTAS = 50_000
ROUNDS = 7
TARGET = 8.0

Decode = Callable[[bytes], object]
Stream = tuple[Callable[[Segments], StreamFold], Decode, list[StreamEvent], StreamEvent]
"""A fold, how it decodes, the events before the deltas, and one delta."""


def event(**members: Any) -> StreamEvent:
    """One event as it comes out of the splitter."""
    return StreamEvent(json.dumps(members).encode(), members.get("type", ""))


def anthropic(block: dict[str, Any], delta: dict[str, Any]) -> Stream:
    """A block of Anthropic Messages with many deltas."""
    opening = event(type="content_block_start", index=0, content_block=block)
    return (
        MessagesFold,
        anthropic_messages_wire.read,
        [opening],
        event(type="content_block_delta", index=0, delta=delta),
    )


def chat(**delta: Any) -> Stream:
    """Chunks of Chat Completions with one delta each; the first one opens what the delta adds to."""
    named = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "t", "arguments": ""}}]}
    opening = [_chat_chunk(named)] if "tool_calls" in delta else []
    return (ChatFold, openai_chat_wire.read, opening, _chat_chunk(delta))


def _chat_chunk(delta: dict[str, Any]) -> StreamEvent:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    return event(id="r", object="chat.completion.chunk", created=1, model="m", choices=[choice])


def responses(item: dict[str, Any], what: str, **delta: Any) -> Stream:
    """An output item of Responses with many deltas."""
    opening = event(type="response.output_item.added", output_index=0, item={"id": "i", **item})
    where = {"sequence_number": 7, "item_id": "i", "output_index": 0}
    piece = event(type=f"response.{what}.delta", **where, delta="abcdefgh", **delta)
    return (ResponsesFold, openai_responses_fold.event_reader.read, [opening], piece)


def gemini(**part: Any) -> Stream:
    """Chunks of Gemini with one part each, as its server sends them."""
    content = {"parts": [{"text": "abcdefgh", **part}], "role": "model"}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
    chunk = {"candidates": [{"content": content, "index": 0}], "usageMetadata": usage, "modelVersion": "m"}
    return (GeminiFold, gemini_fold.reader.read, [], StreamEvent(json.dumps(chunk).encode()))


STREAMS: dict[str, Stream] = {
    "openai-chat, text": chat(content="abcdefgh"),
    "openai-chat, thinking": chat(reasoning_content="abcdefgh"),
    "openai-chat, arguments": chat(tool_calls=[{"index": 0, "function": {"arguments": "abcdefgh"}}]),
    "anthropic-messages, text": anthropic({"type": "text", "text": ""}, {"type": "text_delta", "text": "abcdefgh"}),
    "anthropic-messages, thinking": anthropic(
        {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "abcdefgh"}
    ),
    "anthropic-messages, arguments": anthropic(
        {"type": "tool_use", "id": "c", "name": "t", "input": {}},
        {"type": "input_json_delta", "partial_json": "abcdefgh"},
    ),
    "openai-responses, text": responses({"type": "message"}, "output_text", content_index=0, logprobs=[]),
    "openai-responses, thinking": responses({"type": "reasoning"}, "reasoning_summary_text", summary_index=0),
    "openai-responses, arguments": responses(
        {"type": "function_call", "call_id": "c", "name": "t"}, "function_call_arguments"
    ),
    "gemini, text": gemini(),
    "gemini, thinking": gemini(thought=True),
}


def folding(stream: Stream) -> float:
    """CPU seconds of folding all deltas, decoding included."""
    make, _, opening, delta = stream
    fold = make(Segments(lambda _: None, ToolCallIdAllocator()))
    for one in opening:
        fold.fold(one)
    before = cpu_seconds()
    for _ in range(DELTAS):
        fold.fold(delta)
    return cpu_seconds() - before


def decoding(stream: Stream) -> float:
    """CPU seconds of decoding alone."""
    _, decode, _, delta = stream
    before = cpu_seconds()
    for _ in range(DELTAS):
        decode(delta.data)
    return cpu_seconds() - before


def main() -> int:
    report = Report()
    for name, stream in STREAMS.items():
        rounds = [(folding(stream), decoding(stream)) for _ in range(ROUNDS)]
        report.figure(f"a delta folded: {name}", median(a - b for a, b in rounds) / DELTAS * 1e6, "us CPU", TARGET)
        report.figure("  decoding it", median(b for _, b in rounds) / DELTAS * 1e6, "us CPU")
    return report.status


if __name__ == "__main__":
    sys.exit(main())
