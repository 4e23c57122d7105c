"""Errors for people: one paragraph on stderr that says what happened, where, and what to do."""

from __future__ import annotations

import sys
import traceback

import click

from penguin.cli.redaction import redacted
from penguin.cli.streams import output_full
from penguin.protocol.errors import ConfigError, NoModelError, PenguinError

NO_MODEL = """\
penguin: no model is configured, so nothing was sent. There are four ways on:
  a key for once      export OPENAI_API_KEY=KEY; penguin run --provider openai --model-id MODEL -m TEXT
  a key to keep       penguin config model add --provider openai --model-id MODEL --api-key KEY --set-default
  your own server     penguin config model add --provider custom --model-id MODEL --base-url URL --set-default
  no model, offline   penguin demo"""

FAILED, USAGE, INTERRUPTED = 1, 2, 130
FULL_OUTPUT = (
    "the output cannot be written: the device or file it goes to is full. Make room there, or send the output"
    " somewhere else."
)


def complain(text: str) -> None:
    """Print one paragraph to stderr, never anything that looks like a key."""
    print(f"penguin: {redacted(text)}", file=sys.stderr)


def explain(error: BaseException, *, debug: bool) -> int:
    """Tell the person about ``error`` and return the exit status it means; with ``debug`` the traceback comes first."""
    if debug:
        print(redacted("".join(traceback.format_exception(error))), file=sys.stderr)
    match error:
        case click.exceptions.Abort():
            return INTERRUPTED
        case click.UsageError():
            error.show()
            return USAGE
        case click.ClickException():
            complain(error.format_message())
            return error.exit_code
        case NoModelError():
            print(NO_MODEL, file=sys.stderr)
            return USAGE
        case ConfigError():
            complain(str(error))
            return USAGE
        case PenguinError():
            complain(str(error))
            return FAILED
        case OSError() if output_full(error):
            complain(FULL_OUTPUT)
            return FAILED
        case OSError(filename=str(path)):
            complain(f"{path}: {error.strerror}.")
            return FAILED
        case BaseExceptionGroup(exceptions=[only]):
            return explain(only, debug=False)
        case _:
            complain(
                f"stopped by a fault of its own: {type(error).__name__}: {error}. Your files and traces are as they"
                " were. Run the same command with --debug to see the traceback, and report it with that."
            )
            return FAILED
