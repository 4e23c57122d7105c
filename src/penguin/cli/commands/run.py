"""``penguin run``, and ``penguin sessions resume``, which is the same for a session that is there."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penguin.cli.completing import complete_session
from penguin.cli.options import (
    Command,
    model_options,
    named_session,
    place_options,
    refuse_half_a_model,
    session_argument,
)
from penguin.cli.task_text import refuse_missing_task, task_messages

if TYPE_CHECKING:
    from penguin.agent.agent import Agent
    from penguin.cli.stopping import Stop
    from penguin.environment.sandbox.settings import SandboxMode
    from penguin.protocol.messages import ThinkingLevel
    from penguin.session.approval import ApprovalMode
    from penguin.session.session import Session

# Written out: the type lives in a module whose import `penguin --version` must not pay; a test compares them.
LEVELS = ["none", "low", "medium", "high", "xhigh", "max"]
MODES = ["allow-all", "deny-all", "read-only", "always-ask"]
SANDBOXES = ["off", "read-only", "workspace-write"]
_MOST_SKIPPED_SHOWN = 5
ASKING_MODES = frozenset({"read-only", "always-ask"})


@dataclass(frozen=True, slots=True)
class Order:
    """The options of one call; ``None`` leaves a thing to the configuration."""

    message: str | None
    attach: bool | None
    as_json: bool
    workspace: Path | None
    approve: ApprovalMode | None
    thinking: ThinkingLevel | None
    max_turns: int | None
    budget_usd: float | None
    budget_tokens: int | None
    budget_seconds: float | None
    sandbox: SandboxMode | None
    wait: bool
    root: Path | None
    project_id: str
    agent_id: str
    resume: str | None = None
    provider: str | None = None
    model_id: str | None = None


def task_options(command: Command) -> Command:
    """What can be said about a task, whether its session is new or not."""
    for option in reversed(
        (
            click.option("-m", "--message", metavar="TEXT", help="The task; text on standard input is attached to it."),
            click.option(
                "--stdin/--no-stdin", "attach", default=None, help="Wait for standard input, or never read it."
            ),
            click.option("--json", "as_json", is_flag=True, help="Print each message as one line of JSON."),
            click.option(
                "--workspace",
                type=click.Path(path_type=Path, exists=True, file_okay=False),
                help="The directory the tools work in; the current one, or that of the resumed session.",
            ),
            click.option(
                "--approve",
                type=click.Choice(MODES),
                help="Who decides about tool calls; allow-all unless the project says otherwise.",
            ),
            click.option("--thinking", type=click.Choice(LEVELS), help="How much the model thinks."),
            click.option("--max-turns", type=click.IntRange(min=1), help="Stop after so many requests to the model."),
            click.option(
                "--budget-usd",
                type=click.FloatRange(min=0),
                metavar="DOLLARS",
                help="Stop before a request that could cost more, subagents included.",
            ),
            click.option(
                "--budget-tokens", type=click.IntRange(min=1), metavar="N", help="Stop before more tokens are used."
            ),
            click.option(
                "--budget-seconds", type=click.FloatRange(min=0), metavar="S", help="Send nothing more after so long."
            ),
            click.option(
                "--sandbox",
                type=click.Choice(SANDBOXES),
                help="What commands and file tools may touch; what the project says, or the session had.",
            ),
            click.option("--wait", is_flag=True, help="Wait for background work, and let the model act on its end."),
        )
    ):
        command = option(command)
    return command


@click.command()
@task_options
@click.option(
    "--resume",
    metavar="ID",
    is_flag=False,
    flag_value="",
    shell_complete=complete_session,
    help="Go on with a session: its id, the last 8 characters of it, or `latest`.",
)
@model_options
@place_options
def run(**options: Any) -> int | None:
    """Give the agent one task and show how it does it.

    The answer goes to standard output; on a pipe nothing else does. Exit status: 0 completed, 1 failed,
    2 usage or configuration, 3 a limit was reached, 4 denied because nobody was there to ask, 130 interrupted.
    """
    order = Order(**options)
    refuse_half_a_model(order.provider, order.model_id)
    if order.resume == "":
        raise click.UsageError(
            "--resume wants a session: its id, the last 8 characters of it, or `latest`; `penguin sessions list`"
            " shows them"
        )
    if order.resume is not None and order.provider is not None:
        raise click.UsageError(
            "a resumed session keeps its model: leave out --provider and --model-id, or go on with a copy:"
            " `penguin sessions fork --provider NAME --model-id ID` makes one"
        )
    return _carry_out(order)


@click.command()
@session_argument
@task_options
@place_options
def resume(session: str, **options: Any) -> int | None:
    """Give a session another task: `penguin run --resume SESSION`. The exit status is that of `penguin run`."""
    return _carry_out(Order(**options, resume=session))


def _carry_out(order: Order) -> int | None:
    refuse_missing_task(order.message, attach=order.attach)
    import anyio  # noqa: PLC0415 - not needed to complain about options

    from penguin.cli.stopping import INTERRUPTED, stoppable  # noqa: PLC0415

    stops: list[Stop] = []

    async def work(stop: Stop) -> int:
        stops.append(stop)
        return await _run(order, stop)

    status: int | None = anyio.run(stoppable, work)
    if status is None and not any(stop.gently for stop in stops):
        print("penguin: interrupted before the task began; nothing was sent, nothing recorded", file=sys.stderr)
    return INTERRUPTED if status is None else status


async def _run(order: Order, stop: Stop) -> int:
    from penguin.agent.agent import create_agent  # noqa: PLC0415 - with it comes everything else
    from penguin.cli.display import choose_display  # noqa: PLC0415
    from penguin.cli.task_run import closing, run_task, say_what_was_not_recorded  # noqa: PLC0415

    agent = await create_agent(project_id=order.project_id, agent_id=order.agent_id, root=order.root)
    agent = _within_budget(agent, order)
    async with closing(await _session(agent, order)) as session:
        _refuse_unknown_price(agent, session, order)
        _say_what_was_skipped(session)
        prompt = await task_messages(order.message, attach=order.attach)
        approvals = agent.project.approvals
        mode = order.approve or approvals.mode
        if mode is None:
            print("penguin: all tool calls are allowed; --approve read-only to be asked", file=sys.stderr)
        status = await run_task(
            session,
            prompt,
            choose_display(json=order.as_json),
            stop,
            mode=mode or "allow-all",
            nobody=approvals.unanswered,
            rules=agent.approval_rules() if (mode or "allow-all") in ASKING_MODES else None,
            wait=order.wait,
        )
    return say_what_was_not_recorded(session, status)


def _say_what_was_skipped(session: Session) -> None:
    for place in session.skipped[:_MOST_SKIPPED_SHOWN]:
        print(f"penguin: a record of the conversation cannot be read and is left out: {place}", file=sys.stderr)
    if (more := len(session.skipped) - _MOST_SKIPPED_SHOWN) > 0:
        print(f"penguin: {more} more cannot be read; `penguin trace check` names them", file=sys.stderr)


def _within_budget(agent: Agent, order: Order) -> Agent:
    """The agent with the limits of this call in place of the project's."""
    from msgspec.structs import replace as changed  # noqa: PLC0415 - as the rest

    wanted = {"usd": order.budget_usd, "tokens": order.budget_tokens, "seconds": order.budget_seconds}
    limits = {name: limit for name, limit in wanted.items() if limit is not None}
    if not limits:
        return agent
    budgets = changed(agent.project.budgets, **limits)
    return replace(agent, project=changed(agent.project, budgets=budgets))


def _refuse_unknown_price(agent: Agent, session: Session, order: Order) -> None:
    """A limit in dollars that limits nothing must not look like one."""
    if order.budget_usd is None or session.meta is None:
        return
    from penguin.agent.models import described  # noqa: PLC0415 - as the rest
    from penguin.protocol.messages import SessionMeta  # noqa: PLC0415
    from penguin.state.project import ModelRef  # noqa: PLC0415

    match session.meta.payload:
        case SessionMeta(provider=provider, model_id=model_id):
            if described(agent.project, ModelRef(provider, model_id)).prices is None:
                raise click.UsageError(
                    f"the prices of {provider}/{model_id} are not known, so --budget-usd would limit nothing: put"
                    f" `pricing` into its [[models]] entry ({agent.paths.project.config}), or use --budget-tokens"
                )
        case _:
            pass


async def _session(agent: Agent, order: Order) -> Session:
    if order.resume is None:
        return await agent.create_session(
            workspace_dir=order.workspace or ".",
            provider=order.provider,
            model_id=order.model_id,
            thinking_level=order.thinking,
            max_turns=order.max_turns,
            sandbox=order.sandbox,
        )
    return await agent.resume_session(
        named_session(agent.paths, order.resume),
        workspace_dir=order.workspace,
        thinking_level=order.thinking,
        max_turns=order.max_turns,
        sandbox=order.sandbox,
    )
