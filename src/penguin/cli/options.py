"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penguin.cli.completing import complete_model, complete_provider, complete_session

if TYPE_CHECKING:
    from penguin.state.paths import AgentPaths, DataRoot

Command = TypeVar("Command", bound=Callable[..., Any])


def root_option(command: Command) -> Command:
    """``--root``: another data root than the one ``PENGUIN_HOME`` names."""
    return click.option(
        "--root",
        type=click.Path(path_type=Path, file_okay=False),
        help="The data root; otherwise PENGUIN_HOME, otherwise ~/.penguin/data.",
    )(command)


def project_options(command: Command) -> Command:
    """``--project-id`` and ``--root``."""
    return click.option(
        "--project-id", default="default_project", show_default=True, metavar="ID", help="The project."
    )(root_option(command))


def place_options(command: Command) -> Command:
    """``--project-id``, ``--agent-id`` and ``--root``: whose configuration, prompts and traces."""
    return click.option("--agent-id", default="default_agent", show_default=True, metavar="ID", help="The agent.")(
        project_options(command)
    )


def data_root(root: Path | None) -> DataRoot:
    """The data root that ``--root`` or the environment names."""
    from penguin.state.paths import DataRoot  # noqa: PLC0415 - keeps this module cheap for `--help`

    return DataRoot(root.expanduser().absolute()) if root else DataRoot.from_environment(os.environ)


def agent_paths(root: Path | None, project_id: str, agent_id: str) -> AgentPaths:
    """Where the chosen agent lives.

    Raises:
        ConfigError: an id is no name.
    """
    return data_root(root).project(project_id).agent(agent_id)


def model_options(command: Command) -> Command:
    """``--provider`` and ``--model-id``, which go together."""
    for option in (
        click.option(
            "--model-id", metavar="ID", shell_complete=complete_model, help="The model; goes with --provider."
        ),
        click.option(
            "--provider",
            metavar="NAME",
            shell_complete=complete_provider,
            help="The model's provider; goes with --model-id.",
        ),
    ):
        command = option(command)
    return command


def refuse_half_a_model(provider: str | None, model_id: str | None) -> None:
    """A model is the pair; neither half is guessed from the other (L15).

    Raises:
        click.UsageError: only one of them was given.
    """
    if (provider is None) != (model_id is None):
        raise click.UsageError("--provider and --model-id go together: give both or neither")


class NoSuchSession(click.ClickException):
    """Nothing goes by that name: the command line is wrong, and a usage line would not help."""

    exit_code = 2


def named_session(paths: AgentPaths, name: str) -> str:
    """The id of the session a person named.

    Raises:
        NoSuchSession: there is none, or more than one.
    """
    from penguin.agent.sessions import find_session  # noqa: PLC0415 - keeps this module cheap for `--help`
    from penguin.protocol.errors import ResumeError  # noqa: PLC0415

    try:
        return find_session(paths, name)
    except ResumeError as error:
        raise NoSuchSession(str(error)) from None


def session_argument(command: Command) -> Command:
    """``SESSION``: an id, the end of one, or ``latest``."""
    return click.argument("session", metavar="SESSION", shell_complete=complete_session)(command)
