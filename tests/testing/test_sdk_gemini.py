"""Google's own library understands the scripted provider's Gemini, and reads clean streams as we do."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.support.llm_kit import ask, config

from penguin.llm.model import GenerativeModel
from penguin.protocol.builders import tool_call_output
from penguin.testing import ReplyLike, ScriptedProvider, call, cut, refuse, reply, say, think, turn, usage

genai = pytest.importorskip("google.genai", reason="google-genai is not installed; it is a test-only dependency")
pytestmark = [
    pytest.mark.anyio,
    # Of the library's own making, and errors in this suite.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

SIGNATURE = base64.b64encode(b"signature").decode()
COUNTS = usage(cache_read=30, cache_write=12, output=9)
CLEAN: dict[str, ReplyLike] = {
    "words": turn("Hello there, 你好 ✅.", usage=COUNTS),
    "thinking": turn(think("Let me see."), say("Forty-two."), usage=COUNTS),
    "calls": turn(
        think("Two."),
        call("read_file", {"path": "a"}, id="call_a", fidelity={"thoughtSignature": SIGNATURE}),
        call("list_tasks", "{}", id="call_b"),
        usage=COUNTS,
    ),
    "everything": turn(
        think("First."),
        say("Looking."),
        call("read_file", {"path": "a.txt"}, id="call_a", fidelity={"thoughtSignature": SIGNATURE}),
        say("And more."),
        say("", fidelity={"thoughtSignature": SIGNATURE}),
        usage=COUNTS,
    ),
}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The library's asynchronous half is asyncio."""
    return "asyncio"


@asynccontextmanager
async def client(provider: ScriptedProvider) -> AsyncIterator[Any]:
    options = genai.types.HttpOptions(base_url=provider.host_url)
    sdk = genai.Client(api_key="k", http_options=options).aio
    try:
        yield sdk
    finally:
        await sdk.aclose()


async def streamed(provider: ScriptedProvider) -> list[Any]:
    async with client(provider) as sdk:
        return [part async for part in await sdk.models.generate_content_stream(model="m", contents="go")]


def _as_the_library_reads_it(chunks: list[Any]) -> dict[str, Any]:
    parts = [part for chunk in chunks for part in (chunk.candidates[0].content.parts or [])]
    last = chunks[-1].usage_metadata
    return {
        "thoughts": "".join(part.text for part in parts if part.text and part.thought),
        "text": "".join(part.text for part in parts if part.text and not part.thought),
        "calls": [(p.function_call.id, p.function_call.name, p.function_call.args) for p in parts if p.function_call],
        "signatures": [base64.b64encode(part.thought_signature).decode() for part in parts if part.thought_signature],
        "tokens": (
            last.cached_content_token_count,
            last.prompt_token_count,
            last.candidates_token_count + (last.thoughts_token_count or 0),
        ),
    }


async def _as_we_read_it(provider: ScriptedProvider) -> dict[str, Any]:
    one = GenerativeModel(config(client_type="gemini", base_url=provider.host_url, api_key="k"))
    said = await ask(one)
    await one.aclose()
    assert said.outcome.status == "completed"
    counts = said.usage().request
    history = b"".join(message.line for message in one.history).decode()
    return {
        "thoughts": "".join(said.thoughts()),
        "text": "".join(said.texts()),
        "calls": [(made.tool_call_id, made.name, json.loads(made.arguments)) for made in said.calls()],
        "signatures": [SIGNATURE] * history.count(SIGNATURE),
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
            whole = await sdk.models.generate_content(model="m", contents="go")
    assert _as_the_library_reads_it([whole]) == once


async def test_what_we_send_is_what_the_library_would_send_back() -> None:
    """Google's way to keep signatures: append each part as it came. Ours is the same, thoughts nobody signed aside."""
    async with ScriptedProvider([CLEAN["everything"], "ok", CLEAN["everything"], "ok"]) as provider:
        content = genai.types.Content(role="model", parts=[])
        for chunk in await streamed(provider):
            content.parts += chunk.candidates[0].content.parts or []
        async with client(provider) as sdk:
            answered = genai.types.Part(
                function_response=genai.types.FunctionResponse(
                    id="call_a", name="read_file", response={"output": "out"}
                )
            )
            await sdk.models.generate_content(model="m", contents=["go", content, answered])
        one = GenerativeModel(config(client_type="gemini", base_url=provider.host_url))
        await ask(one)
        second = await ask(one, tool_call_output("out", "call_a"))
        await one.aclose()
    assert second.outcome.status == "completed"
    theirs, ours = (provider.requests[number].body["contents"] for number in (1, 3))
    assert _joined(ours[1]["parts"]) == _joined([part for part in theirs[1]["parts"] if not part.get("thought")])
    assert ours[2] == theirs[2]


def _joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring plain texts are one."""
    joined: list[dict[str, Any]] = []
    for part in parts:
        if joined and joined[-1].keys() == part.keys() == {"text"}:
            joined[-1] = {"text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refuse(429, "slow down"), "ClientError"),
        (refuse(400, "API key not valid"), "ClientError"),
        (refuse(503, "overloaded"), "ServerError"),
    ],
)
async def test_refusals(answer: ReplyLike, error: str) -> None:
    async with ScriptedProvider([answer], when_exhausted="repeat") as provider:
        with pytest.raises(getattr(genai.errors, error)):
            await streamed(provider)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(say("half a sent"), finish_reason="length"), "MAX_TOKENS"),
        (reply(turn(think("hm")), finish_reason="content_filter"), "SAFETY"),
        (call("read_file", '{"pa'), "MALFORMED_FUNCTION_CALL"),
    ],
)
async def test_ends(answer: ReplyLike, reason: str) -> None:
    async with ScriptedProvider([answer]) as provider:
        chunks = await streamed(provider)
    assert chunks[-1].candidates[0].finish_reason.value == reason


async def test_a_stream_that_breaks_off() -> None:
    async with ScriptedProvider([cut(say("half of this and more"), after=300)]) as provider:
        with pytest.raises(httpx2.RemoteProtocolError):
            await streamed(provider)
