"""A model over a transport in memory: bytes in, messages out, no sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from penguin.llm.model import GenerativeModel
from penguin.llm.transport import HttpRequest, HttpResponse
from penguin.protocol.builders import is_complete_model_message, user_text
from penguin.protocol.interfaces import GenerateRequest, LLMOutcome, ModelConfig
from penguin.protocol.messages import Message, Text, Thinking, TokenUsage, ToolCall, ToolDefinition
from penguin.testing.framing import assert_well_framed

TOOLS = [
    ToolDefinition(name, f"does {name}", {"type": "object", "properties": {}})
    for name in ("read_file", "write_file", "exec_command", "list_tasks")
]
Step = bytes | Exception | Callable[[], Awaitable[None]]


@dataclass
class Answer:
    """One response: chunks of bytes, errors to raise and things to wait for, in order."""

    steps: Iterable[Step]
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})


class MemoryTransport:
    """Answers one request after the other; remembers what was sent and how often a response was closed."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[HttpRequest] = []
        self.closed = 0

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        try:
            yield HttpResponse(answer.status, answer.headers, _chunks(answer.steps))
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        return None

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.body) for request in self.requests]


async def _chunks(steps: Iterable[Step]) -> AsyncIterator[bytes]:
    for step in steps:
        match step:
            case bytes():
                yield step
            case Exception():
                raise step
            case _:
                await step()


@dataclass
class Said:
    """What an attempt emitted and how it ended."""

    messages: list[Message]
    outcome: LLMOutcome

    def complete(self) -> list[Message]:
        return [message for message in self.messages if is_complete_model_message(message)]

    def texts(self) -> list[str]:
        return [m.payload.text for m in self.messages if isinstance(m.payload, Text)]

    def thoughts(self) -> list[str]:
        return [m.payload.thinking for m in self.messages if isinstance(m.payload, Thinking)]

    def calls(self) -> list[ToolCall]:
        return [m.payload for m in self.messages if isinstance(m.payload, ToolCall)]

    def usage(self) -> TokenUsage:
        """What was counted; it must be the last message."""
        payload = self.messages[-1].payload
        assert isinstance(payload, TokenUsage)
        return payload

    def stop_reasons(self) -> list[str | None]:
        return [m.payload.stop_reason for m in self.messages if isinstance(m.payload, Text | Thinking | ToolCall)]

    def pairs(self) -> list[tuple[str, str]]:
        return [(call.name, call.arguments) for call in self.calls() if call.stop_reason is None]


def config(**changes: Any) -> ModelConfig:
    settings: dict[str, Any] = {
        "provider": "custom",
        "model_id": "m",
        "base_url": "http://127.0.0.1:9/v1",
        "tools": TOOLS,
        "tool_calls": "native",
    }
    return ModelConfig(**settings | changes)


def model(*answers: Answer | Exception, **changes: Any) -> tuple[GenerativeModel, MemoryTransport]:
    transport = MemoryTransport(*answers)
    return GenerativeModel(config(**changes), transport=transport), transport


async def ask(one: GenerativeModel, *messages: Message) -> Said:
    """One attempt; what it emits must be well framed whatever happens."""
    emitted: list[Message] = []
    outcome = await one.stream_generate(GenerateRequest(list(messages) or [user_text("go")]), emitted.append)
    assert_well_framed(emitted)
    return Said(emitted, outcome)


async def fold(*steps: Step, **changes: Any) -> Said:
    """One attempt over these bytes."""
    return await ask(model(Answer(steps), **changes)[0])


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One event of a Chat Completions stream."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    document = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(document | more, ensure_ascii=False).encode() + b"\n\n"


def text(words: str) -> bytes:
    return chunk({"content": words})


def call(arguments: Any = None, **piece: Any) -> bytes:
    """A piece of a tool call; ``name`` and ``arguments`` go into the function."""
    function = {"name": piece.pop("name", None), "arguments": arguments}
    function = {key: value for key, value in function.items() if value is not None}
    return chunk({"tool_calls": [piece | ({"function": function} if function else {})]})


def usage(prompt: int = 7, completion: int = 1, **more: Any) -> bytes:
    return chunk(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion} | more)


STOP = chunk(finish="stop")
CALLS = chunk(finish="tool_calls")
DONE = b"data: [DONE]\n\n"
