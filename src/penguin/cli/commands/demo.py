"""``penguin demo``."""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penguin.cli.options import agent_paths, place_options
from penguin.cli.own_name import own_name

if TYPE_CHECKING:
    from penguin.agent.agent import Agent
    from penguin.cli.stopping import Stop
    from penguin.state.paths import AgentPaths
    from penguin.state.project import ClientType

_PROVIDER, _MODEL = "demo", "scripted"
PROTOCOLS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
_AT_THE_HOST = frozenset({"anthropic-messages", "gemini"})


@click.command()
@click.option("--fast", is_flag=True, help="Do not slow the scripted words down to reading speed.")
@click.option(
    "--client-type",
    type=click.Choice(PROTOCOLS),
    default=PROTOCOLS[0],
    show_default=True,
    help="The protocol the scripted model speaks.",
)
@place_options
def demo(*, fast: bool, client_type: ClientType, root: Path | None, project_id: str, agent_id: str) -> int:
    """Watch a whole session: a failing test is found, understood and mended.

    The model's words come from a script, served over real HTTP on this machine; requests, tools, approvals,
    trace and what you see are the real thing. No key, no network, and your configuration is left alone.
    """
    import anyio  # noqa: PLC0415 - not needed for `--help`

    from penguin.cli.stopping import INTERRUPTED, stoppable  # noqa: PLC0415

    paths = agent_paths(root, project_id, agent_id)

    async def work(stop: Stop) -> int:
        return await _demo(paths, stop, client_type, delay=0.0 if fast else 0.012)

    status: int | None = anyio.run(stoppable, work)
    return INTERRUPTED if status is None else status


async def _demo(paths: AgentPaths, stop: Stop, client_type: ClientType, *, delay: float) -> int:
    from penguin.cli.display import TerminalDisplay  # noqa: PLC0415 - as the imports below
    from penguin.cli.task_run import closing, run_task  # noqa: PLC0415
    from penguin.testing import ScriptedProvider  # noqa: PLC0415
    from penguin.testing.demo_script import DEMO_PROMPT, demo_turns  # noqa: PLC0415

    paths, workspace = _workspace(paths)
    async with ScriptedProvider(demo_turns(delta_delay=delay)) as provider:
        base_url = provider.host_url if client_type in _AT_THE_HOST else provider.base_url
        _introduce(base_url, DEMO_PROMPT)
        agent = _agent(paths, client_type, base_url)
        async with closing(await agent.create_session(workspace_dir=workspace)) as session:
            status = await run_task(session, [DEMO_PROMPT], TerminalDisplay(sys.stdout), stop)
            _conclude(session.trace_path, workspace)
    return status


def _workspace(paths: AgentPaths) -> tuple[AgentPaths, Path]:
    """The agent's own data root, so that the trace is found where traces are; a temporary one when it is read-only."""
    from penguin.protocol.errors import ConfigError  # noqa: PLC0415 - as the imports below
    from penguin.state.paths import DataRoot  # noqa: PLC0415
    from penguin.testing.demo_script import demo_workspace_files  # noqa: PLC0415

    try:
        workspace = paths.new_temporary_workspace()
    except ConfigError as error:
        root = Path(tempfile.mkdtemp(prefix="penguin-demo-"))
        print(f"penguin: {error}. The demo goes to {root}.", file=sys.stderr)
        paths = DataRoot(root).project(paths.project.id).agent(paths.id)
        workspace = paths.new_temporary_workspace()
    for name, content in demo_workspace_files().items():
        (workspace / name).write_text(content, encoding="utf-8")
    return paths, workspace


def _agent(paths: AgentPaths, client_type: ClientType, base_url: str) -> Agent:
    """An agent as it comes, whatever the user has configured, with the scripted model as its only one."""
    from penguin.agent.agent import Agent  # noqa: PLC0415 - with it comes everything else
    from penguin.state.agent_files import AgentConfig  # noqa: PLC0415
    from penguin.state.project import ModelEntry, ProjectConfig  # noqa: PLC0415

    entry = ModelEntry(
        provider=_PROVIDER, model_id=_MODEL, client_type=client_type, base_url=base_url, api_key="not-needed"
    )
    return Agent(paths=paths, project=ProjectConfig(models=(entry,)), config=AgentConfig())


def _introduce(base_url: str, prompt: str) -> None:
    print(f"A scripted model answers at {base_url}; all the rest is real. The task:\n\n> {prompt}\n", flush=True)


def _conclude(trace: Path | None, workspace: Path) -> None:
    name = own_name()
    print(
        f"\nThe workspace, with the mended program:\n  {workspace}"
        f"\nThe trace, with every message:\n  {trace}"
        f"\nTo read it again:\n  {name} trace show {shlex.quote(str(trace))}"
        "\nTo connect a model of your own:"
        f"\n  {name} config model add --provider custom --model-id MODEL --client-type openai-chat \\"
        "\n      --base-url URL --api-key KEY --set-default"
        "\nor, with the key of a known provider in its variable:"
        f"\n  export OPENAI_API_KEY=KEY; {name} run --provider openai --model-id MODEL -m TEXT",
        flush=True,
    )
