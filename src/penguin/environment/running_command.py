"""One command while it runs: its process, its output as text, and how it ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import anyio
from msgspec import Struct

from penguin.environment import custody, custody_guard
from penguin.environment.backlog import Backlog
from penguin.environment.command_text import CommandText, addresses_in
from penguin.environment.exit_words import NOT_RUN
from penguin.environment.masking import Secrets
from penguin.environment.open_sockets import listening_ports
from penguin.environment.sandbox.keeper import UNTOLD

CHUNK = 256 * 1024
_REAP_S = 0.5
"""How long (s) the end of a shell that was killed is waited for."""

_HIGHEST_STATUS = 0xFFFF
_BEGINNING = 1.0  # seconds; a sandbox takes a hundredth of that
_ADDRESSES_IN = 16 * 1024  # characters that nobody has polled, looked through for a URL
_MOST_PLACES = 4
_READS_AT_ONCE = 16  # a flood must not keep the reader from its other commands


class Launch(Struct, frozen=True):
    """What to start: ``arguments`` is run in ``scope``; ``cmd`` and ``description`` are for people.

    With :data:`UNTOLD` among the arguments its end is told through a pipe, whose number takes that place.
    """

    cmd: str
    arguments: list[str]
    directory: str
    variables: dict[str, str]
    scope: str
    description: str = ""
    tty: bool = False
    writable: bool = False


class RunningCommand:
    """A process that leads its own session, with standard output and error in one pipe (or a terminal).

    Its output is read either by whoever follows it or by the background reader, never by both. The shell is
    reaped only by :meth:`close` when something of its session may be alive: until then nobody else gets its number.
    ``secrets`` are masked in all text that it gives.

    Raises:
        OSError: The program could not be started.
    """

    def __init__(self, launch: Launch, secrets: Secrets | None = None) -> None:
        self.launch = launch
        self.process_id: str | None = None
        self.asked_for_background = False
        self.lock = threading.Lock()
        self.last_used = time.monotonic()
        self.backlog = Backlog()
        self.text = CommandText(secrets)
        self.returncode: int | None = None
        self.adopted = False
        self.outlived = False
        self._seen_surviving: list[custody.Process] = []
        self.closed = False
        self._terminal: str | None = None
        self._selector = selectors.DefaultSelector()
        self._arguments = launch.arguments
        self._told: int | None = None
        self._said = b""
        self._start()

    # ------------------------------------------------------------ starting

    def _start(self) -> None:
        with contextlib.ExitStack() as theirs:
            output = self._open_terminal(theirs) if self.launch.tty else self._open_pipes(theirs)
            try:
                telling = self._open_telling(theirs) if UNTOLD in self._arguments else ()
                self._process = subprocess.Popen(  # noqa: S603 - running what the model asks for is the purpose
                    self._arguments,
                    stdin=self._their_input,
                    stdout=output,
                    stderr=output,
                    cwd=self.launch.directory,
                    env=self.launch.variables,
                    start_new_session=True,
                    pass_fds=telling,
                )
            except BaseException:
                self._close_input()
                self._close_output()
                self._close_told()
                self._selector.close()
                raise
        self.pid = self._process.pid
        self._exit = _exit_descriptor(self._process)
        self._selector.register(self._output, selectors.EVENT_READ)
        self._selector.register(self._exit, selectors.EVENT_READ)

    def _open_telling(self, theirs: contextlib.ExitStack) -> tuple[int]:
        self._told, tell = os.pipe()
        theirs.callback(os.close, tell)
        place = self._arguments.index(UNTOLD)
        self._arguments = [*self._arguments[:place], str(tell), *self._arguments[place + 1 :]]
        return (tell,)

    def _open_pipes(self, theirs: contextlib.ExitStack) -> int:
        self._output, output = os.pipe()
        theirs.callback(os.close, output)
        os.set_blocking(self._output, False)
        with contextlib.suppress(OSError, AttributeError):  # a user has only so much; the usual 64 KiB work as well
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, CHUNK)
        self._input: int | None = None
        self._their_input = subprocess.DEVNULL
        if self.launch.writable:
            self._their_input, self._input = os.pipe()
            theirs.callback(os.close, self._their_input)
            os.set_blocking(self._input, False)
        return output

    def _open_terminal(self, theirs: contextlib.ExitStack) -> int:
        import termios  # noqa: PLC0415 - seldom needed

        self._output, terminal = os.openpty()
        theirs.callback(os.close, terminal)
        os.set_blocking(self._output, False)
        attributes = termios.tcgetattr(terminal)
        attributes[1] &= ~termios.ONLCR  # line ends stay as the program wrote them
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
        termios.tcsetwinsize(terminal, (40, 120))
        self._input = os.dup(self._output)
        self._their_input = terminal
        # A session leader gets the first terminal it opens as its controlling one: that is how Ctrl-C and /dev/tty
        # come to work without code between fork and exec.
        shell = "/bin/sh"  # not what PATH calls so: commands may write there, and this runs outside a sandbox
        opening = 'terminal=$1; shift; exec <>"$terminal" >&0 2>&0 && exec "$@"'
        self._terminal = os.ttyname(terminal)
        self._arguments = [shell, "-c", opening, shell, self._terminal, *self.launch.arguments]
        return terminal

    # ------------------------------------------------------------ reading

    def fileno(self) -> int:
        """Readable when there is output, or when the shell has exited."""
        return self._selector.fileno()

    @property
    def exited(self) -> bool:
        """Whether the shell has exited."""
        return self.returncode is not None

    @property
    def over(self) -> bool:
        """Whether there is nothing to wait for: the shell has exited, and what it left has closed its output."""
        return self.exited and not (self.outlived and self.output_open)

    @property
    def output_open(self) -> bool:
        """Whether somebody may still write."""
        return self._output >= 0

    def read(self) -> bytes:
        """What is there now, at most 256 KiB; never waits."""
        if self._output < 0:
            return b""
        try:
            data = os.read(self._output, CHUNK)
        except BlockingIOError:
            return b""
        except OSError:  # EIO: the last writer has closed the terminal
            data = b""
        if not data:
            self._close_output()
        return data

    def notice_exit(self) -> None:
        """Look whether the shell has exited, without reaping it."""
        if self.exited:
            return
        status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if status is not None:
            killed = status.si_code in {os.CLD_KILLED, os.CLD_DUMPED}
            self.returncode = self._as_told(-status.si_status if killed else status.si_status)
            self._selector.unregister(self._exit)
            os.close(self._exit)

    def _as_told(self, returncode: int) -> int:
        """How the command itself ended, when that was told; ``returncode`` is how the sandbox around it did."""
        if self._told is None:
            return returncode
        self._listen(0)
        self._close_told()
        if not self._said:
            return returncode if returncode < 0 else NOT_RUN
        # Whoever runs in there may write to that pipe too, anything.
        told = re.fullmatch(rb"begun (\d{1,5})", self._said)
        status = int(told[1]) if told else -1
        plain = os.WIFEXITED(status) or os.WIFSIGNALED(status)
        return os.waitstatus_to_exitcode(status) if 0 <= status <= _HIGHEST_STATUS and plain else returncode

    def _listen(self, patience: float) -> None:
        if self._told is not None and select.select([self._told], [], [], patience)[0]:
            self._said += os.read(self._told, 64)

    def _let_it_begin(self) -> None:
        """Wait, some milliseconds, until a signal reaches the command: while its sandbox is made it would be lost."""
        if not self._said:
            self._listen(_BEGINNING)

    def absorb(self) -> None:
        """Move what is there into the backlog; for the background reader."""
        with self.lock:
            if not self.adopted:  # the reader had seen it ready just before somebody else took over
                return
            self.notice_exit()
            for _ in range(_READS_AT_ONCE):
                data = self.read()
                if not data:
                    break
                self.backlog.add(data)

    # ------------------------------------------------------------ delivering

    def deliver_backlog(self, write: Callable[[str], None]) -> bool:
        """Pass on what the background reader collected; whether there was anything. Synchronous."""
        head, left_out, tail = self.backlog.take()
        write(self.text.feed(head))
        if left_out:
            write(f"{self.text.gap()}\n[… {left_out:,} bytes of output were not kept …]\n")
        write(self.text.feed(tail))
        return bool(head)

    def undelivered(self, limit: int) -> str:
        """The last ``limit`` characters a poll would return; they stay undelivered."""
        with self.lock:
            # Cut only when it is masked: the rest of a value that is cut in two would not be known for one.
            words = self.backlog.last_words(limit + self.text.margin)
        return self.text.preview(words, ended=self.over)[-limit:]

    def deliver_the_rest(self, write: Callable[[str], None]) -> None:
        """Pass on everything that is there at this moment, the unfinished line too. Synchronous."""
        self.deliver_backlog(write)
        for _ in range(_READS_AT_ONCE):
            data = self.read()
            if not data:
                break
            write(self.text.feed(data))
        write(self.text.close())

    def serves(self) -> str:
        """Where its processes can be reached, in words: URLs it printed, TCP ports it listens on; may be empty.

        Looks at all processes of the system and at their sockets: some milliseconds, so only where a list is asked for.
        A URL that was printed before it was served, or that something outside serves (a container), is told as such.

        Example::

            command.serves()  # "serves http://localhost:5173/, port 24678"
        """
        with self.lock:
            printed = addresses_in(self.backlog.last_words(_ADDRESSES_IN)) | self.text.addresses
        ports = listening_ports(each.pid for each in self.members())
        urls = [url for url, port in printed.items() if port in ports]
        bare = [f"port {port}" for port in ports if port not in printed.values()]
        if urls or bare:
            return f"serves {', '.join((urls + bare)[:_MOST_PLACES])}"
        return f"printed {', '.join(list(printed)[:1])}" if printed else ""

    # ------------------------------------------------------------ typing

    @property
    def takes_input(self) -> bool:
        """Whether it was started with something to type into."""
        return self.launch.tty or self.launch.writable

    def input_names(self) -> set[str]:
        """What /proc calls the other end of its input; empty when that is closed."""
        if self._input is None:
            return set()
        # In a sandbox the terminal stands at /dev/console, for whoever opens it once more as Node does.
        return (
            {self._terminal, "/dev/tty", "/dev/console"}
            if self._terminal
            else {f"pipe:[{os.fstat(self._input).st_ino}]"}
        )

    async def type(self, chars: str) -> None:
        """Write to standard input; Ctrl-C interrupts the process group, Ctrl-D ends the input.

        Waits while the command does not read.

        Raises:
            BrokenPipeError: The command has closed its standard input, or never had one.
        """
        if self.launch.tty:
            await self._write(chars.encode(errors="replace"))
            return
        for part in re.split("([\x03\x04])", chars):
            match part:
                case "":
                    pass
                case "\x03":
                    self.signal_group(signal.SIGINT)
                case "\x04":
                    self._close_input()
                case _:
                    await self._write(part.encode(errors="replace"))

    async def _write(self, data: bytes) -> None:
        while data:
            if self._input is None:
                raise BrokenPipeError
            try:
                data = data[os.write(self._input, data) :]
            except BlockingIOError:
                await anyio.wait_writable(self._input)

    @property
    def owns_its_number(self) -> bool:
        """Whether the shell was not reaped yet: afterwards its number may be somebody else's."""
        return self._process.returncode is None

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the process group; without effect when it is gone."""
        if self.owns_its_number:
            self._let_it_begin()
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)

    # ------------------------------------------------------------ ending

    def end(self, grace: float) -> bool:
        """TERM, and KILL after ``grace`` seconds, to everything it started; blocks. ``False``: something survived."""
        if self.owns_its_number:
            self._let_it_begin()
            return custody.end_group(self.pid, self.launch.scope, grace)
        return custody_guard.end_all(self.members, grace)

    def may_have_survivors(self) -> bool:
        """Whether there is a sign that the exited shell left something running. Cheap; may reap the shell."""
        if self.output_open or not self.owns_its_number:
            return True
        self._process.wait()
        # As long as its group has members nobody else gets the number, so this is the last moment to ask for them.
        if self._has_group():
            self._seen_surviving = custody.members(self.launch.scope, (self.pid,))
        else:  # what left the group is no reason to look at every process after every command
            self._seen_surviving = custody.members(self.launch.scope, above=self.pid)
        return bool(self._seen_surviving)

    def _has_group(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass
        return True

    def seen_surviving(self) -> list[custody.Process]:
        """What is left of that which was there when the exited shell was reaped."""
        return custody.still_alive(self._seen_surviving)

    def members(self) -> list[custody.Process]:
        """Its live processes, the shell included: looks at all processes of the system."""
        if self.owns_its_number:
            return custody.members(self.launch.scope, (self.pid,))
        return custody_guard.joined(custody.members(self.launch.scope), self.seen_surviving())

    def close(self) -> None:
        """Reap the shell and close all descriptors; the processes are :meth:`end`'s business. Idempotent."""
        # A killed process may take a moment to its end, and could not be told from a dead one by its members.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_S)
        self._close_input()
        self._close_output()
        if not self.closed:
            self.closed = True
            if not self.exited:
                os.close(self._exit)
            self._close_told()
            self._selector.close()

    def _close_input(self) -> None:
        if self._input is not None:
            os.close(self._input)
            self._input = None

    def _close_told(self) -> None:
        if self._told is not None:
            os.close(self._told)
            self._told = None

    def _close_output(self) -> None:
        if self._output >= 0:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._output)
            os.close(self._output)
            self._output = -1


def _exit_descriptor(process: subprocess.Popen[bytes]) -> int:
    """A descriptor that becomes readable when the process exits."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(process.pid)
    ours, theirs = os.pipe()

    def wait() -> None:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.close(theirs)

    threading.Thread(target=wait, name=f"wait-for-{process.pid}", daemon=True).start()
    return ours
