"""Asking the person at the terminal whether a call may run."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TextIO

import anyio
import click

from penguin.cli.render.arguments import in_full
from penguin.cli.render.look import Look
from penguin.cli.render.text import one_line, visible
from penguin.protocol.messages import OmniMessage, ToolCall
from penguin.session.approval import Answer

_ANSWERS: dict[str, Answer] = {"y": "allow", "yes": "allow", "n": "deny", "no": "deny"}
_ALWAYS = frozenset({"a", "always"})


def somebody_there() -> bool:
    """Whether a question would be seen and could be answered: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether a person wants it: ``--yes`` said so, or they say so now.

    Raises:
        click.UsageError: nobody is there to ask.
    """
    if yes:
        return True
    if not somebody_there():
        raise click.UsageError("nobody is there to ask: say --yes when you are sure")
    return click.confirm(question, err=True)


class TerminalQuestion:
    """An approval callback that asks on standard error and reads standard input.

    Nobody is asked about what cannot be seen: the call is shown whole, control characters as visible
    ones. Whatever was typed before the question does not answer it.
    """

    def __init__(self, paused: Callable[[], AbstractContextManager[None]], screen: TextIO | None = None) -> None:
        self._paused = paused
        self._screen = screen or sys.stderr
        self._look = Look.of(self._screen)

    async def __call__(self, tool_call: OmniMessage[ToolCall], rules: Sequence[str] = ()) -> Answer:
        """Ask until the answer is yes, no or always; the end of input is a no.

        ``rules`` are what "always" would keep for this project; without any it is not offered.
        """
        with self._paused():
            offer = [f"  always would allow: {one_line(rule)}" for rule in rules]
            self._print("\n".join([*self._question(tool_call), *offer]) + "\n")
            with suppress(termios.error):
                termios.tcflush(0, termios.TCIFLUSH)
            return await self._answer(always=bool(rules))

    def _question(self, tool_call: OmniMessage[ToolCall]) -> list[str]:
        who = "A subagent" if tool_call.origin else "The agent"
        lines = ["", f"{who} wants to call {self._look.bold(one_line(tool_call.payload.name))}:"]
        for name, value in in_full(tool_call.payload.arguments):
            first, *more = visible(value).split("\n")
            lines.append(f"  {one_line(name)}: {first}")
            lines += [f"      {line}" for line in more]
        return lines

    async def _answer(self, *, always: bool) -> Answer:
        while True:
            self._print("Allow it? [y/n/always] " if always else "Allow it? [y/n] ")
            line = await _typed_line()
            if line is None:
                self._print("\n")
                return "deny"
            word = line.strip().lower()
            if always and word in _ALWAYS:
                return "always"
            answer = _ANSWERS.get(word)
            if answer is not None:
                return answer

    def _print(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()


async def _typed_line() -> str | None:
    # Not a thread in readline(): it could not be interrupted, and would swallow the next thing typed.
    await anyio.wait_readable(0)
    typed = os.read(0, 4096)
    return typed.decode("utf-8", "replace") if typed else None
