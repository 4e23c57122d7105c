"""``penguin sessions fork``, ``export``, ``delete`` and ``prune``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from penguin.cli.completing import complete_session
from penguin.cli.durations import Duration
from penguin.cli.options import (
    agent_paths,
    model_options,
    named_session,
    place_options,
    refuse_half_a_model,
    session_argument,
)

if TYPE_CHECKING:
    from penguin.agent.sessions import Pointers
    from penguin.state.paths import AgentPaths

ARCHIVE, RECORDS = "tar.gz", "jsonl"


@click.command()
@session_argument
@click.option(
    "--at-request", type=click.IntRange(min=1), metavar="N", help="Go back to its Nth request; its end otherwise."
)
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Another directory for the copy to work in.",
)
@model_options
@place_options
def fork(
    *,
    session: str,
    at_request: int | None,
    workspace: Path | None,
    provider: str | None,
    model_id: str | None,
    root: Path | None,
    project_id: str,
    agent_id: str,
) -> None:
    """Copy a session under a new id, which is printed; the old one stays as it is.

    --at-request counts the requests to the model of its present context from 1. With --provider and --model-id
    the copy goes on with another model.
    """
    refuse_half_a_model(provider, model_id)
    import anyio  # noqa: PLC0415 - not needed to complain about options

    from penguin.agent.agent import create_agent  # noqa: PLC0415 - with it comes everything else
    from penguin.agent.sessions import short_name  # noqa: PLC0415

    source = named_session(agent_paths(root, project_id, agent_id), session)

    async def copy() -> str:
        agent = await create_agent(project_id=project_id, agent_id=agent_id, root=root)
        return agent.fork(source, at_request=at_request, provider=provider, model_id=model_id, workspace_dir=workspace)

    made = anyio.run(copy)
    print(made, flush=True)
    print(f"penguin: to go on with the copy: penguin run --resume {short_name(made)} -m TEXT", file=sys.stderr)


@click.command()
@session_argument
@click.option("-o", "--output", metavar="FILE", help="Where to; `-` is standard output. SESSION.tar.gz here otherwise.")
@click.option(
    "--format",
    "form",
    type=click.Choice([ARCHIVE, RECORDS]),
    help="Everything as an archive, or its records alone; told from the name otherwise.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@place_options
def export(
    *,
    session: str,
    output: str | None,
    form: str | None,
    force: bool,
    root: Path | None,
    project_id: str,
    agent_id: str,
) -> None:
    """Write a session to one file: its traces and scratch files, or as jsonl its records.

    An archive unpacked in an agent's directory makes the session one of that agent's. It holds all that was said
    and done: look at it before you hand it on.
    """
    from penguin.agent.session_export import export_archive, export_records  # noqa: PLC0415 - this command only

    paths = agent_paths(root, project_id, agent_id)
    found = named_session(paths, session)
    form = form or (RECORDS if output is not None and output.endswith(f".{RECORDS}") else ARCHIVE)
    with _opened(output or f"{found}.{form}", force=force, binary=form == ARCHIVE) as out:
        if form == ARCHIVE:
            export_archive(paths, found, out)
        else:
            for warning in export_records(paths, found, out):
                print(f"penguin: skipped: {warning}", file=sys.stderr)


@contextmanager
def _opened(name: str, *, force: bool, binary: bool) -> Iterator[IO[bytes]]:
    """The file, which appears only when it is complete; or standard output."""
    if name == "-":
        if binary and sys.stdout.isatty():
            raise click.UsageError("an archive is nothing for a terminal: name a file with -o, or pipe it")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(name)
    if not force and (target.exists() or target.is_symlink()):
        raise click.UsageError(f"{target} is there already; --force replaces it")
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:  # noqa: PTH123
            yield out
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    print(f"penguin: written to {target}", file=sys.stderr)


@click.command()
@click.argument("sessions", metavar="SESSION...", nargs=-1, required=True, shell_complete=complete_session)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@place_options
def delete(*, sessions: tuple[str, ...], yes: bool, root: Path | None, project_id: str, agent_id: str) -> int:
    """Delete sessions: their traces and scratch files, and those of their subagents. Workspaces stay.

    A session that is open stays too. Exit status 1 when one could not be deleted.
    """
    from penguin.agent.sessions import pointers  # noqa: PLC0415 - this command only

    paths = agent_paths(root, project_id, agent_id)
    found = list(dict.fromkeys(named_session(paths, name) for name in sessions))
    return _delete(paths, found, pointers(paths), yes=yes)


@click.command()
@click.option(
    "--older-than",
    type=Duration(),
    required=True,
    metavar="SPAN",
    help="Those not written to for so long: 90m, 12h, 30d, 8w.",
)
@click.option("--dry-run", is_flag=True, help="Only list them.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@place_options
def prune(*, older_than: timedelta, dry_run: bool, yes: bool, root: Path | None, project_id: str, agent_id: str) -> int:
    """Delete the sessions that were not used for long, as `delete` does."""
    from penguin.agent.sessions import idle_since, pointers  # noqa: PLC0415 - this command only
    from penguin.cli.render.sessions import session_table  # noqa: PLC0415

    paths = agent_paths(root, project_id, agent_id)
    known = pointers(paths)
    found = idle_since(paths, datetime.now(UTC) - older_than, known)
    if not found:
        print("Nothing is that old.")
        return 0
    if dry_run or not yes:
        print("\n".join(session_table(found, width=None)), flush=True)
    if dry_run:
        return 0
    return _delete(paths, [each.session_id for each in found], known, yes=yes)


def _delete(paths: AgentPaths, found: list[str], known: Pointers, *, yes: bool) -> int:
    """Ask once, delete each that can be, and say what stays."""
    from penguin.agent.sessions import delete_session  # noqa: PLC0415 - as above
    from penguin.cli.asking import confirmed  # noqa: PLC0415 - brings anyio
    from penguin.cli.complaints import FAILED, complain  # noqa: PLC0415
    from penguin.protocol.errors import PenguinError  # noqa: PLC0415

    what = found[0] if len(found) == 1 else f"{len(found)} sessions"
    if not confirmed(f"Delete {what} for good?", yes=yes):
        print("Nothing was deleted.")
        return 0
    status = 0
    for session_id in found:
        try:
            family = delete_session(paths, session_id, known)
        except (PenguinError, OSError) as error:
            complain(f"{session_id} was not deleted: {error}")
            status = FAILED
        else:
            print(f"{session_id} is gone" + (f", and {len(family) - 1} of its subagents" if len(family) > 1 else ""))
    return status
