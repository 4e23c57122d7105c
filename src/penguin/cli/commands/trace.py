"""``penguin trace show`` and ``penguin trace check``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penguin.cli.lazy_group import Entry, LazyGroup
from penguin.cli.options import agent_paths, place_options

if TYPE_CHECKING:
    from penguin.trace.reader import TraceReader

trace = LazyGroup(
    name="trace",
    help="Read what a session did, and check the file.",
    entries={
        "show": Entry("penguin.cli.commands.trace:show", "Show a session or one trace file for reading."),
        "check": Entry("penguin.cli.commands.trace:check", "Report damaged lines and whatever was left unfinished."),
    },
)

_target = click.argument("target", metavar="FILE|SESSION_ID", required=False)


@click.command()
@_target
@click.option("--json", "as_json", is_flag=True, help="Print the records, one message a line.")
@click.option("--full", is_flag=True, help="Cut nothing: whole outputs, whole arguments, the system prompt.")
@place_options
def show(*, target: str | None, as_json: bool, full: bool, root: Path | None, project_id: str, agent_id: str) -> None:
    """Show a session or one trace file; without an argument the session that was active last."""
    for path in _trace_files(target, agent_paths(root, project_id, agent_id).traces):
        if as_json:
            _print_records(path)
        else:
            _print_transcript(path, full=full)


@click.command()
@_target
@place_options
def check(target: str | None, root: Path | None, project_id: str, agent_id: str) -> int:
    """Report damaged lines and whatever was left unfinished. Exit status 1 when a record was damaged."""
    from penguin.trace.check import check_trace  # noqa: PLC0415 - this command only

    reports = [check_trace(path) for path in _trace_files(target, agent_paths(root, project_id, agent_id).traces)]
    for report in reports:
        print("\n".join(report.lines()))
    return 1 if any(report.damaged for report in reports) else 0


def _trace_files(target: str | None, traces: Path) -> list[Path]:
    from penguin.trace.index import latest_session  # noqa: PLC0415 - this command only
    from penguin.trace.names import files_of, is_session_id  # noqa: PLC0415

    if target is not None and (Path(target).exists() or not is_session_id(target)):
        if not Path(target).exists():
            raise click.UsageError(
                f"{target} is neither a file nor a session id; sessions of this agent are in {traces}"
            )
        return [Path(target)]
    session_id = target or latest_session(traces)
    found = files_of(traces, session_id) if session_id else []
    if not found:
        missing = f"no trace of {session_id}" if session_id else "no session yet"
        raise click.UsageError(f"there is {missing} in {traces}")
    return found


def _print_records(path: Path) -> None:
    from penguin.trace.reader import TraceReader  # noqa: PLC0415 - this command only

    reader = TraceReader(path)
    for message in reader:
        sys.stdout.buffer.write(message.line + b"\n")
    sys.stdout.buffer.flush()
    _warn(reader)


def _print_transcript(path: Path, *, full: bool) -> None:
    from penguin.cli.render.look import Look  # noqa: PLC0415 - this command only
    from penguin.cli.render.transcript import Transcript  # noqa: PLC0415
    from penguin.trace.reader import TraceReader  # noqa: PLC0415

    reader = TraceReader(path)
    transcript = Transcript(sys.stdout.write, Look.of(sys.stdout), live=False, full=full)
    for message in reader:
        transcript.show(message)
    transcript.close()
    sys.stdout.flush()
    _warn(reader)


def _warn(reader: TraceReader) -> None:
    for warning in reader.warnings:
        print(f"penguin: skipped: {warning}", file=sys.stderr)
