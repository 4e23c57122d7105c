"""Models and environments written as async generators, wrapped into the interfaces of Penguin.

Some people would rather ``yield`` their messages than push them through an ``emit``. An async
generator cannot return a value, so a model yields its `LLMOutcome` as the last item::

    class Parrot:
        async def stream_generate(self, request):
            yield partial_text("start")
            yield partial_text("delta", "Hello")
            yield partial_text("stop")
            yield assistant_text("Hello")
            yield LLMOutcome("completed")

    session = create_session(model=from_generator(Parrot()), ...)

The adapter keeps the contract where a generator does not: exceptions become outcomes and outputs, and
segments left open by an error or an interruption are closed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, overload, runtime_checkable

import anyio.lowlevel

from penguin.protocol.blocks import ABORTED_BY_USER, interrupted, tool_error
from penguin.protocol.builders import is_complete_model_message, partial_tool_call_output
from penguin.protocol.events import StopReason
from penguin.protocol.interfaces import (
    Emit,
    EnvironmentInterface,
    GenerateRequest,
    LLMInterface,
    LLMOutcome,
    ModelError,
    Permission,
    SupportsContextNotes,
    SupportsHistory,
    ToolExecutionRequest,
)
from penguin.protocol.merge import PartialAggregator
from penguin.protocol.messages import Message, PartialToolCallOutput, ToolCallOutput, ToolDefinition

__all__ = ["GeneratorEnvironment", "GeneratorModel", "from_generator"]


@runtime_checkable
class GeneratorModel(Protocol):
    """A model whose attempt is an async generator of messages, ending with its `LLMOutcome`."""

    def stream_generate(self, request: GenerateRequest) -> AsyncIterator[Message | LLMOutcome]:
        """Yield partials, complete messages and usage, then the outcome."""
        ...


@runtime_checkable
class GeneratorEnvironment(Protocol):
    """An environment whose tool runs are async generators of messages."""

    async def list_tools(self) -> list[ToolDefinition]:
        """The tools the model may call."""
        ...

    def execute_tool(self, request: ToolExecutionRequest) -> AsyncIterator[Message]:
        """Yield output partials, then one complete output."""
        ...

    def tool_permission(self, name: str) -> Permission | None:
        """``"r"``, ``"rw"``, or ``None`` for an unknown tool."""
        ...

    async def aclose(self) -> None:
        """Release everything."""
        ...


@overload
def from_generator(implementation: GeneratorModel) -> LLMInterface: ...
@overload
def from_generator(implementation: GeneratorEnvironment) -> EnvironmentInterface: ...
def from_generator(
    implementation: GeneratorModel | GeneratorEnvironment,
) -> LLMInterface | EnvironmentInterface:
    """Wrap a model or an environment in generator style; optional abilities come through.

    A model that ends without an outcome has failed. A tool run that ends without a complete output gets
    one that says so; what it yields after its complete output is dropped.

    Example::

        model = from_generator(MyModel())
        environment = from_generator(MyEnvironment())
    """
    if isinstance(implementation, GeneratorEnvironment):
        notes = isinstance(implementation, SupportsContextNotes)
        return _NotedEnvironment(implementation) if notes else _Environment(implementation)
    remembers = isinstance(implementation, SupportsHistory)
    return _RememberingModel(implementation) if remembers else _Model(implementation)


class _Model:
    def __init__(self, implementation: GeneratorModel) -> None:
        self._implementation = implementation

    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        stream = ClosingStream(emit)
        try:
            outcome = await self._drain(request, stream)
        except Exception as error:  # noqa: BLE001 - L1: a model never raises
            stream.close("failed")
            return LLMOutcome("failed", ModelError("unknown", f"{type(error).__name__}: {error}"))
        except BaseException:
            stream.close("aborted")
            raise
        left_open = stream.close("failed" if outcome.status == "completed" else outcome.status)
        if left_open and outcome.status == "completed":
            return LLMOutcome("failed", ModelError("unknown", "the model completed with a segment left open"))
        return outcome

    async def _drain(self, request: GenerateRequest, stream: ClosingStream) -> LLMOutcome:
        outcome: LLMOutcome | None = None
        async for item in self._implementation.stream_generate(request):
            if isinstance(item, LLMOutcome):
                outcome = item
            else:
                stream.emit(item)
        if outcome is not None and outcome.status == "completed":
            # Committed by now: a cancellation that comes this late must not deny it.
            return outcome
        # A generator may have caught the cancellation to yield its last words; it is due now.
        await anyio.lowlevel.checkpoint_if_cancelled()
        return outcome or LLMOutcome("failed", ModelError("unknown", "the model ended without an outcome"))


class _RememberingModel(_Model):
    def set_history(self, messages: list[Message]) -> None:
        if isinstance(self._implementation, SupportsHistory):
            self._implementation.set_history(messages)


class _Environment:
    def __init__(self, implementation: GeneratorEnvironment) -> None:
        self._implementation = implementation

    async def list_tools(self) -> list[ToolDefinition]:
        return await self._implementation.list_tools()

    def tool_permission(self, name: str) -> Permission | None:
        return self._implementation.tool_permission(name)

    async def aclose(self) -> None:
        await self._implementation.aclose()

    async def execute_tool(self, request: ToolExecutionRequest, emit: Emit) -> None:
        output = _OneOutput(request.tool_call.payload.tool_call_id, emit)
        try:
            async for message in self._implementation.execute_tool(request):
                output.emit(message)
            await anyio.lowlevel.checkpoint_if_cancelled()
        except Exception as error:  # noqa: BLE001 - an environment never raises
            output.end(tool_error(f"{type(error).__name__}: {error}"), "failed")
        except BaseException:
            output.end(interrupted(ABORTED_BY_USER), "aborted")
            raise
        else:
            output.end(tool_error("the tool ended without an output"), "failed")


class _NotedEnvironment(_Environment):
    def context_notes(self) -> str:
        return self._implementation.context_notes() if isinstance(self._implementation, SupportsContextNotes) else ""


class ClosingStream:
    """Passes messages of a model on, and can close what they left open."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._open = PartialAggregator()
        self._due: list[Message] = []

    def emit(self, message: Message) -> None:
        """Pass a message on."""
        if is_complete_model_message(message):
            self._due.clear()
        stopped = self._open.add(message)
        if stopped is not None:
            self._due.append(stopped)
        self._emit(message)

    def close(self, stop_reason: StopReason) -> bool:
        """Give every open segment its end, without awaiting; whether there was one."""
        closing = [*self._due, *self._open.close(stop_reason)]
        for message in closing:
            self._emit(message)
        self._due.clear()
        return bool(closing)


class _OneOutput:
    """Passes the messages of one tool run on, up to its first complete output."""

    def __init__(self, call_id: str, emit: Emit) -> None:
        self._call_id = call_id
        self._emit = emit
        self._stream = PartialAggregator()
        self._open = False
        self._at_line_start = True
        self._due: Message | None = None
        self._complete = False

    def emit(self, message: Message) -> None:
        """Pass a message on; those of child sessions always pass."""
        if message.origin:
            self._emit(message)
        elif not self._complete:
            self._observe(message)
            self._emit(message)

    def end(self, marker: str, stop_reason: StopReason) -> None:
        """Complete the output with a last line, unless it is complete."""
        if self._complete:
            return
        if self._due is not None:
            # Already stopped: nothing can be added, only the complete message is missing.
            self._emit(self._due)
            return
        if not self._open:
            self.emit(partial_tool_call_output("start", self._call_id))
        last_line = marker if self._at_line_start else f"\n{marker}"
        self.emit(partial_tool_call_output("delta", self._call_id, last_line))
        for message in self._stream.close(stop_reason):
            self._emit(message)

    def _observe(self, message: Message) -> None:
        stopped = self._stream.add(message)
        match message.payload:
            case PartialToolCallOutput(event_type=event, output=text):
                self._at_line_start = text.endswith("\n") if text else self._at_line_start
                self._open = event != "stop"
                self._due = stopped
            case ToolCallOutput():
                self._complete = True
            case _:
                pass
