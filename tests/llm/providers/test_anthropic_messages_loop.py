"""Anthropic Messages over real sockets: a loop of turns, resume, and what the original sent."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from penguin.llm.model import GenerativeModel, create_model
from penguin.protocol.builders import is_complete_model_message, tool_call_output, user_text
from penguin.protocol.codec import decode
from penguin.protocol.interfaces import GenerateRequest, LLMOutcome, ModelConfig
from penguin.protocol.messages import Message, Thinking, TokenUsage, ToolCall, ToolDefinition
from penguin.testing import ReplyLike, ScriptedProvider, call, cut, dripped, fail, raw, refuse, say, think, turn, usage
from penguin.testing.framing import assert_well_framed
from penguin.testing.provider_server import prepared
from penguin.testing.replies import Raw
from penguin.testing.wire import anthropic_messages

pytestmark = pytest.mark.anyio

READ = ToolDefinition("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LOOP: list[ReplyLike] = [
    turn(
        think("Both at once.", fidelity={"signature": "SIG/1+=="}),
        say("I read both."),
        call("read_file", '{"path": "a.txt", "n": 1.0}', id="toolu_1"),
        call("read_file", {"path": "b.txt"}, id="toolu_2"),
        usage=usage(cache_read=0, cache_write=40, output=9),
    ),
    turn(
        think("", fidelity={"signature": "SIG/2+=="}),
        think("", fidelity={"content_block": {"type": "redacted_thinking", "data": "Zm9v+/="}}),
        call("read_file", "", id="toolu_3"),
        usage=usage(cache_read=40, cache_write=10, output=5),
    ),
    turn(say("Both say hi.", fidelity={"citations": [{"type": "char_location", "cited_text": "hi"}]})),
]


def new_model(provider: ScriptedProvider, **changes: Any) -> GenerativeModel:
    settings = {"client_type": "ant-messages", "base_url": provider.host_url, "api_key": "sk-ant-secret-key"}
    made = create_model(ModelConfig("custom", "m", system_prompt="Be brief.", tools=[READ], **settings | changes))
    assert isinstance(made, GenerativeModel)
    return made


async def ask(model: GenerativeModel, *messages: Message) -> tuple[LLMOutcome, list[Message]]:
    emitted: list[Message] = []
    outcome = await model.stream_generate(GenerateRequest(list(messages)), emitted.append)
    assert_well_framed(emitted)
    return outcome, emitted


def complete(emitted: list[Message]) -> list[Message]:
    return [message for message in emitted if is_complete_model_message(message)]


def unmarked(raw_body: bytes) -> bytes:
    return raw_body.replace(b',"cache_control":{"type":"ephemeral"}', b"")


INPUTS: list[list[Message]] = [
    [user_text("Read a.txt and b.txt.")],
    [tool_call_output("hi", "toolu_1"), tool_call_output("hi", "toolu_2")],
    [tool_call_output("", "toolu_3")],
]


async def test_a_loop_of_turns_and_its_resume_send_the_same_bytes() -> None:
    trace: list[Message] = []
    async with ScriptedProvider([*LOOP, "Yes.", "Yes."]) as provider:
        live = new_model(provider)
        for given in INPUTS:
            outcome, emitted = await ask(live, *given)
            assert outcome.status == "completed"
            trace += [*given, *complete(emitted)]
        await ask(live, user_text("Sure?"))
        await live.aclose()

        # A resumed model knows the lines of the trace only.
        resumed = new_model(provider)
        resumed.set_history([decode(message.line) for message in trace])
        await ask(resumed, user_text("Sure?"))
        await resumed.aclose()
    provider.assert_exhausted()

    bodies = [request.raw for request in provider.requests]
    assert bodies[4] == bodies[3]
    for earlier, later in itertools.pairwise(bodies[:4]):
        assert unmarked(later).startswith(unmarked(earlier).removesuffix(b"]}"))
    assert {request.path for request in provider.requests} == {"/v1/messages"}

    last = json.loads(bodies[3])
    assert [message["role"] for message in last["messages"]] == ["user", "assistant"] * 3 + ["user"]
    assert last["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Both at once.", "signature": "SIG/1+=="},
        {"type": "text", "text": "I read both."},
        {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.txt", "n": 1.0}},
        {"type": "tool_use", "id": "toolu_2", "name": "read_file", "input": {"path": "b.txt"}},
    ]
    assert last["messages"][3]["content"] == [
        {"type": "thinking", "thinking": "", "signature": "SIG/2+=="},
        {"type": "redacted_thinking", "data": "Zm9v+/="},
        {"type": "tool_use", "id": "toolu_3", "name": "read_file", "input": {}},
    ]
    assert last["messages"][5]["content"][0]["citations"] == [{"type": "char_location", "cited_text": "hi"}]
    assert b'"n":1.0' in bodies[3]


async def test_nothing_is_shown_as_thinking_where_there_is_only_a_signature() -> None:
    async with ScriptedProvider(LOOP[1:2]) as provider:
        model = new_model(provider)
        _, emitted = await ask(model, user_text("go"))
        await model.aclose()
    assert [m.payload.thinking for m in emitted if isinstance(m.payload, Thinking)] == ["", ""]


async def test_usage_tells_the_cache_apart() -> None:
    async with ScriptedProvider(LOOP[:2]) as provider:
        model = new_model(provider)
        await ask(model, *INPUTS[0])
        _, emitted = await ask(model, *INPUTS[1])
        await model.aclose()
    counted = emitted[-1].payload
    assert isinstance(counted, TokenUsage)
    assert (counted.request.cache_read, counted.request.cache_write, counted.request.output) == (40, 10, 5)


async def test_byte_by_byte_is_the_same() -> None:
    async with ScriptedProvider([LOOP[0], dripped(LOOP[0])]) as provider:  # type: ignore[arg-type]
        model, again = new_model(provider), new_model(provider)
        _, whole = await ask(model, user_text("go"))
        _, dripping = await ask(again, user_text("go"))
        await model.aclose()
        await again.aclose()
    assert [m.payload for m in whole] == [m.payload for m in dripping]


@pytest.mark.parametrize(
    ("reply", "status", "kind"),
    [
        (refuse(529, "Overloaded"), "timeout", "overloaded"),
        (refuse(429, "slow down", retry_after="7"), "timeout", "rate_limit"),
        (refuse(401, "invalid x-api-key"), "failed", "auth"),
        (refuse(413, "too large"), "failed", "context_overflow"),
        (refuse(400, "prompt is too long: 3 tokens > 2 maximum"), "failed", "context_overflow"),
        (turn(call("read_file", {"path": "a"}), fault=fail("malformed", after=1)), "malformed", "network"),
        (turn(call("read_file", {"a": 1}), fault=fail("malformed", after=1, cut_off=True)), "malformed", "malformed"),
        (turn(fault=fail("timeout", "overloaded", http_status=503, after=0)), "timeout", "overloaded"),
        (cut("Hello.", after=300), "malformed", "network"),
        (raw("<html>Sign in</html>", content_type="text/html"), "malformed", "malformed"),
    ],
)  # fmt: skip
async def test_faults_of_the_scripted_provider(reply: ReplyLike, status: str, kind: str) -> None:
    async with ScriptedProvider([reply]) as provider:
        model = new_model(provider)
        outcome, emitted = await ask(model, user_text("go"))
        await model.aclose()
    assert outcome.error is not None
    assert (outcome.status, outcome.error.kind) == (status, kind)
    assert all(m.payload.stop_reason for m in emitted if isinstance(m.payload, ToolCall))
    assert "sk-ant-secret-key" not in repr(outcome)


async def test_D09_an_error_in_the_middle_then_a_good_answer() -> None:
    begun = prepared("Partial words", wire=anthropic_messages.WIRE).content
    assert isinstance(begun, Raw)
    broken = begun.body.partition(b"event: content_block_stop")[0]
    overloaded = raw(broken + anthropic_messages.error_event("overloaded_error", "Overloaded"))
    async with ScriptedProvider([overloaded, "A good answer."]) as provider:
        model = new_model(provider)
        outcome, _ = await ask(model, user_text("go"))
        assert outcome.error is not None
        assert (outcome.status, outcome.error.kind) == ("timeout", "overloaded")
        outcome, _ = await ask(model, user_text("go"))
        assert outcome.status == "completed"
        await model.aclose()
    assert len(provider.requests[1].body["messages"]) == 1


async def test_a_key_that_is_echoed_stays_out_of_the_error() -> None:
    async with ScriptedProvider([refuse(401, "no such key: sk-ant-secret-key")]) as provider:
        model = new_model(provider)
        outcome, _ = await ask(model, user_text("go"))
        await model.aclose()
    assert outcome.error is not None
    assert "sk-ant-secret-key" not in outcome.error.message
    assert "api_key" in outcome.error.message


# --- what the original wrote and sent -----------------------------------------------------------------


async def test_the_trace_of_the_original_gives_the_request_of_the_original(golden_dir: Path) -> None:
    folder = golden_dir / "thinking_text_ant"
    [trace] = folder.glob("trace-*.jsonl")
    lines = [decode(line) for line in trace.read_bytes().splitlines()]
    last_words = next(number for number, line in reversed(list(enumerate(lines))) if is_user(line))
    sent = json.loads((folder / "llm_requests.jsonl").read_text().splitlines()[1])
    async with ScriptedProvider(["Second."]) as provider:
        model = new_model(provider, thinking_level="medium")
        model.set_history(lines[:last_words])
        await ask(model, lines[last_words])
        await model.aclose()
    [request] = provider.requests
    assert request.path == sent["path"]
    assert json.loads(unmarked(request.raw))["messages"] == sent["body"]["messages"]
    for member in ("stream", "thinking", "output_config"):
        assert request.body[member] == sent["body"][member]


def is_user(message: Message) -> bool:
    return is_complete_model_message(message) and getattr(message.payload, "role", None) == "user"
