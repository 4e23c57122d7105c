"""A model that asks for the same thing over and over (E24)."""

from __future__ import annotations

from pathlib import Path

import pytest

from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.repeats import RepeatLimits, Repeats
from penguin.protocol.builders import tool_call
from penguin.protocol.interfaces import ToolExecutionRequest
from penguin.protocol.messages import Message, ToolCallOutput
from penguin.testing.framing import assert_well_framed

pytestmark = pytest.mark.anyio


class Counter:
    """A tool that answers the same, or each time something new."""

    def __init__(self) -> None:
        self.runs = 0

    async def same(self) -> str:
        """Answer the same."""
        self.runs += 1
        return "same"

    async def fresh(self) -> str:
        """Answer something new."""
        self.runs += 1
        return str(self.runs)


async def outputs(workspace: Path, counter: Counter, names: list[str], limits: RepeatLimits) -> list[str]:
    config = EnvironmentConfig(workspace, ToolConfig(custom_tools=[counter.same, counter.fresh]), repeat_limits=limits)
    environment = Environment(config)
    said: list[Message] = []
    for number, name in enumerate(names):
        await environment.execute_tool(ToolExecutionRequest(tool_call(name, "{}", f"c{number}")), said.append)
    await environment.aclose()
    assert_well_framed(said)
    return [message.payload.output for message in said if isinstance(message.payload, ToolCallOutput)]


async def test_E24_the_third_same_call_gets_a_note_and_the_fifth_is_refused(tmp_path: Path) -> None:
    counter = Counter()
    said = await outputs(tmp_path, counter, ["same"] * 7, RepeatLimits())
    assert said[:2] == ["same", "same"]
    assert "3rd time" in said[2]
    assert "4th time" in said[3]
    assert all("not run again" in output for output in said[4:])
    assert counter.runs == 4


async def test_E24_another_call_or_another_result_starts_the_count_anew(tmp_path: Path) -> None:
    counter = Counter()
    said = await outputs(tmp_path, counter, ["same", "same", "fresh", "same", "same"], RepeatLimits())
    assert "time in a row" not in "".join(said)
    counter = Counter()
    said = await outputs(tmp_path, counter, ["fresh"] * 8, RepeatLimits())
    assert counter.runs == 8
    assert "time in a row" not in "".join(said)


async def test_E24_zero_turns_it_off(tmp_path: Path) -> None:
    counter = Counter()
    said = await outputs(tmp_path, counter, ["same"] * 8, RepeatLimits(note=0, refuse=0))
    assert said == ["same"] * 8


def test_E24_polling_is_exempt() -> None:
    repeats = Repeats(RepeatLimits())
    for _ in range(9):
        assert repeats.refusal("input_command", "{}") is None
        assert repeats.note("input_command", "{}", "nothing new") is None
