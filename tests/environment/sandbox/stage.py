"""A throw-away world to escape into: a home, a data root, processes, sockets, a terminal; nobody misses any of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from penguin.environment.sandbox.settings import NOT_HELD, PROTECTED

SECRET_FILES = {
    "home/.ssh/id_ed25519", "home/.aws/credentials", "home/.netrc", "home/.config/gh/hosts.yml", "home/.gnupg/key",
    "home/.git-credentials", "home/.bash_history", "home/.docker/config.json", "home/.npmrc",
    "data/default_project/.project_config.toml", "data/default_project/agents/a/agent_state/.vault.toml",
    "data/default_project/agents/a/traces/2026-01-01/other.jsonl",
}  # fmt: skip
NESTED = (".clinerules", "sub/AGENTS.md", "sub/deep/CLAUDE.md", "sub/.cursor/rules/style.mdc")
PARTS = ("ws", "outside", "home", "data")
NOBODY = 65534


class Stage:
    """``workspace`` is a git repository; ``variables`` is what attempts find in their environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.token = f"tok{secrets.token_hex(12)}"
        self.label = f"1000.{secrets.randbelow(10**12)}"  # a number of seconds no other process sleeps
        self.workspace, self.outside, self.home, self.data = (root / part for part in PARTS)
        self.said: list[str] = []
        self._closing = contextlib.ExitStack()
        self._sockets = contextlib.ExitStack()
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "STAGE": str(root),
            "OUT": str(self.outside),
            "DATA": str(self.data),
            "HARNESS": str(os.getpid()),
            "PYTHON": sys.executable,
            "LABEL": self.label,
        }
        try:
            self._lay_out()
            self._start_victim()
            self._listen()
            self._shown = self._open_terminal()
            self._share_memory()
            self._leave_open()
            self._remember()
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------ files

    def _lay_out(self) -> None:
        for name in SECRET_FILES:
            _write(self.root / name, f"{self.token}\n")
        _write(self.outside / "victim", "untouched\n")
        _write(self.home / ".bashrc", "# start-up\n")
        self._lay_out_repository()
        if os.geteuid() == 0:
            self._set_user_id("id", NOBODY)
            self._set_user_id("chown", 0)
        # Where no sandbox shows it: the copies of secrets are not hidden.
        self._pristine = Path(self._closing.enter_context(tempfile.TemporaryDirectory()))
        for part in PARTS:
            shutil.copytree(self.root / part, self._pristine / part, symlinks=True)

    def _set_user_id(self, name: str, owner: int) -> None:
        """A copy of a program that runs as ``owner``, whoever starts it, as ``suid-NAME`` beside the workspace."""
        program = self.root / f"suid-{name}"
        shutil.copy(str(shutil.which(name)), program)
        os.chown(program, owner, owner)
        program.chmod(0o4755)

    def _lay_out_repository(self) -> None:
        self.workspace.mkdir()
        command = ["git", "-c", "init.defaultBranch=main", "init", "-q", "--template=", str(self.workspace)]
        subprocess.run(command, check=True, env={"PATH": os.environ["PATH"], "HOME": str(self.home)})
        for name in NESTED:
            _write(self.workspace / name, "as the project wants it\n")
        (self.workspace / "to-outside").symlink_to(self.outside)
        git = self.workspace / ".git"
        _write(git / "modules/sub/HEAD", "ref: refs/heads/main\n")
        _write(git / "modules/sub/config", "[core]\n")
        _write(git / "worktrees/w/commondir", "../..\n")
        with (git / "config").open("a") as config:
            config.write("[include]\n\tpath = ../team.gitconfig\n")

    def fingerprint(self) -> str:
        """What is outside the workspace and what is protected inside: contents, modes and times."""
        digest = hashlib.sha256()
        git, module = self.workspace / ".git", self.workspace / ".git/modules/sub"
        inside = [*(name for name in PROTECTED if name != ".git" and name not in NOT_HELD), *NESTED, "team.gitconfig"]
        guarded = [directory / name for directory in (git, module) for name in ("config", "hooks", "commondir")]
        roots = [self.outside, self.home, self.data, git / "worktrees", *guarded]
        for root in [*roots, *(self.workspace / name for name in inside)]:
            for path in [root, *sorted(root.rglob("*"))]:
                digest.update(_described(path))
        return digest.hexdigest()

    def _remember(self) -> None:
        self.before = self.fingerprint()
        self._listing = _listing(self.workspace)

    def reset(self) -> None:
        """As it was at the beginning: the next attempt must not stumble over what the last one left."""
        away = Path(tempfile.gettempdir(), f"ready-{self.label}")
        if away.exists():
            _end(self.label)
            away.unlink()
        if self.victim.poll() is not None:
            self._start_victim()
        self.shared_file.touch()
        self._shown()
        self.said.clear()
        if self.fingerprint() != self.before or _listing(self.workspace) != self._listing:
            self._put_back()

    def _put_back(self) -> None:
        self._sockets.close()
        for part in PARTS:
            shutil.rmtree(self.root / part, ignore_errors=True)
            shutil.copytree(self._pristine / part, self.root / part, symlinks=True)
        self._open_again()
        self._listen()
        self._remember()

    # ------------------------------------------------------------ processes and memory

    def _start_victim(self) -> None:
        with (self.home / ".netrc").open("rb") as opened:
            self.victim = subprocess.Popen(
                ["sleep", "1000"], stdin=opened, env={"PROVIDER_SECRET": self.token}, start_new_session=True
            )
        self._closing.callback(self.victim.wait)
        self._closing.callback(self.victim.kill)
        self.variables["VICTIM"] = str(self.victim.pid)

    @property
    def shared_file(self) -> Path:
        """In the memory that all processes share as files."""
        return Path("/dev/shm", f"penguin-{self.label}")  # noqa: S108 - a target

    def _share_memory(self) -> None:
        # The first segment of a namespace is number 0, which is false for Perl and no failure.
        make = "$i = shmget(0, 40, 0600|512); defined $i or die $!; print $i"
        segment = subprocess.run(["perl", "-e", make], capture_output=True, text=True, check=True).stdout
        self.variables["SHM"] = segment
        self._closing.callback(subprocess.run, ["perl", "-e", f"shmctl({segment}, 0, 0) or die $!"], check=True)
        fill = f"shmwrite({segment}, '{self.token}', 0, 40) or die $!"
        subprocess.run(["perl", "-e", fill], check=True)
        self.shared_file.touch()
        self._closing.callback(self.shared_file.unlink)

    def _leave_open(self) -> None:
        """What a careless harness has open when it starts a command: a secret, and a directory to write in."""
        self.left_open = tuple(os.open(place, os.O_RDONLY) for place in self._careless())
        for descriptor in self.left_open:
            os.set_inheritable(descriptor, True)
            self._closing.callback(os.close, descriptor)

    def _careless(self) -> tuple[Path, Path]:
        return self.home / ".ssh/id_ed25519", self.outside

    def _open_again(self) -> None:
        for descriptor, place in zip(self.left_open, self._careless(), strict=True):
            fresh = os.open(place, os.O_RDONLY)
            os.dup2(fresh, descriptor)
            os.close(fresh)

    def _open_terminal(self) -> Callable[[], bytes]:
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

    # ------------------------------------------------------------ sockets

    def _listen(self) -> None:
        path = str(self.outside / "docker.sock")
        self._hear("SOCKET", socket.AF_UNIX, socket.SOCK_STREAM, path)
        self._hear("ABSTRACT", socket.AF_UNIX, socket.SOCK_STREAM, f"\0penguin-{self.label}")
        self._hear("TCP", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        self._hear("UDP", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self.variables["SSH_AUTH_SOCK"] = path

    def _hear(
        self, name: str, family: socket.AddressFamily, kind: socket.SocketKind, address: str | tuple[str, int]
    ) -> None:
        server = socket.socket(family, kind)
        server.bind(address)
        place = server.getsockname()[1] if family == socket.AF_INET else address
        self.variables[name] = str(place).lstrip("\0")
        if kind == socket.SOCK_STREAM:
            server.listen()

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    if kind == socket.SOCK_STREAM:
                        server.accept()[0].close()
                    elif not server.recv(100):  # shut down
                        return
                    self.said.append(name)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()

        def stop() -> None:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join()
            server.close()

        self._sockets.callback(stop)

    def close(self) -> None:
        _end(self.label)
        self._sockets.close()
        self._closing.close()


def _end(label: str) -> None:
    """What got away is not left behind."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if label.encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


def _listing(directory: Path) -> list[tuple[str, int, int]]:
    found = [(str(path), path.lstat()) for path in sorted(directory.rglob("*"))]
    return [(path, status.st_ino, status.st_size) for path, status in found]


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
