"""``exec_command``: run a shell command, in front or in the background."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.to_thread

from penguin.environment.exit_words import exit_words
from penguin.environment.following import Stop, follow
from penguin.environment.processes import CommandSessions
from penguin.environment.running_command import RunningCommand
from penguin.environment.shell_environment import ShellEnvironment
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolError, ToolResult, ToolSetup

DEFAULT_YIELD_MS = 60_000


def command_sessions(setup: ToolSetup) -> CommandSessions:
    """The commands of this environment: those lent by the host, or its own, which end when it is closed."""
    lent = setup.services.command_sessions
    if isinstance(lent, CommandSessions):
        return lent
    own = setup.once("command_sessions", lambda made: CommandSessions(environment=ShellEnvironment(vault=made.vault)))
    assert isinstance(own, CommandSessions)  # noqa: S101 - the name is ours
    return own


class ExecCommand:
    """Runs ``bash -c cmd`` and returns its output, or its process id when it outlives ``yield_time_ms``."""

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._sessions = command_sessions(setup)
        self._lent = setup.services.command_sessions is self._sessions
        self._workspace = setup.workspace_dir

    def context_notes(self) -> str:
        """Live commands of sessions that were lent; the environment asks its own directly."""
        return self._sessions.context_notes() if self._lent else ""

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Start, follow, and tell how it ended.

        Raises:
            ToolError: The directory does not exist or the command cannot be started.
        """
        in_background = bool(args.get("run_in_background"))
        command = await self._sessions.start(
            args["cmd"],
            self._directory(args.get("workdir"), ctx),
            description=args.get("description", ""),
            tty=bool(args.get("tty")),
            writable=in_background,
        )
        self._report_environment(ctx)
        if in_background:
            return ToolResult(note=await self._in_background(command))
        return await self._in_front(command, args.get("yield_time_ms", DEFAULT_YIELD_MS) / 1000, ctx)

    async def _in_front(self, command: RunningCommand, seconds: float, ctx: ToolContext) -> ToolResult:
        written = _Counting(ctx.write)
        try:
            stop = await follow(command, written, seconds)
        except BaseException:  # interrupted or out of time: nothing of it may stay
            await self._stop(command, ctx)
            raise
        if stop != "over":
            place = await anyio.to_thread.run_sync(command.serves)
            await self._sessions.keep(command)
            return ToolResult(note=_still_running(command, stop, seconds, place))
        return ToolResult(note=await self._ending(command, said_something=written.any))

    async def _stop(self, command: RunningCommand, ctx: ToolContext) -> None:
        if not await self._sessions.end(command):
            ctx.add_note("[some processes of the command could not be ended]")
        command.deliver_the_rest(ctx.write)
        self._sessions.forget(command)

    async def _in_background(self, command: RunningCommand) -> str:
        process_id = await self._sessions.keep(command, asked_for=True)
        promise = "; its end will be reported" if self._sessions.reports_ends else ""
        return f"[started in the background as process {process_id}{promise}]"

    async def _ending(self, command: RunningCommand, *, said_something: bool) -> str | None:
        assert command.returncode is not None  # noqa: S101 - it has finished
        words = exit_words(command.returncode)
        survivors = await self._sessions.survivors_of(command)
        if survivors or command.output_open:
            process_id = await self._sessions.keep(command)
            named = ", ".join(f"{each.command} (pid {each.pid})" for each in survivors[:5]) or "something"
            place = await anyio.to_thread.run_sync(command.serves)
            serving = f"; it {place}" if place else ""
            return f"[{words}; still running in the background as process {process_id}: {named}{serving}]"
        self._sessions.forget(command)
        return None if command.returncode == 0 and said_something else f"[{words}]"

    def _directory(self, workdir: str | None, ctx: ToolContext) -> Path:
        if workdir:
            return _existing(self._workspace / Path(workdir).expanduser())
        if self._workspace.is_dir():
            return self._workspace
        fallback = next(parent for parent in self._workspace.parents if parent.is_dir())
        ctx.add_note(f"[the workspace {self._workspace} no longer exists; the command ran in {fallback}]")
        return fallback

    def _report_environment(self, ctx: ToolContext) -> None:
        environment = self._sessions.environment
        if environment.problem:
            ctx.add_note(f"[{environment.problem}; commands get the environment of the harness]")
            environment.problem = None


def _existing(directory: Path) -> Path:
    # Not the nearest parent: a command meant for one directory may do harm in another.
    if directory.is_dir():
        return directory
    if directory.exists():
        raise ToolError(f"workdir {directory} is not a directory; the command was not run.")
    nearest = next(parent for parent in directory.parents if parent.is_dir())
    raise ToolError(f"workdir {directory} does not exist; the command was not run. The nearest directory is {nearest}.")


def _still_running(command: RunningCommand, stop: Stop, seconds: float, place: str) -> str:
    why = waiting_words(command) if stop == "waiting" else f"still running after {seconds:g} s"
    return f"[{why}, now in the background as process {command.process_id}{place and f'; it {place}'}]"


def waiting_words(command: RunningCommand) -> str:
    """That the command waits for somebody to type, with its prompt."""
    prompt = command.text.prompt.strip()
    return f"waiting for input at {prompt!r}" if prompt else "waiting for input"


class _Counting:
    """Passes text on and remembers whether there was any."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self.any = False

    def __call__(self, text: str) -> None:
        if text:
            self.any = True
            self._write(text)
