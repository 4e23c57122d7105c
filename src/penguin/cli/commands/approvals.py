"""``penguin approvals``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penguin.cli.lazy_group import Entry, LazyGroup
from penguin.cli.options import agent_paths, place_options

if TYPE_CHECKING:
    from penguin.agent.approvals import ProjectRules

approvals = LazyGroup(
    name="approvals",
    help="See and forget what you answered with always.",
    entries={
        "list": Entry("penguin.cli.commands.approvals:list_rules", "List the calls that are allowed without asking."),
        "remove": Entry("penguin.cli.commands.approvals:remove_rule", "Forget one of them."),
    },
)


@click.command()
@place_options
def list_rules(root: Path | None, project_id: str, agent_id: str) -> None:
    """List the project's rules with their numbers."""
    for number, rule in enumerate(_rules(root, project_id, agent_id).rules, start=1):
        print(f"{number}  {rule}")


@click.command()
@click.argument("number", type=click.IntRange(min=1))
@place_options
def remove_rule(number: int, root: Path | None, project_id: str, agent_id: str) -> None:
    """Forget the rule with that NUMBER in `penguin approvals list`."""
    removed = _rules(root, project_id, agent_id).remove(number - 1)
    print(f"Forgotten: {removed}")


def _rules(root: Path | None, project_id: str, agent_id: str) -> ProjectRules:
    from penguin.agent.approvals import ProjectRules  # noqa: PLC0415 - these commands only
    from penguin.state.project import ProjectConfigFile  # noqa: PLC0415

    return ProjectRules(ProjectConfigFile(agent_paths(root, project_id, agent_id).project.config))
