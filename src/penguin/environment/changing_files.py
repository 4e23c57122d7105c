"""What edit_file and write_file have in common: look at the old content, write the new, remember it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from penguin.environment.atomic_write import write_atomically
from penguin.environment.file_paths import FilePlace, stat_regular
from penguin.environment.resolved_open import make_directories, read_resolved
from penguin.environment.seen_files import HASH_LIMIT, FileState, SeenFiles, state_of
from penguin.environment.tool import ToolError


class OldContent(Struct, frozen=True):
    """A file before the change; ``data`` is ``None`` when it is too large to hold."""

    status: os.stat_result
    state: FileState
    data: bytes | None


def look_at(place: FilePlace) -> OldContent | None:
    """The file as it is now, ``None`` when there is none.

    Raises:
        ToolError: It is no regular file, cannot be read, or must not be written.
    """
    status = stat_regular(place)
    if status is None:
        return None
    if not os.access(place.real, os.W_OK):
        # Replacing a file needs no right to write it, only to its directory; its mode is respected all the same.
        raise ToolError(f"{place.shown} is write-protected{place.detour}.")
    with place.told():
        data = None if status.st_size > HASH_LIMIT else read_resolved(place.real)
    return OldContent(status, state_of(place.real, status, data), data)


def write_and_remember(seen: SeenFiles, place: FilePlace, data: bytes, old: OldContent | None, *, known: bool) -> None:
    """Replace or create the file; ``known`` says that the model has seen what was there before.

    Raises:
        ToolError: The disk refused, or the file changed under our hands.
    """
    with place.told():
        if old is None:
            make_directories(place.real.parent)
        seen.announce_write(place.real)
        status = write_atomically(place.real, data, old.status if old is not None else None, seen.staging_dir)
    state = state_of(place.real, status, data if len(data) <= HASH_LIMIT else None)
    seen.note_written(state if known else FileState(str(place.real), -1))


def refuse_masked(text: str, vault: Mapping[str, str]) -> None:
    """Refuse to write what stands for a secret.

    Raises:
        ToolError: ``text`` holds the mask of a vault entry; writing it would destroy the real value.
    """
    for name in vault:
        if f"[vault:{name}]" in text:
            raise ToolError(
                f"The text contains [vault:{name}], which only stands for a secret value; writing it would overwrite "
                "the real one. Edit around it, or use a command with the environment variable."
            )


def hard_links_note(old: OldContent | None) -> str:
    """What to say when the replaced file had other names."""
    if old is None or old.status.st_nlink == 1:
        return ""
    return f"\n[it had {old.status.st_nlink} hard links; the other names keep the old content]"
