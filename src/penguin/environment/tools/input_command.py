"""``input_command``: type into a background command, and read what it wrote since the last time."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread

from penguin.environment.exit_words import exit_words
from penguin.environment.following import follow
from penguin.environment.running_command import RunningCommand
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolResult, ToolSetup
from penguin.environment.tools.exec_command import command_sessions, waiting_words
from penguin.environment.waiting_for_input import waits_for_input

DEFAULT_YIELD_MS = 10_000
SETTLED = 0.5
"""Seconds of silence after output that end the wait: whoever typed a line into a prompt wants its answer, no more."""


class InputCommand:
    """Writes to standard input and returns new output; without ``chars`` it only looks.

    An interruption ends the wait, not the command: that one is the session's.
    """

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._sessions = command_sessions(setup)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Type, wait, and tell in what state the command is.

        Raises:
            ToolError: There is no such process.
        """
        command = self._sessions.find(args["process_id"])
        seconds = args.get("yield_time_ms", DEFAULT_YIELD_MS) / 1000
        async with self._sessions.turn_with(command):
            problem = await _type(command, args.get("chars", ""), seconds)
            self._sessions.take_back(command)
            try:
                await follow(command, ctx.write, seconds, SETTLED)
                state = await self._state(command)
            finally:
                self._sessions.leave(command)
        return ToolResult(note="\n".join(f"[{each}]" for each in (problem, state) if each))

    async def _state(self, command: RunningCommand) -> str:
        place = await anyio.to_thread.run_sync(command.serves) if command.output_open or not command.over else ""
        serving = f" and {place}" if place else ""
        if command.returncode is None:
            waiting = await anyio.to_thread.run_sync(waits_for_input, command)
            what = waiting_words(command) if waiting else "still running"
            return f"process {command.process_id} is {what}{serving}"
        ended = f"process {command.process_id} has ended, {exit_words(command.returncode)}"
        survivors = await self._sessions.survivors_of(command)
        named = ", ".join(f"{each.command} (pid {each.pid})" for each in survivors[:5])
        return f"{ended}; still running: {named}{serving}" if named else ended


async def _type(command: RunningCommand, chars: str, seconds: float) -> str | None:
    """Type as long as the command goes on reading; returns what went wrong."""
    if not chars:
        return None
    if command.exited:
        return "nothing was typed, the process has ended"
    try:
        with anyio.move_on_after(max(seconds, 1.0)) as patience:
            await command.type(chars)
    except BrokenPipeError:
        if not command.takes_input:
            return "nothing can be typed into it: it was started without tty and not in the background"
        return "not everything was typed, the process has closed its input"
    return "not everything was typed, the process does not read its input" if patience.cancelled_caught else None
