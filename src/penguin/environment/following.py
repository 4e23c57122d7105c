"""Wait for a command and pass its output on as it comes (N7, N8, N10, N11)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread

from penguin.environment.running_command import RunningCommand
from penguin.environment.waiting_for_input import waits_for_input

SILENCE = 1.0
"""Seconds without output after which an unfinished line is shown."""
DRAIN = 0.1
"""Seconds to wait for the rest of the output when the shell has exited but something holds its pipe."""

Stop: TypeAlias = Literal["over", "late", "settled", "waiting"]
"""Why a wait ended: the command is over, the time is, its output came to a rest, or it waits for somebody to type."""


async def follow(
    command: RunningCommand, write: Callable[[str], None], seconds: float, settle: float = math.inf
) -> Stop:
    """Pass text on until the command is over, it waits for input, or ``seconds`` have passed.

    With ``settle`` it also returns once there was output and then as many seconds of silence. The background reader
    must have released the command.
    """
    following = _Following(command, write, anyio.current_time() + seconds, settle)
    try:
        return await following.until_stopped()
    finally:
        command.last_used = time.monotonic()


class _Following:
    def __init__(self, command: RunningCommand, write: Callable[[str], None], until: float, settle: float) -> None:
        self._command = command
        self._write = write
        self._until = until
        self._settle = settle
        self._settle_at = math.inf
        self._hear(spoken=command.deliver_backlog(write))

    def _hear(self, *, spoken: bool = True) -> None:
        """Set the clocks that count from the last output."""
        self._heard_at = anyio.current_time()
        self._look_at = self._heard_at + SILENCE if self._command.takes_input else math.inf
        if spoken:
            self._settle_at = self._heard_at + self._settle

    async def until_stopped(self) -> Stop:
        self._command.notice_exit()
        while (stop := self._reason_to_stop()) is None:
            await self._until_silence()
            self._write(self._command.text.pause())
            if anyio.current_time() >= self._look_at and await self._waits_for_input() and not self._hears_more():
                stop = "waiting"
                break
        if stop == "over":
            await self._drain()
        command = self._command
        self._write(command.text.pause() if command.output_open else command.text.close())
        return stop

    def _reason_to_stop(self) -> Stop | None:
        if self._command.over:
            return "over"
        now = anyio.current_time()
        if now >= self._until:
            return "late"
        return "settled" if now >= self._settle_at else None

    async def _until_silence(self) -> None:
        with anyio.CancelScope(deadline=self._next_deadline()) as scope:
            while not self._command.over:
                await anyio.wait_readable(self._command.fileno())
                self._command.notice_exit()
                if data := self._command.read():
                    self._write(self._command.text.feed(data))
                    self._hear()
                    scope.deadline = self._next_deadline()

    def _next_deadline(self) -> float:
        show_at = self._heard_at + SILENCE if self._command.text.holding else math.inf
        return min(self._until, self._settle_at, self._look_at, show_at)

    async def _waits_for_input(self) -> bool:
        # Looked at less and less often: a silent command is rather computing.
        self._look_at = anyio.current_time() + 2 * (anyio.current_time() - self._heard_at)
        return await anyio.to_thread.run_sync(waits_for_input, self._command, abandon_on_cancel=True)

    def _hears_more(self) -> bool:
        """Whether the question came in the instant before it was seen that somebody waits for the answer."""
        data = self._command.read()
        if data:
            self._write(self._command.text.feed(data))
            self._hear()
        return bool(data)

    async def _drain(self) -> None:
        """What the shell wrote is in the pipe already; what it left behind gets a moment, not until it ends."""
        with anyio.move_on_after(DRAIN):
            while self._command.output_open:
                if data := self._command.read():
                    self._write(self._command.text.feed(data))
                    await anyio.lowlevel.checkpoint()
                elif self._command.output_open:
                    await anyio.wait_readable(self._command.fileno())
