from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.processes import CommandSessions
from penguin.environment.shell_environment import ShellEnvironment
from penguin.environment.tool import Confinement, Services
from penguin.environment.tools.builtin import BUILTIN_TOOL_DEFINITIONS
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
        assert all(message.line for message in self.messages)
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


@pytest.fixture
async def commands() -> AsyncIterator[CommandSessions]:
    """The commands of one session; ends whatever a test started."""
    sessions = CommandSessions(environment=ShellEnvironment(login_shell=False), grace=0.3)
    yield sessions
    await sessions.aclose()


@pytest.fixture
def shell(make_desk: Callable[..., Desk], commands: CommandSessions) -> Desk:
    """A desk with the command tools only."""
    names = [name for name in BUILTIN_TOOL_DEFINITIONS if name.endswith("_command")]
    return make_desk(
        builtin=[BUILTIN_TOOL_DEFINITIONS[each] for each in names], services=Services(command_sessions=commands)
    )


@pytest.fixture
def long_sleep() -> str:
    """A command that sleeps for long and that nobody else on this machine runs, so that one can look for it."""
    return f"sleep 1000.{secrets.randbelow(10**12):012d}"


@pytest.fixture
def is_running() -> Callable[[int | str], bool]:
    """Whether a process is alive, by number or by a piece of its command line; a zombie is not.

    The piece must be one that only this test can have started.
    """

    def look(wanted: int | str) -> bool:
        return any(
            wanted == int(entry.name) if isinstance(wanted, int) else wanted in command_line(entry)
            for entry in Path("/proc").glob("[0-9]*")
            if command_line(entry)
        )

    def command_line(entry: Path) -> str:
        try:  # empty for a zombie
            return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""

    return look
