"""``penguin config``: its groups, and ``show`` and ``path``."""

from __future__ import annotations

from pathlib import Path

import click

from penguin.cli.lazy_group import Entry, LazyGroup
from penguin.cli.options import agent_paths, place_options

config = LazyGroup(
    name="config",
    help="Connect models, keep secrets, see what is in force.",
    entries={
        "model": Entry("penguin.cli.commands.config_model:model", "Add, list, choose and remove models."),
        "vault": Entry("penguin.cli.commands.config_vault:vault", "Keep secrets for the commands an agent runs."),
        "show": Entry("penguin.cli.commands.config:show", "Show every setting in force and where it comes from."),
        "edit": Entry("penguin.cli.commands.config_edit:edit", "Edit a configuration file; a broken one is not taken."),
        "path": Entry("penguin.cli.commands.config:path", "Print the paths of the configuration files."),
    },
)


@click.command()
@place_options
def show(root: Path | None, project_id: str, agent_id: str) -> None:
    """Show every setting in force and where it comes from; keys are masked."""
    from penguin.cli.effective_config import effective_settings, unknown_settings  # noqa: PLC0415
    from penguin.cli.render.table import table  # noqa: PLC0415

    paths = agent_paths(root, project_id, agent_id)
    rows = [
        (setting.name, setting.value, setting.source)
        for setting in effective_settings(paths, root_given=root is not None)
    ]
    for line in table(("setting", "value", "from"), rows):
        print(line)
    for problem in unknown_settings(paths):
        print(f"unknown: {problem}")


@click.command()
@place_options
def path(root: Path | None, project_id: str, agent_id: str) -> None:
    """Print the paths of the configuration files, one a line; files that do not exist yet are marked."""
    paths = agent_paths(root, project_id, agent_id)
    for file in (paths.project.config, paths.system_config, paths.vault):
        print(file if file.exists() else f"{file}  (not there yet)")
