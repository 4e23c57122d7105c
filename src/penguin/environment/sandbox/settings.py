"""What a person may choose about the sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

SandboxMode: TypeAlias = Literal["off", "read-only", "workspace-write"]
"""``read-only`` writes nowhere but a private /tmp; ``workspace-write`` in the workspace as well."""

HIDDEN = (
    "~/.ssh", "~/.gnupg", "~/.aws", "~/.azure", "~/.kube", "~/.docker", "~/.netrc", "~/_netrc", "~/.npmrc", "~/.pypirc",
    "~/.git-credentials", "~/.password-store", "~/.pgpass", "~/.my.cnf", "~/.vault-token", "~/.boto", "~/.s3cfg",
    "~/.config/gh", "~/.config/hub", "~/.config/gcloud", "~/.config/op", "~/.config/rclone", "~/.config/sops",
    "~/.config/git/credentials", "~/.config/containers/auth.json", "~/.config/google-chrome", "~/.config/chromium",
    "~/.cargo/credentials", "~/.cargo/credentials.toml", "~/.gem/credentials", "~/.terraform.d/credentials.tfrc.json",
    "~/.local/share/keyrings", "~/.mozilla", "~/.thunderbird", "~/.bash_history", "~/.zsh_history",
    "~/.python_history", "~/.penguin", "~/.claude", "~/.codex", "~/.gemini",
    "/etc/shadow", "/etc/shadow-", "/etc/ssl/private",
)  # fmt: skip
"""Files and directories that cannot be seen: keys, passwords, tokens, histories. Whole directories where a program
keeps several. The data root is hidden beside these."""

PROTECTED = (
    ".git", ".penguin", ".agents", ".claude", ".mcp.json", "AGENTS.md", "CLAUDE.md", "GEMINI.md", ".codex", ".gemini",
    ".cursor", ".cursorrules", ".windsurfrules", ".clinerules", ".vscode", ".github/copilot-instructions.md",
)  # fmt: skip
"""Names in the workspace that can neither be changed nor created: what another program obeys without asking, an
agent, or an editor that runs the tasks of a folder when it opens it. Those without a slash cannot be changed further
down either, where they exist. Of ``.git`` that is hooks and configuration; the rest of a repository stays writable."""

NOT_HELD = frozenset({".codex", ".gemini", ".cursorrules", ".windsurfrules", ".clinerules"})
"""Of the protected names those that are only kept where they exist. Keeping an absent name from being created costs
0.3 ms for each command, a mount, and these are read by programs that also know one of the others, or are rare."""


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """How commands and file tools are confined.

    Args:
        mode: see :data:`SandboxMode`.
        network: whether the network is reachable; without it there is a loopback of the command's own.
        hidden: paths that cannot be seen, ``~`` for the home directory.
        protected: paths in the workspace that are read-only although the workspace is writable.
        writable: paths outside the workspace that ``workspace-write`` may write, ``~/.cache`` say.

    Example::

        await agent.create_session(sandbox=SandboxSettings("workspace-write", network=False))
    """

    mode: SandboxMode = "off"
    network: bool = True
    hidden: tuple[str, ...] = HIDDEN
    protected: tuple[str, ...] = PROTECTED
    writable: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """One or two sentences for the model; empty when nothing is confined."""
        if self.mode == "off":
            return ""
        where = "the workspace and /tmp" if self.mode == "workspace-write" else "/tmp"  # noqa: S108 - a name, in a sentence
        network = "" if self.network else " There is no network."
        return (
            f"Commands and file tools are confined: they can write only to {where}, which is private to this session."
            f"{network} Credentials are hidden. Do not try to get around this; say what you would need."
        )
