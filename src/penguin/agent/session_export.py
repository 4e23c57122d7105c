"""A session in one file, to keep or to hand on: an archive of all it has, or its records alone."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from penguin.agent.sessions import family_of
from penguin.state.paths import AgentPaths
from penguin.trace.names import files_of
from penguin.trace.reader import TraceReader, TraceWarning


def export_archive(paths: AgentPaths, session_id: str, out: IO[bytes]) -> None:
    """Write a gzipped tar of the session: trace files and scratchpad, those of its subagents too.

    The names are those below the agent's directory, so that unpacking it in another agent's makes the
    session one of that agent's. Owners are left out.

    Raises:
        OSError: something cannot be read or written.

    Example::

        with open("session.tar.gz", "wb") as out:
            export_archive(agent.paths, session_id, out)
    """
    with tarfile.open(fileobj=out, mode="w|gz") as archive:
        for member in family_of(paths, session_id):
            for file in (*files_of(paths.traces, member), *_below(paths.scratchpad(member))):
                _add(archive, file, file.relative_to(paths.path).as_posix())


def export_records(paths: AgentPaths, session_id: str, out: IO[bytes]) -> list[TraceWarning]:
    """Write the session's own records, one a line as they were stored; returns what could not be read.

    Raises:
        TraceError: a file is no readable trace.
    """
    warnings: list[TraceWarning] = []
    for file in files_of(paths.traces, session_id):
        reader = TraceReader(file)
        for _ in reader:
            out.write(reader.line + b"\n")
        warnings += reader.warnings
    return warnings


def _below(directory: Path) -> Iterator[Path]:
    """Everything in a directory, sorted; links are not followed."""
    for parent, directories, files in os.walk(directory):
        directories.sort()
        here = Path(parent)
        yield from (
            here / name for name in sorted([*files, *(each for each in directories if (here / each).is_symlink())])
        )


def _add(archive: tarfile.TarFile, file: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    status = file.lstat()
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.fspath(file.readlink())
        archive.addfile(info)
    elif stat.S_ISREG(status.st_mode):
        # Read whole, and only then measured: an open session goes on writing, and an archive must not end early.
        content = file.read_bytes()
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
