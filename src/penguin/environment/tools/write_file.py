"""The tool that creates a file or replaces its whole content."""

from __future__ import annotations

import io
import os
from typing import Any

import anyio.to_thread

from penguin.environment.changing_files import OldContent, hard_links_note, look_at, refuse_masked, write_and_remember
from penguin.environment.file_paths import FilePlace, find_place
from penguin.environment.resolved_open import open_resolved
from penguin.environment.seen_files import SeenFiles
from penguin.environment.short_diff import short_diff
from penguin.environment.text_file import SNIFFED, TextFile, TextForm, binary_kind
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolError, ToolSetup

_LARGEST_COMPARED = 400_000


class WriteFile:
    """Writes whole files, but never over something the session does not know."""

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._setup = setup
        self._seen = SeenFiles.shared(setup)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> None:
        """Make ``content`` the content of ``file_path``."""
        refuse_masked(args["content"], self._setup.vault)
        if args["file_path"].endswith("/"):
            raise ToolError(f"{args['file_path']} names a directory; give the path of a file.")
        place = find_place(self._setup, args["file_path"], writing=True)
        async with self._seen.write_lock:
            # In a thread for the fsync, which may take as long as the disk likes.
            ctx.write(await anyio.to_thread.run_sync(self._write, place, args["content"]))

    def _write(self, place: FilePlace, content: str) -> str:
        old = look_at(place)
        if old is None:
            data = content.encode()
            write_and_remember(self._seen, place, data, None, known=True)
            return f"Created {place.shown}{place.detour} ({_size(content, data)})"
        self._refuse_unknown(place, old)
        before = _form_of(place, old)
        before.refuse_foreign(place.shown, content)
        text = before.with_own_line_ends(content.removeprefix("\ufeff") if before.bom else content)
        data = before.encode(text)
        write_and_remember(self._seen, place, data, old, known=True)
        told = (
            f"Overwrote {place.shown}{place.detour} ({_size(text, data)}{_kept(before, content)}){hard_links_note(old)}"
        )
        return f"{told}\n{_diff(before, text)}"

    def _refuse_unknown(self, place: FilePlace, old: OldContent) -> None:
        last = self._seen.last(place.real)
        if last is None:
            raise ToolError(
                f"{place.shown} exists{place.detour} and you have not read it. Read it before replacing it."
            )
        if not last.same_content(old.state):
            raise ToolError(
                f"{place.shown} has changed since you last read it{place.detour}. Read it again before replacing it."
            )


def _form_of(place: FilePlace, old: OldContent) -> TextForm:
    """The form to keep, with the text for the diff unless it is huge."""
    if old.data is None:
        return _form_of_huge(place)
    _refuse_binary(place, old.data)
    return TextFile.decode(old.data)


def _form_of_huge(place: FilePlace) -> TextForm:
    with place.told(), io.FileIO(open_resolved(place.real, os.O_RDONLY | os.O_NONBLOCK)) as file:
        _refuse_binary(place, file.read(SNIFFED))
        file.seek(0)
        return TextForm.of(file)


def _refuse_binary(place: FilePlace, head: bytes) -> None:
    if kind := binary_kind(head):
        raise ToolError(f"{place.shown} is {kind}. Remove it first if it is to become a text file.")


def _size(text: str, data: bytes) -> str:
    lines = text.count("\n") + (bool(text) and not text.endswith("\n"))
    return f"{lines} line{'' if lines == 1 else 's'}, {len(data)} bytes"


def _kept(before: TextForm, content: str) -> str:
    kept = [each for each in before.peculiarities() if "\n" in content or not each.endswith("line ends")]
    return f"; kept {', '.join(kept)}" if kept else ""


def _diff(before: TextForm, after: str) -> str:
    if not isinstance(before, TextFile) or len(before.text) + len(after) > _LARGEST_COMPARED:
        return "[too large for a diff]"
    if before.text == after:
        return "[the content is the same as before]"
    return short_diff(before.text, after)
