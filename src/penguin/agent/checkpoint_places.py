"""Where an agent keeps its checkpoints, and what none of them may hold."""

from __future__ import annotations

import shutil

from penguin.environment.checkpoints.limits import CheckpointConfig
from penguin.state.paths import AgentPaths, checked_id


def checkpoint_config(paths: AgentPaths) -> CheckpointConfig:
    """The store of an agent; the harness's own files are never part of a checkpoint, wherever the workspace is."""
    own = (paths.project.root.path, paths.snapshots, paths.traces, paths.scratchpads)
    return CheckpointConfig(paths.checkpoints, own)


def forget_checkpoints(paths: AgentPaths, session_id: str) -> None:
    """Forget what is kept for a session that is deleted; contents nobody else needs go with the next clearing."""
    shutil.rmtree(paths.checkpoints / "sessions" / checked_id(session_id, "session id"), ignore_errors=True)
