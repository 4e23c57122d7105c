"""The commands of one session: started here, found again by their process id, ended with the session (N6-N9)."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec import Struct

from penguin.environment import background_reader, custody, custody_guard, lasting_mark
from penguin.environment.exit_words import exit_words
from penguin.environment.masking import Secrets
from penguin.environment.process_ledger import ProcessLedger, ProcessNote
from penguin.environment.running_command import Launch, RunningCommand
from penguin.environment.shell_environment import ShellEnvironment, command_shell
from penguin.environment.tool import ToolError

if TYPE_CHECKING:
    from penguin.environment.sandbox.command_sandbox import CommandSandbox

MOST_COMMANDS = 64
"""Commands in the background of one session, those that have ended and were not yet forgotten included."""
NOTICE_LENGTH = 4_000
"""Characters of output in the notice about the end of a background command (E17)."""

_log = logging.getLogger("penguin.environment")


class CommandState(Struct, frozen=True):
    """One background command, for people and for notices.

    ``returncode`` is ``None`` while it runs and negative for a death by signal. ``asked_for_background`` tells
    ``run_in_background`` from a command that outlived its call. ``undelivered`` is the end of its output that no poll
    has returned yet, at most 4,000 characters. ``serves`` says where it can be reached while it runs, as far as that
    can be seen: ``serves http://localhost:5173/``, or nothing.
    """

    process_id: str
    cmd: str
    description: str
    returncode: int | None
    asked_for_background: bool
    undelivered: str
    serves: str = ""

    @property
    def words(self) -> str:
        """``running``, ``exit code: 0``, ``killed by SIGTERM`` and the like."""
        return "running" if self.returncode is None else exit_words(self.returncode)


class CommandSessions:
    """Starts commands and keeps those in the background, at most 64: ended ones go first, then the longest idle.

    Args:
        environment: What the commands see; default the user's login shell without the harness's secrets.
        custody_dir: A directory, shared by all harness processes of this user, in which they note that they run.
        grace: Seconds between TERM and KILL when a command is ended.
        on_exit: Called on another thread when a background command has exited by itself.
        sandbox: Confines every command; closed with the session. Without one they run with the user's rights.
        ledger: What the session's earlier processes kept in the background; ids go on where they ended.

    Example::

        sessions = CommandSessions(custody_dir=state / "custody")
        command = await sessions.start("make test", workspace)
        over = await follow(command, print, seconds=60) == "over"
        await sessions.aclose()
    """

    def __init__(
        self,
        *,
        environment: ShellEnvironment | None = None,
        custody_dir: Path | None = None,
        grace: float = custody_guard.GRACE,
        on_exit: Callable[[CommandState], None] | None = None,
        sandbox: CommandSandbox | None = None,
        ledger: ProcessLedger | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._ledger = ledger or ProcessLedger()
        self.environment = environment or ShellEnvironment()
        self._secrets = Secrets(self.environment.vault)
        self._custody_dir = custody_dir
        self._grace = grace
        self._on_exit = on_exit
        self._custody = custody.of_this_process()
        self._scope = self._custody.new_scope()
        self._reader = background_reader.of_this_process()
        self._kept: dict[str, RunningCommand] = {}
        self._in_front: set[RunningCommand] = set()
        self._locks: dict[str, anyio.Lock] = {}
        self._capturing = anyio.Lock()
        self._threads = anyio.CapacityLimiter(math.inf)
        self._started_any = False
        self.closed = False

    # ------------------------------------------------------------ starting

    async def prepare(self) -> None:
        """Read the login shell's environment and set up the sandbox, once; :meth:`start` does it when it must.

        Raises:
            ToolError: A sandbox was asked for and cannot be set up.
        """
        if self._sandbox is not None and not self._sandbox.prepared:
            async with self._capturing:
                await anyio.to_thread.run_sync(self._sandbox.prepare, limiter=self._threads)
        if self.environment.captured:
            return
        async with self._capturing:
            mark = self._custody.mark(self._custody.new_scope(self._scope))
            await anyio.to_thread.run_sync(
                self.environment.capture, mark, abandon_on_cancel=True, limiter=self._threads
            )

    async def start(
        self, cmd: str, directory: Path, *, description: str = "", tty: bool = False, writable: bool = False
    ) -> RunningCommand:
        """Start ``cmd`` under bash in ``directory``; its output is read by ``following.follow``.

        ``writable`` gives it a pipe as standard input, ``tty`` a terminal; otherwise there is nothing to read.

        Raises:
            ToolError: The session is closed, the command cannot be started, or a sandbox cannot be set up.
        """
        if self.closed:
            raise ToolError("The session is closed; no command can be started.")
        self._started_any = True
        self._custody.start_guard(self._custody_dir)
        await self.prepare()
        scope = self._custody.new_scope(self._scope)
        variables = self.environment.variables(self._custody.mark(scope))
        shell = command_shell()
        arguments = self._confined(lasting_mark.running([shell, "-c", cmd], scope, shell), directory)
        launch = Launch(cmd, arguments, os.fspath(directory), variables, scope, description, tty, writable)
        try:
            command = RunningCommand(launch, self._secrets)
        except (OSError, ValueError) as error:
            raise ToolError(f"The command could not be started: {error}") from None
        self._custody.note(command.pid)
        self._in_front.add(command)
        return command

    def _confined(self, arguments: list[str], directory: Path) -> list[str]:
        return arguments if self._sandbox is None else self._sandbox.confine(arguments, directory)

    def custody_mark(self) -> dict[str, str]:
        """The environment entry that makes another child (an MCP server, say) end with this session."""
        self._started_any = True
        self._custody.start_guard(self._custody_dir)
        return self._custody.mark(self._custody.new_scope(self._scope))

    # ------------------------------------------------------------ background

    @property
    def reports_ends(self) -> bool:
        """Whether anybody hears of the end of a background command."""
        return self._on_exit is not None

    async def keep(self, command: RunningCommand, *, asked_for: bool = False) -> str:
        """Move a command to the background; returns the process id under which it is found again."""
        command.process_id = process_id = self._ledger.begin(command.launch.cmd).process_id
        command.asked_for_background = asked_for
        command.outlived = command.exited
        self._in_front.discard(command)
        self._kept[process_id] = command
        self._locks[process_id] = anyio.Lock()
        self._reader.adopt(command, self._report_exit)
        if len(self._kept) > MOST_COMMANDS:
            await self._evict(except_for=command)
        return process_id

    def _report_exit(self, command: RunningCommand) -> None:
        if self.closed:
            return
        self._ledger.end(command.process_id or "")
        if self._on_exit is None:
            return
        try:
            self._on_exit(_state_of(command))
        except Exception:  # noqa: BLE001 - the reader serves all sessions of this process
            _log.exception("a listener to the end of %s failed", command.process_id)

    async def _evict(self, except_for: RunningCommand) -> None:
        others = [each for each in self._kept.values() if each is not except_for and not self.turn_with(each).locked()]
        if others:
            oldest = min(others, key=lambda each: (not each.over, each.last_used))
            await self.end(oldest)
            self.forget(oldest)

    def find(self, process_id: str) -> RunningCommand:
        """The background command with that id.

        Raises:
            ToolError: There is none; the text lists those there are.
        """
        command = self._kept.get(process_id)
        if command is None:
            known = ", ".join(map(_listed, self.states())) or "none"
            raise ToolError(f"There is no process {process_id!r}. Processes: {known}.")
        return command

    def turn_with(self, command: RunningCommand) -> anyio.Lock:
        """To be held while a background command is followed or ended, so that two calls do not share its output."""
        return self._locks[command.process_id or ""]

    def take_back(self, command: RunningCommand) -> None:
        """Let the caller read the output of a background command until :meth:`leave` is called."""
        self._reader.release(command)

    def leave(self, command: RunningCommand) -> None:
        """The opposite of :meth:`take_back`; a command that is over keeps its id and nothing else."""
        if command.process_id not in self._kept:
            return
        if command.over:
            self._ledger.end(command.process_id)
        if command.over and not command.output_open:
            command.close()  # its id and how it ended stay known
        else:
            self._reader.adopt(command, self._report_exit)

    def states(self) -> list[CommandState]:
        """The background commands, oldest first."""
        return [_state_of(command) for command in self._kept.values()]

    def take_lost(self) -> list[ProcessNote]:
        """The background commands of an earlier process, which ended with it; each is told once."""
        lost, self._ledger.lost = self._ledger.lost, []
        for note in lost:
            self._ledger.end(note.process_id)
        return lost

    def context_notes(self) -> str:
        """What must survive a compaction: the live background commands with their ids."""
        live = [command for command in self._kept.values() if not command.over]
        return "\n".join(f"Running in the background: {_with_place(each)}" for each in live)

    # ------------------------------------------------------------ ending

    async def survivors_of(self, command: RunningCommand) -> list[custody.Process]:
        """What an exited command left running."""
        if not (command.outlived or command.may_have_survivors()):
            return []
        found = await anyio.to_thread.run_sync(command.members, limiter=self._threads)
        return [each for each in found if self._sandbox is None or not self._sandbox.is_keeper(each)]

    async def end(self, command: RunningCommand) -> bool:
        """End a command and everything it started: TERM, and KILL after the grace period.

        Not interrupted by a cancellation; takes at most half a second beyond the grace period. ``False`` when something
        is still alive. The command is still to be read (:meth:`RunningCommand.deliver_the_rest`) and forgotten.
        """
        ended = False
        # It goes on being read meanwhile: a process that writes its last words to a full pipe would not end by itself.
        if not (command.adopted or command.closed):
            self._reader.adopt(command)
        with anyio.move_on_after(self._grace + 0.5, shield=True):
            ended = await anyio.to_thread.run_sync(
                command.end, self._grace, abandon_on_cancel=True, limiter=self._threads
            )
        self._reader.release(command)
        command.notice_exit()
        return ended

    def forget(self, command: RunningCommand) -> None:
        """Close a command that has ended; its process id is no longer known."""
        if command.adopted:
            self._reader.release(command)
        self._in_front.discard(command)
        if command.process_id:
            if not self.closed:
                self._ledger.end(command.process_id)
            self._kept.pop(command.process_id, None)
            self._locks.pop(command.process_id, None)
        command.close()

    async def aclose(self) -> None:
        """End everything this session started, in the background or detached with ``setsid``; idempotent."""
        self.closed = True
        if not self._started_any:
            await self._close_sandbox()
            return
        commands = [*self._in_front, *self._kept.values()]
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._end_all, commands, limiter=self._threads)
        for command in commands:
            self._reader.release(command)  # first: two threads must not notice one exit
            command.notice_exit()
            self.forget(command)
        self._started_any = False
        await self._close_sandbox()

    async def _close_sandbox(self) -> None:
        if self._sandbox is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._sandbox.close, limiter=self._threads)

    def _end_all(self, commands: list[RunningCommand]) -> None:
        if not custody_guard.available():
            for command in commands:
                command.end(self._grace)
            return
        sessions = [command.pid for command in commands if command.owns_its_number]

        def find() -> list[custody.Process]:
            seen = (command.seen_surviving() for command in commands)
            return custody_guard.joined(custody.members(self._scope, sessions), *seen)

        if not custody_guard.end_all(find, self._grace):
            _log.warning("some processes of this session could not be ended")


def _listed(state: CommandState) -> str:
    return f"{state.process_id} ({'; '.join(filter(None, (state.cmd[:60], state.serves)))})"


def _with_place(command: RunningCommand) -> str:
    place = command.serves()
    return f"{command.process_id}: {command.launch.cmd}" + (f" ({place})" if place else "")


def _state_of(command: RunningCommand) -> CommandState:
    return CommandState(
        command.process_id or "",
        command.launch.cmd,
        command.launch.description,
        command.returncode,
        command.asked_for_background,
        command.undelivered(NOTICE_LENGTH),
        command.serves() if command.output_open or not command.over else "",
    )
