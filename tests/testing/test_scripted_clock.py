"""Delays obey a fake clock: trio's autojump lets an hour pass at once."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest
import trio.testing

from penguin.protocol import builders
from penguin.protocol.interfaces import GenerateRequest
from penguin.testing import ScriptedModel, pause, turn


@pytest.fixture
def anyio_backend() -> Any:
    return ("trio", {"clock": trio.testing.MockClock(autojump_threshold=0)})


@pytest.mark.anyio
async def test_delays_take_the_time_they_say() -> None:
    began, clock = time.monotonic(), anyio.current_time()
    scripted = turn("abcd", pause(1000), "e", delay=500, delta_size=1, delta_delay=100)
    await ScriptedModel([scripted]).stream_generate(GenerateRequest([builders.user_text("go")]), lambda _: None)
    assert anyio.current_time() - clock == pytest.approx(500 + 5 * 100 + 1000)
    assert time.monotonic() - began < 10
