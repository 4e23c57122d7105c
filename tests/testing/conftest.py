"""The fakes hold on both backends, because engine tests use them on both."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(params=["asyncio", "trio"], scope="session")
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param
