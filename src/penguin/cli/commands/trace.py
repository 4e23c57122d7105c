"""``penguin trace``: ``show``, ``check``, ``stats`` and ``replay``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penguin.cli.completing import complete_session
from penguin.cli.lazy_group import Entry, LazyGroup
from penguin.cli.options import agent_paths, place_options

if TYPE_CHECKING:
    from penguin.agent.replay import ReplayReport
    from penguin.state.paths import AgentPaths
    from penguin.trace.reader import TraceReader

trace = LazyGroup(
    name="trace",
    help="Read what a session did, and check the file.",
    entries={
        "show": Entry("penguin.cli.commands.trace:show", "Show a session or one trace file for reading."),
        "check": Entry("penguin.cli.commands.trace:check", "Report damaged lines and whatever was left unfinished."),
        "stats": Entry("penguin.cli.commands.trace:stats", "Count requests, tokens, tool calls and what they cost."),
        "replay": Entry(
            "penguin.cli.commands.trace:replay", "Build every request again and compare it with the one sent."
        ),
    },
)

_target = click.argument("target", metavar="FILE|SESSION", required=False, shell_complete=complete_session)


@click.command()
@_target
@click.option("--json", "as_json", is_flag=True, help="Print the records, one message a line.")
@click.option("--full", is_flag=True, help="Cut nothing: whole outputs, whole arguments, the system prompt.")
@place_options
def show(*, target: str | None, as_json: bool, full: bool, root: Path | None, project_id: str, agent_id: str) -> None:
    """Show a session or one trace file; without an argument the session that was active last."""
    for path in _trace_files(target, agent_paths(root, project_id, agent_id)):
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

    reports = [check_trace(path) for path in _trace_files(target, agent_paths(root, project_id, agent_id))]
    for report in reports:
        print("\n".join(report.lines()))
    return 1 if any(report.damaged for report in reports) else 0


@click.command()
@_target
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@place_options
def stats(*, target: str | None, as_json: bool, root: Path | None, project_id: str, agent_id: str) -> None:
    """Count requests, tokens, tool calls and what they cost.

    The cost is what the tokens cost at the prices known now; it is left out for a model whose prices nobody knows.
    """
    from penguin.cli.render.sessions import facts  # noqa: PLC0415 - this command only
    from penguin.cli.render.stats import stats_facts, stats_object  # noqa: PLC0415
    from penguin.cli.used import used_in  # noqa: PLC0415

    paths = agent_paths(root, project_id, agent_id)
    used = used_in(_trace_files(target, paths), paths.project.config)
    if as_json:
        print(json.dumps(stats_object(used.stats, used.usd)))
    else:
        print("\n".join(facts(stats_facts(used.stats, used.usd))))


@click.command()
@_target
@place_options
def replay(target: str | None, root: Path | None, project_id: str, agent_id: str) -> int:
    """Build every request again from the records, and compare it with the digest of the one that was sent.

    Nothing is sent. Exit status 1 when one would be sent differently today; the first is named.
    """
    import anyio  # noqa: PLC0415 - this command only

    from penguin.agent.agent import create_agent  # noqa: PLC0415

    files = _trace_files(target, agent_paths(root, project_id, agent_id))

    async def rehearse() -> ReplayReport:
        agent = await create_agent(project_id=project_id, agent_id=agent_id, root=root)
        return agent.replay(_session_of(files) or files[0])

    report = anyio.run(rehearse)
    if report.difference is not None:
        same = report.compared - 1
        print(
            f"{report.difference}." + (f" {_requests(same).capitalize()} before it would be the same." if same else "")
        )
        return 1
    print(f"{_requests(report.compared).capitalize()} would be sent byte for byte as before.{_left_out(report)}")
    return 0


def _session_of(files: list[Path]) -> str | None:
    """The session, when the files are more than the one that was named."""
    return files[0].name.rpartition("_")[0] if len(files) > 1 else None


def _requests(count: int) -> str:
    return "one request" if count == 1 else f"{count} requests"


def _same_before(report: ReplayReport) -> str:
    same = report.compared - 1
    return f" {_requests(same).capitalize()} before it would be the same." if same else ""


def _left_out(report: ReplayReport) -> str:
    return (
        f" {_requests(report.skipped)} could not be compared: nothing was recorded of them." if report.skipped else ""
    )


def _trace_files(target: str | None, paths: AgentPaths) -> list[Path]:
    """The file that was named, or all files of a session.

    Raises:
        click.UsageError: there is neither.
    """
    if target is not None and Path(target).exists():
        return [Path(target)]
    from penguin.agent.sessions import LATEST, find_session  # noqa: PLC0415 - this command only
    from penguin.protocol.errors import ResumeError  # noqa: PLC0415
    from penguin.trace.names import files_of  # noqa: PLC0415

    try:
        return files_of(paths.traces, find_session(paths, LATEST if target is None else target))
    except ResumeError as error:
        hint = "" if target is None else f"; {target} is no file either"
        raise click.UsageError(f"{error}{hint}") from None


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
