"""Where an agent keeps its checkpoints, and what none of them may hold."""

from __future__ import annotations

from penguin.environment.checkpoints.limits import CheckpointConfig
from penguin.state.paths import AgentPaths


def checkpoint_config(paths: AgentPaths) -> CheckpointConfig:
    """The store of an agent; the harness's own files are never part of a checkpoint, wherever the workspace is."""
    own = (paths.project.root.path, paths.snapshots, paths.traces, paths.scratchpads)
    return CheckpointConfig(paths.checkpoints, own)
