"""The layout of the data root; no other module joins these names.

::

    <root>/                              PENGUIN_HOME, default ~/.penguin/data
    └── <project>/                       .project_config.toml
        └── agents/<agent>/              agent_state/ traces/ scratchpad/ workspaces/ snapshots/

Example::

    agent = DataRoot.from_environment(os.environ).project().agent()
    agent.traces                         # .../default_project/agents/default_agent/traces
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from penguin.private import private_directory
from penguin.protocol.errors import ConfigError

DEFAULT_PROJECT = "default_project"
DEFAULT_AGENT = "default_agent"
HOME_VARIABLE = "PENGUIN_HOME"

# An id is the name of one directory, and file systems end a name at 255 bytes.
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_WORKSPACE_NAMES = 8


def checked_id(value: str, what: str) -> str:
    """``value`` when it may become part of a path.

    Args:
        value: letters, digits, ``_`` and ``-`` only, 1 to 200 of them.
        what: the name of the id in the message, e.g. ``"project id"``.

    Raises:
        ConfigError: for anything else; dots and separators would lead out of the data root.
    """
    if not _ID.fullmatch(value):
        raise ConfigError(f"{what} {value!r} cannot be used: allowed are 1 to 200 of A-Z a-z 0-9 _ -")
    return value


def make_private_directory(path: Path) -> Path:
    """Create ``path`` and its missing parents for the owner only (0700); existing ones keep their mode.

    Raises:
        ConfigError: the directory cannot be made; the text has the system's reason.
    """
    try:
        return private_directory(path)
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot make the directory: {error.strerror}") from error


class DataRoot(Struct, frozen=True):
    """The directory that holds everything Penguin keeps."""

    path: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> DataRoot:
        """The root that ``PENGUIN_HOME`` names, else ``~/.penguin/data``."""
        named = environment.get(HOME_VARIABLE)
        return cls(Path(named).expanduser().absolute() if named else Path.home() / ".penguin" / "data")

    def project(self, project_id: str = DEFAULT_PROJECT) -> ProjectPaths:
        """The paths of one project, whether it exists or not; raises ConfigError for an id that is no name."""
        return ProjectPaths(self.path / checked_id(project_id, "project id"))

    @property
    def custody(self) -> Path:
        """Notes of the harness processes that run commands, so that a later one can end what a dead one left."""
        return self.path / ".custody"

    def project_ids(self) -> list[str]:
        """The projects that exist, sorted."""
        return _ids_in(self.path)


class ProjectPaths(Struct, frozen=True):
    """One project: its configuration and its agents."""

    path: Path

    @property
    def id(self) -> str:
        """The project id."""
        return self.path.name

    @property
    def root(self) -> DataRoot:
        """The data root it lies in."""
        return DataRoot(self.path.parent)

    @property
    def config(self) -> Path:
        """Models, credentials and policies (0600)."""
        return self.path / ".project_config.toml"

    @property
    def agents(self) -> Path:
        """The directory with one directory per agent."""
        return self.path / "agents"

    def agent(self, agent_id: str = DEFAULT_AGENT) -> AgentPaths:
        """The paths of one agent, whether it exists or not; raises ConfigError for an id that is no name."""
        return AgentPaths(self.agents / checked_id(agent_id, "agent id"), self)

    def agent_ids(self) -> list[str]:
        """The agents that exist, sorted."""
        return _ids_in(self.agents)


class AgentPaths(Struct, frozen=True):
    """One agent: the files that make it what it is, and what its sessions leave behind."""

    path: Path
    project: ProjectPaths

    @property
    def id(self) -> str:
        """The agent id."""
        return self.path.name

    @property
    def agent_state(self) -> Path:
        """The files that decide how the agent behaves."""
        return self.path / "agent_state"

    @property
    def system_config(self) -> Path:
        """Prompt, limits and tools."""
        return self.agent_state / "system_config.yaml"

    @property
    def agents_md(self) -> Path:
        """The agent's own instructions."""
        return self.agent_state / "AGENTS.md"

    @property
    def vault(self) -> Path:
        """Secrets for tool subprocesses (0600)."""
        return self.agent_state / ".vault.toml"

    @property
    def skills(self) -> Path:
        """One directory with a ``SKILL.md`` per skill."""
        return self.agent_state / "skills"

    @property
    def memory(self) -> Path:
        """What the agent keeps for later sessions."""
        return self.agent_state / "memory"

    @property
    def schedule(self) -> Path:
        """One TOML file per scheduled prompt."""
        return self.agent_state / "schedule"

    @property
    def traces(self) -> Path:
        """One directory per day with the JSONL files of its sessions."""
        return self.path / "traces"

    @property
    def scratchpads(self) -> Path:
        """The parent of all scratchpads."""
        return self.path / "scratchpad"

    def scratchpad(self, session_id: str) -> Path:
        """Pasted images, attachments and truncated output of one session; raises ConfigError for a bad id."""
        return self.scratchpads / checked_id(session_id, "session id")

    @property
    def workspaces(self) -> Path:
        """The parent of the temporary workspaces."""
        return self.path / "workspaces"

    @property
    def snapshots(self) -> Path:
        """Archived states of the agent."""
        return self.path / "snapshots"

    @property
    def checkpoints(self) -> Path:
        """What workspaces held before tasks changed them, for undo."""
        return self.snapshots / "checkpoints"

    def new_temporary_workspace(self) -> Path:
        """Create an empty private directory ``workspaces/tmp-<8 hex>``; raises ConfigError when that fails."""
        make_private_directory(self.workspaces)
        for _ in range(_WORKSPACE_NAMES):
            # not `secrets`: it loads OpenSSL, which a start has no use for
            workspace = self.workspaces / f"tmp-{os.urandom(4).hex()}"
            try:
                workspace.mkdir(mode=0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise ConfigError(f"{workspace}: cannot make the workspace: {error.strerror}") from error
            return workspace
        raise ConfigError(f"{self.workspaces}: no free name for a temporary workspace was found")


def _ids_in(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir() if _ID.fullmatch(entry.name) and entry.is_dir())
    except OSError:
        return []
