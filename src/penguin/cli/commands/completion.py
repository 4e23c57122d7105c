"""``penguin completion``."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    For bash: eval "$(penguin completion bash)" in ~/.bashrc. For fish: penguin completion fish | source.
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - only this command needs it

    from penguin.cli.app import app  # noqa: PLC0415 - the app imports this module

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    print(kind(app, {}, "penguin", "_PENGUIN_COMPLETE").source())
