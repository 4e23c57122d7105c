"""``penguin config vault``."""

from __future__ import annotations

from pathlib import Path

import click

from penguin.cli.lazy_group import Entry, LazyGroup
from penguin.cli.options import agent_paths, place_options
from penguin.cli.secrets import read_secret

vault = LazyGroup(
    name="vault",
    help="Keep secrets for the commands an agent runs; the model sees only their names.",
    entries={
        "set": Entry("penguin.cli.commands.config_vault:set_entry", "Add or replace a secret."),
        "list": Entry("penguin.cli.commands.config_vault:list_entries", "List the names."),
        "remove": Entry("penguin.cli.commands.config_vault:remove_entry", "Remove a secret."),
    },
)


@click.command()
@click.argument("name")
@click.argument("value", required=False)
@place_options
def set_entry(name: str, value: str | None, root: Path | None, project_id: str, agent_id: str) -> None:
    """Add or replace the secret NAME.

    Without VALUE it is read from standard input, or asked for in a terminal: it then stands in no shell
    history and no process list.
    """
    from penguin.state.vault import SHORTEST_MASKED, VaultFile  # noqa: PLC0415 - this command only

    secret = read_secret(f"the value of {name}") if value is None else value
    file = VaultFile(agent_paths(root, project_id, agent_id).vault)
    file.set(name, secret)
    print(f"{name} is kept in {file.path}")
    if len(secret) < SHORTEST_MASKED:
        print(f"Note: a value of fewer than {SHORTEST_MASKED} characters is not masked where it appears in output.")


@click.command()
@place_options
def list_entries(root: Path | None, project_id: str, agent_id: str) -> None:
    """List the names; no value is ever shown."""
    from penguin.state.vault import VaultFile  # noqa: PLC0415 - this command only

    for name in VaultFile(agent_paths(root, project_id, agent_id).vault).names():
        print(name)


@click.command()
@click.argument("name")
@place_options
def remove_entry(name: str, root: Path | None, project_id: str, agent_id: str) -> None:
    """Remove the secret NAME."""
    from penguin.state.vault import VaultFile  # noqa: PLC0415 - this command only

    file = VaultFile(agent_paths(root, project_id, agent_id).vault)
    file.remove(name)
    print(f"{name} is gone from {file.path}")
