"""The product's own model over Gemini: the conformance kit, the scripted provider, two turns, resume."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import pytest
from tests.support.gemini_kit import STOP, call, chunk, model, text, thought
from tests.support.llm_kit import Answer, ask, config

from penguin.llm.model import GenerativeModel
from penguin.protocol.builders import tool_call_output, user_text
from penguin.protocol.codec import decode, encode
from penguin.protocol.interfaces import GenerateRequest, LLMInterface
from penguin.protocol.messages import Message, PartialText
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
from penguin.testing import call as scripted_call

pytestmark = pytest.mark.anyio
SIGNATURE = {"thoughtSignature": "c2ln/bmF0+dXJl=="}
SPEAKING = [chunk(thought("hm")), chunk(text("hel")), chunk(text("lo"))]
CALLING = [chunk(call("list_tasks", None, "call_0"), call("list_tasks", {})), STOP]


def history_of(one: LLMInterface) -> list[Message]:
    assert isinstance(one, GenerativeModel)
    return list(one.history)


async def test_the_conformance_kit() -> None:
    def build() -> LLMInterface:
        return model(*[Answer([*SPEAKING, *CALLING]) for _ in range(4)])[0]

    def failing() -> LLMInterface:
        return model(Answer(SPEAKING), *[Answer([chunk(text("ok")), STOP]) for _ in range(3)])[0]

    await check_llm(build, failing=failing, history=history_of)


def over(provider: ScriptedProvider, **changes: Any) -> GenerativeModel:
    settings = {"client_type": "gemini", "base_url": provider.host_url, "api_key": "AIzaSecretKey"}
    return GenerativeModel(config(**settings | changes))


LONG = turn(
    think("Let me see."),
    say("Looking."),
    scripted_call("read_file", {"path": "a.txt"}, fidelity=SIGNATURE),
    scripted_call("list_tasks", ""),
    usage=usage(cache_read=30, cache_write=12, output=9),
)
TURNS: list[ReplyLike] = [LONG, turn(say("Done."), say("", fidelity=SIGNATURE)), "Bye."]


async def test_P5_fidelity_over_two_turns_and_resume() -> None:
    async with ScriptedProvider([*TURNS, "Bye."]) as provider:
        one = over(provider)
        first = await ask(one)
        await ask(one, *[tool_call_output("out", made.tool_call_id) for made in first.calls()])
        resumed = over(provider)
        resumed.set_history([decode(encode(committed)) for committed in one.history])
        await ask(one, user_text("bye"))
        await ask(resumed, user_text("bye"))
        await one.aclose()
        await resumed.aclose()
    provider.assert_exhausted()
    assert (first.thoughts(), first.texts()) == (["Let me see."], ["Looking."])
    assert first.pairs() == [("read_file", '{"path":"a.txt"}'), ("list_tasks", "{}")]
    counts = first.usage().request
    assert (counts.cache_read, counts.cache_write, counts.output) == (30, 12, 9)
    assert provider.requests[3].raw == provider.requests[2].raw
    read, listed = (made.tool_call_id for made in first.calls())
    assert provider.requests[2].body["contents"] == [
        {"role": "user", "parts": [{"text": "go"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Looking."},
                {"functionCall": {"id": read, "name": "read_file", "args": {"path": "a.txt"}}, **SIGNATURE},
                {"functionCall": {"id": listed, "name": "list_tasks", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": read, "name": "read_file", "response": {"output": "out"}}},
                {"functionResponse": {"id": listed, "name": "list_tasks", "response": {"output": "out"}}},
            ],
        },
        {"role": "model", "parts": [{"text": "Done."}, {"text": "", **SIGNATURE}]},
        {"role": "user", "parts": [{"text": "bye"}]},
    ]


async def test_a_server_without_ids() -> None:
    answer = reply(turn(scripted_call("ls", {}), scripted_call("ls", {})), call_index=False)
    async with ScriptedProvider([answer, "ok"]) as provider:
        one = over(provider)
        first = await ask(one)
        await ask(one, *[tool_call_output(made.tool_call_id, made.tool_call_id) for made in first.calls()])
        await one.aclose()
    ids = [made.tool_call_id for made in first.calls()]
    assert len(set(ids)) == 2
    results = [part["functionResponse"] for part in provider.requests[1].body["contents"][2]["parts"]]
    assert [result["response"]["output"] for result in results] == ids
    assert "id" not in results[0]


async def test_L17_the_key_is_nowhere_but_in_its_header() -> None:
    async with ScriptedProvider([refuse(400, "API key not valid: AIzaSecretKey", code="INVALID_ARGUMENT")]) as provider:
        one = over(provider)
        said = await ask(one)
        await one.aclose()
    request = provider.requests[0]
    assert request.path == "/v1beta/models/m:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == "AIzaSecretKey"
    assert said.outcome.error is not None
    assert (said.outcome.status, said.outcome.error.kind) == ("failed", "auth")
    assert "Secret" not in said.outcome.error.message


async def test_T12_the_prefix_of_every_request_is_that_of_the_one_before() -> None:
    replies: list[ReplyLike] = [turn(scripted_call("list_tasks", {"n": n}, fidelity=SIGNATURE)) for n in range(30)]
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
        (refuse(503, "The model is overloaded."), "timeout", "overloaded"),
        (refuse(403, "no"), "failed", "auth"),
        (refuse(400, "The input token count (9) exceeds the maximum"), "failed", "context_overflow"),
        (cut(say("half of this and a bit more"), after=300), "malformed", "network"),
        (cut(say("half of this and a bit more"), after=300, reset=True), "malformed", "network"),
        (turn(say("abcdefgh" * 2), fault=fail("malformed", after=1)), "malformed", "network"),
        (turn(scripted_call("read_file", "{}"), fault=fail("malformed", cut_off=True)), "malformed", "malformed"),
        (scripted_call("read_file", '{"pa'), "malformed", "malformed"),
        (reply(scripted_call("read_file", "{}"), done=False), "malformed", "network"),
        (reply(turn(think("hm")), finish_reason="content_filter"), "failed", "refused"),
    ],
)
async def test_L4_faults(answer: ReplyLike, status: str, kind: str) -> None:
    async with ScriptedProvider([answer, "ok"]) as provider:
        one = over(provider)
        said = await ask(one)
        assert said.outcome.error is not None
        assert (said.outcome.status, said.outcome.error.kind) == (status, kind)
        assert (await ask(one)).texts() == ["ok"]
        await one.aclose()
    assert len(provider.requests[1].body["contents"]) == 1


@pytest.mark.parametrize("answer", [dripped(LONG, size=7), LONG])
async def test_slow_and_fast_are_the_same(answer: ReplyLike) -> None:
    async with ScriptedProvider([answer]) as provider:
        one = over(provider)
        said = await ask(one)
        await one.aclose()
    assert (said.thoughts(), said.texts(), len(said.pairs())) == (["Let me see."], ["Looking."], 2)


async def test_L5_a_stalled_stream_is_a_timeout() -> None:
    async with ScriptedProvider([stalled(say("never heard"), after=100)]) as provider:
        one = over(provider, request_timeout_ms=50)
        said = await ask(one)
        await one.aclose()
    assert said.outcome.error is not None
    assert (said.outcome.status, said.outcome.error.kind) == ("timeout", "idle_timeout")


async def test_cancelled_in_the_middle_everything_is_closed() -> None:
    checker = StreamChecker(streamed_only=True)
    async with ScriptedProvider([stalled(say("some words, and then nothing"), after=400)]) as provider:
        one = over(provider)
        with anyio.CancelScope() as scope:

            def stop_at_the_words(said: Message) -> None:
                checker.observe(said)
                if isinstance(said.payload, PartialText):
                    scope.cancel()

            await one.stream_generate(GenerateRequest([user_text("go")]), stop_at_the_words)
        await one.aclose()
    assert scope.cancelled_caught
    assert one.history == ()
    checker.finish()
