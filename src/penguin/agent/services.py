"""What a session lends to its environment: command sessions without the harness's keys, children, an outlet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from penguin.agent.spawn import Spawner
from penguin.environment.masking import Secrets
from penguin.environment.process_ledger import ProcessLedger
from penguin.environment.processes import CommandSessions, CommandState
from penguin.environment.shell_environment import ShellEnvironment
from penguin.environment.tool import Services
from penguin.environment.tools.describe_image import VisionDescriber
from penguin.llm import catalog
from penguin.protocol.blocks import block
from penguin.session.outlet import SessionOutlet

if TYPE_CHECKING:
    from penguin.environment.sandbox.command_sandbox import CommandSandbox


class Lent(Struct, frozen=True):
    """The services of one session; ``commands`` is closed with it."""

    outlet: SessionOutlet
    commands: CommandSessions
    vault: Mapping[str, str]
    spawner: Spawner | None
    describer: VisionDescriber
    sandbox: CommandSandbox | None

    @classmethod
    def for_session(
        cls,
        vault: Mapping[str, str],
        *,
        allowed: Sequence[str],
        custody_dir: Path,
        scratchpad_dir: Path,
        spawner: Spawner | None,
        describer: VisionDescriber,
        sandbox: CommandSandbox | None,
    ) -> Lent:
        """Commands see the vault's values and none of the keys the harness itself uses (N6) but those ``allowed``."""
        outlet, secrets = SessionOutlet(), Secrets(vault)
        shell = ShellEnvironment(vault=vault, hidden=catalog.key_variables(), allowed=allowed)
        commands = CommandSessions(
            environment=shell,
            custody_dir=custody_dir,
            on_exit=lambda state: outlet.post(secrets.masked(_report(state))),
            sandbox=sandbox,
            ledger=ProcessLedger(scratchpad_dir / "processes.jsonl"),
        )
        return cls(outlet, commands, vault, spawner, describer, sandbox)

    def tell_what_ended(self) -> None:
        """To the model of a resumed session: its background commands of before are gone (E17)."""
        for note in self.commands.take_lost():
            ended = f"Process {note.process_id} (`{note.cmd}`): it ended with the program that had started it"
            self.outlet.post(block("background_task_done", Secrets(self.vault).masked(ended)))

    def as_services(self) -> Services:
        """As the environment's tools expect them."""
        return Services(
            subagent_runner=self.spawner,
            vision_describer=self.describer,
            command_sessions=self.commands,
            outlet=self.outlet,
        )


def _report(state: CommandState) -> str:
    ended = f"Process {state.process_id} (`{state.cmd}`): {state.words}"
    return block("background_task_done", f"{ended}\n{state.undelivered}".rstrip())
