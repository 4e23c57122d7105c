"""Limits on tokens, money, requests and time (E23)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.engine_kit import Drive, allow, text_of

from penguin.engine.budget import Budget, Limits, Prices
from penguin.engine.engine import EngineSettings
from penguin.protocol.builders import user_text
from penguin.protocol.events import TokenCounts
from penguin.testing.turns import call, turn, usage

pytestmark = pytest.mark.anyio

PRICES = Prices(cache_read=1.0, cache_write=10.0, output=100.0)
LOOP = turn(call("echo", {"text": "again"}), usage=usage(cache_write=100, output=10))


def test_E23_money_is_tokens_times_prices_by_class() -> None:
    assert PRICES.cost(TokenCounts(1_000_000, 1_000_000, 1_000_000, 3_000_000)) == 111.0


@pytest.mark.parametrize(
    ("limits", "requests"),
    [
        (Limits(turns=3), 3),
        (Limits(tokens=340), 3),
        (Limits(tokens=329), 2),
        (Limits(usd=0.004), 2),
        (Limits(seconds=0), 0),
        (Limits(), 4),
    ],
)
async def test_E23_the_task_ends_before_the_request_that_could_exceed_a_limit(limits: Any, requests: int) -> None:
    drive = Drive([LOOP, LOOP, LOOP, "done"], settings=EngineSettings(limits=limits, prices=PRICES))
    result = await drive.run()
    assert len(drive.scripted.requests) == requests
    assert result.stop_reason == ("completed" if requests == 4 else "budget")
    drive.check()


async def test_E23_what_was_not_sent_becomes_carry_over() -> None:
    drive = Drive([LOOP, "after"], settings=EngineSettings(limits=Limits(turns=1)))
    result = await drive.run("first")
    assert result.error is not None
    assert "1 of 1 requests" in result.error.message
    await drive.run("go on")
    assert drive.sent_texts() == ["again", "go on"]
    assert text_of(drive.engine.ledger.history[-1]) == "after"
    drive.check()


async def test_E23_a_budget_of_the_session_above_is_drawn_on_too() -> None:
    shared = Budget(Limits(tokens=200))
    drive = Drive([LOOP, LOOP, "never"])
    result = await drive.engine.run([user_text("go")], approve=allow, budgets=[shared])
    assert result.stop_reason == "budget"
    assert shared.tokens.total == 110
