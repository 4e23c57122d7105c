"""Sessions as files, as they would be after some work."""

from __future__ import annotations

import os
from pathlib import Path

from penguin.protocol.builders import request_begin, request_end, session_meta, subagent, user_text
from penguin.protocol.messages import Message
from penguin.state.paths import AgentPaths
from penguin.trace.names import trace_path

OLD = "session-2026-02-28-23-59-59-0000000a"
MORNING = "session-2026-03-01-09-05-00-0000000b"
EVENING = "session-2026-03-01-20-00-00-000000bb"
CHILD = "session-2026-03-01-20-01-00-0000c11d"


def written(
    paths: AgentPaths, session_id: str, *records: Message, index: int = 1, at: float = 0, workspace: str = "/w"
) -> Path:
    """A trace file last written to at ``at`` seconds of the epoch."""
    path = trace_path(paths.traces, session_id, index)
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = session_meta(session_id=session_id, provider="custom", model_id="m", system_prompt="", workspace=workspace)
    path.write_bytes(b"".join(message.line + b"\n" for message in (meta, *records)))
    os.utime(path, (at, at))
    return path


def spoken(prompt: str) -> list[Message]:
    """A prompt and a request that took it."""
    return [user_text(prompt), request_begin(), request_end("completed")]


def with_child(paths: AgentPaths, parent: str = EVENING, child: str = CHILD, *, at: float = 0) -> None:
    """A session that had a subagent."""
    written(paths, parent, *spoken("delegate"), subagent(child), at=at)
    written(paths, child, *spoken("count"), at=at)


def scratch(paths: AgentPaths, session_id: str, name: str = "output.txt", content: str = "long output\n") -> Path:
    """A file in a session's scratchpad."""
    directory = paths.scratchpad(session_id) / "images"
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / name
    file.write_text(content)
    return file
