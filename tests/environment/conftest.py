from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.tool import Confinement
from penguin.protocol.builders import tool_call
from penguin.protocol.interfaces import ToolExecutionRequest
from penguin.protocol.messages import Message, PartialToolCallOutput, ToolCallOutput
from penguin.testing.framing import assert_well_framed


class Desk:
    """Calls tools of an environment as an engine would, and checks the framing of every answer."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.messages: list[Message] = []
        self._ids = count(1)

    async def call(self, name: str, /, **args: Any) -> ToolCallOutput:
        return await self.call_with_text(name, msgspec.json.encode(args).decode())

    async def call_with_text(self, name: str, arguments: str) -> ToolCallOutput:
        call = tool_call(name, arguments, f"call_{next(self._ids)}")
        self.messages = []
        await self.environment.execute_tool(ToolExecutionRequest(call), self.messages.append)
        return self.answer()

    def answer(self) -> ToolCallOutput:
        assert_well_framed(self.messages)
        complete = self.messages[-1].payload
        assert isinstance(complete, ToolCallOutput)
        assert complete.output.strip()
        complete.output.encode()
        return complete

    @property
    def deltas(self) -> list[str]:
        return [
            message.payload.output
            for message in self.messages
            if isinstance(message.payload, PartialToolCallOutput) and message.payload.event_type == "delta"
        ]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "ws"
    path.mkdir()
    return path


@pytest.fixture
def scratchpad(tmp_path: Path) -> Path:
    return tmp_path / "scratchpad" / "session-1"


@pytest.fixture
def make_desk(workspace: Path, scratchpad: Path) -> Callable[..., Desk]:
    """A desk over a new environment; called twice it is the same session, resumed."""

    def make(*tools: Any, builtin: Any = None, confinement: Confinement | None = None, **fields: Any) -> Desk:
        chosen = () if tools and builtin is None else builtin
        config = EnvironmentConfig(
            workspace,
            ToolConfig(builtin=chosen, custom_tools=tools),
            scratchpad_dir=scratchpad,
            confinement=confinement,
            **fields,
        )
        return Desk(Environment(config))

    return make
