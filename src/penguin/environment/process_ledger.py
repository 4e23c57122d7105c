"""Which background commands a session had, so that one that is resumed neither reuses an id nor hides an end (E17)."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from penguin.private import private_directory

_log = logging.getLogger("penguin.environment")


class ProcessNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of ``processes.jsonl``: a command went to the background, or (``ended``) its end was told."""

    number: int
    cmd: str = ""
    ended: bool = False

    @property
    def process_id(self) -> str:
        """As the model knows it."""
        return f"p{self.number}"


class ProcessLedger:
    """The ledger in ``scratchpad/<session>/processes.jsonl``, append-only; ``None`` keeps nothing.

    A line that cannot be read is passed over, one that cannot be written is logged: commands do not depend on it.

    Example::

        ledger = ProcessLedger(scratchpad / "processes.jsonl")
        ledger.lost         # of an earlier process: begun, and nobody saw them end
        number = ledger.begin("npm run dev")
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        noted = _read(file) if file is not None else []
        ended = {note.number for note in noted if note.ended}
        self.lost = [note for note in noted if not note.ended and note.number not in ended]
        self._last = max((note.number for note in noted), default=0)

    def begin(self, cmd: str) -> ProcessNote:
        """Note a command under the next number."""
        self._last += 1
        note = ProcessNote(self._last, cmd)
        self._write(note)
        return note

    def end(self, process_id: str) -> None:
        """Note that the model was told, or could see, how the command ended."""
        self._write(ProcessNote(int(process_id.removeprefix("p")), ended=True))

    def _write(self, note: ProcessNote) -> None:
        if self._file is None:
            return
        try:
            private_directory(self._file.parent)
            with self._file.open("ab") as file:
                # On a line of its own also after one that was torn.
                file.write(b"\n" + msgspec.json.encode(note) + b"\n")
        except OSError as error:
            _log.warning("%s: a background command could not be noted: %s", self._file, error)


def _read(file: Path) -> list[ProcessNote]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=ProcessNote))
        except msgspec.DecodeError:  # empty, or the last line of a process that was killed
            continue
    return found
