from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from penguin.adapters import from_generator
from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.protocol import builders as b
from penguin.protocol.interfaces import Emit, Permission, ToolExecutionRequest
from penguin.protocol.messages import Message, StopReason, ToolDefinition
from penguin.testing import check_environment

pytestmark = pytest.mark.anyio

OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def wait(seconds: float) -> str:
    """Wait.

    Args:
        seconds: How long.
    """
    await anyio.sleep(seconds)
    return "waited"


async def test_the_environment_of_penguin_conforms(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hi\n")
    await check_environment(
        Environment(EnvironmentConfig(tmp_path, ToolConfig(custom_tools=[wait]))),
        calls=[("read_file", {"file_path": "a.txt"}), ("wait", {"seconds": 0})],
        slow=("wait", {"seconds": 60}),
    )


# ---------------------------------------------------------------- generator style


def outputs(call_id: str, text: str, stop_reason: StopReason | None = None) -> list[Message]:
    return [
        b.partial_tool_call_output("start", call_id),
        b.partial_tool_call_output("delta", call_id, text),
        b.partial_tool_call_output("stop", call_id, stop_reason=stop_reason),
        b.tool_call_output(text, call_id, stop_reason=stop_reason),
    ]


class Echoing:
    """An environment in generator style with one tool; it leaves errors and interruptions to the adapter."""

    def __init__(self) -> None:
        self.closed = 0

    async def list_tools(self) -> list[ToolDefinition]:
        return [ToolDefinition("echo", "Says its text.", OBJECT)]

    def tool_permission(self, name: str) -> Permission | None:
        return "r" if name == "echo" else None

    async def execute_tool(self, request: ToolExecutionRequest) -> AsyncIterator[Message]:
        call = request.tool_call.payload
        if call.name != "echo" or '"text"' not in call.arguments:
            raise ValueError("only echo, and only with a text")
        if "for ever" in call.arguments:
            yield b.partial_tool_call_output("start", call.tool_call_id)
            await anyio.sleep_forever()
        for message in outputs(call.tool_call_id, call.arguments):
            yield message

    async def aclose(self) -> None:
        self.closed += 1


async def test_an_environment_in_generator_style_conforms() -> None:
    echoing = Echoing()
    await check_environment(
        from_generator(echoing),
        calls=[("echo", {"text": "a"}), ("echo", {"text": "b"})],
        slow=("echo", {"text": "for ever"}),
    )
    assert echoing.closed == 2


# ---------------------------------------------------------------- environments that do not conform

Execute = Callable[[ToolExecutionRequest, Emit], Awaitable[None]]


class Broken:
    """An environment with one tool, each part of which can be replaced by a wrong one."""

    def __init__(
        self,
        execute: Execute | None = None,
        tools: list[ToolDefinition] | None = None,
        permission: Callable[[str], Permission | None] | None = None,
    ) -> None:
        self._execute = execute
        self._tools = tools or [ToolDefinition("echo", "Says its text.", OBJECT)]
        self._permission = permission or Echoing().tool_permission

    async def list_tools(self) -> list[ToolDefinition]:
        return self._tools

    def tool_permission(self, name: str) -> Permission | None:
        return self._permission(name)

    async def execute_tool(self, request: ToolExecutionRequest, emit: Emit) -> None:
        good = from_generator(Echoing())
        if self._execute is not None and '"text"' in request.tool_call.payload.arguments:
            await self._execute(request, emit)
        else:
            await good.execute_tool(request, emit)

    async def aclose(self) -> None:
        pass


def saying(*messages: Callable[[str], list[Message]]) -> Execute:
    async def execute(request: ToolExecutionRequest, emit: Emit) -> None:
        for build in messages:
            for message in build(request.tool_call.payload.tool_call_id):
                emit(message)

    return execute


async def raising(request: ToolExecutionRequest, emit: Emit) -> None:
    raise OSError("disk full")


async def swallowing(request: ToolExecutionRequest, emit: Emit) -> None:
    with anyio.move_on_after(0.01, shield=True):
        await anyio.sleep_forever()
    for message in outputs(request.tool_call.payload.tool_call_id, "x"):
        emit(message)


async def leaking(request: ToolExecutionRequest, emit: Emit) -> None:
    emit(b.partial_tool_call_output("start", request.tool_call.payload.tool_call_id))
    await anyio.sleep_forever()


GOOD = ("echo", {"text": "a"})
BROKEN: list[tuple[str, Broken, str]] = [
    ("raises", Broken(raising), "a call of echo raised OSError: disk full"),
    ("says nothing", Broken(saying()), "E5: a call of echo has 0 complete outputs"),
    ("says it twice", Broken(saying(lambda i: outputs(i, "a"), lambda i: outputs(i, "b"))), "2 complete outputs"),
    ("another id", Broken(saying(lambda _: outputs("other", "a"))), "0 complete outputs"),
    ("empty", Broken(saying(lambda i: [b.tool_call_output("", i)])), "N2: a call of echo has an empty output"),
    ("open", Broken(saying(lambda i: outputs(i, "a")[:1])), "P8: in a call of echo .*was never closed"),
    ("speaks as the model", Broken(saying(lambda _: [b.assistant_text("x")])), "emitted a Text of its own"),
    ("fails", Broken(saying(lambda i: outputs(i, "no", "failed"))), "a call of echo ended failed: no"),
    ("twice the name", Broken(tools=[ToolDefinition("a", "x"), ToolDefinition("a", "x")]), "tool names repeat"),
    ("illegal name", Broken(tools=[ToolDefinition("a b", "x")]), "no provider accepts the tool name 'a b'"),
    ("no description", Broken(tools=[ToolDefinition("a", " ")]), "the tool a has no description"),
    ("no object", Broken(tools=[ToolDefinition("a", "x", {"type": "string"})]), "the parameters of a are not"),
    ("no permission", Broken(permission=lambda _: None), "the permission of echo is None"),
    ("permits anything", Broken(permission=lambda _: "r"), "an unknown tool has a permission"),
]


@pytest.mark.parametrize(("environment", "complaint"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
async def test_a_broken_environment_is_told_what_is_wrong(environment: Broken, complaint: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){complaint}"):
        await check_environment(environment, calls=[GOOD])


@pytest.mark.parametrize(
    ("execute", "complaint"),
    [
        (swallowing, "interrupted at once has|returned as if nothing had happened|ended None|N2"),
        (leaking, "was never closed"),
    ],
)
async def test_an_interruption_that_is_not_obeyed_is_noticed(execute: Execute, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        await check_environment(Broken(execute), slow=GOOD)


async def test_N4_bad_arguments_have_to_fail() -> None:
    class Obliging(Broken):
        async def execute_tool(self, request: ToolExecutionRequest, emit: Emit) -> None:
            await saying(lambda i: outputs(i, "ok"))(request, emit)

    with pytest.raises(AssertionError, match=r"N4: a call of echo with the arguments \{not json ended completed"):
        await check_environment(Obliging())


async def test_E3_an_unknown_tool_has_to_fail() -> None:
    class Obliging(Broken):
        async def execute_tool(self, request: ToolExecutionRequest, emit: Emit) -> None:
            known = request.tool_call.payload.name == "echo"
            await saying(lambda i: outputs(i, "x", "failed" if known else None))(request, emit)

    with pytest.raises(AssertionError, match="E3: a call of an unknown tool ended None"):
        await check_environment(Obliging())
