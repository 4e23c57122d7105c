"""Which sandbox a session gets: from the caller, from its trace, or from the project (N25)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from penguin.protocol.errors import ConfigError

if TYPE_CHECKING:
    from penguin.environment.sandbox.command_sandbox import CommandSandbox
    from penguin.environment.sandbox.settings import SandboxMode, SandboxSettings
    from penguin.state.paths import AgentPaths
    from penguin.state.project import Sandbox

MODES = ("off", "read-only", "workspace-write")

# At the end of the prompt, where nothing from a workspace can follow it.
_RECORDED = re.compile(r'<sandbox mode="(read-only|workspace-write)" network="(on|off)">[^<]*</sandbox>\s*\Z')


def chosen_settings(
    choice: SandboxMode | SandboxSettings | None, project: Sandbox, recorded_prompt: str | None = None
) -> SandboxSettings | None:
    """What holds for a session, ``None`` without a sandbox.

    Args:
        choice: of the caller; a mode takes the rest from the project.
        project: the ``[sandbox]`` of the project.
        recorded_prompt: of a session that is resumed: it keeps its sandbox unless the caller says otherwise.

    Raises:
        ConfigError: there is no such mode.
    """
    if choice is None and recorded_prompt and (found := _RECORDED.search(recorded_prompt)):
        return _settings(found[1], project, network=found[2] == "on" and project.network)
    if choice is None or isinstance(choice, str):
        return _settings(choice or project.mode, project, network=project.network)
    return None if choice.mode == "off" else choice


def _settings(mode: str, project: Sandbox, *, network: bool) -> SandboxSettings | None:
    if mode not in MODES:
        raise ConfigError(f"there is no sandbox mode {mode!r}; there are: {', '.join(MODES)}")
    if mode == "off":
        return None
    from penguin.environment.sandbox.settings import SandboxSettings  # noqa: PLC0415 - few sessions have a sandbox

    lists = {"hidden": project.hidden, "protected": project.protected, "writable": project.writable}
    given = {name: paths for name, paths in lists.items() if paths is not None}
    return SandboxSettings(mode, network, **given)  # type: ignore[arg-type]


def session_sandbox(
    settings: SandboxSettings | None, paths: AgentPaths, session_id: str, workspace: Path
) -> CommandSandbox | None:
    """The sandbox of one session: the data root is hidden, but for what the session itself is to read."""
    if settings is None:
        return None
    from penguin.environment.sandbox.command_sandbox import CommandSandbox  # noqa: PLC0415 - the same

    scratchpad = paths.scratchpad(session_id)
    return CommandSandbox(
        settings,
        workspace,
        private=scratchpad / "tmp",
        secret=(paths.project.root.path,),
        shown=(scratchpad, paths.skills, paths.memory),
    )


def prompt_with(settings: SandboxSettings | None, prompt: str) -> str:
    """The system prompt, with what the model should know about its sandbox at the end."""
    if settings is None:
        return prompt
    network = "on" if settings.network else "off"
    return f'{prompt}\n\n<sandbox mode="{settings.mode}" network="{network}">\n{settings.words}\n</sandbox>'
