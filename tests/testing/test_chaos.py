from __future__ import annotations

import pytest

from penguin.protocol import builders
from penguin.protocol.errors import ScriptError
from penguin.protocol.interfaces import Emit, GenerateRequest, LLMOutcome, ModelConfig
from penguin.protocol.messages import Message, TokenUsage
from penguin.testing import ChaosModel, ScriptedModel, StreamChecker, call, say, think, turn, usage

pytestmark = pytest.mark.anyio

LONG = turn(think("hm"), say("some words that take a while to say"), call("t", {"text": "more and more"}, id="c"))


async def attempts(
    seed: int, count: int = 60, *, fault_rate: float, fatal: bool = False
) -> tuple[list[LLMOutcome], ChaosModel]:
    """Many attempts, each on a fresh inner model; all streams are checked, and nothing failed is remembered."""
    outcomes = []
    shared = ChaosModel(ScriptedModel([]), seed, fault_rate=fault_rate, fatal=fatal)
    for _ in range(count):
        inner = ScriptedModel([LONG])
        shared._inner = inner
        checker = StreamChecker(streamed_only=True)
        outcome = await shared.stream_generate(GenerateRequest([builders.user_text("go")]), checker.observe)
        checker.finish()
        assert bool(inner.history) == (outcome.status == "completed")
        assert isinstance(checker.messages[-1].payload, TokenUsage) if inner.history else True
        reasons = {getattr(message.payload, "stop_reason", None) for message in checker.messages}
        assert reasons <= {None, outcome.status}
        outcomes.append(outcome)
    return outcomes, shared


async def test_faults_strike_before_and_within_and_every_stream_is_well_framed() -> None:
    outcomes, model = await attempts(seed=1, fault_rate=0.6)
    statuses = [outcome.status for outcome in outcomes]
    assert {"completed", "timeout", "malformed"} == set(statuses)
    assert len(model.faults) == sum(status != "completed" for status in statuses)
    assert any(fault.after for fault in model.faults)
    assert any(outcome.error and outcome.error.http_status == 503 for outcome in outcomes)
    assert 15 < len(model.faults) < 50


async def test_the_same_seed_makes_the_same_faults() -> None:
    first, _ = await attempts(seed=5, fault_rate=0.5)
    again, _ = await attempts(seed=5, fault_rate=0.5)
    other, _ = await attempts(seed=6, fault_rate=0.5)
    assert first == again
    assert first != other


async def test_no_faults_or_only_faults() -> None:
    calm, _ = await attempts(seed=1, fault_rate=0.0)
    assert {outcome.status for outcome in calm} == {"completed"}
    fatal, _ = await attempts(seed=1, fault_rate=1.0, fatal=True)
    assert "failed" in {outcome.status for outcome in fatal}


async def test_a_cut_that_comes_too_late_lets_the_turn_stand() -> None:
    class Deaf:
        """Never awaits, so it cannot notice a cancellation."""

        async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
            emit(builders.partial_text("start"))
            emit(builders.partial_text("stop"))
            emit(builders.assistant_text(""))
            emit(builders.token_usage(usage(output=1), usage(output=1)))
            return LLMOutcome("completed")

    for seed in range(40):
        model = ChaosModel(Deaf(), seed, fault_rate=1.0)
        checker = StreamChecker(streamed_only=True)
        outcome = await model.stream_generate(GenerateRequest([builders.user_text("go")]), checker.observe)
        checker.finish()
        assert len(checker.messages) == (4 if outcome.status == "completed" else 0)
        assert (outcome.status == "completed") == (not model.faults)


async def test_contexts_of_a_factory_share_the_seed() -> None:
    script = ScriptedModel([LONG] * 40)
    build = ChaosModel.around(script.factory(), seed=3, fault_rate=0.5)
    statuses = []
    for _ in range(20):
        model = build(ModelConfig("p", "m"))
        outcome = await model.stream_generate(GenerateRequest([builders.user_text("go")]), lambda _: None)
        statuses.append(outcome.status)
    assert len(set(statuses)) > 1


async def test_history_goes_to_the_inner_model_if_it_takes_one() -> None:
    inner = ScriptedModel([])
    history: list[Message] = [builders.user_text("before")]
    ChaosModel(inner, 1).set_history(history)
    assert inner.history == history

    class Forgetful:
        async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
            return LLMOutcome("completed")

    with pytest.raises(ScriptError):
        ChaosModel(Forgetful(), 1).set_history(history)
