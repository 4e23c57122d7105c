"""A table of commands whose modules are imported when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from penguin.cli.debug_log import DebugSwitch


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives (``module:attribute``) and the line about it in the help of its group."""

    place: str
    summary: str


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is called.

    The summaries stand in the table, so that ``--help`` imports nothing either.
    """

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names in the order of the table: what one needs first comes first."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import and return one command; ``None`` for a name that is not in the table."""
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Group) and not any(option.name == "debug" for option in command.params):
            command.params.append(debug_option())
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands for the help text."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self._entries.items()])


def debug_option() -> click.Option:
    """``--debug``, which stands before or after the name of a command."""

    def switch_on(context: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's
        switch = context.find_object(DebugSwitch)
        if value and switch is not None:
            switch.turn_on()

    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        callback=switch_on,
        help="Show tracebacks and write a log file (its path is printed; PENGUIN_LOG names another).",
    )
