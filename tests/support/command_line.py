"""The real ``penguin`` as a process, on a pipe or on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penguin.state.paths import DataRoot
from penguin.state.project import ModelEntry, ProjectConfigFile

COMMAND = [sys.executable, "-m", "penguin"]


@dataclass
class Place:
    """A data root of its own, a workspace, and an environment without anybody's keys."""

    directory: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def workspace(self) -> Path:
        found = self.directory / "workspace"
        found.mkdir(exist_ok=True)
        return found

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "PENGUIN_HOME": str(self.home),
            "LANG": "C.UTF-8",
            **self.variables,
        }

    def connect(self, base_url: str, **more: Any) -> None:
        entry = ModelEntry(
            provider="custom",
            model_id="m",
            client_type="openai-chat",
            base_url=base_url,
            api_key="k-of-the-test",
            **more,
        )
        ProjectConfigFile(DataRoot(self.home).project().config).add_model(entry, default=True)

    def traces(self) -> list[Path]:
        return sorted(self.home.rglob("traces/*/*.jsonl"))

    def run(
        self,
        *arguments: str,
        typed: str | bytes | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end; without ``typed`` standard input is /dev/null."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.workspace,
            env={**self.environment, **(variables or {})},
            check=False,
            stdin=subprocess.DEVNULL if typed is None else None,
            input=None if typed is None else _bytes(typed),
            capture_output=True,
            timeout=30,
        )
        output, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        return subprocess.CompletedProcess(done.args, done.returncode, output, errors)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start with pipes, standard input from /dev/null."""
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.workspace,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


class Terminal:
    """``penguin`` on a pseudo-terminal of its own."""

    def __init__(self, place: Place, *arguments: str, columns: int = 80) -> None:
        self.screen = ""
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            termios.tcsetwinsize(0, (24, columns))
            os.chdir(place.workspace)
            os.execve(sys.executable, [*COMMAND, *arguments], {**place.environment, "TERM": "xterm-256color"})  # noqa: S606

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self._master)

    def wait_for(self, pattern: str, seconds: float = 15) -> None:
        """Read the screen until the pattern is on it."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.screen):
            if not self._read(deadline - time.monotonic()):
                message = f"{pattern!r} did not appear; on the screen:\n{self.screen}"
                raise AssertionError(message)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self, seconds: float = 15) -> int:
        """Wait for the end; the exit status."""
        deadline = time.monotonic() + seconds
        while self._read(deadline - time.monotonic()):
            pass
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)

    def hang_up(self, seconds: float = 15) -> None:
        """Close the window, and wait until the process has taken note and ended by itself."""
        os.close(self._master)
        self._master = os.open(os.devnull, os.O_RDWR)
        deadline = time.monotonic() + seconds
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            assert time.monotonic() < deadline, "it went on without its terminal"
            time.sleep(0.01)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, seconds))
        try:
            data = os.read(self._master, 65_536) if ready else b""
        except OSError:  # what Linux says when the last process of the terminal is gone
            return False
        self.screen += data.decode(errors="replace")
        return bool(data)
