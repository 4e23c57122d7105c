"""Recovering a conversation from its trace: a fold of the records through the ledger the engine uses (T7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from penguin.engine.ledger import Ledger
from penguin.protocol.builders import compaction_end
from penguin.protocol.codec import decode
from penguin.protocol.errors import CodecError, ResumeError, TraceError
from penguin.protocol.events import ErrorDetail
from penguin.protocol.messages import Message, SessionMeta
from penguin.trace.reader import TraceReader, TraceWarning


class Recovered(Struct, frozen=True):
    """A conversation as its trace tells it.

    ``file`` is the one to go on writing, ``repairs`` what has to be appended to it first; both have
    passed the ledger already. ``warnings`` are the damaged lines that were skipped; a last line whose writing was
    cut off is none, since a process that is killed ends so.
    """

    meta: SessionMeta
    ledger: Ledger
    file: Path
    repairs: list[Message]
    warnings: list[TraceWarning]


def recover(files: Sequence[Path]) -> Recovered:
    """Fold all files of a session, oldest first; only the last context stays in memory.

    A file that holds nothing readable (the process died while opening it) is passed over. A
    compaction that was begun and not ended counts as failed and is closed (T10).

    Raises:
        ResumeError: there is nothing to go on from; the text names the file and what is wrong.

    Example::

        recovered = recover(files_of(traces_dir, session_id))
        model.set_history(recovered.ledger.history)
    """
    ledger = Ledger()
    warnings: list[TraceWarning] = []
    readable: Path | None = None
    problem: TraceError | None = None
    for file in files:
        try:
            warnings += _fold(file, ledger)
            readable = file
        except TraceError as error:
            if _holds_records(file):
                raise ResumeError(f"{error}; what it holds would be forgotten, so nothing is resumed") from error
            problem = error
    if readable is None or ledger.meta is None:
        raise ResumeError(str(problem) if problem else "the session has no trace")
    return Recovered(ledger.meta, ledger, readable, _repaired(ledger), warnings)


def _holds_records(file: Path) -> bool:
    """Whether a file that cannot be folded holds a part of the conversation, as far as anybody can say."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return True
    for line in lines:
        try:
            decode(line)
        except CodecError:
            continue
        return True
    return False


def _fold(file: Path, ledger: Ledger) -> list[TraceWarning]:
    reader = TraceReader(file)
    for message in reader:
        ledger.observe(message)
    return reader.warnings


def _repaired(ledger: Ledger) -> list[Message]:
    begun = ledger.compacting
    if begun is None:
        return []
    cut = ErrorDetail("unknown", "the process ended during the compaction")
    end = compaction_end(begun.reason, begun.mode, "failed", error=cut)
    ledger.observe(end)
    return [end]
