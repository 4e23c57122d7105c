"""``penguin sessions``: its table, and ``list`` and ``show``."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penguin.cli.lazy_group import Entry, LazyGroup
from penguin.cli.options import agent_paths, named_session, place_options, session_argument

if TYPE_CHECKING:
    from penguin.agent.sessions import StoredSession

SHOWN = 20

sessions = LazyGroup(
    name="sessions",
    help="List sessions, go on with them, copy, keep and delete them. A session is named by its id, by the"
    " last 8 characters of it, or as `latest`.",
    entries={
        "list": Entry("penguin.cli.commands.sessions:list_sessions", "List the sessions, the newest first."),
        "show": Entry("penguin.cli.commands.sessions:show", "Say what a session is and what it used."),
        "resume": Entry("penguin.cli.commands.run:resume", "Give a session another task."),
        "fork": Entry("penguin.cli.commands.sessions_change:fork", "Copy a session, to go on in another way."),
        "undo": Entry(
            "penguin.cli.commands.sessions_undo:undo", "Go back to before a task: files, conversation or both."
        ),
        "redo": Entry("penguin.cli.commands.sessions_undo:redo", "Take the last undo back."),
        "diff": Entry("penguin.cli.commands.sessions_undo:diff", "Show what a task changed in the files."),
        "export": Entry("penguin.cli.commands.sessions_change:export", "Write a session to one file."),
        "delete": Entry("penguin.cli.commands.sessions_change:delete", "Delete sessions."),
        "prune": Entry("penguin.cli.commands.sessions_change:prune", "Delete the sessions nobody used for long."),
    },
)


@click.command(name="list")
@click.option("-n", "--limit", type=click.IntRange(min=0), help=f"At most so many, 0 for all; {SHOWN} without --json.")
@click.option("--subagents", is_flag=True, help="Also those a subagent worked in.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@place_options
def list_sessions(
    *, limit: int | None, subagents: bool, as_json: bool, root: Path | None, project_id: str, agent_id: str
) -> None:
    """List the sessions, the newest first."""
    from penguin.agent.sessions import stored_sessions  # noqa: PLC0415 - this command only

    everything = stored_sessions(agent_paths(root, project_id, agent_id))
    wanted = (each for each in everything if subagents or each.parent is None)
    most = limit if limit is not None else 0 if as_json else SHOWN
    listed = list(islice(wanted, most or None))
    if as_json:
        _print_objects(listed)
        return
    _print_table(listed)
    if most and next(wanted, None) is not None:
        print(f"penguin: these are the newest {most}; -n 0 lists all", file=sys.stderr)


def _print_objects(listed: list[StoredSession]) -> None:
    from penguin.cli.render.sessions import session_object  # noqa: PLC0415 - this command only

    for session in listed:
        print(json.dumps(session_object(session), ensure_ascii=False))


def _print_table(listed: list[StoredSession]) -> None:
    from penguin.cli.render.look import Look  # noqa: PLC0415 - this command only
    from penguin.cli.render.sessions import session_table  # noqa: PLC0415

    if not listed:
        print("No session yet. `penguin run -m TEXT` begins one.")
        return
    look = Look.of(sys.stdout)
    width = look.width() if sys.stdout.isatty() else None
    for line in session_table(listed, width=width, end=look.symbol("…", "...")):
        print(line)


@click.command()
@session_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@place_options
def show(*, session: str, as_json: bool, root: Path | None, project_id: str, agent_id: str) -> None:
    """Say what a session is and what it used. `penguin trace show` shows what was said and done in it."""
    from penguin.agent.sessions import family_of, stored_session  # noqa: PLC0415 - this command only
    from penguin.cli.render.sessions import facts, session_facts, session_object  # noqa: PLC0415
    from penguin.cli.render.stats import stats_facts, stats_object  # noqa: PLC0415
    from penguin.cli.used import used_by  # noqa: PLC0415

    paths = agent_paths(root, project_id, agent_id)
    found = stored_session(paths, named_session(paths, session))
    used = used_by(paths, found)
    children = family_of(paths, found.session_id)[1:]
    if as_json:
        print(json.dumps(session_object(found) | {"children": children, "used": stats_object(used.stats, used.usd)}))
        return
    pairs = [*session_facts(found, workspace_exists=Path(found.summary.workspace).is_dir())]
    pairs += [("ended", used.ending), *stats_facts(used.stats, used.usd)] if used.ending else []
    pairs += [("its subagents'", child) for child in children]
    pairs += [("file", str(file)) for file in used.files]
    print("\n".join(facts(pairs)))
