"""Secrets that come from a person or a pipe."""

from __future__ import annotations

import getpass
import sys

import click


def read_secret(what: str) -> str:
    """One line from standard input, or typed unseen at a terminal.

    Raises:
        click.UsageError: nothing came, or more than one line.
    """
    text = getpass.getpass(f"{what}: ") if sys.stdin.isatty() else sys.stdin.read()
    secret = text.rstrip("\r\n")
    if not secret:
        raise click.UsageError(f"{what} was expected on standard input, and nothing came")
    if "\n" in secret:
        raise click.UsageError(f"{what} was expected on standard input as one line, and more came")
    return secret
