"""The product's own model over Responses: the conformance kit, the scripted provider, two turns, resume."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import pytest
from tests.support.llm_kit import Answer, ask, config
from tests.support.responses_kit import CREATED, call, completed, message, model, reasoning

from penguin.llm.model import GenerativeModel
from penguin.protocol.builders import tool_call_output, user_text
from penguin.protocol.codec import decode, encode
from penguin.protocol.interfaces import GenerateRequest, LLMInterface
from penguin.protocol.messages import Message, PartialToolCall, ToolCall
from penguin.testing import (
    ReplyLike,
    ScriptedProvider,
    StreamChecker,
    check_llm,
    cut,
    dripped,
    fail,
    refuse,
    reply,
    say,
    stalled,
    think,
    turn,
    usage,
)
from penguin.testing import (
    call as scripted_call,
)

pytestmark = pytest.mark.anyio
SPEAKING = [CREATED, reasoning(0, "hm"), message(1, "hel", "lo")]
CALLING = [call(2, "list_tasks", "", id="0"), completed()]


def history_of(one: LLMInterface) -> list[Message]:
    assert isinstance(one, GenerativeModel)
    return list(one.history)


async def test_the_conformance_kit() -> None:
    def build() -> LLMInterface:
        return model(*[Answer([*SPEAKING, *CALLING]) for _ in range(4)])[0]

    def failing() -> LLMInterface:
        return model(Answer(SPEAKING), *[Answer([message(0, "ok"), completed()]) for _ in range(3)])[0]

    await check_llm(build, failing=failing, history=history_of)


def over(provider: ScriptedProvider, **changes: Any) -> GenerativeModel:
    settings = {"client_type": "openai-responses", "base_url": provider.base_url, "api_key": "sk-secret-key"}
    return GenerativeModel(config(**settings | changes))


LONG = turn(
    think("Let me see."),
    say("Looking.", fidelity={"phase": "commentary"}),
    scripted_call("read_file", {"path": "a.txt"}, fidelity={"namespace": "n"}),
    scripted_call("list_tasks", ""),
    usage=usage(cache_read=30, cache_write=12, output=9),
)
TURNS: list[ReplyLike] = [
    LONG,
    turn(think(""), say("Done.", fidelity={"phase": "final_answer"})),
    "Bye.",
]


async def test_P5_fidelity_over_two_turns_and_resume() -> None:
    async with ScriptedProvider([*TURNS, "Bye."]) as provider:
        one = over(provider)
        first = await ask(one)
        results = [tool_call_output("out", made.tool_call_id) for made in first.calls()]
        await ask(one, *results)
        resumed = over(provider)
        resumed.set_history([decode(encode(committed)) for committed in one.history])
        await ask(one, user_text("bye"))
        await ask(resumed, user_text("bye"))
        await one.aclose()
        await resumed.aclose()
    provider.assert_exhausted()
    assert first.thoughts() == ["Let me see."]
    assert first.pairs() == [("read_file", '{"path": "a.txt"}'), ("list_tasks", "{}")]
    counts = first.usage().request
    assert (counts.cache_read, counts.cache_write, counts.output) == (30, 12, 9)
    assert provider.requests[3].raw == provider.requests[2].raw
    sent = provider.requests[2].body["input"]
    assert [item["type"] for item in sent] == [
        *("message", "reasoning", "message", "function_call", "function_call"),
        *("function_call_output", "function_call_output", "reasoning", "message", "message"),
    ]
    assert sent[1] == {
        "id": "rs_1_0",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Let me see."}],
        "encrypted_content": "encrypted rs_1_0",
    }
    assert (sent[2]["phase"], sent[2]["id"], sent[8]["phase"]) == ("commentary", "msg_1_1", "final_answer")
    assert sent[3]["namespace"] == "n"
    assert sent[7]["encrypted_content"] == "encrypted rs_2_0"
    assert sent[4]["arguments"] == "{}"


async def test_T12_the_prefix_of_every_request_is_that_of_the_one_before() -> None:
    replies: list[ReplyLike] = [turn(think(f"t{n}"), scripted_call("list_tasks", {"n": n})) for n in range(30)]
    async with ScriptedProvider(replies) as provider:
        one = over(provider)
        new: list[Message] = [user_text("go")]
        for _ in replies:
            said = await ask(one, *new)
            new = [tool_call_output("out", made.tool_call_id) for made in said.calls()]
        await one.aclose()
    bodies = [request.raw for request in provider.requests]
    assert all(later.startswith(earlier.removesuffix(b"]}")) for earlier, later in itertools.pairwise(bodies))


@pytest.mark.parametrize(
    ("answer", "status", "kind"),
    [
        (refuse(429, "slow down", retry_after="7"), "timeout", "rate_limit"),
        (refuse(500, "broken"), "timeout", "overloaded"),
        (refuse(401, "Incorrect API key provided: sk-secret-key"), "failed", "auth"),
        (refuse(400, "too long", code="context_length_exceeded"), "failed", "context_overflow"),
        (cut(say("half of this and a bit more"), after=900), "malformed", "network"),
        (cut(say("half of this and a bit more"), after=900, reset=True), "malformed", "network"),
        (
            turn(scripted_call("read_file", '{"path":"abcdefgh"}'), fault=fail("malformed", after=1)),
            "malformed",
            "network",
        ),
        (reply(scripted_call("read_file", '{"pa'), finish_reason="length"), "malformed", "malformed"),
        (reply(scripted_call("read_file", "{}"), done=False), "malformed", "network"),
    ],
)
async def test_L4_faults(answer: ReplyLike, status: str, kind: str) -> None:
    async with ScriptedProvider([answer, "ok"]) as provider:
        one = over(provider)
        said = await ask(one)
        assert said.outcome.error is not None
        assert (said.outcome.status, said.outcome.error.kind) == (status, kind)
        assert "sk-secret" not in said.outcome.error.message
        assert (await ask(one)).texts() == ["ok"]
        await one.aclose()
    assert len(provider.requests[1].body["input"]) == 1


@pytest.mark.parametrize("answer", [dripped(LONG, size=7), LONG])
async def test_slow_and_fast_are_the_same(answer: ReplyLike) -> None:
    async with ScriptedProvider([answer]) as provider:
        one = over(provider)
        said = await ask(one)
        await one.aclose()
    assert (said.thoughts(), said.texts(), len(said.pairs())) == (["Let me see."], ["Looking."], 2)


async def test_L5_a_stalled_stream_is_a_timeout() -> None:
    async with ScriptedProvider([stalled(say("never heard"), after=600)]) as provider:
        one = over(provider, request_timeout_ms=50)
        said = await ask(one)
        await one.aclose()
    assert said.outcome.error is not None
    assert (said.outcome.status, said.outcome.error.kind) == ("timeout", "idle_timeout")


async def test_cancelled_in_the_middle_everything_is_closed() -> None:
    checker = StreamChecker(streamed_only=True)
    async with ScriptedProvider([stalled(scripted_call("read_file", '{"path":"x"}'), after=1400)]) as provider:
        one = over(provider)
        with anyio.CancelScope() as scope:

            def stop_at_the_call(said: Message) -> None:
                checker.observe(said)
                if isinstance(said.payload, PartialToolCall):
                    scope.cancel()

            await one.stream_generate(GenerateRequest([user_text("go")]), stop_at_the_call)
        await one.aclose()
    assert scope.cancelled_caught
    assert one.history == ()
    checker.finish()
    assert isinstance(checker.messages[-1].payload, ToolCall)
    assert checker.messages[-1].payload.stop_reason == "aborted"
