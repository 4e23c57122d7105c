"""OpenAI's own library understands the scripted provider's Responses, and reads clean streams as we do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.llm_kit import ask, config

from penguin.llm.model import GenerativeModel
from penguin.protocol.builders import tool_call_output
from penguin.testing import ReplyLike, ScriptedProvider, call, cut, refuse, reply, say, think, turn, usage

openai = pytest.importorskip("openai", reason="the openai library is not installed; it is a test-only dependency")
pytestmark = pytest.mark.anyio

COUNTS = usage(cache_read=30, cache_write=12, output=9)
CLEAN: dict[str, ReplyLike] = {
    "words": turn("Hello there, 你好 ✅.", usage=COUNTS),
    "thinking": turn(think("Let me see."), say("Forty-two."), usage=COUNTS),
    "calls": turn(
        think("Two."),
        call("read_file", {"path": "a"}, id="call_a"),
        call("list_tasks", "{}", id="call_b"),
        usage=COUNTS,
    ),
    "everything": turn(
        think("First."),
        say("Looking.", fidelity={"phase": "commentary"}),
        call("read_file", {"path": "a.txt"}, id="call_a"),
        think("Second."),
        say("And more."),
        usage=COUNTS,
    ),
    "whole_calls": reply(turn(call("read_file", {"path": "a.txt"}, id="call_a"), usage=COUNTS), whole_calls=True),
}
REQUEST: dict[str, Any] = {"model": "m", "input": "go", "store": False, "include": ["reasoning.encrypted_content"]}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The library is promised for asyncio."""
    return "asyncio"


def client(provider: ScriptedProvider) -> Any:
    return openai.AsyncOpenAI(api_key="k", base_url=provider.base_url, max_retries=0)


async def streamed(provider: ScriptedProvider) -> Any:
    """The final response the library assembles from the events."""
    async with client(provider) as sdk, sdk.responses.stream(**REQUEST) as stream:
        return await stream.get_final_response()


def _as_the_library_reads_it(response: Any) -> dict[str, Any]:
    return {
        "thoughts": [part.text for item in response.output if item.type == "reasoning" for part in item.summary],
        "texts": [part.text for item in response.output if item.type == "message" for part in item.content],
        "calls": [(i.call_id, i.name, i.arguments) for i in response.output if i.type == "function_call"],
        "tokens": (
            response.usage.input_tokens_details.cached_tokens,
            response.usage.input_tokens,
            response.usage.output_tokens,
        ),
    }


async def _as_we_read_it(provider: ScriptedProvider) -> dict[str, Any]:
    one = GenerativeModel(config(client_type="openai-responses", base_url=provider.base_url, api_key="k"))
    said = await ask(one)
    await one.aclose()
    assert said.outcome.status == "completed"
    counts = said.usage().request
    return {
        "thoughts": said.thoughts(),
        "texts": said.texts(),
        "calls": [(made.tool_call_id, made.name, made.arguments) for made in said.calls()],
        "tokens": (counts.cache_read, counts.cache_read + counts.cache_write, counts.output),
    }


@pytest.mark.parametrize("case", CLEAN)
async def test_a_clean_stream_is_read_as_the_library_reads_it(case: str) -> None:
    async with ScriptedProvider([CLEAN[case], CLEAN[case]]) as provider:
        theirs = _as_the_library_reads_it(await streamed(provider))
        assert await _as_we_read_it(provider) == theirs


@pytest.mark.parametrize("case", CLEAN)
async def test_without_stream_the_library_reads_the_same(case: str) -> None:
    async with ScriptedProvider([CLEAN[case], CLEAN[case]]) as provider:
        once = _as_the_library_reads_it(await streamed(provider))
        async with client(provider) as sdk:
            whole = await sdk.responses.create(**REQUEST)
    assert _as_the_library_reads_it(whole) == once


async def test_what_we_send_is_what_the_library_would_send_back() -> None:
    """The library's way to keep reasoning without a store: append the output to the input."""
    async with ScriptedProvider([CLEAN["everything"], CLEAN["everything"], "ok"]) as provider:
        output = (await streamed(provider)).output
        one = GenerativeModel(config(client_type="openai-responses", base_url=provider.base_url))
        await ask(one)
        second = await ask(one, tool_call_output("out", "call_a"))
        await one.aclose()
    assert second.outcome.status == "completed"
    theirs = [json.loads(item.model_dump_json(exclude_unset=True)) for item in output]
    ours = provider.requests[2].body["input"][1 : len(theirs) + 1]
    assert [_essence(item) for item in ours] == [_essence(item) for item in theirs]


def _essence(item: dict[str, Any]) -> dict[str, Any]:
    """Without numbers of replies inside ids, log probabilities, and what the library adds when it parses."""
    kept = {key: value for key, value in item.items() if key != "parsed_arguments"}
    for part in kept.get("content") or []:
        part.pop("logprobs", None)
        part.pop("parsed", None)
    return dict(json.loads(json.dumps(kept).replace("_2_", "_1_")))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refuse(429, "slow down"), "RateLimitError"),
        (refuse(500, "broken"), "InternalServerError"),
        (refuse(401, "no key"), "AuthenticationError"),
    ],
)
async def test_refusals(answer: ReplyLike, error: str) -> None:
    async with ScriptedProvider([answer]) as provider:
        with pytest.raises(getattr(openai, error)):
            await streamed(provider)


async def test_a_reply_cut_at_the_limit() -> None:
    async with (
        ScriptedProvider([reply(say("half a sent"), finish_reason="length")]) as provider,
        client(provider) as sdk,
    ):
        events = [event async for event in await sdk.responses.create(**REQUEST, stream=True)]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"
    assert events[-1].response.output_text == "half a sent"


async def test_a_stream_that_breaks_off() -> None:
    async with ScriptedProvider([cut(say("half of this"), after=900)]) as provider:
        with pytest.raises(openai.APIConnectionError):
            await streamed(provider)
