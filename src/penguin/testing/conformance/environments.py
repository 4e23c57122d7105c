"""Does an environment keep its contract (P8, E3, E5, N2, N4)?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import anyio

from penguin.protocol import builders
from penguin.protocol.interfaces import EnvironmentInterface, ToolExecutionRequest
from penguin.protocol.messages import Message, PartialToolCallOutput, ToolCallOutput, ToolDefinition
from penguin.testing.conformance.expectations import PATIENCE_S, expect
from penguin.testing.framing import StreamChecker

NamedCall: TypeAlias = tuple[str, Mapping[str, Any]]

_LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_NO_TOOL: Final = "no-tool-has-this-name"


async def check_environment(
    environment: EnvironmentInterface, *, calls: Sequence[NamedCall] = (), slow: NamedCall | None = None
) -> None:
    """Check an environment: its tools, one complete output for each call, bad calls, interruption, closing.

    Args:
        environment: It is closed at the end.
        calls: Calls that succeed and that may run at the same time: names and arguments.
        slow: A call that takes so long that it can be interrupted.

    Raises:
        AssertionError: The environment breaks the contract; the text says how.

    Example::

        await check_environment(
            Environment(EnvironmentConfig(workspace)),
            calls=[("read_file", {"file_path": "a.txt"})],
            slow=("exec_command", {"cmd": "sleep 60", "description": "Wait"}),
        )
    """
    tools = await environment.list_tools()
    _check_tools(environment, tools)
    for name, arguments in calls:
        output = await _run_alone(environment, name, json.dumps(arguments), f"a call of {name}")
        expect(
            output.stop_reason in {None, "completed"}, f"a call of {name} ended {output.stop_reason}: {output.output}"
        )
    await _check_together(environment, calls)
    for tool in tools:
        await _check_bad_arguments(environment, tool)
    output = await _run_alone(environment, _NO_TOOL, "{}", "a call of an unknown tool")
    expect(output.stop_reason == "failed", f"E3: a call of an unknown tool ended {output.stop_reason}, not failed")
    if slow is not None:
        await _check_interruption(environment, slow)
    for time in ("first", "second"):
        try:
            await environment.aclose()
        except Exception as error:
            raise AssertionError(f"the {time} aclose raised {type(error).__name__}: {error}") from error


def _check_tools(environment: EnvironmentInterface, tools: list[ToolDefinition]) -> None:
    names = [tool.name for tool in tools]
    expect(len(names) == len(set(names)), f"tool names repeat: {names}")
    for tool in tools:
        expect(bool(_LEGAL_NAME.match(tool.name)), f"no provider accepts the tool name {tool.name!r}")
        expect(bool(tool.description.strip()), f"the tool {tool.name} has no description")
        expect(
            tool.parameters is None or tool.parameters.get("type") == "object",
            f"the parameters of {tool.name} are not the JSON Schema of an object",
        )
        permission = environment.tool_permission(tool.name)
        expect(permission in {"r", "rw"}, f"the permission of {tool.name} is {permission!r}, not 'r' or 'rw'")
    expect(environment.tool_permission(_NO_TOOL) is None, "an unknown tool has a permission; it should be None")


async def _check_together(environment: EnvironmentInterface, calls: Sequence[NamedCall]) -> None:
    checker = StreamChecker()
    requests = [_request(name, json.dumps(arguments), f"together_{n}") for n, (name, arguments) in enumerate(calls)]
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for request in requests:
                tasks.start_soon(environment.execute_tool, request, checker.observe)
    what = "calls that run at the same time"
    _finish_outputs(checker, what)
    for request in requests:
        _one_output(checker.messages, request.tool_call.payload.tool_call_id, what)


async def _check_bad_arguments(environment: EnvironmentInterface, tool: ToolDefinition) -> None:
    required = (tool.parameters or {}).get("required")
    bad = ["{not json", "[]"] + (["{}"] if required else [])
    for arguments in bad:
        what = f"a call of {tool.name} with the arguments {arguments}"
        output = await _run_alone(environment, tool.name, arguments, what)
        expect(output.stop_reason == "failed", f"N4: {what} ended {output.stop_reason or 'completed'}, not failed")


async def _check_interruption(environment: EnvironmentInterface, slow: NamedCall) -> None:
    name, arguments = slow
    for what, moment in (("interrupted at once", 0), ("interrupted at its first message", 1)):
        checker = StreamChecker()
        ended = False
        with anyio.CancelScope() as scope:

            def emit(message: Message, checker: StreamChecker = checker, scope: anyio.CancelScope = scope) -> None:
                checker.observe(message)
                scope.cancel()

            if moment == 0:
                scope.cancel()
            await _execute(environment, _request(name, json.dumps(arguments), f"slow_{moment}"), emit, name)
            ended = True
        expect(not ended, f"a call of {name} that was {what} returned as if nothing had happened")
        _finish_outputs(checker, f"a call of {name} that was {what}")
        if checker.messages:
            output = _one_output(checker.messages, f"slow_{moment}", f"a call of {name} that was {what}")
            expect(output.stop_reason == "aborted", f"N2: a call of {name} that was {what} ended {output.stop_reason}")


async def _run_alone(environment: EnvironmentInterface, name: str, arguments: str, what: str) -> ToolCallOutput:
    checker = StreamChecker()
    await _execute(environment, _request(name, arguments, "alone"), checker.observe, what)
    _finish_outputs(checker, what)
    return _one_output(checker.messages, "alone", what)


async def _execute(
    environment: EnvironmentInterface, request: ToolExecutionRequest, emit: Callable[[Message], None], what: str
) -> None:
    try:
        with anyio.fail_after(PATIENCE_S):
            await environment.execute_tool(request, emit)
    except TimeoutError as error:
        raise AssertionError(f"{what} took longer than {PATIENCE_S:g} s, or raised TimeoutError") from error
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: {error}") from error


def _request(name: str, arguments: str, call_id: str) -> ToolExecutionRequest:
    return ToolExecutionRequest(builders.tool_call(name, arguments, call_id))


def _finish_outputs(checker: StreamChecker, what: str) -> None:
    own = [message for message in checker.messages if message.origin is None]
    for message in own:
        expect(
            isinstance(message.payload, PartialToolCallOutput | ToolCallOutput),
            f"{what} emitted a {type(message.payload).__name__} of its own; it may emit outputs only",
        )
    try:
        checker.finish()
    except AssertionError as error:
        raise AssertionError(f"P8: in {what} {error}") from None


def _one_output(messages: Sequence[Message], call_id: str, what: str) -> ToolCallOutput:
    outputs = [m.payload for m in messages if isinstance(m.payload, ToolCallOutput) and m.origin is None]
    own = [output for output in outputs if output.tool_call_id == call_id]
    expect(len(own) == 1, f"E5: {what} has {len(own)} complete outputs, not one")
    expect(
        bool(own[0].output) or bool(own[0].images), f"N2: {what} has an empty output; nothing to say is `[no output]`"
    )
    return own[0]
