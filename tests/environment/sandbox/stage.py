"""A throw-away world to escape into: a home, a data root, processes, sockets, a terminal; nobody misses any of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

SECRET_FILES = {
    "home/.ssh/id_ed25519", "home/.aws/credentials", "home/.netrc", "home/.config/gh/hosts.yml", "home/.gnupg/key",
    "home/.git-credentials", "home/.bash_history", "home/.docker/config.json", "home/.npmrc",
    "data/default_project/.project_config.toml", "data/default_project/agents/a/agent_state/.vault.toml",
    "data/default_project/agents/a/traces/2026-01-01/other.jsonl",
}  # fmt: skip


class Stage:
    """``workspace`` is a git repository; ``variables`` is what attempts find in their environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.token = f"tok{secrets.token_hex(12)}"
        self.workspace = root / "ws"
        self.outside = root / "outside"
        self.home = root / "home"
        self.data = root / "data"
        self.said: list[str] = []
        self._closing = contextlib.ExitStack()
        self._lay_out()
        self.victim = self._start_victim()
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "STAGE": str(root),
            "OUT": str(self.outside),
            "DATA": str(self.data),
            "VICTIM": str(self.victim.pid),
            "HARNESS": str(os.getpid()),
            "PYTHON": sys.executable,
            "LABEL": self.label,
        }
        self._listen()
        self.before = self.fingerprint()

    @property
    def label(self) -> str:
        """A number of seconds no other process sleeps."""
        return f"1000.{int(self.token[3:13], 16)}"

    def _lay_out(self) -> None:
        for name in SECRET_FILES:
            _write(self.root / name, f"{self.token}\n")
        _write(self.outside / "victim", "untouched\n")
        _write(self.home / ".bashrc", "# start-up\n")
        self.workspace.mkdir()
        repository = ["git", "-c", "init.defaultBranch=main", "init", "-q", str(self.workspace)]
        subprocess.run(repository, check=True, env={"PATH": os.environ["PATH"], "HOME": str(self.home)})
        (self.workspace / "to-outside").symlink_to(self.outside)
        _write(self.workspace / ".git/modules/sub/HEAD", "ref: refs/heads/main\n")
        _write(self.workspace / ".git/modules/sub/config", "[core]\n")
        _write(self.workspace / ".git/worktrees/w/commondir", "../..\n")
        with (self.workspace / ".git/config").open("a") as config:
            config.write("[include]\n\tpath = ../team.gitconfig\n")
        shutil.rmtree(self.workspace / ".git/hooks")

    def _start_victim(self) -> subprocess.Popen[bytes]:
        with (self.root / "home/.netrc").open("rb") as opened:
            victim = subprocess.Popen(
                ["sleep", "1000"], stdin=opened, env={"PROVIDER_SECRET": self.token}, start_new_session=True
            )
        self._closing.callback(victim.wait)
        self._closing.callback(victim.kill)
        return victim

    def _listen(self) -> None:
        path, name = self.outside / "docker.sock", f"\0penguin-{self.label}"
        places: list[tuple[str, socket.AddressFamily, socket.SocketKind, object]] = [
            ("SOCKET", socket.AF_UNIX, socket.SOCK_STREAM, str(path)),
            ("ABSTRACT", socket.AF_UNIX, socket.SOCK_STREAM, name),
            ("TCP", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("UDP", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        ]
        for variable, family, kind, address in places:
            server = socket.socket(family, kind)
            server.bind(address)  # type: ignore[arg-type]
            bound = server.getsockname()
            self.variables[variable] = str(bound[1] if family == socket.AF_INET else address).lstrip("\0")
            self._hear(variable, server)
        self.variables["SSH_AUTH_SOCK"] = str(path)

    def _hear(self, name: str, server: socket.socket) -> None:
        if server.type == socket.SOCK_STREAM:
            server.listen()

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    if server.type == socket.SOCK_DGRAM:
                        server.recv(100)
                    else:
                        server.accept()[0].close()
                    self.said.append(name)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()

        def stop() -> None:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()
            thread.join(1)

        self._closing.callback(stop)

    def terminal(self) -> Callable[[], bytes]:
        """The terminal of a user, in ``$TTY``; the function returns what was shown on it."""
        ours, theirs = os.openpty()
        os.set_blocking(ours, False)
        self._closing.callback(os.close, ours)
        self._closing.callback(os.close, theirs)
        self.variables["TTY"] = os.ttyname(theirs)

        def shown() -> bytes:
            try:
                return os.read(ours, 1000)
            except BlockingIOError:
                return b""

        return shown

    def fingerprint(self) -> str:
        """What is outside the workspace and what is protected inside, contents, modes and times."""
        digest = hashlib.sha256()
        git = self.workspace / ".git"
        parts = [
            self.outside,
            self.home,
            self.data,
            git / "config",
            git / "hooks",
            git / "commondir",
            git / "worktrees",
        ]
        parts += [git / "modules/sub/hooks", git / "modules/sub/config", git / "modules/sub/commondir"]
        parts += [self.workspace / name for name in ("AGENTS.md", ".claude", ".agents", ".penguin", ".mcp.json")]
        parts += [self.workspace / "team.gitconfig"]
        for part in parts:
            for path in [part, *sorted(part.rglob("*"))]:
                digest.update(_described(path))
        return digest.hexdigest()

    def close(self) -> None:
        self._closing.close()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _described(path: Path) -> bytes:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return f"{path} is not there\n".encode()
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    # A directory that holds nothing is as good as none: git ignores it, and so do readers of instructions.
    if path.is_dir() and not any(path.iterdir()):
        return f"{path} is not there\n".encode()
    times = "" if path.is_dir() else status.st_mtime_ns
    return f"{path} {status.st_mode:o} {status.st_uid} {times} {os.fsdecode(content)}\n".encode()


@contextlib.contextmanager
def open_stage() -> Iterator[Stage]:
    """A stage outside /tmp, which the sandbox replaces: what is outside must be visible to be a target."""
    cache = Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache")  # HOME is another one in tests
    cache.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="penguin-stage-", dir=cache))
    stage = None
    try:
        stage = Stage(root)
        yield stage
    finally:
        if stage is not None:
            stage.close()
        shutil.rmtree(root)
