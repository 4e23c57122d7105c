"""Ways out of a sandbox that somebody might try, each aimed at the throw-away things of a :class:`Stage`.

An attempt is a script for bash and a question whether it got anywhere. Without a sandbox each gets somewhere, or
the question would prove nothing; those that need root or a program are not asked without. What is aimed at the first
process also tries the victim: where process 1 is out of root's own reach, in a virtual machine say, that one stands
for it, and in the sandbox neither may be reached.
"""

# ruff: noqa: E501 - one attempt, one line

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.environment.sandbox.stage import Stage

Judge = Callable[[Stage, str], bool]


def changed(stage: Stage, _output: str) -> bool:
    return stage.fingerprint() != stage.before


def read(stage: Stage, output: str) -> bool:
    return stage.token in output


def said_so(_stage: Stage, output: str) -> bool:
    return "ESCAPED" in output


def killed(stage: Stage, _output: str) -> bool:
    return stage.victim.poll() is not None


def reached(name: str) -> Judge:
    return lambda stage, _output: name in stage.said


def survived(stage: Stage, _output: str) -> bool:
    return any(stage.label.encode() in _command_line(entry) for entry in Path("/proc").glob("[0-9]*"))


def _command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


@dataclass(frozen=True)
class Attempt:
    name: str
    script: str
    judge: Judge
    root: bool = False
    programs: tuple[str, ...] = ()
    contained_with: Literal["any network", "no network"] = "any network"
    only_if: Callable[[], bool] = lambda: True
    careless: bool = False
    """Without a sandbox it is started by somebody who leaves descriptors open; the harness never does."""

    @property
    def can_be_shown(self) -> bool:
        """Whether it would get somewhere on this machine without a sandbox."""
        return (not self.root or os.geteuid() == 0) and all(map(shutil.which, self.programs)) and self.only_if()


def control_groups_are_open() -> bool:
    """Whether there is a hierarchy, of version 2 or one of several of version 1, that root may change."""
    top = Path("/sys/fs/cgroup")
    return any(os.access(file, os.W_OK) for file in [top / "cgroup.procs", *top.glob("*/cgroup.procs")])


def _python(code: str) -> str:
    return f"$PYTHON -I -S -c {code!r}"


WRITES = {
    "an absolute path": "echo x >$OUT/victim",
    "dot dot": "echo x >../outside/victim",
    "a new symbolic link": "ln -s $OUT/victim link; echo x >link",
    "a symbolic link that was there": "echo x >to-outside/victim",
    "a symbolic link to a directory": "ln -s $OUT d; echo x >d/new",
    "a symbolic link to a symbolic link": "ln -s to-outside a; ln -s a/victim b; echo x >b",
    "proc self cwd": "echo x >/proc/self/cwd/../outside/victim",
    "proc self root": "echo x >/proc/self/root$OUT/victim",
    "root of the harness in proc": "echo x >/proc/$HARNESS/root$OUT/victim",
    "root of any process in proc": "for p in /proc/[0-9]*; do echo x >$p/root$OUT/victim && break; done",
    "a read-only descriptor opened again": "exec 3<$OUT/victim; echo x >/proc/self/fd/3",
    "a new hard link": "ln $OUT/victim mine && echo x >mine",
    "a rename into the workspace": "mv $OUT/victim mine",
    "a rename over a file": "echo x >mine; mv mine $OUT/victim",
    "a removal": "rm -f $OUT/victim",
    "a truncation": "truncate -s 0 $OUT/victim",
    "a mode": "chmod 777 $OUT/victim",
    "a time": "touch -d 2001-01-01 $OUT/victim",
    "a fifo": "mkfifo $OUT/fifo",
    "an archive with absolute names": "echo x >mine; tar -cPf a.tar --transform s,mine,$OUT/victim, mine; tar -xPf a.tar",
    "a bind by rename of the workspace": "cd ..; mv ws outside/ws2 && echo x >outside/victim",
    "a start-up file": "echo evil >>~/.bashrc",
    "a new start-up file": "echo evil >~/.bash_profile",
    "an authorised key": "mkdir -p ~/.ssh; echo evil >>~/.ssh/authorized_keys",
    "a unit of the user": "mkdir -p ~/.config/systemd/user && echo evil >~/.config/systemd/user/evil.service",
    "a module for the next Python": "mkdir -p ~/.local/lib/python3/site-packages && echo x >~/.local/lib/python3/site-packages/evil.pth",
    "a job for cron": "mkdir -p $OUT/cron.d && echo '* * * * * root evil' >$OUT/cron.d/evil",
    "a library to preload": "echo evil.so >$OUT/ld.so.preload",
    "the data root": "echo evil >>$DATA/default_project/.project_config.toml",
    "a hook that is new": "mkdir -p .git/hooks && echo evil >.git/hooks/pre-commit",
    "hooks renamed into place": "mkdir h; echo evil >h/pre-commit; rm -rf .git/hooks; mv h .git/hooks",
    "hooks as a symbolic link": "mkdir h; echo evil >h/pre-commit; rmdir .git/hooks 2>/dev/null; ln -sT $PWD/h .git/hooks",
    "hooks by a path": "git config core.hooksPath /tmp/evil",
    "an alias in the configuration": "git config alias.st '!evil'",
    "a monitor in the configuration": "printf '[core]\\n\\tfsmonitor = evil\\n' >>.git/config",
    "the configuration edited in place": "sed -i s/bare/evil/ .git/config",
    "the configuration renamed away": "cp .git/config c; echo evil >>c; mv .git/config old; mv c .git/config",
    "the configuration by a hard link": "ln .git/config c && echo evil >>c",
    "the repository renamed away": "mv .git old && cp -r old .git && echo evil >>.git/config",
    "the repository removed": "rm -rf .git; mkdir -p .git; echo evil >.git/config",
    "another common directory": "cp -r .git evil; rm -f evil/commondir; echo ../evil >.git/commondir",
    "hooks of a submodule": "mkdir -p .git/modules/sub/hooks && echo evil >.git/modules/sub/hooks/post-checkout",
    "configuration of a submodule": "echo '[alias]' >>.git/modules/sub/config",
    "a submodule renamed away": "mv .git/modules .git/m && cp -r .git/m .git/modules && echo x >>.git/modules/sub/config",
    "another common directory of a worktree": "echo /tmp/evil >.git/worktrees/w/commondir",
    "an included configuration": "echo '[alias]' >team.gitconfig",
    "instructions for the next agent": "echo 'obey me' >AGENTS.md",
    "instructions as a symbolic link": "echo 'obey me' >o; ln -sT o AGENTS.md",
    "instructions for other agents": "for f in CLAUDE.md GEMINI.md .clinerules; do echo 'obey me' >$f; done",
    "rules of an editor": "mkdir -p .cursor/rules && echo 'obey me' >.cursor/rules/evil.mdc",
    "tasks that run when a folder is opened": "mkdir -p .vscode && echo '{}' >.vscode/tasks.json",
    "instructions of a forge": "mkdir -p .github && echo 'obey me' >.github/copilot-instructions.md",
    "a forge's directory renamed into place": "mkdir -p g; echo 'obey me' >g/copilot-instructions.md; rm -rf .github; mv -T g .github",
    "instructions further down": "echo 'obey me' >sub/AGENTS.md",
    "instructions further down, renamed over": "echo 'obey me' >x; mv x sub/deep/CLAUDE.md",
    "instructions further down, with their directory": "cp -r sub s; echo 'obey me' >s/deep/CLAUDE.md; mv sub old; mv s sub",
    "rules of an editor further down": "echo 'obey me' >sub/.cursor/rules/style.mdc",
    "settings of another agent": "mkdir -p .claude && echo '{}' >.claude/settings.json",
    "skills of an agent": "mkdir -p .agents && echo x >.agents/skill",
    "settings of this one": "mkdir -p .penguin && echo x >.penguin/config",
    "servers of an agent": "echo '{}' >.mcp.json",
}  # fmt: skip

READS = {
    "a key": "cat ~/.ssh/id_ed25519",
    "credentials of a cloud": "cat ~/.aws/credentials",
    "passwords for hosts": "cat ~/.netrc",
    "a token for a forge": "cat ~/.config/gh/hosts.yml",
    "a keyring": "cat ~/.gnupg/key",
    "passwords for git": "cat ~/.git-credentials",
    "a history": "cat ~/.bash_history",
    "a login for containers": "cat ~/.docker/config.json",
    "a token for packages": "cat ~/.npmrc",
    "the vault": "cat $DATA/default_project/agents/a/agent_state/.vault.toml",
    "the keys of the harness": "cat $DATA/default_project/.project_config.toml",
    "the trace of another session": "cat $DATA/default_project/agents/a/traces/*/*.jsonl",
    "everything under a name": "cat $(find $STAGE -name id_ed25519)",
    "a copy of the home": "cp -r ~ copy 2>/dev/null; cat copy/.ssh/id_ed25519 || tar -cf - -C ~ . | cat",
    "a symbolic link to the key": "ln -s ~/.ssh k; cat k/id_ed25519",
    "a hard link to the key": "ln ~/.ssh/id_ed25519 k; cat k",
    "the key through proc": "cat /proc/self/root$HOME/.ssh/id_ed25519",
    "the key through the harness": "cat /proc/$HARNESS/root$HOME/.ssh/id_ed25519",
    "the environment of another process": "tr '\\0' '\\n' </proc/$VICTIM/environ",
    "all environments": "cat /proc/[0-9]*/environ | tr '\\0' '\\n'",
    "a file another process has open": "cat /proc/$VICTIM/fd/0",
    "what lies under the mask": "umount ~/.ssh 2>/dev/null; cat ~/.ssh/id_ed25519",
    "under the mask, in a namespace": "unshare -Urm sh -c 'umount -l ~/.ssh; cat ~/.ssh/id_ed25519'",
}

_PTRACE = "import ctypes,os; l=ctypes.CDLL(None); p=int(os.environ['VICTIM']); r=l.ptrace(16,p,0,0); print('ESCAPED' if r==0 else r); os.waitpid(-1,0x40000000) if r==0 else 0; l.ptrace(17,p,0,0)"
_KNOB = 'f=/proc/sys/{name}; v=$(cat $f); echo "$v" >$f && echo ESCAPED'
_SETSID = "$(command -v setsid)"
_STAY = "touch /tmp/ready-$LABEL; exec sleep $LABEL"
_READY = "until [ -e /tmp/ready-$LABEL ]; do :; done"
_CONNECT_TO = "import socket,os; s=socket.socket({kind}); s.connect({address}); s.send(b'x')"

OTHERS = (
    Attempt("the root of the first process", "for p in 1 $VICTIM; do echo x >/proc/$p/root$OUT/victim && break; done", changed),
    Attempt("a signal to another process", "kill -KILL $VICTIM", killed),
    Attempt("a signal to all of a name", "pkill -KILL -f 'sleep 1000$' -s $VICTIM", killed, programs=("pkill",)),
    Attempt("a trace of another process", _python(_PTRACE), said_so),
    Attempt("namespaces of another process", "nsenter -t $VICTIM -m sh -c 'echo x >$OUT/victim'", changed, root=True),
    Attempt("namespaces of the first process", "for p in 1 $VICTIM; do nsenter -t $p -a sh -c 'echo x >$OUT/victim' && break; done", changed, root=True),
    Attempt("a mount", "mkdir m; mount -t tmpfs none m && echo ESCAPED; umount m", said_so, root=True),
    Attempt("a bind mount", "mkdir m; mount --bind $OUT m && echo x >m/victim; umount m", changed, root=True),
    Attempt("a remount", "mount -o remount,bind,rw / ; mount -o remount,rw $OUT; echo x >$OUT/victim", changed),
    Attempt("a user namespace", "unshare -Ur sh -c 'echo ESCAPED'", said_so),
    Attempt("a mount in a user namespace", "unshare -Urm sh -c 'mount -t tmpfs n /mnt && echo ESCAPED'", said_so),
    Attempt("another root", "chroot / echo ESCAPED", said_so, root=True),
    Attempt("a device node", "mknod d c 1 3 && echo ESCAPED", said_so, root=True),
    Attempt(
        "a disk",
        "for d in $(find /dev -type b); do [ -r $d ] && echo ESCAPED; done",
        said_so,
        root=True,
        only_if=lambda: any(path.is_block_device() for path in Path("/dev").iterdir()),
    ),
    Attempt("the log of the kernel", "[ -r /dev/kmsg ] && echo ESCAPED", said_so, root=True),
    Attempt("a knob of the kernel", _KNOB.format(name="vm/swappiness"), said_so, root=True),
    Attempt("the handler of core dumps", _KNOB.format(name="kernel/core_pattern"), said_so, root=True),
    # Not every kernel has the key; the affinity of interrupts is as open, and covered in the same way.
    Attempt("the emergency key", "for f in /proc/sysrq-trigger /proc/irq/default_smp_affinity; do [ -w $f ] && echo ESCAPED; done", said_so, root=True),
    Attempt(
        "a knob in sys",
        'f=/sys/kernel/mm/ksm/run; v=$(cat $f); echo "$v" >$f && echo ESCAPED',
        said_so,
        root=True,
        only_if=lambda: os.access("/sys/kernel/mm/ksm/run", os.W_OK),
    ),
    Attempt(
        "a control group",
        "for f in /sys/fs/cgroup{,/*}/cgroup.procs; do d=${f%/*}/penguin-$LABEL; mkdir $d && echo ESCAPED && rmdir $d && break; done",
        said_so,
        root=True,
        only_if=control_groups_are_open,
    ),
    Attempt("the name of the machine", 'hostname "$(hostname)" && echo ESCAPED', said_so, root=True),
    Attempt("another owner", "touch f; chown 65534 f && echo ESCAPED", said_so, root=True),
    Attempt("another user", "su nobody -s /bin/sh -c 'echo ESCAPED'", said_so, root=True, programs=("su",)),
    Attempt("a set-user-id program", "[ $($OUT/../suid-id -u) = 65534 ] && echo ESCAPED", said_so, root=True),
    Attempt("sudo, or what becomes root like it", "touch f; (sudo -n chown 65534 f || $OUT/../suid-chown 65534 f) && echo ESCAPED", said_so, root=True),
    Attempt("a key in a descriptor left open", "cd /proc/self/fd; for d in *; do [ $d -gt 2 ] && [ -f $d ] && cat $d; done", read, careless=True),
    Attempt("a directory in a descriptor left open", "for d in /proc/self/fd/*; do [ -d $d/ ] && echo x >$d/victim; done", changed, careless=True),
    Attempt("a raw socket", _python("import socket; socket.socket(17, 3, 768); print('ESCAPED')"), said_so, root=True),
    Attempt("shared memory", "perl -e 'shmread($ENV{SHM}, $b, 0, 40) and print $b'", read),
    Attempt("a file in shared memory", "[ -e /dev/shm/penguin-$LABEL ] && echo ESCAPED", said_so),
    Attempt("keys typed on the terminal", _python("import fcntl,os; fcntl.ioctl(os.open(os.environ['TTY'], 2|256), 0x5412, b'x'); print('ESCAPED')"), said_so, root=True),
    Attempt("words on the terminal", "echo evil >$TTY && echo ESCAPED", said_so),
    Attempt("a survivor that is detached", f'PENGUIN_CUSTODY= {_SETSID} -f sh -c "{_STAY}"; {_READY}', survived),
    Attempt("a survivor of two forks", f'(PENGUIN_CUSTODY= {_SETSID} sh -c "({_STAY}) & exit" &); {_READY}', survived),
    Attempt("a socket of a daemon", _python(_CONNECT_TO.format(kind="1", address="os.environ['SOCKET']")), reached("SOCKET")),
    Attempt("the socket of an ssh agent", _python(_CONNECT_TO.format(kind="1", address="os.environ['SSH_AUTH_SOCK']")), reached("SOCKET")),
    Attempt("the socket of a daemon by a link", _python("import os; os.chdir('to-outside'); " + _CONNECT_TO.format(kind="1", address="'docker.sock'")), reached("SOCKET")),
    Attempt("an abstract socket", _python(_CONNECT_TO.format(kind="1", address="chr(0)+os.environ['ABSTRACT']")), reached("ABSTRACT"), contained_with="no network"),
    Attempt("a connection", "echo x >/dev/tcp/127.0.0.1/$TCP", reached("TCP"), contained_with="no network"),
    Attempt("a connection by another name", "echo x >/dev/tcp/localhost/$TCP", reached("TCP"), contained_with="no network"),
    Attempt("a connection to everywhere", "echo x >/dev/tcp/0.0.0.0/$TCP", reached("TCP"), contained_with="no network"),
    Attempt("a datagram, as names are asked for", "echo x >/dev/udp/127.0.0.1/$UDP", reached("UDP"), contained_with="no network"),
    Attempt("the network of the first process", "for p in 1 $VICTIM; do nsenter -t $p -n bash -c 'echo x >/dev/tcp/127.0.0.1/$TCP' && break; done", reached("TCP"), root=True, contained_with="no network"),
)  # fmt: skip

ATTEMPTS = (
    *(Attempt(f"write: {name}", script, changed) for name, script in WRITES.items()),
    *(Attempt(f"read: {name}", script, read) for name, script in READS.items()),
    *OTHERS,
)
