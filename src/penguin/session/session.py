"""The conversation an embedding program holds: run, steer, interrupt, close."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penguin.engine.budget import Budget
from penguin.engine.compaction import Compactability
from penguin.engine.engine import INTERRUPTED, ContextEngine, EngineSettings, TaskResult
from penguin.engine.inbox import SteeringTicket
from penguin.engine.ledger import Ledger
from penguin.engine.ports import ContextSource, NoTrace, TracePort
from penguin.protocol.errors import SessionBusy, SessionClosed
from penguin.protocol.interfaces import ApproveFn, EnvironmentInterface, LLMInterface
from penguin.protocol.messages import Message, ThinkingLevel
from penguin.session.approval import one_at_a_time
from penguin.session.feed import Feed
from penguin.session.images import fit, fitted
from penguin.session.outlet import SessionOutlet
from penguin.session.prompt import Prompt, as_messages
from penguin.session.stream import TaskStream

_log = logging.getLogger("penguin.session")

Observer = Callable[[Message], None]
"""Told of each message of the stream; a fault of it is logged and changes nothing."""


class Session:
    """One conversation: at most one task at a time, one trace.

    ``skipped`` names the lines of its trace that could not be read when it was resumed, with file and reason (T4).
    Made by ``agent.create_session``; tests may build it from parts. ``on_notice`` is offered the reports of
    background work while no task runs; when it returns true it has taken care of them. Use it as ``async with`` or call
    :meth:`close`.

    Example::

        async with await agent.create_session(workspace_dir=".") as session:
            print(await session.ask("What is in this folder?", approve=allow_all))
    """

    def __init__(
        self,
        session_id: str,
        model: LLMInterface,
        environment: EnvironmentInterface,
        *,
        workspace_dir: Path | None = None,
        trace: TracePort | None = None,
        ledger: Ledger | None = None,
        settings: EngineSettings | None = None,
        source: ContextSource | None = None,
        outlet: SessionOutlet | None = None,
        on_notice: Callable[[Message], bool] | None = None,
        on_close: Sequence[Callable[[], Awaitable[Any] | None]] = (),
    ) -> None:
        self.id = session_id
        self.skipped: tuple[str, ...] = ()
        self.environment = environment
        self.workspace_dir = workspace_dir
        self._trace = trace or NoTrace()
        self._feed: Feed | None = None
        self._observers: list[Observer] = []
        self._on_close = list(on_close)
        self.on_notice = on_notice
        if outlet is not None:
            outlet.connect(self._publish, self._take_notice)
        self._closed = False
        self._reserved = False
        self._stop_reason: str | None = None
        self.engine = ContextEngine(
            model, environment, self._trace, feed=self._publish, ledger=ledger, settings=settings, source=source
        )

    @property
    def trace_error(self) -> str | None:
        """What of the trace is not safely on disk, in words; after :meth:`close` what was not written at all (T5)."""
        return self._trace.error

    @property
    def trace_incomplete(self) -> bool:
        """Whether records are missing in the trace: they wait in memory, or, once closed, are lost."""
        return getattr(self._trace, "incomplete", self._trace.lost)

    @property
    def trace_path(self) -> Path | None:
        """The trace file of the present context; ``None`` before the first record or without a trace."""
        return getattr(self._trace, "path", None)

    @property
    def meta(self) -> Message | None:
        """The configuration record of the present context."""
        return self.engine.meta

    @property
    def busy(self) -> bool:
        """Whether a task is running."""
        return self._reserved

    def open_context(self, meta: Message) -> None:
        """Begin a context: its configuration is the first record of a trace file. Called by the assembly."""
        self.engine.open_context(meta)

    # --- tasks --------------------------------------------------------------------------------------

    def run(
        self,
        prompt: Prompt,
        *,
        approve: ApproveFn | None = None,
        thinking_level: ThinkingLevel | None = None,
        budgets: Sequence[Budget] = (),
    ) -> TaskStream:
        """Start a task when the returned stream is entered or iterated.

        Without ``approve`` every tool call is denied. An empty prompt goes on with what was kept of an
        interrupted or failed task. ``budgets`` are drawn on beside the session's own limits.

        Raises:
            TypeError, ValueError: the prompt is not what a user can say, or ``approve`` cannot be called.
            SessionBusy: a task is already running.
            SessionClosed: the session was closed.

        Example::

            async with session.run("Create hello.txt containing hi", approve=allow_all) as stream:
                async for message in stream:
                    print(message.payload)
            print(stream.result.stop_reason)
        """
        self._check_idle()
        if approve is not None and not callable(approve):
            raise TypeError(f"approve is an async function such as allow_all, not {approve!r}")
        messages = as_messages(prompt)
        if not messages and not self.engine.ledger.carry_over:
            raise ValueError("the prompt is empty and nothing is kept of an earlier task: there is nothing to send")

        async def run_task(feed: Feed) -> TaskResult:
            self._feed = feed
            try:
                asked = one_at_a_time(approve) if approve is not None else None
                return await self.engine.run(
                    await fitted(messages),
                    approve=asked,
                    thinking_level=thinking_level,
                    interrupted=self._stop_reason,
                    budgets=budgets,
                )
            finally:
                self._feed = None
                self._free()

        return TaskStream(self._reserve, run_task, self._stop)

    async def ask(
        self, prompt: Prompt, *, approve: ApproveFn | None = None, thinking_level: ThinkingLevel | None = None
    ) -> str:
        """Run a task to its end and return the final text.

        Look at ``run(...).result`` when you need to know how it ended.

        Example::

            answer = await session.ask("How many lines has README.md?", approve=allow_all)
        """
        async with self.run(prompt, approve=approve, thinking_level=thinking_level) as stream:
            async for _ in stream:
                pass
        return stream.result.text

    def interrupt(self) -> None:
        """Stop the running task; nothing happens when none runs. The stream ends with ``abort``.

        With it stop its subagents in the foreground and the commands of these. What was put into the background goes
        on, subagents included, since it was started to outlive the task (N19); :meth:`close` ends that too.
        """
        self._stop(INTERRUPTED)

    async def compact(self) -> TaskResult:
        """Replace the conversation so far by a summary of it, to make room.

        Look at ``compactability()`` first; a result other than ``completed`` leaves everything as it was.

        Raises:
            SessionBusy: a task is running.

        Example::

            if session.compactability() == "ok":
                await session.compact()
        """
        self._reserve()
        try:
            return await self.engine.compact(interrupted=self._stop_reason)
        finally:
            self._free()

    def compactability(self) -> Compactability:
        """``ok``, ``unsupported`` (one fixed model), ``empty`` or ``just_compacted``."""
        return self.engine.compactability()

    def steer(self, prompt: Prompt) -> SteeringTicket | None:
        """Say something to the running task; ``None`` when none runs (use :meth:`run` then).

        Raises:
            TypeError, ValueError: it is not what a user can say, or says nothing.

        Example::

            ticket = session.steer("Skip the tests for now")
            ticket.state  # "waiting", later "delivered"
        """
        messages = fit(as_messages(prompt))
        if not messages:
            raise ValueError("there is nothing in it to say to the task")
        # Asked of the session and not of the engine: a stream that was just entered counts as running.
        return self.engine.inbox.steer(messages) if self._reserved else None

    def skip_retry_wait(self) -> None:
        """Fire the next attempt now when the task waits after a failed one."""
        self.engine.skip_retry_wait()

    def observe(self, callback: Observer) -> Callable[[], None]:
        """Tell ``callback`` of every message of the stream; returns a function that ends it."""
        self._observers.append(callback)
        return lambda: self._observers.remove(callback)

    # --- the end ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Release tools, connections and the trace; may be called more than once.

        Raises:
            SessionBusy: a task is running; interrupt it and read its stream to the end first.
        """
        if self.busy:
            raise SessionBusy("a task is running; interrupt it and read its stream to the end before closing")
        if self._closed:
            return
        self._closed = True
        await self.environment.aclose()
        self.engine.keep_notices()
        for release in self._on_close:
            waiting = release()
            if waiting is not None:
                await waiting

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # --- inside -------------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        if self._closed:
            raise SessionClosed("this session was closed; resume it to go on")
        if self.busy:
            raise SessionBusy("a task is already running in this session; wait for its end, steer it or interrupt it")

    def _reserve(self) -> None:
        """Taken when a stream starts, before its task had a chance to run: no second one slips in between."""
        self._check_idle()
        self._reserved = True

    def _free(self) -> None:
        """The next task may come. What was said while this one made its trace durable comes too late for it."""
        self.engine.inbox.drop()
        self._stop_reason, self._reserved = None, False

    def _stop(self, reason: str) -> None:
        if self._reserved:
            # The task may not have reached the engine yet; then it starts interrupted.
            self._stop_reason = reason
            self.engine.interrupt(reason)

    def _take_notice(self, notice: Message) -> None:
        """Background work ended: a running task hears of it, an idle session offers it to its host first (E17)."""
        if not self._reserved and self.on_notice is not None and self.on_notice(notice):
            return
        self.engine.inbox.post(notice)

    def _publish(self, message: Message) -> None:
        """Where the engine's stream comes out: to the reader first, then to each observer."""
        if self._feed is not None:
            self._feed.put(message)
        if self._observers:
            self._tell_observers(message)

    def _tell_observers(self, message: Message) -> None:
        for observer in tuple(self._observers):
            try:
                observer(message)
            except Exception:  # noqa: BLE001 - somebody else's code: logged, never fatal
                _log.exception("an observer of session %s failed", self.id)
