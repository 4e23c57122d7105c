"""The tool that reads a text file."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO

import anyio.to_thread

from penguin.environment.file_paths import FilePlace, find_place, not_found, stat_regular
from penguin.environment.line_window import lines_of, skip_lines
from penguin.environment.resolved_open import open_resolved
from penguin.environment.seen_files import HASH_LIMIT, SeenFiles, state_of
from penguin.environment.text_file import SNIFFED, TextFile, binary_kind, told_by_bom
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolError, ToolResult, ToolSetup

_INLINE = 256 * 1024
_DEFAULT_LIMIT = 2000
_ROOM_FOR_NOTES = 1_000
_UNBOUNDED = 1_000_000


@dataclass(slots=True)
class _View:
    """What will be shown: numbered ``lines`` from ``first`` on, and remarks about the file."""

    first: int
    lines: list[str] = field(default_factory=list)
    more: bool = False
    total: int | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1

    def note(self) -> str | None:
        remarks = list(self.remarks)
        if self.more:
            total = "" if self.total is None else f" of {self.total}"
            remarks.append(f"[lines {self.first}-{self.last}{total}; continue with offset={self.last + 1}]")
        return "\n".join(remarks) or None


class ReadFile:
    """Reads numbered lines and remembers what was seen."""

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._setup = setup
        self._seen = SeenFiles.shared(setup)
        limit = definition.max_output_length
        self._room = max(limit - _ROOM_FOR_NOTES, 1) if limit > 0 else _UNBOUNDED

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Show ``limit`` lines from line ``offset`` of ``file_path``."""
        first, limit = args.get("offset", 1), args.get("limit", _DEFAULT_LIMIT)
        place = find_place(self._setup, args["file_path"], writing=False)
        status = stat_regular(place)
        if status is None:
            raise not_found(place)
        # Reading a small file takes less time than handing it to a thread. Files in /proc say they are empty and may
        # still block, so "empty" is no reason to stay on the loop.
        if 0 < status.st_size <= _INLINE:
            view = self._look(place, first, limit, lambda: False)
        else:
            view = await anyio.to_thread.run_sync(self._look, place, first, limit, ctx.stopped.is_set)
        ctx.write("\n".join(view.lines))
        return ToolResult(note=view.note())

    def _look(self, place: FilePlace, first: int, limit: int, stopped: Callable[[], bool]) -> _View:
        with place.told(), _opened(place) as file:
            status = os.fstat(file.fileno())
            _refuse_binary(place, file.peek(SNIFFED)[:SNIFFED], status.st_size)
            if status.st_size > HASH_LIMIT:
                _skip_bom(place, file)
                view = self._window(file, first, limit, stopped)
                self._seen.note_read(state_of(place.real, status, None))
            else:
                data = file.read(status.st_size + 1 if status.st_size else HASH_LIMIT) or b""
                view = self._window_of(data, first, limit, stopped)
                self._seen.note_read(state_of(place.real, status, data))
        if place.detour:
            view.remarks.append(f"[{place.detour.strip()[1:-1]}]")
        return view

    def _window_of(self, data: bytes, first: int, limit: int, stopped: Callable[[], bool]) -> _View:
        """The window into content that fits into memory: its total is known, and its peculiarities."""
        content = TextFile.decode(data)
        if not content.text:
            return _View(first, remarks=["[the file is empty]"])
        plain = data[len(content.bom) :] if content.encoding == "utf-8" else content.text.encode("utf-8", "replace")
        view = self._window(io.BytesIO(plain), first, limit, stopped)
        view.total = plain.count(b"\n") + (not plain.endswith(b"\n"))
        view.remarks += _peculiarities(content)
        return view

    def _window(self, file: BinaryIO, first: int, limit: int, stopped: Callable[[], bool]) -> _View:
        skipped = skip_lines(file, first - 1, stopped)
        view = _View(first)
        room = self._room
        lines: Iterator[str] = (line.shown() for line in lines_of(file))
        for number, line in enumerate(islice(lines, limit), first):
            numbered = f"{number:6}\t{line}"
            room -= len(numbered) + 1
            if room < 0 and view.lines:
                view.more = True
                return view
            view.lines.append(numbered)
        if not view.lines:
            raise ToolError(f"The file has {skipped:,} lines; there is no line {first:,}.")
        view.more = bool(file.read(1))
        return view


def _opened(place: FilePlace) -> io.BufferedReader:
    # O_NONBLOCK: between our look and this open the file may have become a fifo, whose open would wait for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    return io.BufferedReader(io.FileIO(open_resolved(place.real, flags)), 64 * 1024)


def _refuse_binary(place: FilePlace, head: bytes, size: int) -> None:
    if kind := binary_kind(head):
        raise ToolError(
            f"{place.shown} is {kind}, {size:,} bytes{place.detour}; it cannot be shown as text. "
            "Look into it with a command that knows the format."
        )


def _skip_bom(place: FilePlace, file: io.BufferedReader) -> None:
    """Begin behind the BOM of a file that is shown as it is, without being decoded as a whole."""
    encoding, bom = told_by_bom(file.peek(SNIFFED))
    if encoding != "utf-8":
        raise ToolError(
            f"{place.shown} is UTF-16 text and larger than {HASH_LIMIT // 1024**2} MiB. Look into it with iconv, or"
            " split it."
        )
    file.read(len(bom))


def _peculiarities(content: TextFile) -> list[str]:
    remarks = []
    if content.encoding != "utf-8":
        remarks.append("[UTF-16, kept by edit_file and write_file]")
    if not content.is_valid:
        remarks.append("[not valid UTF-8: other bytes are shown as \ufffd; edit_file keeps them]")
    if content.line_end != "\n":
        name = "CRLF" if content.line_end == "\r\n" else "CR"
        remarks.append(f"[{name} line ends, kept by edit_file and write_file]")
    return remarks
