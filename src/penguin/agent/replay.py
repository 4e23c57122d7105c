"""Re-running a session offline: what the model said and the tools returned is recorded, the requests are not (T12).

Every request is built again from the records and compared with the digest that was recorded when it
was sent. A difference means that the code, the configuration or the file has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penguin.engine.ledger import Ledger
from penguin.llm.model import GenerativeModel
from penguin.protocol.interfaces import GenerateRequest, ModelConfig
from penguin.protocol.messages import THINKING_LEVELS, Message, RequestBegin, RequestEnd, SessionMeta, ThinkingLevel
from penguin.trace.reader import TraceReader

_LEVELS: tuple[ThinkingLevel | None, ...] = (None, *THINKING_LEVELS)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first request that is not what was sent: ``request`` counts from 1 over all files."""

    request: int
    file: Path
    line: int

    def __str__(self) -> str:
        return f"request {self.request} ({self.file}:{self.line}) would be sent differently today"


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How a replay went: ``compared`` requests had a digest, ``skipped`` had none."""

    compared: int
    skipped: int
    difference: Difference | None


ConfigOf = Callable[[SessionMeta], ModelConfig]
"""The model configuration a trace's configuration record stands for."""


def replay(files: Sequence[Path], config_of: ConfigOf) -> ReplayReport:
    """Build every request of a session again and compare; stops at the first difference.

    The thinking level of a single task is not recorded, so a request counts as the same when it is
    for any level.

    Raises:
        TraceError: a file cannot be read.
        ConfigError: the model's protocol is unknown.

    Example::

        report = replay(files_of(traces_dir, session_id), config_of)
        print(report.difference or f"{report.compared} requests are byte for byte the same")
    """
    rehearsal = _Rehearsal(config_of)
    for file in files:
        reader = TraceReader(file)
        for message in reader:
            if not rehearsal.take(message):
                return rehearsal.report(Difference(rehearsal.compared, file, reader.line_number))
    return rehearsal.report(None)


class _Rehearsal:
    def __init__(self, config_of: ConfigOf) -> None:
        self._config_of = config_of
        self._ledger = Ledger()
        self._model: GenerativeModel | None = None
        self._digests: set[str] = set()
        self._input: list[Message] = []
        self._said_before = 0
        self.compared = 0
        self._skipped = 0

    def take(self, message: Message) -> bool:
        """Take one record; ``False`` when it ends a request that would be sent differently."""
        self._ledger.observe(message)
        match message.payload:
            case SessionMeta() as meta:
                self._model = GenerativeModel(self._config_of(meta))
            case RequestBegin():
                self._rehearse()
            case RequestEnd(status=status, request_digest=digest):
                same = self._compare(digest)
                if status == "completed":
                    self._adopt()
                return same
            case _:
                pass
        return True

    def report(self, difference: Difference | None) -> ReplayReport:
        return ReplayReport(self.compared, self._skipped, difference)

    def _rehearse(self) -> None:
        if self._model is None:
            return
        self._input = self._ledger.request_input
        self._said_before = len(self._ledger.history) + len(self._input)
        request = GenerateRequest(self._input, None, self._ledger.context_tokens)
        bodies = (self._model.rehearse(replace(request, thinking_level=level)) for level in _LEVELS)
        self._digests = {hashlib.sha256(body).hexdigest() for body in bodies}

    def _compare(self, digest: str | None) -> bool:
        if digest is None:
            self._skipped += 1
            return True
        self.compared += 1
        return digest in self._digests

    def _adopt(self) -> None:
        if self._model is not None:
            self._model.adopt(self._input, self._ledger.history[self._said_before :])
