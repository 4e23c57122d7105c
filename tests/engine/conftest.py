"""Engine tests hold on both backends; on trio a minute of waiting takes no time."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(("asyncio", {}), id="asyncio"),
        pytest.param(("trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}), id="trio"),
    ],
)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param
