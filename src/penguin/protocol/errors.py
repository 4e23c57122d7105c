"""Every exception Penguin raises on purpose, in one tree.

::

    PenguinError
    ├── CodecError            a line is not a message
    ├── ConfigError           a file or setting is wrong (file, line, field, what is allowed)
    │   ├── CredentialError   no key for a provider
    │   └── NoModelError      no model is configured
    ├── SessionError          the session cannot do that now
    │   ├── SessionBusy       a task is already running
    │   ├── SessionClosed     the session was closed
    │   ├── SessionLocked     another process owns the session
    │   ├── ResumeError       the conversation cannot be continued as it is
    │   └── UndoError         there is nothing to undo, or what it needs is no longer kept
    │       └── UndoConflict  it would destroy what others changed since
    ├── TraceError            a trace file cannot be read
    ├── ResultNotReady        ``stream.result`` before the end
    └── ScriptError           a scripted model or provider was used against its script

Trouble with models, tools, network or disk is never raised: it is a message and a result.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class PenguinError(Exception):
    """Base of all errors raised on purpose; ``str(error)`` is one paragraph for people."""


class CodecError(PenguinError):
    """A line is not a message."""

    def __init__(self, reason: str, line_number: int | None = None) -> None:
        self.reason = reason
        self.line_number = line_number
        super().__init__(reason if line_number is None else f"line {line_number}: {reason}")


class ConfigProblem(Struct, frozen=True):
    """Where and what: ``line`` and ``column`` are 1-based, ``field`` is a dotted path."""

    file: Path | None
    message: str
    line: int | None = None
    column: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return ": ".join(part for part in (place, self.field, self.message) if part)


class ConfigError(PenguinError):
    """A configuration file or setting is wrong; nothing was changed."""

    def __init__(self, problem: ConfigProblem | str) -> None:
        self.problem = problem if isinstance(problem, ConfigProblem) else ConfigProblem(None, problem)
        super().__init__(str(self.problem))


class CredentialError(ConfigError):
    """No API key for a provider: the text names the variable and the config entry."""


class NoModelError(ConfigError):
    """No model is named and none is configured."""


class SessionError(PenguinError):
    """The session cannot do that now."""


class SessionBusy(SessionError):
    """A task is already running in this session."""


class SessionClosed(SessionError):
    """The session was closed."""


class SessionLocked(SessionError):
    """Another process owns the session; the text names host, process id and since when."""


class ResumeError(SessionError):
    """The conversation cannot be continued as it is; the text says what is missing and what to do."""


class UndoError(SessionError):
    """A task cannot be undone or redone; the text says why. Nothing was changed."""


class UndoConflict(UndoError):
    """Undo or redo would destroy what others changed since; nothing was changed.

    ``paths`` are relative to the workspace, names that are no text with surrogate escapes.
    """

    def __init__(self, message: str, paths: list[str]) -> None:
        self.paths = paths
        super().__init__(message)


class TraceError(PenguinError):
    """A trace file cannot be read; the text names the file and the reason."""


class ResultNotReady(PenguinError):
    """``stream.result`` was read before the task ended."""


class ScriptError(PenguinError):
    """A scripted model or provider was used against its script."""
