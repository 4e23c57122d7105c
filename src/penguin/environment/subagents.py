"""Subagents: child sessions that work for the model, in the foreground or behind it (N18, N19).

The environment only drives children; who makes them is injected, so that nothing here imports upward.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from penguin.detached import start_detached
from penguin.environment.tool import ToolError, ToolSetup
from penguin.protocol.blocks import block
from penguin.protocol.events import StopReason, TokenCounts
from penguin.protocol.interfaces import ApproveFn, Emit
from penguin.protocol.messages import Message, Text, ThinkingLevel

MOST_SUBAGENTS = 8
NOTICE_LENGTH = 4_000


@dataclass(frozen=True, slots=True)
class SubagentReport:
    """How one run of a child ended: ``text`` is its final answer, ``usage`` the tokens of this run."""

    stop_reason: StopReason
    text: str
    usage: TokenCounts = field(default_factory=TokenCounts)
    error: str | None = None


class SubagentHandle(Protocol):
    """A child session that was spawned; it can be run again when it is idle."""

    @property
    def session_id(self) -> str:
        """The child's own session id: one hop of ``origin``."""
        ...

    async def run(self, prompt: str, *, approve: ApproveFn | None, emit: Emit) -> SubagentReport:
        """Run one task; ``emit`` gets the child's messages with its id in ``origin``. Never raises but cancellation."""
        ...

    def interrupt(self) -> None:
        """Stop the running task; nothing happens when none runs."""
        ...

    async def aclose(self) -> None:
        """Release the child; may be called more than once."""
        ...


class SubagentRunner(Protocol):
    """Makes child sessions; injected by the assembly."""

    async def spawn(
        self,
        *,
        agent_id: str | None = None,
        provider: str | None = None,
        model_id: str | None = None,
        thinking_level: ThinkingLevel | None = None,
    ) -> SubagentHandle:
        """Open a child session in the same workspace.

        Raises:
            PenguinError: unknown agent or model, or the limit of depth; the text goes to the model.
        """
        ...


class Outlet(Protocol):
    """Where things go that happen outside a tool call; lent by the session. Both may be called from any thread."""

    def forward(self, message: Message) -> None:
        """Show a message of a child in the parent's stream."""
        ...

    def post(self, notice: str) -> None:
        """Tell the model at the next opportunity."""
        ...


class RunningSubagent:
    """One child: busy or idle, with what it said since somebody last listened."""

    def __init__(self, subagent_id: str, handle: SubagentHandle, description: str, outlet: Outlet | None) -> None:
        self.id = subagent_id
        self.handle = handle
        self.description = description
        self.report: SubagentReport | None = None
        self.ended = anyio.Event()
        self.ended.set()
        self._outlet = outlet
        self._listener: Emit | None = None
        self._heard: list[str] = []
        self._interrupted = False

    @property
    def busy(self) -> bool:
        """Whether a run is going on."""
        return not self.ended.is_set()

    @property
    def in_background(self) -> bool:
        """Whether a run is going on that nobody waits for."""
        return self.busy and self._listener is None

    def start(self, prompt: str, approve: ApproveFn | None) -> None:
        """Begin a run in a task of its own, so that it may outlive the call that asked for it."""
        self.report, self.ended, self._interrupted = None, anyio.Event(), False
        self._heard.clear()
        start_detached(lambda: self._run(prompt, approve), f"subagent {self.id}")

    async def wait(self, seconds: float, listener: Emit) -> bool:
        """Show the child's messages to ``listener`` until it ends or the time is up; whether it ended."""
        self._listener = listener
        try:
            with anyio.move_on_after(seconds):
                await self.ended.wait()
        finally:
            self._listener = None
        return not self.busy

    def interrupt(self) -> None:
        """Stop the run; the child records it like any interruption, and no notice is given of it."""
        self._interrupted = True
        self.handle.interrupt()

    async def stopped(self) -> None:
        """Stop the run and wait until the child has recorded it."""
        self.interrupt()
        with anyio.CancelScope(shield=True):
            await self.ended.wait()

    def so_far(self) -> str:
        """The child's words that nobody was told yet."""
        words, self._heard = "".join(self._heard), []
        return words

    async def _run(self, prompt: str, approve: ApproveFn | None) -> None:
        try:
            if self._interrupted:
                self.report = SubagentReport("aborted", "", error="it was stopped before it began")
            else:
                self.report = await self.handle.run(prompt, approve=approve, emit=self._hear)
        except Exception as error:  # noqa: BLE001 - a child is somebody else's code: its fault is its report
            self.report = SubagentReport("failed", "", error=f"{type(error).__name__}: {error}")
        finally:
            self.ended.set()
            self._tell_if_nobody_listens()

    def _hear(self, message: Message) -> None:
        if isinstance(message.payload, Text) and message.payload.role == "assistant":
            self._heard.append(f"{message.payload.text}\n")
        if self._listener is not None:
            self._listener(message)
        elif self._outlet is not None:
            self._outlet.forward(message)

    def tell_it_ended_with_the_session(self) -> None:
        """For whoever resumes the session: what it had said until then."""
        self._tell("was ended with the session")

    def _tell_if_nobody_listens(self) -> None:
        if self._listener is None and not self._interrupted and self.report is not None:
            self._tell(ending_words(self.report))

    def _tell(self, how: str) -> None:
        if self._outlet is not None:
            ended = f"Subagent {self.id} ({self.description}) {how}:"
            self._outlet.post(block("background_task_done", f"{ended}\n{self.so_far()[-NOTICE_LENGTH:]}".rstrip()))


class Subagents:
    """The children of one session, at most eight; closed with its environment."""

    def __init__(self, runner: SubagentRunner, outlet: Outlet | None) -> None:
        self._runner = runner
        self._outlet = outlet
        self._children: dict[str, RunningSubagent] = {}
        self._spawning = 0
        self._closed = False

    async def spawn(
        self,
        description: str,
        *,
        agent_id: str | None = None,
        provider: str | None = None,
        model_id: str | None = None,
        thinking_level: ThinkingLevel | None = None,
    ) -> RunningSubagent:
        """Make a child; see :meth:`SubagentRunner.spawn`.

        Raises:
            ToolError: there are too many already.
            PenguinError: the runner refused.
        """
        self._check_room()
        self._spawning += 1
        try:
            handle = await self._runner.spawn(
                agent_id=agent_id, provider=provider, model_id=model_id, thinking_level=thinking_level
            )
        finally:
            self._spawning -= 1
        child = RunningSubagent(handle.session_id[-8:], handle, description, self._outlet)
        self._children[child.id] = child
        return child

    def find(self, subagent_id: str) -> RunningSubagent:
        """The child with that id.

        Raises:
            ToolError: there is none; the text lists those there are.
        """
        child = self._children.get(subagent_id)
        if child is None:
            known = ", ".join(f"{each.id} ({each.description})" for each in self._children.values()) or "none"
            raise ToolError(f"There is no subagent {subagent_id!r}. Subagents: {known}.")
        return child

    def busy(self) -> list[RunningSubagent]:
        """The children that work at this moment."""
        return [child for child in self._children.values() if child.busy]

    async def kill(self, child: RunningSubagent) -> None:
        """Stop a child and release it."""
        await child.stopped()
        await child.handle.aclose()
        self._children.pop(child.id, None)

    def context_notes(self) -> str:
        """What must survive a compaction: the children with their ids."""
        return "\n".join(
            f"Subagent {child.id} ({child.description}): {'working' if child.busy else 'idle'}"
            for child in self._children.values()
        )

    async def aclose(self) -> None:
        """Stop and release all children, and say of those in the background that they ended so; idempotent."""
        self._closed = True
        children = tuple(self._children.values())
        unheard = [child for child in children if child.in_background]
        for child in children:
            child.interrupt()
        for child in children:
            await self.kill(child)
        for child in unheard:
            child.tell_it_ended_with_the_session()

    def _check_room(self) -> None:
        if self._closed:
            raise ToolError("The session is closed; no subagent can be started.")
        if len(self._children) + self._spawning >= MOST_SUBAGENTS:
            known = ", ".join(f"{each.id} ({each.description})" for each in self._children.values())
            raise ToolError(
                f"There are already {MOST_SUBAGENTS} subagents ({known}). Give one of them another task with"
                " input_subagent, or end one with kill_subagent."
            )


def subagents(setup: ToolSetup) -> Subagents:
    """The children that the tools of one environment share."""
    runner: Any = setup.services.subagent_runner  # the tools are only offered where there is one
    made: Subagents = setup.once("subagents", lambda _: Subagents(runner, setup.services.outlet))
    return made


def ending_words(report: SubagentReport) -> str:
    """How a run ended, for a notice or a note."""
    match report.stop_reason:
        case "completed":
            return "has finished"
        case "aborted":
            return "was stopped"
        case _:
            return f"failed ({report.error or 'no reason given'})"
