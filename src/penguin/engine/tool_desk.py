"""The desk for one attempt's tool calls: approve in order, run together, answer each once (E3 to E5)."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import anyio
from anyio.abc import TaskGroup

from penguin.engine.carry_over import DENIED
from penguin.engine.recorder import Recorder
from penguin.protocol.arguments import parse_arguments
from penguin.protocol.blocks import ABORTED_BY_USER, interrupted, tool_error
from penguin.protocol.builders import approval_decision, partial_tool_call_output, tool_call_output
from penguin.protocol.events import Decision
from penguin.protocol.interfaces import ApproveFn, EnvironmentInterface, SupportsPolicy, ToolExecutionRequest
from penguin.protocol.messages import (
    Message,
    OmniMessage,
    PartialToolCallOutput,
    StopReason,
    Subagent,
    ToolCall,
    ToolCallOutput,
)

_log = logging.getLogger("penguin.engine")

_LOST: Final = "the call was lost by the program that runs it; it is not known whether anything was run"
_BROKEN_CONTRACT: Final = "the tool ended without an output"


class ToolDesk:
    """Takes complete calls while the model still streams.

    Calls go from the listener to the desk through a memory stream, so that a human who thinks for ten
    minutes holds neither the provider's socket nor its idle clock.
    """

    def __init__(
        self, environment: EnvironmentInterface, recorder: Recorder, approve: ApproveFn | None, tasks: TaskGroup
    ) -> None:
        self._environment = environment
        self._recorder = recorder
        self._approve = approve
        self._tasks = tasks
        self._asking = anyio.CancelScope()
        self._incoming, self._waiting = anyio.create_memory_object_stream[Answer](math.inf)
        self.answers: list[Answer] = []
        tasks.start_soon(self._attend)

    def submit(self, call: OmniMessage[ToolCall]) -> None:
        """Queue a complete call, in call order."""
        answer = Answer(call, self._recorder)
        self.answers.append(answer)
        self._incoming.send_nowait(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """No more calls will come; what is queued is still decided, unless the task was stopped."""
        self._incoming.close()
        if error is not None:
            # Not by closing what it listens to: on asyncio that ends a listener with an error of its own.
            self._asking.cancel()

    def drop_undecided(self) -> None:
        """The attempt failed: pending approvals are cancelled and nothing is recorded of them (E13)."""
        self._asking.cancel()

    def answer_lost(self) -> None:
        """After everything ended: a call that nobody answered is answered here, so that none is ever missing (E5)."""
        for answer in self.answers:
            answer.give(tool_error(_LOST), "failed")

    def answer_interrupted(self, *, committed: bool) -> None:
        """Answer what the interruption left open: every committed call, else each one that was allowed."""
        for answer in self.answers:
            if committed or answer.decision == "allow":
                answer.interrupt()

    # --- one call after the other -------------------------------------------------------------------

    async def _attend(self) -> None:
        with self._asking, self._waiting:
            async for answer in self._waiting:
                await self._take(answer)

    async def _take(self, answer: Answer) -> None:
        problem = arguments_problem(answer.call.payload)
        if problem is not None:
            answer.give(problem, "failed")
            return
        refusal = self._refusal(answer.call.payload)
        answer.decision = "deny" if refusal is not None else await self._decision(answer.call)
        self._recorder.emit(approval_decision(answer.decision, answer.call.payload.tool_call_id))
        if answer.decision == "deny":
            answer.give(DENIED if refusal is None else refusal, "aborted")
        else:
            self._tasks.start_soon(self._run, answer)

    def _refusal(self, call: ToolCall) -> str | None:
        """A hit of the policy is denied in every approval mode, and nobody is asked (N12)."""
        if not isinstance(self._environment, SupportsPolicy):
            return None
        try:
            return self._environment.refusal(call)
        except Exception as error:  # noqa: BLE001 - an environment is a plug-in; what cannot be judged is not run
            _log.exception("the policy failed for %s; the call is denied", call.name)
            return f"Denied: the command policy failed ({type(error).__name__}: {error}). Nothing was run."

    async def _decision(self, call: OmniMessage[ToolCall]) -> Decision:
        """What the host's callback says; whatever else it does means deny and stays here (E3).

        It runs in a task of its own: one that ends itself with a cancellation must not end the desk.
        """
        if self._approve is None:
            return "deny"
        verdicts: list[object] = []
        async with anyio.create_task_group() as asking:
            asking.start_soon(self._ask, self._approve, call, verdicts)
        if verdicts and verdicts[0] not in ("allow", "deny"):
            _log.warning("the approval callback answered %r; only allow and deny count", verdicts[0])
        return "allow" if verdicts == ["allow"] else "deny"

    @staticmethod
    async def _ask(approve: ApproveFn, call: OmniMessage[ToolCall], verdicts: list[object]) -> None:
        try:
            answer: Any = approve(call)
            verdicts.append(await answer if inspect.isawaitable(answer) else answer)
        except (KeyboardInterrupt, anyio.get_cancelled_exc_class()):
            raise
        except BaseException:  # noqa: BLE001 - SystemExit too: a callback of the host, raising means deny
            _log.exception("the approval callback failed for %s; the call is denied", call.payload.name)

    async def _run(self, answer: Answer) -> None:
        try:
            await self._environment.execute_tool(ToolExecutionRequest(answer.call, self._approve), answer.emit)
        except Exception as error:  # noqa: BLE001 - an environment is a plug-in: its faults become an output
            _log.exception("the environment raised while running %s", answer.call.payload.name)
            answer.give(tool_error(str(error) or type(error).__name__), "failed")
        except BaseException:
            # Cancelled: every further await would raise again, and closing needs none.
            answer.interrupt()
            raise
        answer.give(tool_error(_BROKEN_CONTRACT), "failed")


class Answer:
    """Exactly one complete output for one call, whatever its environment does.

    ``give`` and ``interrupt`` do nothing once the output was given.
    """

    def __init__(self, call: OmniMessage[ToolCall], recorder: Recorder) -> None:
        self.call = call
        self.decision: Decision | None = None
        self._recorder = recorder
        self._given = False
        self._open = False
        self._said: list[str] = []

    def emit(self, message: Message) -> None:
        """What the environment calls: fragments, messages of children, then the complete output."""
        if message.origin:
            self._recorder.forward(message)
            return
        match message.payload:
            case Subagent():
                self._recorder.record(message)
            case PartialToolCallOutput(tool_call_id=call_id) if call_id == self._id and not self._given:
                self._track(message.payload)
                self._recorder.forward(message)
            case ToolCallOutput(tool_call_id=call_id) if call_id == self._id and not self._given:
                self._given = True
                self._recorder.emit(message)
            case _:
                _log.warning("dropped a stray %s of tool call %s", type(message.payload).__name__, self._id)

    def give(self, text: str, stop_reason: StopReason) -> None:
        """Answer with ``text`` after whatever was already said."""
        if self._given:
            return
        self._given = True
        if self._open:
            self._close_with(text, stop_reason)
        else:
            self._recorder.emit(tool_call_output(text, self._id, stop_reason=stop_reason))

    def interrupt(self) -> None:
        """The user stopped the task while this call was running or waiting."""
        self.give(interrupted(ABORTED_BY_USER), "aborted")

    @property
    def _id(self) -> str:
        return self.call.payload.tool_call_id

    def _track(self, fragment: PartialToolCallOutput) -> None:
        self._open = fragment.event_type != "stop"
        self._said.append(fragment.output)

    def _close_with(self, text: str, stop_reason: StopReason) -> None:
        so_far = "".join(self._said)
        addition = f"\n{text}" if so_far and not so_far.endswith("\n") else text
        self._recorder.forward(partial_tool_call_output("delta", self._id, addition))
        self._recorder.forward(partial_tool_call_output("stop", self._id, stop_reason=stop_reason))
        self._recorder.emit(tool_call_output(so_far + addition, self._id, stop_reason=stop_reason))


def arguments_problem(call: ToolCall) -> str | None:
    """Why the arguments cannot be executed, quoting the parser, or ``None`` (L10)."""
    try:
        parse_arguments(call.arguments)
    except ValueError as error:
        return tool_error(
            f"the arguments of {call.name} cannot be read: {error}. Nothing was run. Send the call again with one JSON"
            f" object as arguments. Received: {_clipped(call.arguments)}"
        )
    return None


def _clipped(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


ToolDeskFactory = Callable[[TaskGroup], ToolDesk]
"""Opens a desk whose tools run in the given task group."""
