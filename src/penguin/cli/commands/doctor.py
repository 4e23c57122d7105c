"""``penguin doctor``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penguin.cli.options import agent_paths, place_options


@click.command()
@place_options
def doctor(root: Path | None, project_id: str, agent_id: str) -> int:
    """Say what is configured, what is missing and what to do; nothing leaves this machine.

    Looks for model servers on their usual ports of this machine, too. Exit status 1 when a task could not run.
    """
    from penguin.cli.examination import examine  # noqa: PLC0415 - this command only
    from penguin.cli.render.look import Look  # noqa: PLC0415

    look = Look.of(sys.stdout)
    marks = {
        "good": look.good(look.symbol("✓", "ok")),
        "remark": look.symbol("•", "--"),
        "bad": look.bad(look.symbol("✗", "!!")),
    }
    findings = list(examine(agent_paths(root, project_id, agent_id)))
    for finding in findings:
        print(f"{marks[finding.verdict]} {finding.text}")
        if finding.advice:
            print(f"    {finding.advice}")
    return 1 if any(finding.verdict == "bad" for finding in findings) else 0
