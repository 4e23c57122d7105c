"""Anthropic's own SDK against the scripted provider: what it makes of a stream equals what we make of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from penguin.llm.model import GenerativeModel
from penguin.protocol.builders import is_complete_model_message, tool_call_output, user_text
from penguin.protocol.interfaces import GenerateRequest, ModelConfig
from penguin.protocol.messages import Message, Text, Thinking, ToolCall, ToolDefinition
from penguin.testing import (
    ReplyLike,
    ScriptedProvider,
    call,
    cut,
    dripped,
    prepared,
    raw,
    refuse,
    reply,
    say,
    think,
    turn,
)
from penguin.testing import usage as counts
from penguin.testing.replies import Raw as RawReply
from penguin.testing.wire import anthropic_messages

anthropic: Any = pytest.importorskip("anthropic", reason="the official SDK is not installed here")

pytestmark = [
    pytest.mark.anyio,
    # The SDK's HTTP library asks sniffio, which does not see every backend of the parametrised fixture.
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
]

READ = ToolDefinition("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
TOOLS = [{"name": "read_file", "description": "Reads a file.", "input_schema": {"type": "object"}}]
ASK: dict[str, Any] = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "go"}]}
REDACTED = {"type": "redacted_thinking", "data": "Zm9v+/="}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "é"}}
CITATION = {
    "type": "char_location",
    "cited_text": "é",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 1,
}

SCENARIOS: dict[str, ReplyLike] = {
    "text": "Hello there, this is a longer answer: ✅ 你😀",
    "thinking and text": turn(think("I should greet.", fidelity={"signature": "SIG+/=="}), "Hello."),
    "signature only": turn(think("", fidelity={"signature": "SIG+/=="}), call("read_file", id="toolu_1")),
    "parallel calls": turn(
        "Both.",
        call("read_file", {"path": "a.txt", "n": 1.5}, id="toolu_1"),
        call("read_file", {"path": "ü"}, id="toolu_2"),
        usage=counts(cache_read=300, cache_write=30, output=7),
    ),
    "empty arguments": call("read_file", "", id="toolu_1"),
    "redacted thinking": turn(think("", fidelity={"content_block": REDACTED}), "Hm."),
    "server tool and citation": turn(
        think("", fidelity={"content_block": SEARCH}), say("It is é.", fidelity={"citations": [CITATION]})
    ),
    "byte by byte": dripped("Drip, drop."),
    "cut at the limit": reply("Half a sent", finish_reason="length"),
}


@asynccontextmanager
async def serving(*replies: ReplyLike) -> AsyncIterator[tuple[ScriptedProvider, Any]]:
    async with (
        ScriptedProvider(replies) as provider,
        anthropic.AsyncAnthropic(api_key="k", base_url=provider.host_url, max_retries=0) as client,
    ):
        yield provider, client


async def by_sdk(client: Any, **request: Any) -> Any:
    async with client.messages.stream(**ASK | request) as stream:
        return await stream.get_final_message()


async def by_us(provider: ScriptedProvider) -> tuple[list[Message], str]:
    model = our_model(provider)
    emitted: list[Message] = []
    outcome = await model.stream_generate(GenerateRequest([user_text("go")]), emitted.append)
    await model.aclose()
    return emitted, outcome.status


def our_model(server: ScriptedProvider, **changes: Any) -> GenerativeModel:
    settings = {"provider": "custom", "model_id": "m", "client_type": "anthropic-messages"} | changes
    return GenerativeModel(ModelConfig(base_url=server.host_url, **settings))


def as_blocks(emitted: list[Message]) -> list[dict[str, Any]]:
    """Our messages as the blocks they came from."""
    return [_as_block(message) for message in emitted if is_complete_model_message(message)]


def _as_block(message: Message) -> dict[str, Any]:
    opaque = getattr(message.payload, "fidelity", None)
    fidelity = json.loads(bytes(opaque)) if isinstance(opaque, Raw) else {}
    match message.payload:
        case Text(text=text):
            return {"type": "text", "text": text, **fidelity}
        case Thinking(thinking=thinking):
            return fidelity.get("content_block") or {"type": "thinking", "thinking": thinking, **fidelity}
        case ToolCall(name=name, arguments=arguments, tool_call_id=call_id):
            return {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}
        case payload:
            raise AssertionError(payload)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_sdk_and_we_read_the_same(name: str) -> None:
    async with serving(SCENARIOS[name], SCENARIOS[name]) as (provider, client):
        message = await by_sdk(client)
        emitted, status = await by_us(provider)
    assert status == "completed"
    theirs = [block.to_dict() for block in message.content]
    assert as_blocks(emitted) == [{k: v for k, v in block.items() if v is not None} for block in theirs]
    usage = emitted[-1].payload
    assert usage.request.cache_read == message.usage.cache_read_input_tokens  # type: ignore[union-attr]
    assert usage.request.output == message.usage.output_tokens  # type: ignore[union-attr]


async def test_the_sdk_completes_a_loop_with_tools_and_sends_what_we_send() -> None:
    script: list[ReplyLike] = [SCENARIOS["parallel calls"], turn(think("Hm", fidelity={"signature": "S"}), "Done.")]
    async with serving(*script, "Again.") as (provider, client):
        first = await by_sdk(client, tools=TOOLS)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "hi"}]}
            for block in first.content
            if block.type == "tool_use"
        ]
        messages = [
            *ASK["messages"],
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results},
        ]
        second = await by_sdk(client, tools=TOOLS, messages=messages)
        messages += [{"role": "assistant", "content": second.content}, {"role": "user", "content": "More?"}]
        third = await by_sdk(client, tools=TOOLS, messages=messages)
        assert [block.text for block in third.content] == ["Again."]
    async with ScriptedProvider([*script, "Again."]) as ours:
        model = our_model(ours)
        for new in (
            [user_text("go")],
            [tool_call_output("hi", "toolu_1"), tool_call_output("hi", "toolu_2")],
            [user_text("More?")],
        ):
            outcome = await model.stream_generate(GenerateRequest(list(new)), lambda _: None)
            assert outcome.status == "completed"
        await model.aclose()
    assert [_turns(request.body) for request in ours.requests] == [
        _turns(request.body) for request in provider.requests
    ]


def _turns(body: dict[str, Any]) -> list[Any]:
    """The messages without what the two say differently: markers, nulls, and plain text in place of a block."""
    return [[message["role"], _blocks(message["content"])] for message in body["messages"]]


def _blocks(content: Any) -> list[dict[str, Any]]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [
        {key: value for key, value in block.items() if key != "cache_control" and value is not None} for block in blocks
    ]


async def test_our_requests_are_of_the_types_of_the_sdk() -> None:
    async with ScriptedProvider([SCENARIOS["thinking and text"], "b"]) as provider:
        model = our_model(provider, provider="anthropic", model_id="claude-opus-5", tools=[READ], system_prompt="x")
        for words in ("a", "b"):
            request = GenerateRequest([user_text(words)], thinking_level="high")
            assert (await model.stream_generate(request, lambda _: None)).status == "completed"
        await model.aclose()
    from pydantic import TypeAdapter  # noqa: PLC0415 - comes with the SDK

    shape = TypeAdapter(anthropic.types.message_create_params.MessageCreateParamsStreaming)
    for sent in provider.requests:
        shape.validate_python(sent.body)


@pytest.mark.parametrize(
    ("status", "name"),
    [(400, "BadRequestError"), (401, "AuthenticationError"), (429, "RateLimitError"), (529, "OverloadedError")],
)
async def test_refusals_are_the_errors_of_the_sdk(status: int, name: str) -> None:
    async with serving(refuse(status, "the provider's words")) as (_, client):
        with pytest.raises(anthropic.APIStatusError, match="the provider's words") as caught:
            await by_sdk(client)
    assert caught.value.status_code == status
    assert type(caught.value).__name__ in {name, "InternalServerError"}


async def test_an_error_inside_the_stream_is_one_for_the_sdk_too() -> None:
    begun = prepared("Partial words", wire=anthropic_messages.WIRE).content
    assert isinstance(begun, RawReply)
    broken = begun.body.partition(b"event: content_block_stop")[0]
    async with serving(raw(broken + anthropic_messages.error_event("overloaded_error", "Overloaded"))) as (_, client):
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            await by_sdk(client)


async def test_a_connection_that_breaks_is_an_error_for_the_sdk_too() -> None:
    async with serving(cut("Hello there, a longer answer.", after=400)) as (_, client):
        with pytest.raises(Exception, match=r"(?i)connection|incomplete|read|closed|peer"):
            await by_sdk(client)


async def test_the_sdk_reads_a_reply_that_is_not_streamed() -> None:
    async with serving(SCENARIOS["parallel calls"]) as (_, client):
        message = await client.messages.create(**ASK)
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]
    assert message.stop_reason == "tool_use"
