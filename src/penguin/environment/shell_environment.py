"""The environment variables a command sees (N6): the user's login shell, without the secrets of the harness."""

from __future__ import annotations

import fnmatch
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO

from penguin.environment.exit_words import exit_words

FIXED: Mapping[str, str] = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",  # stands above sequence.editor of a repository
    "EDITOR": "true",
    "VISUAL": "true",
    "SUDO_EDITOR": "true",
    "HGEDITOR": "true",
    "SVN_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",  # no window either: empty stands above core.askPass and SSH_ASKPASS
    "SSH_ASKPASS_REQUIRE": "never",
}
"""Set for every command, so that none waits for a key nobody will press; a setting inside the command wins."""

HIDDEN_PATTERNS = ("PENGUIN_*", "*_API_KEY", "*_API_KEYS", "*_AUTH_TOKEN")
"""Names that are taken away unless allowed, beside those the caller names. ``GH_TOKEN`` and the like stay."""

CAPTURE_TIMEOUT = 5.0
"""Seconds the start-up files of the login shell may take."""

_END_GRACE = 1.0

_OF_THE_SHELL_ITSELF = ("_", "SHLVL", "PWD", "OLDPWD")


class ShellEnvironment:
    """What commands of one session get.

    This keeps secrets out of what commands print and pass on by accident. It is no wall: a process of the same user may
    read the harness's own variables in /proc/<pid>/environ, where only a sandbox hides them. To close that with
    ``PR_SET_DUMPABLE`` would take debuggers and core dumps from whoever uses Penguin as a library, does nothing against
    root, and leaves the shell Penguin was started from, which holds the same keys; and so it is said instead.

    Args:
        hidden: Names to take away beside ``HIDDEN_PATTERNS``: the key variables of the configured providers.
        allowed: Names (or patterns) that pass although they would be hidden.
        vault: Names and secret values to add; they override everything but a setting inside the command.
        base: Where to start from; default the environment of this process.
        login_shell: Whether to ask the login shell at all; without it commands get ``base``.
    """

    def __init__(
        self,
        *,
        hidden: Collection[str] = (),
        allowed: Collection[str] = (),
        vault: Mapping[str, str] | None = None,
        base: Mapping[str, str] | None = None,
        login_shell: bool = True,
    ) -> None:
        self._hidden = (*HIDDEN_PATTERNS, *hidden)
        self._allowed = tuple(allowed)
        self.vault = dict(vault or {})
        self._base = self._visible(os.environ if base is None else base)
        self._captured = None if login_shell else dict(self._base)
        self.problem: str | None = None

    @property
    def captured(self) -> bool:
        """Whether :meth:`capture` has run."""
        return self._captured is not None

    def capture(self, mark: Mapping[str, str]) -> None:
        """Ask the login shell for its environment, once; blocks for up to five seconds.

        When it fails, commands get the environment of the harness, and ``problem`` says why.
        """
        if self._captured is not None:
            return
        shell = login_shell_of(self._base)
        try:
            answer = _ask(shell, {**self._base, **mark}, CAPTURE_TIMEOUT)
        except (OSError, subprocess.SubprocessError) as error:
            self.problem = f"the environment of the login shell {shell} could not be read: {error}"
            answer = {}
        self._captured = self._visible(answer or self._base)
        self._captured["PATH"] = _merged_path(self._base.get("PATH", ""), self._captured.get("PATH", os.defpath))

    def variables(self, mark: Mapping[str, str]) -> dict[str, str]:
        """The environment of one command; ``mark`` is its custody."""
        start = self._base if self._captured is None else self._captured
        return {**start, **FIXED, **self.vault, **mark}

    def _visible(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if self._is_visible(name)}

    def _is_visible(self, name: str) -> bool:
        if name in _OF_THE_SHELL_ITSELF:
            return False
        return _matches(name, self._allowed) or not _matches(name, self._hidden)


def login_shell_of(variables: Mapping[str, str]) -> str:
    """The user's own shell, or bash where that one cannot be asked."""
    shell = variables.get("SHELL") or _shell_of_account()
    speaks_sh = Path(shell).name in {"bash", "zsh", "sh", "dash", "ksh", "ash", "fish"}
    return shell if speaks_sh and os.access(shell, os.X_OK) else command_shell()


def command_shell() -> str:
    """The shell that runs commands: bash, or sh where there is none."""
    return shutil.which("bash") or "/bin/sh"


def _shell_of_account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        return ""


def _ask(shell: str, variables: Mapping[str, str], timeout: float) -> dict[str, str]:
    # A file, not a pipe: a daemon started by a start-up file would hold a pipe open, and what start-up files print
    # on standard output must not be taken for variables.
    with _private_file() as answer:
        process = subprocess.Popen(  # noqa: S603 - the user's own shell
            [shell, "-l", "-c", f"env -0 >&{answer.fileno()}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=variables,
            cwd="/",
            pass_fds=(answer.fileno(),),
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        finally:
            if process.returncode is None:
                _end(process)
        answer.seek(0)
        variables_told = _parsed(answer.read())
    if not variables_told:
        raise subprocess.SubprocessError(f"it ended too early ({exit_words(process.returncode)})")
    return variables_told


def _end(process: subprocess.Popen[bytes]) -> None:
    """First politely: a start-up file that holds a lock (version managers do) must get to give it back."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_END_GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _private_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("penguin-environment", os.MFD_CLOEXEC), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _parsed(answer: bytes) -> dict[str, str]:
    entries = (os.fsdecode(entry).partition("=") for entry in answer.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in entries if name}


def _merged_path(ours: str, login: str) -> str:
    """The login shell's PATH; in front of it what only the harness has, an activated virtual environment say."""
    known = login.split(os.pathsep)
    return os.pathsep.join([*(part for part in ours.split(os.pathsep) if part and part not in known), *known])


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
