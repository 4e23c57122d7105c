from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

import penguin.testing
from penguin.protocol.errors import ScriptError
from penguin.testing import (
    ReplyLike,
    ScriptedProvider,
    call,
    cut,
    dripped,
    fail,
    framed,
    hang,
    pause,
    prepared,
    raw,
    refuse,
    reply,
    say,
    serve_in_thread,
    stalled,
    think,
    turn,
    usage,
)

pytestmark = pytest.mark.anyio

# Reading the certificates takes longer than most of these tests.
TLS = ssl.create_default_context()
ASK = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}


async def post(provider: ScriptedProvider, body: Any = ASK) -> httpx2.Response:
    async with httpx2.AsyncClient(verify=TLS) as client:
        return await client.post(f"{provider.base_url}/chat/completions", json=body)


def chunks(response: httpx2.Response) -> list[dict[str, Any]]:
    events = [event.removeprefix(b"data: ") for event in response.content.split(b"\n\n") if event]
    return [json.loads(event) for event in events if event != b"[DONE]"]


def joined(response: httpx2.Response, field: str) -> str:
    return "".join(choice["delta"].get(field) or "" for chunk in chunks(response) for choice in chunk["choices"])


def call_pieces(response: httpx2.Response) -> list[dict[str, Any]]:
    return [
        piece
        for chunk in chunks(response)
        for choice in chunk["choices"]
        for piece in choice["delta"].get("tool_calls", [])
    ]


def finish_reasons(response: httpx2.Response) -> list[str]:
    return [c["finish_reason"] for chunk in chunks(response) for c in chunk["choices"] if c["finish_reason"]]


def usages(response: httpx2.Response) -> list[dict[str, Any]]:
    return [chunk["usage"] for chunk in chunks(response) if "usage" in chunk]


# ---------------------------------------------------------------- words


async def test_a_turn_is_streamed_as_chunks() -> None:
    said = turn(
        think("Hm, let me see."),
        say("I will look: ✅ 你😀"),
        call("read_file", {"file_path": "a.txt"}, id="c1"),
        call("t"),
    )
    async with ScriptedProvider([said]) as provider:
        response = await post(provider)

    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream"
    assert response.content.endswith(b"data: [DONE]\n\n")
    assert chunks(response)[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {chunk["model"] for chunk in chunks(response)} == {"m"}
    assert joined(response, "reasoning_content") == "Hm, let me see."
    assert joined(response, "content") == "I will look: ✅ 你😀"
    pieces = call_pieces(response)
    assert pieces[0] == {"index": 0, "id": "c1", "type": "function", "function": {"name": "read_file", "arguments": ""}}
    first = "".join(p["function"]["arguments"] for p in pieces if p["index"] == 0)
    assert json.loads(first) == {"file_path": "a.txt"}
    assert all("id" not in p for p in pieces[1:] if p["index"] == 0)
    [second] = [p for p in pieces if p["index"] == 1 and "id" in p]
    assert second["id"] == "call_1_3"
    assert finish_reasons(response) == ["tool_calls"]


async def test_without_stream_the_same_turn_is_one_body() -> None:
    said = turn(
        think("hm"), say("hello"), call("t", {"a": 1}, id="c1"), usage=usage(cache_read=3, cache_write=4, output=5)
    )
    async with ScriptedProvider([said]) as provider:
        response = await post(provider, {**ASK, "stream": False})

    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": "hello",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": '{"a": 1}'}}],
    }
    assert body["usage"]["prompt_tokens"] == 7
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert body["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_D13_reasoning_under_the_chosen_field(field: str) -> None:
    async with ScriptedProvider([reply(think("hm"), reasoning_field=field)]) as provider:
        assert joined(await post(provider), field) == "hm"


async def test_reasoning_in_tags_inside_the_content() -> None:
    said = reply(turn(think("hm"), say("hello")), reasoning_field="<think>")
    async with ScriptedProvider([said, said]) as provider:
        assert joined(await post(provider), "content") == "<think>hm</think>hello"
        whole = (await post(provider, {**ASK, "stream": False})).json()
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "<think>hm</think>hello"}


@pytest.mark.parametrize(
    ("usage_at", "asked", "where"),
    [
        ("when_asked", True, ["alone"]),
        ("when_asked", False, []),
        ("own_chunk", False, ["alone"]),
        ("finish_chunk", False, ["finish"]),
        ("every_chunk", False, ["delta", "delta", "finish"]),
        ("never", True, []),
    ],
)
async def test_D08_usage_where_the_server_wants_it(usage_at: Any, asked: bool, where: list[str]) -> None:
    said = reply(turn("hi", usage=usage(cache_read=1, cache_write=2, output=3)), usage_at=usage_at)
    body = {**ASK, "stream_options": {"include_usage": True}} if asked else ASK
    async with ScriptedProvider([said]) as provider:
        response = await post(provider, body)

    found = []
    for chunk in chunks(response):
        if "usage" in chunk:
            assert chunk["usage"]["total_tokens"] == 6
            choices = chunk["choices"]
            found.append("alone" if not choices else "finish" if choices[0]["finish_reason"] else "delta")
    assert found == where


async def test_usage_is_counted_from_characters_when_the_script_says_nothing() -> None:
    async with ScriptedProvider([reply("x" * 40, usage_at="own_chunk")]) as provider:
        [counts] = usages(await post(provider))
        size = len(provider.requests[0].raw)
    assert (counts["prompt_tokens"], counts["completion_tokens"]) == (size // 4, 10)


async def test_D01_D05_calls_without_index_in_one_piece_and_a_wrong_finish_reason() -> None:
    said = reply(call("t", {"a": 1}, id="c"), call_index=False, whole_calls=True, finish_reason="stop")
    async with ScriptedProvider([said]) as provider:
        response = await post(provider)
    assert call_pieces(response) == [
        {"id": "c", "type": "function", "function": {"name": "t", "arguments": '{"a": 1}'}}
    ]
    assert finish_reasons(response) == ["stop"]


async def test_D07_line_ends_and_a_missing_end() -> None:
    async with ScriptedProvider([reply("hi", line_end="\r\n", done=False, finish_reason="")]) as provider:
        response = await post(provider)
    assert response.content.count(b"\r\n\r\n") == 2
    assert b"DONE" not in response.content
    assert b'finish_reason":"' not in response.content


async def test_fidelity_travels_in_the_first_piece() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "abc"}}}
    said = turn(call("t", {"a": 1}, id="c", fidelity=extra), think("", fidelity={"reasoning_details": [{"data": "x"}]}))
    async with ScriptedProvider([said]) as provider:
        response = await post(provider)
    assert [p for p in call_pieces(response) if "extra_content" in p] == call_pieces(response)[:1]
    assert any("reasoning_details" in c["choices"][0]["delta"] for c in chunks(response))


async def test_a_function_answers_by_the_request() -> None:
    async with ScriptedProvider([lambda body: body["messages"][-1]["content"].upper()]) as provider:
        assert joined(await post(provider), "content") == "HI"


# ---------------------------------------------------------------- requests


async def test_every_request_is_recorded_as_it_came() -> None:
    async with ScriptedProvider(["one", "two"]) as provider, httpx2.AsyncClient(verify=TLS) as client:
        for _ in range(2):
            headers = {"Authorization": "Bearer k", "X-Mine": "1"}
            await client.post(f"{provider.base_url}/chat/completions?a=b", json=ASK, headers=headers)
        first = provider.requests[0]
    assert (first.method, first.path) == ("POST", "/v1/chat/completions?a=b")
    assert (first.headers["authorization"], first.headers["x-mine"]) == ("Bearer k", "1")
    assert first.body == ASK
    assert json.loads(first.raw) == ASK
    assert not first.client_left
    assert len(provider.requests) == 2


async def test_a_connection_is_kept_alive() -> None:
    ports = set()
    replies: list[ReplyLike] = ["one", framed("two", "length"), refuse(503), "three"]
    async with ScriptedProvider(replies) as provider, httpx2.AsyncClient(verify=TLS) as client:
        for _ in range(4):
            response = await client.post(f"{provider.base_url}/chat/completions", json=ASK)
            stream = response.extensions["network_stream"]
            ports.add(stream.get_extra_info("client_addr"))
    assert len(ports) == 1


async def test_a_body_sent_in_chunks_is_read() -> None:
    async def parts() -> Any:
        for part in (b'{"model": "chunked", "stream": true, ', b'"messages": [{"role": "user", "content": "hi"}]}'):
            yield part

    async with ScriptedProvider(["ok"]) as provider, httpx2.AsyncClient(verify=TLS) as client:
        response = await client.post(f"{provider.base_url}/chat/completions", content=parts())
    assert response.status_code == 200
    assert provider.requests[0].body["model"] == "chunked"


async def test_models_are_listed_and_unknown_routes_are_not_found() -> None:
    async with ScriptedProvider(["unused"]) as provider, httpx2.AsyncClient(verify=TLS) as client:
        models = await client.get(f"{provider.base_url}/models")
        missing = await client.post(f"{provider.base_url}/nothing", json={})
    assert models.json()["data"][0]["id"] == "scripted"
    assert missing.status_code == 404
    with pytest.raises(ScriptError, match="no such route: POST /v1/nothing; 1 of the script's replies"):
        provider.assert_exhausted()


@pytest.mark.parametrize("body", [b"{", b"[]"])
async def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    async with ScriptedProvider(["unused"]) as provider, httpx2.AsyncClient(verify=TLS) as client:
        response = await client.post(f"{provider.base_url}/chat/completions", content=body)
    assert response.status_code == 400


@pytest.mark.parametrize("nonsense", [b"hello\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"GE"])
async def test_a_client_that_talks_nonsense_disturbs_nobody(nonsense: bytes) -> None:
    async with ScriptedProvider(["fine"]) as provider:
        async with await anyio.connect_tcp("127.0.0.1", int(provider.host_url.rpartition(":")[2])) as stream:
            await stream.send(nonsense)
            await stream.send_eof()
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()
        assert joined(await post(provider), "content") == "fine"


async def test_a_used_up_script_is_refused_for_good() -> None:
    async with ScriptedProvider(["one"]) as provider:
        await post(provider)
        provider.assert_exhausted()
        response = await post(provider)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "the script is exhausted: it had 1 replies"
    with pytest.raises(ScriptError, match="exhausted"):
        provider.assert_exhausted()


async def test_a_used_up_script_may_repeat_its_last_reply() -> None:
    async with ScriptedProvider(["one", "two"], when_exhausted="repeat") as provider:
        said = [joined(await post(provider), "content") for _ in range(4)]
    assert said == ["one", "two", "two", "two"]
    provider.assert_exhausted()


async def test_a_function_that_raises_is_a_server_error_and_a_problem() -> None:
    def broken(body: Any) -> str:
        raise ValueError("my mistake")

    async with ScriptedProvider([broken]) as provider:
        assert (await post(provider)).status_code == 500
    assert provider.problems == ["ValueError: my mistake"]


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "authentication_error"), (429, "rate_limit_error"), (500, "server_error"), (400, "invalid_request_error")],
)
async def test_a_refusal_has_the_body_of_the_protocol(status: int, kind: str) -> None:
    async with ScriptedProvider([refuse(status, "no", code="because", retry_after="soon")]) as provider:
        response = await post(provider)
    assert response.status_code == status
    assert response.json() == {"error": {"message": "no", "type": kind, "param": None, "code": "because"}}
    assert response.headers["retry-after"] == "soon"


async def test_raw_bytes_arrive_unchanged() -> None:
    odd = b"\xef\xbb\xbf: hello\r\ndata:{}\r\n\r\ndata: \xff"
    page = raw("<html>", content_type="text/html; charset=utf-8", headers={"X-Odd": "yes"})
    async with ScriptedProvider([raw(odd), page]) as provider:
        first, second = await post(provider), await post(provider)
    assert first.content == odd
    assert (second.status_code, second.text, second.headers["x-odd"]) == (200, "<html>", "yes")
    assert second.headers["content-type"] == "text/html; charset=utf-8"


async def test_D14_one_byte_per_write() -> None:
    async with ScriptedProvider([dripped("✅ 你😀")]) as provider:
        assert joined(await post(provider), "content") == "✅ 你😀"
    async with ScriptedProvider([dripped(raw(b"abc"))]) as provider:
        assert await exchange(provider) == b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n"


@asynccontextmanager
async def asking(provider: ScriptedProvider) -> AsyncIterator[Wireside]:
    """Send one request on a plain socket."""
    body = json.dumps(ASK).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    async with await anyio.connect_tcp("127.0.0.1", int(provider.host_url.rpartition(":")[2])) as stream:
        await stream.send(head + body)
        yield Wireside(stream)


class Wireside:
    """What a client sees on the wire, with marks for an orderly end and for a reset."""

    def __init__(self, stream: SocketStream) -> None:
        self.received = b""
        self._stream = stream

    @property
    def body(self) -> bytes:
        return self.received.partition(b"\r\n\r\n")[2] if b"\r\n\r\n" in self.received else self.received

    async def read_until(self, *ends: bytes) -> bytes:
        while not self.body.endswith((b"<end>", b"<reset>", *ends)):
            try:
                self.received += await self._stream.receive()
            except anyio.EndOfStream:
                self.received += b"<end>"
            except anyio.BrokenResourceError:
                self.received += b"<reset>"
        return self.body


async def exchange(provider: ScriptedProvider) -> bytes:
    """The bytes after the head of one response, until the server closes or the body ends."""
    async with asking(provider) as wire:
        return await wire.read_until(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("scripted", "seen"),
    [
        (cut(raw(b"abcdef"), after=4), b"4\r\nabcd\r\n<end>"),
        (cut(raw(b"abcdef"), after=0), b"<end>"),
        (cut(raw(b"abcdef")), b"6\r\nabcdef\r\n<end>"),
        (cut(raw(b"abcdef"), after=-1), b"<end>"),
        (cut(raw(b"abcdef"), after=4, reset=True), b"4\r\nabcd\r\n<reset>"),
        (cut(raw(b"abcdef"), after=-1, reset=True), b"<reset>"),
        (framed(raw(b"abcdef"), "close"), b"abcdef<end>"),
        (cut(framed(raw(b"abcdef"), "length"), after=2), b"ab<end>"),
        (cut(dripped(raw(b"abcdef"), size=4), after=5), b"4\r\nabcd\r\n1\r\ne\r\n<end>"),
    ],
)
async def test_a_connection_is_cut_at_the_byte(scripted: Any, seen: bytes) -> None:
    async with ScriptedProvider([scripted]) as provider:
        assert await exchange(provider) == seen


async def test_D10_a_client_sees_a_cut_as_a_broken_stream() -> None:
    async with ScriptedProvider([cut("hello world", after=250, reset=True)]) as provider:
        with pytest.raises(httpx2.TransportError):
            await post(provider)


@pytest.mark.parametrize(
    ("after", "before", "rest"),
    [
        (-1, b"", b"6\r\nabcdef\r\n0\r\n\r\n"),
        (0, b"", b"6\r\nabcdef\r\n0\r\n\r\n"),
        (3, b"3\r\nabc\r\n", b"3\r\ndef\r\n0\r\n\r\n"),
        (1000, b"6\r\nabcdef\r\n", b"0\r\n\r\n"),
    ],
)
async def test_a_stalled_reply_goes_on_when_released(after: int, before: bytes, rest: bytes) -> None:
    async with ScriptedProvider([stalled(raw(b"abcdef"), after=after)]) as provider, asking(provider) as wire:
        if before:
            await wire.read_until(before)
        with anyio.move_on_after(0.05):
            await wire.read_until(rest)
        assert wire.body == before
        assert bool(wire.received) == (after >= 0)
        provider.release()
        assert await wire.read_until(rest) == before + rest


async def test_E10_a_client_that_leaves_is_noticed() -> None:
    async with ScriptedProvider([turn("hello", hang())]) as provider, anyio.create_task_group() as tasks:
        tasks.start_soon(post, provider)
        await provider.wait_for_requests(1)
        assert not provider.requests[0].client_left
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(5):
            await provider.wait_for_departures(1)
    assert provider.requests[0].client_left


async def test_a_pause_keeps_the_next_words_back() -> None:
    go = anyio.Event()
    received = ""
    async with (
        ScriptedProvider([turn("before", pause(go.wait), "after!")]) as provider,
        httpx2.AsyncClient(verify=TLS) as client,
        client.stream("POST", f"{provider.base_url}/chat/completions", json=ASK) as response,
    ):
        async for line in response.aiter_lines():
            received += line
            if '"content":"before"' in line:
                assert "after!" not in received
                go.set()
    assert "after!" in received


async def test_the_fault_of_a_turn_is_what_a_provider_would_do() -> None:
    refused = turn(fault=fail("timeout", "overloaded", "busy", http_status=503, retry_after=2.5))
    thoughtful = turn(think("01234"), pause(0), say("56789"), delta_size=4, fault=fail("timeout", after=3))
    too_long = turn(call("t", "0123456789", id="c"), delta_size=4, fault=fail("malformed", cut_off=True, after=2))
    broken = turn("0123456789", delta_size=4, fault=fail("timeout", after=2))
    async with ScriptedProvider([refused, too_long, broken, thoughtful]) as provider:
        first, second = await post(provider), await post(provider)
        third, fourth = await exchange(provider), await exchange(provider)
    assert (first.status_code, first.headers["retry-after"], first.json()["error"]["message"]) == (503, "2.5", "busy")
    assert "".join(p["function"]["arguments"] for p in call_pieces(second)) == "01234567"
    assert finish_reasons(second) == ["length"]
    assert b'"0123"' in third
    assert b'"4567"' in third
    assert b'"89"' not in third
    assert b'"5678"' in fourth
    assert b'"9"' not in fourth
    assert third.endswith(b"<reset>")


# ---------------------------------------------------------------- lifetime


async def test_an_error_in_the_block_comes_out_unchanged() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with ScriptedProvider(["unused"]):
            raise KeyError("mine")


async def test_leaving_the_block_ends_a_hanging_reply_and_frees_the_port() -> None:
    async with ScriptedProvider([stalled("never")]) as provider:
        port = int(provider.host_url.rpartition(":")[2])
        stream = await anyio.connect_tcp("127.0.0.1", port)
        await stream.send(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
        await provider.wait_for_requests(1)
    await stream.aclose()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    assert listener.extra(SocketAttribute.local_port) == port
    await listener.aclose()


async def test_many_deltas_are_sent_whole_and_prepared_ones_are_the_same() -> None:
    text = "".join(f"{n:08d}" for n in range(20_000))
    async with ScriptedProvider([text, prepared(text, ASK)]) as provider:
        worded, ready = await post(provider), await post(provider)
    assert joined(worded, "content") == text
    assert ready.content == worded.content.replace(b"chatcmpl-2", b"chatcmpl-1")


def test_the_server_in_a_thread_serves_blocking_code() -> None:
    with serve_in_thread([stalled("hello"), turn(hang())]) as provider:
        provider.release()
        response = httpx2.post(f"{provider.base_url}/chat/completions", json=ASK)
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{provider.base_url}/chat/completions", json=ASK, timeout=0.2)
        provider.wait_for_requests(2)
        provider.wait_for_departures(1)
        with pytest.raises(TimeoutError):
            provider.wait_for_requests(3, timeout=0.01)
    assert joined(response, "content") == "hello"
    assert [request.client_left for request in provider.requests] == [False, True]
    provider.assert_exhausted()


def test_the_server_in_a_process_reads_its_script_from_a_file(tmp_path: Path) -> None:
    script, record = tmp_path / "script.json", tmp_path / "requests.jsonl"
    script.write_text('["hello", {"status": 429, "retry_after": "2"}]')
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "penguin.testing.provider_server",
        str(script),
        "--record",
        str(record),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        base_url = json.loads(process.stdout.readline())["base_url"]
        first = httpx2.post(f"{base_url}/chat/completions", json=ASK)
        second = httpx2.post(f"{base_url}/chat/completions", json=ASK)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""
    assert joined(first, "content") == "hello"
    assert (second.status_code, second.headers["retry-after"]) == (429, "2")
    assert [json.loads(line)["body"] for line in record.read_text().splitlines()] == [ASK, ASK]


def test_everything_public_can_be_imported_and_nothing_else() -> None:
    for name in penguin.testing.__all__:
        assert getattr(penguin.testing, name) is not None
    with pytest.raises(AttributeError):
        penguin.testing.NothingLikeThat  # noqa: B018
