"""One attempt from request to outcome: history, clocks, cancellation, errors. The transport is in memory."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from typing import Any

import anyio
import pytest
import trio.testing
from msgspec import Raw
from tests.support.llm_kit import (
    CALLS,
    DONE,
    STOP,
    Answer,
    Said,
    ask,
    call,
    chunk,
    config,
    model,
    text,
    usage,
)

from penguin.llm.model import GenerativeModel, create_model
from penguin.llm.sse import EventSplitter
from penguin.llm.transport import TransportError, UndecodableBody
from penguin.protocol.builders import assistant_text, tool_call, tool_call_output, user_text
from penguin.protocol.call_ids import ToolCallIdAllocator
from penguin.protocol.errors import ConfigError
from penguin.protocol.interfaces import GenerateRequest, LLMOutcome, SupportsHistory
from penguin.protocol.messages import (
    Message,
    PartialText,
    PartialToolCall,
    Text,
    ThinkingLevel,
    TokenUsage,
    ToolCall,
)
from penguin.testing.framing import assert_well_framed

pytestmark = pytest.mark.anyio
SECRET = "sk-very-secret-0123456789"


def error_kind(outcome: LLMOutcome) -> str:
    assert outcome.error is not None
    return outcome.error.kind


def refusing(status: int, body: object, **headers: str) -> Answer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer([content], status, {name.replace("_", "-"): value for name, value in headers.items()})


# --- history ------------------------------------------------------------------------------------------


async def test_L1_only_a_completed_attempt_joins_the_history() -> None:
    one, transport = model(
        Answer([text("half")]), TransportError("gone"), Answer([text("whole"), STOP]), Answer([text("x"), STOP])
    )
    assert [(await ask(one, user_text("a"))).outcome.status for _ in range(3)] == ["malformed", "timeout", "completed"]
    await ask(one, user_text("b"))
    assert [m["role"] for m in transport.bodies()[3]["messages"]] == ["user", "assistant", "user"]
    assert transport.bodies()[3]["messages"][1]["content"][0]["text"] == "whole"


async def test_L1_set_history_continues_an_earlier_process() -> None:
    one, transport = model(Answer([call("{}", index=0, id="same", name="list_tasks"), CALLS]))
    assert isinstance(one, SupportsHistory)
    one.set_history(
        [user_text("a"), tool_call("list_tasks", "{}", "same"), tool_call_output("x", "same"), assistant_text("b")]
    )
    said = await ask(one, user_text("c"))
    assert said.calls()[0].tool_call_id == "same_2"
    assert [m["role"] for m in transport.bodies()[0]["messages"]] == ["user", "assistant", "tool", "assistant", "user"]


async def test_L9_the_sessions_allocator_is_used() -> None:
    ids = ToolCallIdAllocator()
    ids.observe("call_0")
    one, _ = model(Answer([call("{}", index=0, id="call_0", name="list_tasks"), CALLS]), tool_call_ids=ids)
    assert (await ask(one)).calls()[0].tool_call_id == "call_0_2"


@pytest.mark.parametrize("messages", [[assistant_text("no")], [user_text("a"), tool_call("ls", "{}", "c")]])
async def test_new_messages_of_the_models_side_are_refused(messages: list[Message]) -> None:
    one, transport = model()
    said = await ask(one, *messages)
    assert (said.outcome.status, error_kind(said.outcome)) == ("failed", "bad_request")
    assert transport.requests == []


async def test_nothing_to_send_is_refused() -> None:
    one, _ = model()
    assert (await one.stream_generate(GenerateRequest([]), print)).status == "failed"


async def test_T12_the_digest_is_of_the_body_as_sent() -> None:
    one, transport = model(Answer([text("a"), STOP]), TransportError("gone"))
    first, second = await ask(one), await ask(one)
    assert first.outcome.request_digest == sha256(transport.requests[0].body).hexdigest()
    assert second.outcome.request_digest == sha256(transport.requests[1].body).hexdigest()


async def test_the_request() -> None:
    one, transport = model(Answer([text("a"), STOP]), api_key=SECRET, base_url="http://h.example/v1/?v=1")
    await ask(one)
    request = transport.requests[0]
    assert request.url == "http://h.example/v1/chat/completions?v=1"
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in repr(request)
    assert SECRET not in repr(config(api_key=SECRET))


async def test_a_local_server_gets_no_key() -> None:
    one, transport = model(Answer([text("a"), STOP]))
    await ask(one)
    assert "authorization" not in transport.requests[0].headers


async def test_L11_the_output_limit_in_the_request() -> None:
    limited, sent = model(Answer([text("a"), STOP]), max_tokens=32_000, context_window=8_192)
    unknown, without = model(Answer([text("a"), STOP]), max_tokens=32_000)
    await ask(limited)
    await ask(unknown)
    assert 5_000 < sent.bodies()[0]["max_tokens"] < 7_168
    assert not {"max_tokens", "max_completion_tokens"} & without.bodies()[0].keys()


async def test_L16_the_level_of_a_request_overrides_the_models() -> None:
    one, transport = model(
        Answer([text("a"), STOP]),
        Answer([text("a"), STOP]),
        provider="openai",
        model_id="gpt-5",
        client_type="openai-chat",
        thinking_level="low",
    )
    await one.stream_generate(GenerateRequest([user_text("a")]), lambda _: None)
    await one.stream_generate(GenerateRequest([user_text("a")], "high"), lambda _: None)
    assert [body["reasoning_effort"] for body in transport.bodies()] == ["low", "high"]


@pytest.mark.parametrize(("model_id", "wanted"), [("gpt-5.6", "high"), ("gpt-5.5", "high"), ("gpt-5.4", "low")])
async def test_L16_a_combination_that_is_refused_is_not_sent_and_that_is_said_once(
    model_id: str, wanted: ThinkingLevel
) -> None:
    answers = [Answer([text("a"), STOP]), Answer([text("b"), STOP])]
    of = {"provider": "openai", "model_id": model_id, "client_type": "openai-chat", "thinking_level": wanted}
    one, transport = model(*answers, **of)
    first, second = await ask(one), await ask(one)
    assert [body["reasoning_effort"] for body in transport.bodies()] == ["none", "none"]
    assert f"{model_id} did not think" in (first.outcome.note or "")
    assert "openai-responses" in (first.outcome.note or "")
    assert second.outcome.note is None


async def test_L16_tools_and_thinking_go_together_wherever_they_can() -> None:
    of: dict[str, Any] = {"provider": "openai", "client_type": "openai-chat", "thinking_level": "high"}
    for more in ({"model_id": "gpt-5"}, {"model_id": "gpt-5.6", "tools": []}):
        one, transport = model(Answer([text("a"), STOP]), **of, **more)
        assert (await ask(one)).outcome.note is None
        assert transport.bodies()[0]["reasoning_effort"] == "high"


async def test_L16_without_a_wish_nothing_is_remarked_and_the_default_is_turned_off() -> None:
    of = {"provider": "openai", "model_id": "gpt-5.6", "client_type": "openai-chat"}
    one, transport = model(Answer([text("a"), STOP]), **of)
    assert (await ask(one)).outcome.note is None
    assert transport.bodies()[0]["reasoning_effort"] == "none"


def test_L7_a_model_that_reasons_speaks_responses_unless_its_entry_says_otherwise() -> None:
    urls = [
        GenerativeModel(config(provider="openai", model_id="gpt-5.6", base_url=None, client_type=named))._adapter.url()
        for named in (None, "openai-chat")
    ]
    assert urls == ["https://api.openai.com/v1/responses", "https://api.openai.com/v1/chat/completions"]


@pytest.mark.parametrize(
    ("base_url", "client_type", "path"),
    [
        ("https://proxy.example/v1", None, "/v1/chat/completions"),
        ("https://proxy.example/v1", "openai-responses", "/v1/responses"),
        ("https://api.openai.com/v1/", None, "/v1/responses"),
    ],
)
def test_L7_another_address_of_a_provider_is_spoken_to_as_everybody_does(
    base_url: str, client_type: str | None, path: str
) -> None:
    of = config(provider="openai", model_id="gpt-5", base_url=base_url, client_type=client_type)
    assert GenerativeModel(of)._adapter.url().endswith(path)


async def test_L16_a_proxy_is_not_told_to_leave_its_protocol_out() -> None:
    of = {"provider": "openai", "model_id": "gpt-5.6", "thinking_level": "high"}
    one, _ = model(Answer([text("a"), STOP]), **of)
    note = (await ask(one)).outcome.note or ""
    assert "did not think" in note
    assert "take it out" not in note


@pytest.mark.parametrize("status", [404, 405])
async def test_L4_an_address_that_is_not_there_may_speak_another_protocol(status: int) -> None:
    one, _ = model(refusing(status, {"error": {"message": "no such path"}}))
    error = (await ask(one)).outcome.error
    assert error is not None
    assert all(name in error.message for name in ("`model_id`", "`base_url`", "`client_type`"))


# --- which model --------------------------------------------------------------------------------------


@pytest.mark.parametrize("client_type", ["openai-chat", "openai", None])
def test_the_factory_knows_the_client_types(client_type: str | None) -> None:
    assert isinstance(create_model(config(client_type=client_type)), GenerativeModel)


def test_an_unknown_client_type_names_the_allowed_ones() -> None:
    with pytest.raises(ConfigError, match=r"'telnet'.*openai-chat"):
        create_model(config(client_type="telnet"))


@pytest.mark.parametrize("base_url", [None, "ftp://x/v1", "localhost:8080/v1"])
def test_an_address_is_needed(base_url: str | None) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        create_model(config(base_url=base_url))


def test_L17_an_address_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError, match="base_url") as refused:
        create_model(config(base_url="ftp://me:hushhush@host/v1"))
    assert "hushhush" not in str(refused.value)


# --- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "kind"),
    [
        (refusing(401, {"error": {"message": f"bad key {SECRET}"}}), "failed", "auth"),
        (refusing(429, {"error": {"message": "slow down"}}, retry_after="2"), "timeout", "rate_limit"),
        (refusing(429, {"error": {"message": "x", "code": "insufficient_quota"}}), "failed", "quota"),
        (refusing(413, b""), "failed", "context_overflow"),
        (refusing(400, {"error": {"message": "maximum context length is 10 tokens"}}), "failed", "context_overflow"),
        (refusing(503, b"<html><title>Bad</title></html>"), "timeout", "overloaded"),
        (refusing(404, b"404 page not found"), "failed", "bad_request"),
        (refusing(302, b"", location="/login"), "failed", "bad_request"),
        (TransportError("refused", sent=False), "timeout", "network"),
        (Answer([text("x"), TransportError("reset")]), "malformed", "network"),
        (Answer([UndecodableBody("not gzip")]), "malformed", "malformed"),
    ],
)
async def test_L4_outcomes(answer: Answer | Exception, status: str, kind: str) -> None:
    one, _ = model(answer, api_key=SECRET)
    said = await ask(one)
    assert (said.outcome.status, error_kind(said.outcome)) == (status, kind)
    assert SECRET not in repr(said.outcome)
    assert said.outcome.request_digest is not None


async def test_D64_retry_after_reaches_the_outcome() -> None:
    one, _ = model(refusing(429, b"", retry_after="2"), refusing(503, b"", retry_after="soon"))
    first, second = (await ask(one)).outcome, (await ask(one)).outcome
    assert first.error is not None
    assert first.error.retry_after == 2.0
    assert second.error is not None
    assert second.error.retry_after is None


async def test_L17_auth_errors_name_the_setting() -> None:
    one, _ = model(refusing(401, b""), provider="openai", model_id="gpt-5", base_url=None, api_key=SECRET)
    outcome = (await ask(one)).outcome
    assert outcome.error is not None
    assert "OPENAI_API_KEY" in outcome.error.message
    assert "openai/gpt-5" in outcome.error.message


@pytest.mark.parametrize("key", ["sk-\n", "schlüssel", "a\x00b"])
async def test_L17_a_key_that_cannot_be_sent_is_not_shown(key: str) -> None:
    one, transport = model(api_key=key)
    outcome = (await ask(one)).outcome
    assert error_kind(outcome) == "auth"
    assert key not in repr(outcome)
    assert transport.requests == []


async def test_L1_a_fault_of_ours_is_an_outcome_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    one, _ = model(Answer([text("x"), ZeroDivisionError(f"oops {SECRET}")]), api_key=SECRET)
    outcome = (await ask(one)).outcome
    assert (outcome.status, error_kind(outcome)) == ("failed", "unknown")
    assert SECRET not in repr(outcome)
    assert "model side failed" in caplog.text


async def test_one_event_cannot_eat_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penguin.llm.model.EventSplitter", partial(EventSplitter, 99))
    one, _ = model(Answer([b"data: " + b"x" * 60, b"x" * 60, STOP]))
    assert (await ask(one)).outcome.status == "malformed"


async def test_a_failed_attempt_reports_what_the_provider_counted() -> None:
    one, _ = model(
        Answer([call('{"a', index=0, id="a", name="read_file"), chunk(finish="length"), usage(9, 3)]),
        Answer([text("half")]),
    )
    assert (await ask(one)).usage().request.total == 12
    assert not [m for m in (await ask(one)).messages if isinstance(m.payload, TokenUsage)]


async def test_L12_the_estimate_of_a_completed_attempt_keeps_the_providers_numbers() -> None:
    one, _ = model(Answer([text("x" * 40), STOP, usage(7, 0)]))
    counted = (await ask(one)).usage()
    assert (counted.estimated, counted.request.output, counted.request.total) == (True, 10, 17)
    assert isinstance(counted.provider, Raw)


# --- clocks, on a clock of their own ------------------------------------------------------------------


class Silence:
    """Waits on the fake clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def __call__(self) -> None:
        await anyio.sleep(self.seconds)


def timed(*steps: Any, timeout_ms: int = 120_000, **answer: Any) -> tuple[Said, float]:
    """One attempt under trio with a clock that jumps; what was said and after how many seconds it ended."""
    result: list[Any] = []

    async def run() -> None:
        one, _ = model(Answer(steps, **answer), request_timeout_ms=timeout_ms)
        started = trio.current_time()
        said = await ask(one)
        result.append((said, trio.current_time() - started))

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    said, seconds = result[0]
    return said, seconds


def test_L5_no_first_event() -> None:
    said, seconds = timed(Silence(10_000))
    assert (said.outcome.status, error_kind(said.outcome)) == ("timeout", "idle_timeout")
    assert seconds == pytest.approx(120)


def test_L5_silence_between_events() -> None:
    said, seconds = timed(Silence(100), text("a"), Silence(119), text("b"), Silence(10_000))
    assert said.outcome.status == "timeout"
    assert said.texts() == ["ab"]
    assert said.stop_reasons() == ["timeout"]
    assert seconds == pytest.approx(100 + 119 + 120)


def test_L5_a_slow_reply_is_no_timeout() -> None:
    said, _ = timed(*[step for _ in range(30) for step in (Silence(110), text("a"))], STOP)
    assert said.outcome.status == "completed"


def test_L5_comments_are_life_but_only_for_ten_minutes() -> None:
    said, seconds = timed(*[step for _ in range(50) for step in (Silence(100), b": still here\n\n")], text("a"), STOP)
    assert error_kind(said.outcome) == "idle_timeout"
    assert seconds == pytest.approx(600)
    patient, _ = timed(*[step for _ in range(5) for step in (Silence(100), b": still here\n\n")], text("a"), STOP)
    assert patient.outcome.status == "completed"


def test_L5_empty_deltas_are_life_not_output() -> None:
    nothing = [chunk({"role": "assistant", "content": ""}), chunk({}), chunk({"content": None}), call("", index=0)]
    said, seconds = timed(*[step for place in range(40) for step in (Silence(100), nothing[place % 4])], STOP)
    assert error_kind(said.outcome) == "idle_timeout"
    assert "did not begin to answer" in (said.outcome.error.message if said.outcome.error else "")
    assert seconds == pytest.approx(600)
    patient, _ = timed(*[step for _ in range(5) for step in (Silence(100), nothing[0])], text("a"), STOP)
    assert patient.outcome.status == "completed"


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_L5_zero_turns_the_clocks_off(timeout_ms: int) -> None:
    said, _ = timed(Silence(100_000), text("a"), Silence(100_000), STOP, timeout_ms=timeout_ms)
    assert said.outcome.status == "completed"


@pytest.mark.parametrize("timeout_ms", [120_000, 0])
@pytest.mark.parametrize("ending", [[STOP], [STOP, DONE], [DONE], [STOP, usage()]])
def test_a_connection_left_open_after_the_end_does_not_hang(ending: list[bytes], timeout_ms: int) -> None:
    said, seconds = timed(text("hi"), *ending, Silence(10_000), timeout_ms=timeout_ms)
    assert said.outcome.status == "completed"
    assert said.texts() == ["hi"]
    assert seconds <= 2.001


def test_words_that_drip_after_the_finish_do_not_hold_the_reply_open() -> None:
    said, seconds = timed(text("hi"), STOP, *[step for _ in range(100) for step in (Silence(0.5), text("x"))])
    assert said.outcome.status == "completed"
    assert seconds <= 2.001


def test_D08_usage_that_comes_a_second_after_the_finish_still_counts() -> None:
    said, _ = timed(text("hi"), STOP, Silence(1), usage(7, 1), DONE)
    assert said.usage().request.total == 8


JSON_REPLY = json.dumps({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}).encode()
AS_JSON = {"content-type": "application/json"}


def dripping(*pieces: bytes, every: float = 100) -> list[Any]:
    """The pieces, each after a wait."""
    return [step for piece in pieces for step in (Silence(every), piece)]


def test_L5_white_space_in_a_json_body_is_life_not_output() -> None:
    said, seconds = timed(*dripping(*[b" \n"] * 1000), headers=AS_JSON)
    assert error_kind(said.outcome) == "idle_timeout"
    assert "did not begin to answer" in (said.outcome.error.message if said.outcome.error else "")
    assert seconds == pytest.approx(600)
    patient, _ = timed(*dripping(*[b"\n"] * 4, JSON_REPLY), headers=AS_JSON)
    assert patient.texts() == ["Hi"]


def test_L5_a_json_body_that_comes_slowly_is_no_timeout() -> None:
    halves = [JSON_REPLY[:1], b" ", JSON_REPLY[1:11], *[b"\n"] * 4, JSON_REPLY[11:]]
    assert timed(*dripping(*halves), headers=AS_JSON)[0].texts() == ["Hi"]


@pytest.mark.parametrize("timeout_ms", [120_000, 5_000, 0])
@pytest.mark.parametrize(
    ("status", "outcome", "kind"), [(401, "failed", "auth"), (429, "timeout", "rate_limit"), (400, "failed", "quota")]
)
def test_L5_an_error_body_is_read_for_a_bounded_time_and_judged_by_its_status(
    timeout_ms: int, status: int, outcome: str, kind: str
) -> None:
    start = b'{"error":{"message":"insufficient balance' if kind == "quota" else b'{"error":{"message":"no'
    for steps in ([start, Silence(10_000)], [start, *dripping(*[b" "] * 1000, every=1)]):
        said, seconds = timed(*steps, timeout_ms=timeout_ms, status=status)
        assert (said.outcome.status, error_kind(said.outcome)) == (outcome, kind)
        assert start.decode() in (said.outcome.error.message if said.outcome.error else "")
        assert seconds <= 10.001


@pytest.mark.parametrize("came", [b"", b"{"])
async def test_L4_an_error_body_that_breaks_is_judged_by_its_status(came: bytes) -> None:
    said = await ask(model(Answer([came, TransportError("broke")], 401))[0])
    assert (said.outcome.status, error_kind(said.outcome)) == ("failed", "auth")


# --- cancellation -------------------------------------------------------------------------------------


async def interrupted_at(step: int, steps: list[Any]) -> tuple[list[Message], int]:
    """Cancel when ``step`` of the answer is reached; what was emitted, and how many responses were closed."""
    emitted: list[Message] = []
    with anyio.CancelScope() as scope:

        async def cancel() -> None:
            scope.cancel()
            await anyio.sleep_forever()

        hang: Callable[[], Awaitable[None]] = cancel
        one, transport = model(Answer([*steps[:step], hang]))
        await one.stream_generate(GenerateRequest([user_text("go")]), emitted.append)
        raise AssertionError("the cancellation was swallowed")
    return emitted, transport.closed


@pytest.mark.parametrize("step", range(9))
async def test_P8_every_segment_is_closed_when_cancelled(step: int) -> None:
    steps = [
        chunk({"reasoning": "hm"}),
        text("hel"),
        text("lo"),
        call("", index=0, id="a", name="read_file"),
        call('{"a"', index=0),
        call("", index=1, id="b", name="list_tasks"),
        call("{}", index=1),
        CALLS,
    ]
    emitted, closed = await interrupted_at(step, steps)
    assert_well_framed(emitted)
    assert closed == 1
    assert not [m for m in emitted if isinstance(m.payload, ToolCall) and m.payload.stop_reason is None]
    if step > 1:
        assert emitted[-1].payload.stop_reason == "aborted"  # type: ignore[union-attr]


async def test_L1_a_cancelled_attempt_is_not_committed() -> None:
    one, transport = model()

    async def cancel() -> None:
        scope.cancel()
        await anyio.sleep_forever()

    transport.answers = [Answer([text("half"), cancel]), Answer([text("whole"), STOP])]
    with anyio.CancelScope() as scope:
        await one.stream_generate(GenerateRequest([user_text("a")]), lambda _: None)
    await ask(one, user_text("b"))
    assert len(transport.bodies()[1]["messages"]) == 1


# --- segments -----------------------------------------------------------------------------------------


async def test_L2_the_order_of_a_turn() -> None:
    one, _ = model(
        Answer(
            [
                chunk({"reasoning": "hm"}),
                text("hello"),
                call("{}", index=0, id="a", name="read_file"),
                call("{}", index=1, id="b", name="list_tasks"),
                CALLS,
                usage(),
                DONE,
            ]
        )
    )
    said = await ask(one)
    kinds = [type(m.payload).__name__ for m in said.complete()]
    assert kinds == ["Thinking", "Text", "ToolCall", "ToolCall"]
    assert isinstance(said.messages[-1].payload, TokenUsage)


async def test_L3_a_call_is_complete_only_at_the_finish() -> None:
    seen: list[Message] = []
    at_the_finish: list[int] = []

    async def look() -> None:
        at_the_finish.append(len([m for m in seen if isinstance(m.payload, ToolCall)]))

    one, _ = model(Answer([call("{}", index=0, id="a", name="read_file"), look, CALLS]))
    await one.stream_generate(GenerateRequest([user_text("go")]), seen.append)
    assert at_the_finish == [0]
    assert len([m for m in seen if isinstance(m.payload, ToolCall)]) == 1


async def test_text_and_arguments_are_streamed_as_they_come() -> None:
    seen: list[Message] = []
    counts: list[tuple[int, int]] = []

    async def look() -> None:
        texts = [m for m in seen if isinstance(m.payload, PartialText)]
        pieces = [m for m in seen if isinstance(m.payload, PartialToolCall)]
        counts.append((len(texts), len(pieces)))

    one, _ = model(
        Answer(
            [
                text("a"),
                look,
                call("", index=0, id="a", name="read_file"),
                call("{", index=0),
                look,
                call("}", index=0),
                look,
                CALLS,
            ]
        )
    )
    await one.stream_generate(GenerateRequest([user_text("go")]), seen.append)
    assert counts == [(2, 0), (3, 2), (3, 3)]
    assert [m.payload.text for m in seen if isinstance(m.payload, Text)] == ["a"]
