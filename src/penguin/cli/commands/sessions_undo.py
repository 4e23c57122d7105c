"""``penguin sessions undo``, ``redo`` and ``diff``."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from penguin.cli.completing import complete_session
from penguin.cli.options import agent_paths, named_session, place_options

if TYPE_CHECKING:
    from penguin.agent.agent import Agent
    from penguin.agent.undo import UndoReport

Result = TypeVar("Result")

_session = click.argument(
    "session", metavar="[SESSION]", required=False, default="latest", shell_complete=complete_session
)
_force = click.option("--force", is_flag=True, help="Restore also what others changed since.")
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
_dry_run = click.option("--dry-run", is_flag=True, help="Only say what would happen.")


@dataclass(frozen=True, slots=True)
class Place:
    """Whose session."""

    session: str
    root: Path | None
    project_id: str
    agent_id: str

    def ask(self, question: Callable[[Agent, str], Awaitable[Result]]) -> Result:
        """Put a question to the agent about the session that was named."""
        import anyio  # noqa: PLC0415 - not needed to complain about options

        from penguin.agent.agent import create_agent  # noqa: PLC0415 - with it comes everything else

        session_id = named_session(agent_paths(self.root, self.project_id, self.agent_id), self.session)

        async def asked() -> Result:
            agent = await create_agent(project_id=self.project_id, agent_id=self.agent_id, root=self.root)
            return await question(agent, session_id)

        return anyio.run(asked)


class Attempt(Protocol):
    """An undo or a redo, in earnest or not."""

    def __call__(self, agent: Agent, session_id: str, *, dry_run: bool) -> Awaitable[UndoReport]:
        """What it does, or would do."""


@click.command()
@_session
@click.option("--to", type=click.IntRange(min=1), metavar="N", help="Go back to before task N; see --list.")
@click.option("--list", "listing", is_flag=True, help="Only list the tasks with their numbers.")
@click.option("--files-only", is_flag=True, help="Leave the conversation as it is.")
@click.option("--conversation-only", is_flag=True, help="Leave the files as they are.")
@_dry_run
@_force
@_yes
@place_options
def undo(
    *,
    to: int | None,
    listing: bool,
    files_only: bool,
    conversation_only: bool,
    dry_run: bool,
    force: bool,
    yes: bool,
    **place: Any,
) -> int:
    """Go back to before a session's last task.

    Files are restored to what they were before the task's first change; what they are now is kept for `redo`.
    The conversation goes on in a copy that ends before the task; its id is printed. The branch, the index and the
    commits of git stay as they are. Exit status 1 when something is in the way or could not be restored.
    """
    if files_only and conversation_only:
        raise click.UsageError("--files-only and --conversation-only leave nothing to undo")
    where = Place(**place)
    if listing:
        return _list_tasks(where)

    async def attempt(agent: Agent, session_id: str, *, dry_run: bool) -> UndoReport:
        files, conversation = not conversation_only, not files_only
        return await agent.undo(session_id, to=to, files=files, conversation=conversation, force=force, dry_run=dry_run)

    return _carry_out(where, attempt, "Undo", dry_run=dry_run, force=force, yes=yes)


@click.command()
@_session
@_dry_run
@_force
@_yes
@place_options
def redo(*, dry_run: bool, force: bool, yes: bool, **place: Any) -> int:
    """Take the last undo back.

    SESSION is the copy the undo made, or the session itself after `undo --files-only`. A task that ran since
    makes it too late.
    """

    async def attempt(agent: Agent, session_id: str, *, dry_run: bool) -> UndoReport:
        return await agent.redo(session_id, force=force, dry_run=dry_run)

    return _carry_out(Place(**place), attempt, "Redo", dry_run=dry_run, force=force, yes=yes)


@click.command()
@_session
@click.option("--to", type=click.IntRange(min=1), metavar="N", help="Since before task N; the last one otherwise.")
@click.option("--stat", is_flag=True, help="Only which files, and how many lines.")
@place_options
def diff(*, to: int | None, stat: bool, **place: Any) -> None:
    """Show what a session's last task changed in its files, seen from now."""
    from penguin.cli.render.look import Look  # noqa: PLC0415 - this command only
    from penguin.cli.render.undo import diff_lines, stat_lines  # noqa: PLC0415

    found = Place(**place).ask(lambda agent, session_id: agent.diff(session_id, to=to))
    look = Look.of(sys.stdout)
    for line in stat_lines(found, look) if stat else diff_lines(found, look):
        print(line)


def _list_tasks(where: Place) -> int:
    from penguin.cli.render.undo import task_table  # noqa: PLC0415 - this option only

    async def tasks(agent: Agent, session_id: str) -> list[Any]:
        return agent.checkpoints(session_id)

    print("\n".join(task_table(where.ask(tasks))))
    return 0


def _carry_out(where: Place, attempt: Attempt, verb: str, *, dry_run: bool, force: bool, yes: bool) -> int:
    """Show what would happen, ask, do it, and say how it went."""
    from penguin.cli.asking import confirmed  # noqa: PLC0415 - brings anyio
    from penguin.cli.render.look import Look  # noqa: PLC0415 - as above
    from penguin.cli.render.undo import undo_lines  # noqa: PLC0415

    preview = where.ask(partial(attempt, dry_run=True))
    print("\n".join(undo_lines(preview, Look.of(sys.stdout), verb=verb)), flush=True)
    if dry_run:
        return 0
    # What is in the way is refused by the attempt itself, in its own words; to ask before would be in vain.
    if not (preview.conflicts and not force) and not confirmed(f"{verb} this?", yes=yes):
        print("Nothing was changed.")
        return 0
    return _told(where.ask(partial(attempt, dry_run=False)))


def _told(report: UndoReport) -> int:
    from penguin.agent.sessions import short_name  # noqa: PLC0415 - as above
    from penguin.cli.complaints import FAILED, complain  # noqa: PLC0415
    from penguin.cli.render.undo import failure_lines  # noqa: PLC0415

    if report.conversation is not None:
        print(report.conversation, flush=True)
        resume = f"penguin run --resume {short_name(report.conversation)} -m TEXT"
        print(f"penguin: done; the conversation goes on with: {resume}", file=sys.stderr)
    else:
        print("penguin: done", file=sys.stderr)
    if not report.failures:
        return 0
    complain("some of it could not be restored:")
    print("\n".join(failure_lines(report.failures)), file=sys.stderr)
    return FAILED
