"""The table of commands, and what happens to an error that reaches the top."""

from __future__ import annotations

from typing import Any

import click

from penguin._version import VERSION
from penguin.cli.complaints import explain
from penguin.cli.debug_log import DebugSwitch
from penguin.cli.lazy_group import Entry, LazyGroup, debug_option
from penguin.cli.streams import ReaderLeft, reader_left


class App(LazyGroup):
    """The whole command."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named.

        Raises:
            ReaderLeft: nobody reads our output any more. click would take the broken pipe itself for a failure.
        """
        try:
            return super().invoke(ctx)
        except OSError as error:
            if reader_left(error):
                raise ReaderLeft from error
            raise


app = App(
    name="penguin",
    entries={
        "run": Entry("penguin.cli.commands.run:run", "Give the agent one task and show how it does it."),
        "demo": Entry("penguin.cli.commands.demo:demo", "Watch a whole session against a scripted model, offline."),
        "config": Entry("penguin.cli.commands.config:config", "Connect models, keep secrets, see what is in force."),
        "approvals": Entry("penguin.cli.commands.approvals:approvals", "See and forget what you answered with always."),
        "doctor": Entry("penguin.cli.commands.doctor:doctor", "Say what is configured, what is missing, what to do."),
        "sessions": Entry("penguin.cli.commands.sessions:sessions", "List sessions, go on with them, keep, delete."),
        "trace": Entry("penguin.cli.commands.trace:trace", "Read what a session did, and check the file."),
        "schema": Entry("penguin.cli.commands.schema:schema", "Print the JSON Schema of the message protocol."),
        "completion": Entry("penguin.cli.commands.completion:completion", "Print the shell's completion script."),
    },
    params=[debug_option()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="An agent harness: a task goes in, a model and its tools do it, a trace of all of it stays.",
    epilog="To give it a task: penguin run -m TEXT. To see one without a model: penguin demo.",
)
click.version_option(VERSION, prog_name="penguin", message="%(prog)s %(version)s")(app)


def run_command_line(arguments: list[str]) -> int:
    """Run one command and return the exit status; every error becomes a paragraph on stderr."""
    switch = DebugSwitch()
    try:
        status = app.main(args=arguments, prog_name="penguin", standalone_mode=False, obj=switch)
    except ReaderLeft:
        raise
    except SystemExit as click_gave_up:
        # In this mode click leaves that way for one reason: the reader of the help text has gone.
        raise ReaderLeft from click_gave_up
    except Exception as error:  # noqa: BLE001 - the top of the program
        return explain(error, debug=switch.on)
    finally:
        switch.close()
    return status if isinstance(status, int) else 0
