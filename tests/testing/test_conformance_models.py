from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import anyio
import anyio.lowlevel
import msgspec
import pytest

from penguin.adapters import from_generator
from penguin.protocol import builders as b
from penguin.protocol.interfaces import Emit, GenerateRequest, LLMInterface, LLMOutcome, ModelError
from penguin.protocol.messages import Message, Text, TokenUsage
from penguin.testing import (
    ChaosModel,
    ScriptedModel,
    TurnLike,
    assert_well_framed,
    call,
    check_llm,
    fail,
    say,
    think,
    turn,
    usage,
)

pytestmark = pytest.mark.anyio

TURNS: list[TurnLike] = [
    turn(think("hm"), say("I will look."), call("t", {"a": 1}, id="c1"), call("t", id="c2"), interleaved=True),
    turn(say("Again."), call("t", id="c3")),
    "Done.",
]


def scripted() -> ScriptedModel:
    return ScriptedModel(TURNS)


def faulty() -> ScriptedModel:
    return ScriptedModel([turn(say("half of it"), fault=fail("timeout", after=1))])


def history_of(model: LLMInterface) -> list[Message]:
    assert isinstance(model, ScriptedModel)
    return model.history


async def test_a_scripted_model_conforms() -> None:
    await check_llm(scripted, failing=faulty, history=history_of)


async def test_a_calm_chaos_model_conforms() -> None:
    def stormy() -> ChaosModel:
        return ChaosModel(ScriptedModel(["x" * 1000]), 1, fault_rate=1)

    await check_llm(lambda: ChaosModel(scripted(), 1, fault_rate=0), failing=stormy)


# ---------------------------------------------------------------- generator style


class Reciter:
    """A model in generator style, with a history of its own."""

    def __init__(self, words: str = "Hello there.") -> None:
        self.history: list[Message] = []
        self.words = words

    def set_history(self, messages: list[Message]) -> None:
        self.history = list(messages)

    async def stream_generate(self, request: GenerateRequest) -> AsyncIterator[Message | LLMOutcome]:
        if any(isinstance(m.payload, Text) and m.payload.role == "assistant" for m in request.new_messages):
            yield LLMOutcome("failed", ModelError("bad_request", "these are my words"))
            return
        yield b.partial_text("start")
        for word in self.words.split():
            await anyio.lowlevel.checkpoint()
            yield b.partial_text("delta", word)
        said = b.assistant_text(self.words.replace(" ", ""))
        yield b.partial_text("stop")
        yield said
        counts = usage(cache_write=1, output=1)
        yield b.token_usage(counts, counts)
        self.history += [*request.new_messages, said]
        yield LLMOutcome("completed")


async def test_a_model_in_generator_style_conforms() -> None:
    reciters: list[Reciter] = []

    def build() -> LLMInterface:
        reciters.append(Reciter())
        return from_generator(reciters[-1])

    await check_llm(build, history=lambda _: reciters[-1].history)
    assert reciters[-1].history[0].payload == b.user_text("Do you remember?").payload


# ---------------------------------------------------------------- models that do not conform

Change = Callable[[Message], list[Message]]


class Distorting:
    """A good model whose messages pass through a function that breaks something."""

    def __init__(self, change: Change, inner: LLMInterface | None = None) -> None:
        self._inner = inner or scripted()
        self._change = change

    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        def distorted(message: Message) -> None:
            for each in self._change(message):
                emit(each)

        return await self._inner.stream_generate(request, distorted)


def without_usage(message: Message) -> list[Message]:
    return [] if isinstance(message.payload, TokenUsage) else [message]


def without_stops(message: Message) -> list[Message]:
    return [] if getattr(message.payload, "event_type", "") == "stop" else [message]


def without_partials(message: Message) -> list[Message]:
    return [] if b.is_partial(message) else [message]


def usage_twice(message: Message) -> list[Message]:
    return [message, message] if isinstance(message.payload, TokenUsage) else [message]


def usage_first(message: Message) -> list[Message]:
    return [message, *text("late")] if isinstance(message.payload, TokenUsage) else [message]


def wrong_total(message: Message) -> list[Message]:
    if isinstance(message.payload, TokenUsage):
        counts = msgspec.structs.replace(message.payload.request, total=1)
        return [b.token_usage(counts, counts)]
    return [message]


def with_events(message: Message) -> list[Message]:
    return [b.request_begin(), message]


def with_origin(message: Message) -> list[Message]:
    return [b.with_origin(message, "child")]


def with_words_of_the_user(message: Message) -> list[Message]:
    return [message, b.user_text("me")] if isinstance(message.payload, TokenUsage) else [message]


def text(words: str) -> list[Message]:
    return [b.partial_text("start"), b.partial_text("delta", words), b.partial_text("stop"), b.assistant_text(words)]


class Raising:
    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        raise ConnectionError("no route")


class Credulous:
    """Takes words of the assistant for a request."""

    def __init__(self) -> None:
        self._inner = scripted()

    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        own = [m for m in request.new_messages if getattr(m.payload, "role", "") == "user"]
        return await self._inner.stream_generate(GenerateRequest(own), emit)


class Leaking:
    """Closes nothing when it is cancelled."""

    def __init__(self) -> None:
        self._inner = scripted()

    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        def only_completed(message: Message) -> None:
            if getattr(message.payload, "stop_reason", None) != "aborted":
                emit(message)

        return await self._inner.stream_generate(request, only_completed)


class Hasty:
    """Remembers the request before the attempt completed."""

    def __init__(self) -> None:
        self._inner = scripted()
        self.history: list[Message] = []

    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        said: list[Message] = []

        def remember(message: Message) -> None:
            emit(message)
            if b.is_complete_model_message(message):
                said.append(message)

        before = len(self.history)
        self.history += request.new_messages
        outcome = await self._inner.stream_generate(request, remember)
        if outcome.status == "completed":
            self.history += said
        else:
            del self.history[before:]
        return outcome


BROKEN: list[tuple[str, Callable[[], LLMInterface], str]] = [
    ("raises", Raising, "L1: the first turn raised ConnectionError: no route"),
    ("no usage", lambda: Distorting(without_usage), "token_usage 0 times"),
    ("usage twice", lambda: Distorting(usage_twice), "token_usage 2 times"),
    ("usage first", lambda: Distorting(usage_first), "token_usage is not the last"),
    ("wrong total", lambda: Distorting(wrong_total), "not the sum of its parts"),
    ("no stops", lambda: Distorting(without_stops), "P8: in the first turn .*complete without a stop"),
    ("not streamed", lambda: Distorting(without_partials), "comes whole"),
    ("events of the engine", lambda: Distorting(with_events), "emitted a RequestBegin"),
    ("origin", lambda: Distorting(with_origin), "with an origin"),
    ("words of the user", lambda: Distorting(with_words_of_the_user), "words of the user"),
    ("repeated ids", lambda: ScriptedModel([call("t", id="c"), call("t", id="c"), "x"]), "L9: tool call ids repeat"),
    ("illegal ids", lambda: ScriptedModel([call("t", id="c#1"), "x", "x"]), "illegal tool call id 'c#1'"),
    ("fails", faulty, "the first turn ended timeout: scripted fault"),
    ("takes anything", Credulous, "L1: a request with words of the assistant ended completed"),
    ("leaves segments open", Leaking, "P8: in an attempt cancelled at message 1 .*was never closed"),
    ("silent", lambda: ScriptedModel([turn(), turn(), turn()]), "without saying anything"),
]


@pytest.mark.parametrize(("build", "complaint"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
async def test_a_broken_model_is_told_what_is_wrong(build: Callable[[], LLMInterface], complaint: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){complaint}"):
        await check_llm(build)


async def test_L1_a_history_that_grows_too_early_is_noticed() -> None:
    def of_hasty(model: LLMInterface) -> list[Message]:
        assert isinstance(model, Hasty)
        return model.history

    with pytest.raises(AssertionError, match="L1: after an attempt cancelled at message 1 the history is"):
        await check_llm(Hasty, history=of_hasty)


async def test_a_failing_model_has_to_fail() -> None:
    with pytest.raises(AssertionError, match="completed its first attempt"):
        await check_llm(scripted, failing=scripted)


async def test_P9_segments_of_a_failed_attempt_agree_with_it() -> None:
    class Lying:
        async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
            outcome = await faulty().stream_generate(request, emit)
            return LLMOutcome("malformed", outcome.error)

    with pytest.raises(AssertionError, match="P9: the attempt ended malformed, but a segment of it says timeout"):
        await check_llm(scripted, failing=Lying)


async def test_the_kit_uses_streams_that_are_well_framed() -> None:
    """The fault model of these tests is itself in order, so that a complaint is about the thing distorted."""
    messages: list[Message] = []
    await faulty().stream_generate(GenerateRequest([b.user_text("x")]), messages.append)
    assert_well_framed(messages, streamed_only=True)
