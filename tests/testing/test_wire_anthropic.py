"""The scripted provider as a server of Anthropic Messages: names, order and shapes of what it says."""

from __future__ import annotations

import json
import ssl
from typing import Any

import httpx2
import pytest

from penguin.testing import ReplyLike, ScriptedProvider, call, prepared, refuse, reply, say, think, turn, usage
from penguin.testing.replies import Raw
from penguin.testing.wire import anthropic_messages

pytestmark = pytest.mark.anyio

TLS = ssl.create_default_context()
ASK = {"model": "m", "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
REDACTED = {"type": "redacted_thinking", "data": "Zm9v"}
CITATION = {"type": "char_location", "cited_text": "é"}


async def post(provider: ScriptedProvider, body: Any = ASK) -> httpx2.Response:
    async with httpx2.AsyncClient(verify=TLS) as client:
        return await client.post(f"{provider.host_url}/v1/messages", json=body)


async def said(script: ReplyLike, body: Any = ASK) -> httpx2.Response:
    async with ScriptedProvider([script]) as provider:
        return await post(provider, body)


def events(response: httpx2.Response, line_end: str = "\n") -> list[tuple[str, dict[str, Any]]]:
    found = []
    for part in response.content.decode().split(line_end * 2)[:-1]:
        name, data = part.split(line_end)
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def names(response: httpx2.Response) -> list[str]:
    return [name for name, _ in events(response)]


def deltas(response: httpx2.Response, index: int) -> list[dict[str, Any]]:
    return [
        data["delta"] for name, data in events(response) if name == "content_block_delta" and data["index"] == index
    ]


async def test_a_turn_is_streamed_as_named_events() -> None:
    script = turn(
        think("Hm, let me see.", fidelity={"signature": "SIG"}),
        say("I will look: ✅ 你😀", fidelity={"citations": [CITATION]}),
        call("read_file", {"file_path": "a.txt"}, id="c1", fidelity={"tool_use": {"caller": {"type": "direct"}}}),
        call("t"),
        usage=usage(cache_read=3, cache_write=4, output=5),
    )
    response = await said(script)
    assert response.headers["content-type"] == "text/event-stream"
    assert all(data["type"] == name for name, data in events(response))
    assert names(response)[:3] == ["message_start", "ping", "content_block_start"]
    assert names(response)[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    started = [data["content_block"] for name, data in events(response) if name == "content_block_start"]
    assert started == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "c1", "name": "read_file", "input": {}, "caller": {"type": "direct"}},
        {"type": "tool_use", "id": "call_1_3", "name": "t", "input": {}},
    ]
    assert "".join(delta.get("thinking", "") for delta in deltas(response, 0)) == "Hm, let me see."
    assert deltas(response, 0)[-1] == {"type": "signature_delta", "signature": "SIG"}
    assert "".join(delta.get("text", "") for delta in deltas(response, 1)) == "I will look: ✅ 你😀"
    assert deltas(response, 1)[-1] == {"type": "citations_delta", "citation": CITATION}
    pieces = [delta["partial_json"] for delta in deltas(response, 2)]
    assert len(pieces) > 1
    assert json.loads("".join(pieces)) == {"file_path": "a.txt"}
    first, last = events(response)[0][1], events(response)[-2][1]
    assert first["message"]["usage"]["cache_read_input_tokens"] == 3
    assert first["message"]["usage"]["input_tokens"] == 4
    assert last == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 5},
    }


async def test_thinking_is_signed_as_from_the_provider() -> None:
    response = await said(turn(think("a"), think("b"), "c"))
    assert [deltas(response, number)[-1]["signature"] for number in (0, 1)] == ["sig_1_0", "sig_1_1"]


async def test_a_block_of_another_kind_comes_whole() -> None:
    response = await said(turn(think("", fidelity={"content_block": REDACTED}), "a"))
    assert events(response)[2][1]["content_block"] == REDACTED
    assert deltas(response, 0) == []


async def test_without_stream_the_same_turn_is_one_body() -> None:
    script = turn(think("hm", fidelity={"signature": "S"}), say("hello"), call("t", {"a": 1}, id="c1"))
    body = (await said(script, {**ASK, "stream": False})).json()
    assert body["stop_reason"] == "tool_use"
    assert body["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "S"},
        {"type": "text", "text": "hello"},
        {"type": "tool_use", "id": "c1", "name": "t", "input": {"a": 1}},
    ]


@pytest.mark.parametrize(
    ("style", "reason"),
    [({}, "end_turn"), ({"finish_reason": "length"}, "max_tokens"), ({"finish_reason": "refusal"}, "refusal")],
)
async def test_stop_reasons(style: dict[str, str], reason: str) -> None:
    response = await said(reply("a", **style))  # type: ignore[arg-type]
    assert events(response)[-2][1]["delta"]["stop_reason"] == reason


async def test_an_end_can_be_left_out() -> None:
    response = await said(reply("a", finish_reason="", done=False, usage_at="never", line_end="\r\n"))
    assert events(response, "\r\n")[-1][0] == "content_block_stop"
    assert events(response, "\r\n")[0][1]["message"]["usage"] == {"input_tokens": 0, "output_tokens": 1}


async def test_arguments_in_one_piece() -> None:
    response = await said(reply(call("t", '{"a": 1, "b": 2}'), whole_calls=True))
    assert [delta["partial_json"] for delta in deltas(response, 0)] == ['{"a": 1, "b": 2}']


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (429, "rate_limit_error"), (500, "api_error"),
     (529, "overloaded_error")],
)  # fmt: skip
async def test_refusals_in_the_words_of_the_protocol(status: int, kind: str) -> None:
    response = await said(refuse(status, "no"))
    assert response.status_code == status
    assert response.json()["type"] == "error"
    assert response.json()["error"] == {"type": kind, "message": "no"}


async def test_a_prepared_turn_says_the_same() -> None:
    ready = prepared(turn("abc", call("t")), {"model": "m"}, wire=anthropic_messages.WIRE)
    assert isinstance(ready.content, Raw)
    live = await said(turn("abc", call("t"), usage=usage(cache_write=1, output=1)))
    assert ready.content.body.count(b"event: ") == len(events(live))


async def test_one_script_serves_both_protocols() -> None:
    async with ScriptedProvider(["a", "b"]) as provider, httpx2.AsyncClient(verify=TLS) as client:
        chat = await client.post(f"{provider.base_url}/chat/completions", json=ASK)
        messages = await client.post(f"{provider.host_url}/v1/messages", json=ASK)
    assert b'"content":"a"' in chat.content
    assert b'"text":"b"' in messages.content
