"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

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
