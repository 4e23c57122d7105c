"""``penguin run``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penguin.cli.options import place_options
from penguin.cli.task_text import refuse_missing_task, task_messages

if TYPE_CHECKING:
    from penguin.agent.agent import Agent
    from penguin.cli.stopping import Stop
    from penguin.protocol.messages import ThinkingLevel
    from penguin.session.approval import ApprovalMode
    from penguin.session.session import Session

LEVELS = ["none", "low", "medium", "high", "xhigh", "max"]
ASKING_MODES = frozenset({"read-only", "always-ask"})
MODES = ["allow-all", "deny-all", "read-only", "always-ask"]


@dataclass(frozen=True, slots=True)
class Order:
    """The options of one call; ``None`` leaves a thing to the configuration."""

    message: str | None
    attach: bool | None
    as_json: bool
    workspace: Path | None
    resume: str | None
    approve: ApprovalMode | None
    thinking: ThinkingLevel | None
    max_turns: int | None
    provider: str | None
    model_id: str | None
    root: Path | None
    project_id: str
    agent_id: str


@click.command()
@click.option("-m", "--message", metavar="TEXT", help="The task; text on standard input is attached to it.")
@click.option("--stdin/--no-stdin", "attach", default=None, help="Wait for standard input, or never read it.")
@click.option("--json", "as_json", is_flag=True, help="Print each message as one line of JSON.")
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The directory the tools work in; the current one, or that of the resumed session.",
)
@click.option("--resume", metavar="ID", help="Go on with a session; `latest` is the one that was active last.")
@click.option(
    "--approve",
    type=click.Choice(MODES),
    help="Who decides about tool calls; allow-all unless the project says otherwise.",
)
@click.option("--thinking", type=click.Choice(LEVELS), help="How much the model thinks.")
@click.option("--max-turns", type=click.IntRange(min=1), help="Stop after so many requests to the model.")
@click.option("--provider", metavar="NAME", help="The model's provider; goes with --model-id.")
@click.option("--model-id", metavar="ID", help="The model; goes with --provider.")
@place_options
def run(**options: Any) -> int | None:
    """Give the agent one task and show how it does it.

    The answer goes to standard output; on a pipe nothing else does. Exit status: 0 completed, 1 failed,
    2 usage or configuration, 3 a limit was reached, 4 denied because nobody was there to ask, 130 interrupted.
    """
    order = Order(**options)
    if (order.provider is None) != (order.model_id is None):
        raise click.UsageError("--provider and --model-id go together: give both or neither")
    if order.resume is not None and order.provider is not None:
        raise click.UsageError("a resumed session keeps its model: leave out --provider and --model-id")
    refuse_missing_task(order.message, attach=order.attach)
    import anyio  # noqa: PLC0415 - not needed to complain about options

    from penguin.cli.stopping import INTERRUPTED, stoppable  # noqa: PLC0415

    async def work(stop: Stop) -> int:
        return await _run(order, stop)

    status: int | None = anyio.run(stoppable, work)
    return INTERRUPTED if status is None else status


async def _run(order: Order, stop: Stop) -> int:
    from penguin.agent.agent import create_agent  # noqa: PLC0415 - with it comes everything else
    from penguin.cli.display import choose_display  # noqa: PLC0415
    from penguin.cli.task_run import closing, run_task  # noqa: PLC0415

    agent = await create_agent(project_id=order.project_id, agent_id=order.agent_id, root=order.root)
    async with closing(await _session(agent, order)) as session:
        prompt = await task_messages(order.message, attach=order.attach)
        approvals = agent.project.approvals
        mode = order.approve or approvals.mode
        if mode is None:
            print("penguin: all tool calls are allowed; --approve read-only to be asked", file=sys.stderr)
        return await run_task(
            session,
            prompt,
            choose_display(json=order.as_json),
            stop,
            mode=mode or "allow-all",
            nobody=approvals.unanswered,
            rules=agent.approval_rules() if (mode or "allow-all") in ASKING_MODES else None,
        )


async def _session(agent: Agent, order: Order) -> Session:
    if order.resume is None:
        return await agent.create_session(
            workspace_dir=order.workspace or ".",
            provider=order.provider,
            model_id=order.model_id,
            thinking_level=order.thinking,
            max_turns=order.max_turns,
        )
    return await agent.resume_session(
        None if order.resume == "latest" else order.resume,
        workspace_dir=order.workspace,
        thinking_level=order.thinking,
        max_turns=order.max_turns,
    )
