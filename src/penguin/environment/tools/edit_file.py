"""The tool that replaces text in a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import anyio.to_thread

from penguin.environment.changing_files import OldContent, hard_links_note, look_at, refuse_masked, write_and_remember
from penguin.environment.file_paths import FilePlace, find_place, not_found
from penguin.environment.nearest_text import explain_mismatch
from penguin.environment.seen_files import HASH_LIMIT, SeenFiles
from penguin.environment.short_diff import short_diff
from penguin.environment.text_file import TextFile, binary_kind
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolError, ToolSetup

_CONTEXT = 3
_LARGEST_WINDOW = 400_000
_MOST_PLACES = 10


class EditFile:
    """Replaces an exact text and leaves every other byte as it was."""

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._setup = setup
        self._seen = SeenFiles.shared(setup)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> None:
        """Replace ``old_string`` by ``new_string`` in ``file_path``."""
        change = _Change(args["old_string"], args["new_string"], args.get("replace_all", False))
        change.refuse_pointless()
        refuse_masked(change.new, self._setup.vault)
        place = find_place(self._setup, args["file_path"], writing=True)
        async with self._seen.write_lock:
            # In a thread for the fsync, which may take as long as the disk likes.
            ctx.write(await anyio.to_thread.run_sync(self._edit, place, change))

    def _edit(self, place: FilePlace, change: _Change) -> str:
        old = look_at(place)
        if old is None:
            raise not_found(place)
        content = _text_of(place, old)
        content.refuse_foreign(place.shown, change.new)
        spans = change.find(content, place.shown)
        text = change.apply(content, spans)
        last = self._seen.last(place.real)
        changed_since = last is not None and not last.same_content(old.state)
        write_and_remember(self._seen, place, content.encode(text), old, known=not changed_since)
        return "\n".join(
            (
                f"Edited {place.shown}{place.detour}{_times(len(spans))}{hard_links_note(old)}",
                _diff(content.text, text, spans),
                *(["[somebody else changed this file since you last saw it; read it again]"] if changed_since else []),
            )
        )


def _text_of(place: FilePlace, old: OldContent) -> TextFile:
    if old.data is None:
        raise ToolError(
            f"{place.shown} is larger than {HASH_LIMIT // 1024**2} MiB; change it with a command such as sed."
        )
    if kind := binary_kind(old.data):
        raise ToolError(f"{place.shown} is {kind}; edit_file changes text only.")
    return TextFile.decode(old.data)


@dataclass(frozen=True, slots=True)
class _Change:
    old: str
    new: str
    replace_all: bool

    def refuse_pointless(self) -> None:
        if not self.old:
            raise ToolError("old_string is empty. To create or replace a whole file use write_file.")
        if self.old == self.new:
            raise ToolError("old_string and new_string are the same; nothing would change.")

    def find(self, content: TextFile, shown: str) -> list[tuple[int, int]]:
        """Where the old text is, as character positions in the file's own text."""
        spans = [match.span() for match in re.finditer(self._pattern(content), content.text)]
        if not spans:
            raise ToolError(f"old_string is not in {shown}. {explain_mismatch(content.text, self.old)}")
        content.refuse_halves(shown, spans)
        if len(spans) > 1 and not self.replace_all:
            numbers = ", ".join(str(content.text.count("\n", 0, start) + 1) for start, _ in spans[:_MOST_PLACES])
            more = ", …" if len(spans) > _MOST_PLACES else ""
            raise ToolError(
                f"old_string occurs {len(spans)} times in {shown} (lines {numbers}{more}). "
                "Add surrounding lines to it until it is unique, or set replace_all."
            )
        return spans

    def _pattern(self, content: TextFile) -> str:
        # The model sees LF only. A text that brings its own CR is taken at its word.
        pattern = re.escape(self.old)
        if "\r" in self.old or "\r" not in content.text:
            return pattern
        return pattern.replace("\\\n", "\r" if content.line_end == "\r" else "\r?\n")

    def apply(self, content: TextFile, spans: list[tuple[int, int]]) -> str:
        pieces: list[str] = []
        position = 0
        for start, end in spans:
            pieces += [content.text[position:start], self._replacement(content, content.text[start:end])]
            position = end
        return "".join((*pieces, content.text[position:]))

    def _replacement(self, content: TextFile, found: str) -> str:
        """The new text in the file's line ends; what old and new share keeps even a line end that is not dominant."""
        if "\r" in self.old or "\r" in self.new or "\r\n" not in content.text:
            return content.with_own_line_ends(self.new)
        units = re.findall(r"\r\n|[\s\S]", found)
        start = _shared(self.old, self.new)
        end = _shared(self.old[start:][::-1], self.new[start:][::-1])
        middle = content.with_own_line_ends(self.new[start : len(self.new) - end])
        return "".join((*units[:start], middle, *units[len(units) - end :]))


def _shared(one: str, other: str) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _times(count: int) -> str:
    return "" if count == 1 else f" in {count} places"


def _diff(before: str, after: str, spans: list[tuple[int, int]]) -> str:
    """Only the lines around the changes are compared: the file may be large."""
    start, end = spans[0][0], spans[-1][1]
    for _ in range(_CONTEXT + 1):
        start = before.rfind("\n", 0, max(start, 0))
    start += 1
    for _ in range(_CONTEXT + 1):
        end = before.find("\n", end) + 1 or len(before)
    tail = len(before) - end
    if end - start > _LARGEST_WINDOW:
        return f"[the changes lie over {before.count(chr(10), start, end) + 1:,} lines; too many for a diff]"
    return short_diff(before[start:end], after[start : len(after) - tail], before.count("\n", 0, start) + 1)
