"""Where the messages of a running task go: a terminal, a pipe, or a program that reads JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from penguin.cli.render.look import Look
from penguin.cli.render.text import visible
from penguin.cli.render.transcript import Transcript
from penguin.protocol.messages import Message


class Display(Protocol):
    """Shows messages as they come, then the end."""

    @property
    def estimated(self) -> bool:
        """Whether some token counts are estimates."""
        ...

    def show(self, message: Message) -> None:
        """Show one message now; raises OSError when nobody reads any more."""
        ...

    def finish(self, answer: str, summary: str) -> None:
        """The task is over; ``answer`` is the assistant's last words, ``summary`` one line of numbers."""
        ...


class TerminalDisplay:
    """Everything in one place, as it happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._transcript = Transcript(stream.write, Look.of(stream))

    @property
    def estimated(self) -> bool:
        """Whether some token counts are estimates."""
        return self._transcript.estimated

    def show(self, message: Message) -> None:
        """Show one message."""
        self._transcript.show(message)
        self._stream.flush()

    def finish(self, answer: str, summary: str) -> None:  # noqa: ARG002 - the answer was on screen already
        """Close what is open and add the numbers."""
        self._transcript.close()
        self._stream.write(f"\n{Look.of(self._stream).dim(summary)}\n")
        self._stream.flush()


class PipeDisplay:
    """The answer to standard output, once and whole; the way to it to standard error.

    What reads the pipe gets neither the words of an attempt that failed and was repeated, nor what the
    model says between two tool calls.
    """

    def __init__(self, output: TextIO, progress: TextIO) -> None:
        self._output = output
        self._progress = progress
        self._transcript = Transcript(progress.write, Look.of(progress), answers=False)

    @property
    def estimated(self) -> bool:
        """Whether some token counts are estimates."""
        return self._transcript.estimated

    def show(self, message: Message) -> None:
        """Show one message as progress."""
        self._transcript.show(message)
        self._progress.flush()

    def finish(self, answer: str, summary: str) -> None:
        """Print the answer; escape codes in it are made visible (--json has it byte for byte)."""
        self._transcript.close()
        self._progress.write(f"\n{Look.of(self._progress).dim(summary)}\n")
        self._progress.flush()
        if answer.strip():
            self._output.write(visible(answer.rstrip("\n")) + "\n")
        self._output.flush()


class JsonDisplay:
    """Each message as one line of JSON: the bytes of the trace and of the server's events."""

    estimated = False

    def __init__(self, output: TextIO) -> None:
        self._output = output.buffer

    def show(self, message: Message) -> None:
        """Print one message."""
        self._output.write(message.line + b"\n")
        self._output.flush()

    def finish(self, answer: str, summary: str) -> None:
        """Nothing is left to say: the messages have it all."""


class PausableDisplay:
    """Holds messages back while a question stands on the screen."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._held: list[Message] | None = None

    def show(self, message: Message) -> None:
        """Show one message, now or when the question is answered."""
        if self._held is None:
            self._display.show(message)
        else:
            self._held.append(message)

    @property
    def estimated(self) -> bool:
        """Whether some token counts are estimates."""
        return self._display.estimated

    def finish(self, answer: str, summary: str) -> None:
        """The task is over."""
        self._display.finish(answer, summary)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is shown inside the block; what came meanwhile is shown at its end."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for message in held:
                self._display.show(message)


def choose_display(*, json: bool) -> Display:
    """What fits standard output."""
    if json:
        return JsonDisplay(sys.stdout)
    return TerminalDisplay(sys.stdout) if sys.stdout.isatty() else PipeDisplay(sys.stdout, sys.stderr)
