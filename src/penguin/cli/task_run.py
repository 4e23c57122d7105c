"""One task from a session to an exit status."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from penguin.agent.background import BackgroundNotices, Running, running_in
from penguin.agent.sessions import short_name
from penguin.cli.asking import TerminalQuestion, somebody_there
from penguin.cli.complaints import complain
from penguin.cli.display import Display, PausableDisplay
from penguin.cli.render.text import one_line
from penguin.cli.render.usage import usage_line
from penguin.cli.stopping import Stop
from penguin.environment import custody
from penguin.environment.environment import Environment
from penguin.protocol.builders import user_text
from penguin.protocol.messages import Message, Text
from penguin.session.approval import Approval, ApprovalMode, RuleBook

if TYPE_CHECKING:
    from penguin.protocol.events import Decision
    from penguin.session.session import Session
    from penguin.session.stream import TaskStream

COMPLETED, FAILED, LIMIT, UNASKED, INTERRUPTED = 0, 1, 3, 4, 130
GOES_ON: Final = frozenset({COMPLETED, UNASKED})
"""After these endings a report of background work is of use."""
_STATUS: Final = {
    "completed": COMPLETED,
    "failed": FAILED,
    "aborted": INTERRUPTED,
    "turn_limit": LIMIT,
    "budget": LIMIT,
}


_CLOSING_TIME: Final = 10.0


@asynccontextmanager
async def closing(session: Session) -> AsyncIterator[Session]:
    """Close the session at the end of the block, also after a second Ctrl-C has cancelled everything."""
    try:
        yield session
    finally:
        with anyio.move_on_after(_CLOSING_TIME, shield=True):
            await session.close()


class Talk:
    """Everything one command says to a session: the task, then, if it is to wait, the reports of what it started."""

    def __init__(self, session: Session, display: PausableDisplay, stop: Stop, approval: Approval) -> None:
        self._session = session
        self._display = display
        self._stop = stop
        self._approval = approval
        self._budgets: Sequence[Any] = ()

    async def run(self, prompt: Sequence[Message]) -> int:
        """Run one task, show it, and return the exit status.

        What it uses is taken from the budget of the tasks before.

        Raises:
            OSError: whoever read the output has gone; the task was stopped and its abort recorded.
        """
        session = self._session
        self._stop.gently = session.interrupt
        self._stop.at_once = kill_what_runs
        started = time.monotonic()
        try:
            async with session.run(prompt, approve=self._approval, budgets=self._budgets) as stream:
                async for message in stream:
                    self._display.show(message)
                self._budgets = tuple(session.engine.budgets)
        except anyio.get_cancelled_exc_class():
            complain(f"interrupted; what ran was killed. {_how_to_go_on(session)}")
            raise
        numbers = _summary(session, stream, time.monotonic() - started, estimated=self._display.estimated)
        self._display.finish(stream.result.text, numbers)
        tell_of_servers(session)
        _say_how_it_ended(session, stream)
        return _exit_status(stream, self._approval)

    async def hear_out(self) -> int:
        """Wait for the background work and give the model each report, until nothing runs any more (K9)."""
        notices, status = BackgroundNotices(self._session), COMPLETED
        while status in GOES_ON:
            reports = await self._next_reports(notices)
            if reports is None:
                return INTERRUPTED
            if not reports:
                break
            status = await self.run(reports)
        return status

    async def _next_reports(self, notices: BackgroundNotices) -> list[Message] | None:
        """``None`` when a signal ended the wait."""
        reports: list[Message] | None = None
        if waiting := running_in(self._session):
            complain(f"waiting for {_listed(waiting)}. Ctrl-C ends the wait and the work.")
        with anyio.CancelScope() as wait:
            self._stop.gently = wait.cancel
            reports = await notices.next()
        for report in reports or ():
            complain(_first_words(report))
        return reports


async def run_task(
    session: Session,
    prompt: Sequence[str],
    display: Display,
    stop: Stop,
    *,
    mode: ApprovalMode = "allow-all",
    nobody: Decision = "deny",
    rules: RuleBook | None = None,
    wait: bool = False,
) -> int:
    """Run one task, show it, and return the exit status; with ``wait`` also what its background work leads to.

    Without, background work ends with the session, and is named. ``nobody`` decides about a call when the mode
    wants to ask and no terminal is there; what ``rules`` cover is not asked.

    Raises:
        OSError: whoever read the output has gone; the task was stopped and its abort recorded.
    """
    pausable = PausableDisplay(display)
    approval = Approval(
        mode,
        session.environment.tool_permission,
        ask=TerminalQuestion(pausable.paused) if somebody_there() else None,
        nobody=nobody,
        rules=rules,
    )
    talk = Talk(session, pausable, stop, approval)
    tell_of_servers(session)
    status = await talk.run([user_text(text) for text in prompt])
    if wait and status in GOES_ON:
        status = await talk.hear_out() or status
    if left := running_in(session):
        advice = "" if wait else " --wait waits for such work."
        complain(f"ended with the task: {_listed(left)}.{advice}")
    _say_what_nobody_allowed(approval)
    return status


def say_what_was_not_recorded(session: Session, status: int) -> int:
    """After the session was closed: what is not in its trace never will be (T5); the exit status it leads to."""
    if session.trace_error is not None:
        complain(f"the trace is not safely on disk: {session.trace_error}")
    return status or FAILED if session.trace_incomplete else status


def tell_of_servers(session: Session) -> None:
    """Say which MCP servers cannot be reached, each once (N20)."""
    if isinstance(session.environment, Environment):
        for report in session.environment.take_mcp_reports():
            complain(f"{report.words}.")


def _listed(work: Sequence[Running]) -> str:
    return ", ".join(one_line(str(each)) for each in work)


def _first_words(report: Message) -> str:
    match report.payload:
        case Text(text=text):
            _, *lines = text.splitlines()
            return one_line(lines[0]) if lines else one_line(text)
        case _:
            return "background work has ended"


def _summary(session: Session, stream: TaskStream, seconds: float, *, estimated: bool) -> str:
    numbers = usage_line(stream.result.usage, turns=stream.result.turns, seconds=seconds, estimated=estimated)
    return f"{numbers}, {session.id}"


def _how_to_go_on(session: Session) -> str:
    return f"To go on: penguin run --resume {short_name(session.id)} -m TEXT"


def kill_what_runs() -> None:
    """End every process this one started, without asking it first: whoever waits for it then waits no longer."""
    for process in custody.members(custody.of_this_process().scope):
        with suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)


def _say_how_it_ended(session: Session, stream: TaskStream) -> None:
    result = stream.result
    go_on = _how_to_go_on(session)
    see = f"`penguin trace show {session.id}` shows what was done."
    match result.stop_reason:
        case "failed" if result.error is not None:
            number = result.error.http_status
            told = number is None or result.error.message.startswith(f"HTTP {number}")
            status = "" if told else f", HTTP status {number}"
            complain(f"the task failed: {result.error.message.rstrip('.')} ({result.error.kind}{status}). {see}")
        case "failed":
            complain(f"the task failed. {see}")
        case "aborted":
            complain(f"interrupted; what ran was stopped. {go_on}")
        case "turn_limit" | "budget":
            why = f": {result.error.message}" if result.error is not None else ""
            complain(f"stopped after {result.turns} turns, at the limit that was set{why}. {go_on}")
        case "completed":
            pass


def _say_what_nobody_allowed(approval: Approval) -> None:
    if approval.unasked:
        calls = "one tool call was" if approval.unasked == 1 else f"{approval.unasked} tool calls were"
        complain(
            f"{calls} denied because nobody was there to ask: standard input and standard error must be a terminal."
            " Run it in one, or pass --approve allow-all."
        )


def _exit_status(stream: TaskStream, approval: Approval) -> int:
    status = _STATUS[stream.result.stop_reason]
    # A failure or an interruption says more than a denial; a task that went on without the denied calls does not.
    return UNASKED if approval.unasked and status in {COMPLETED, LIMIT} else status
