"""One task from a session to an exit status."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from penguin.cli.asking import TerminalQuestion, somebody_there
from penguin.cli.complaints import complain
from penguin.cli.display import Display, PausableDisplay
from penguin.cli.render.usage import usage_line
from penguin.cli.stopping import Stop
from penguin.protocol.builders import user_text
from penguin.session.approval import Approval, ApprovalMode, RuleBook

if TYPE_CHECKING:
    from penguin.protocol.events import Decision
    from penguin.session.session import Session
    from penguin.session.stream import TaskStream

COMPLETED, FAILED, LIMIT, UNASKED, INTERRUPTED = 0, 1, 3, 4, 130
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


async def run_task(
    session: Session,
    prompt: Sequence[str],
    display: Display,
    stop: Stop,
    *,
    mode: ApprovalMode = "allow-all",
    nobody: Decision = "deny",
    rules: RuleBook | None = None,
) -> int:
    """Run one task, show it, and return the exit status.

    ``nobody`` decides about a call when the mode wants to ask and no terminal is there; what ``rules`` cover
    is not asked.

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
    stop.gently = session.interrupt
    started = time.monotonic()
    async with session.run([user_text(text) for text in prompt], approve=approval) as stream:
        async for message in stream:
            pausable.show(message)
    display.finish(stream.result.text, _summary(session, stream, time.monotonic() - started, display.estimated))
    _say_how_it_ended(session, stream, approval)
    return _exit_status(stream, approval)


def _summary(session: Session, stream: TaskStream, seconds: float, estimated: bool) -> str:  # noqa: FBT001 - four facts
    numbers = usage_line(stream.result.usage, turns=stream.result.turns, seconds=seconds, estimated=estimated)
    return f"{numbers}, {session.id}"


def _say_how_it_ended(session: Session, stream: TaskStream, approval: Approval) -> None:
    result = stream.result
    see = f"`penguin trace show {session.id}` shows what was done."
    match result.stop_reason:
        case "failed" if result.error is not None:
            status = f", HTTP status {result.error.http_status}" if result.error.http_status else ""
            complain(f"the task failed: {result.error.message.rstrip('.')} ({result.error.kind}{status}). {see}")
        case "failed":
            complain(f"the task failed. {see}")
        case "aborted":
            complain(f"interrupted; what ran was stopped. To go on: penguin run --resume {session.id} -m TEXT")
        case "turn_limit" | "budget":
            complain(
                f"stopped after {result.turns} turns, at the limit that was set."
                f" To go on: penguin run --resume {session.id} -m TEXT"
            )
        case "completed":
            pass
    if approval.unasked:
        calls = "one tool call was" if approval.unasked == 1 else f"{approval.unasked} tool calls were"
        complain(
            f"{calls} denied because nobody was there to ask: standard input and standard error must be a terminal."
            " Run it in one, or pass --approve allow-all."
        )
    if result.trace_error is not None:
        complain(f"the trace is not safely on disk: {result.trace_error}")


def _exit_status(stream: TaskStream, approval: Approval) -> int:
    status = _STATUS[stream.result.stop_reason]
    # A failure or an interruption says more than a denial; a task that went on without the denied calls does not.
    return UNASKED if approval.unasked and status in {COMPLETED, LIMIT} else status
