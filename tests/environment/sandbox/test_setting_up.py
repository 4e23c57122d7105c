"""N25: a sandbox that cannot be set up refuses, with the reason; nothing it puts down stays."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penguin.environment.processes import CommandSessions
from penguin.environment.running_command import Launch, RunningCommand
from penguin.environment.sandbox import probe as probing
from penguin.environment.sandbox.command_sandbox import CommandSandbox
from penguin.environment.sandbox.keeper import UNTOLD
from penguin.environment.sandbox.probe import Probe, find_program, probe
from penguin.environment.sandbox.settings import NOT_HELD, PROTECTED, SandboxSettings
from penguin.environment.sandbox.sockets import listening_sockets
from penguin.environment.sandbox.zones import MOST_FURTHER_DOWN, Places, Zones
from penguin.environment.shell_environment import ShellEnvironment
from penguin.environment.tool import Services, ToolError
from penguin.environment.tools.definitions import EXEC_COMMAND


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory in which programs are looked for."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("bwrap", "perl"):
        (directory / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setattr(probing, "_SYSTEM", (str(directory),))
    monkeypatch.setattr(probing, "_works", {})
    monkeypatch.setenv("PATH", "")
    return directory


def replace(directory: Path, name: str, script: str) -> None:
    (directory / name).unlink()
    if script:
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)


NO_NAMESPACES = 'case "$1" in --version) echo bubblewrap 0.9.0;; *) echo "bwrap: No permissions" >&2; exit 1;; esac'


@pytest.mark.parametrize(
    ("name", "script", "problem", "advice"),
    [
        ("bwrap", "", "bubblewrap (bwrap) is not installed", "apt-get install bubblewrap perl-base"),
        ("perl", "", "perl is not installed", "apt-get install"),
        ("bwrap", "echo bubblewrap 0.6.1", "bubblewrap 0.6.1 is too old", "0.8 or newer"),
        ("bwrap", "echo nonsense", "bubblewrap unknown is too old", "0.8 or newer"),
        ("bwrap", NO_NAMESPACES, "cannot make a sandbox here: bwrap: No permissions", "turn the sandbox off"),
    ],
)
def test_N25_the_probe_says_what_is_wrong_and_what_to_do(
    programs: Path, name: str, script: str, problem: str, advice: str
) -> None:
    replace(programs, name, script)
    found = probe()
    assert found.mechanism is None
    assert problem in found.problem
    assert advice in found.advice


def test_N25_a_probe_that_works_is_made_once_and_one_that_fails_again(programs: Path) -> None:
    bwrap = (programs / "bwrap").readlink()
    replace(programs, "bwrap", "")
    assert probe().mechanism is None
    (programs / "bwrap").symlink_to(bwrap)
    assert probe().mechanism is not None
    replace(programs, "bwrap", "")
    assert probe().mechanism is not None
    assert probe(network=False).mechanism is None


def test_N25_a_program_that_commands_could_have_put_there_is_not_run_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_SYSTEM", ())
    monkeypatch.setenv("PATH", f"{tmp_path}:relative:{os.environ['PATH']}")
    shutil.copy("/bin/true", tmp_path / "perl")
    assert find_program("perl", ()) == str(tmp_path / "perl")
    assert find_program("perl", (tmp_path,)) == shutil.which("perl", path=os.environ["PATH"].partition(":")[2])


@pytest.mark.anyio
async def test_N25_without_a_mechanism_commands_are_refused_and_nothing_runs(
    make_desk: Any, make_sandbox: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "penguin.environment.sandbox.command_sandbox.probe", lambda **_: Probe(None, "there is none", "Do this")
    )
    sessions = CommandSessions(environment=ShellEnvironment(login_shell=False), sandbox=make_sandbox())
    desk = make_desk(builtin=[EXEC_COMMAND], services=Services(command_sessions=sessions))
    for tty in (False, True):
        answer = await desk.call("exec_command", cmd="touch ran", description="test", tty=tty)
        assert answer.stop_reason == "failed"
        assert (
            "A sandbox was asked for and cannot be set up, so nothing was done: there is none. Do this."
            in answer.output
        )
    await sessions.aclose()
    assert not (workspace / "ran").exists()


@pytest.mark.anyio
async def test_N25_a_command_whose_sandbox_fails_later_is_not_run_either(
    make_desk: Any, make_sandbox: Any, workspace: Path
) -> None:
    sandbox = make_sandbox()
    sessions = CommandSessions(environment=ShellEnvironment(login_shell=False), sandbox=sandbox)
    desk = make_desk(builtin=[EXEC_COMMAND], services=Services(command_sessions=sessions))
    await desk.call("exec_command", cmd="true", description="test")
    sandbox._fixed += ["--ro-bind", "/no/such/place", "/mnt"]
    answer = await desk.call("exec_command", cmd="touch ran", description="test")
    assert answer.output.endswith("\n[the sandbox could not be set up; the command was not run]")
    assert not (workspace / "ran").exists()
    await sessions.aclose()


@pytest.mark.parametrize("name", [".git", "AGENTS.md", ".git/hooks", ".git/config"])
def test_N25_a_protected_name_that_is_a_link_is_refused_with_the_reason(
    make_sandbox: Any, workspace: Path, tmp_path: Path, name: str
) -> None:
    (workspace / name).parent.mkdir(exist_ok=True)
    (tmp_path / "elsewhere").mkdir()
    (workspace / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ToolError, match=r"is a symbolic link.*use the mode read-only"):
        make_sandbox().prepare()
    make_sandbox("read-only").prepare()


@pytest.mark.parametrize("workspace_is", ["home", "parent of home"])
def test_N25_the_home_directory_is_no_workspace_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workspace_is: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    workspace = home if workspace_is == "home" else tmp_path
    sandbox = CommandSandbox(SandboxSettings("workspace-write"), workspace)
    with pytest.raises(ToolError, match="holds the home directory"):
        sandbox.prepare()
    sandbox.close()


def test_N25_names_are_held_while_a_session_needs_them(make_sandbox: Any, workspace: Path) -> None:
    """Two sessions in one workspace: the first that ends must not undo the mounts of the other."""
    first, second = make_sandbox(), make_sandbox()
    first.prepare()
    held = sorted(path.name for path in workspace.iterdir())
    assert held == sorted({name.partition("/")[0] for name in PROTECTED if name not in NOT_HELD})
    assert (workspace / ".github/copilot-instructions.md").is_dir()
    second.prepare()
    first.close()
    assert sorted(path.name for path in workspace.iterdir()) == held
    second.close()
    assert list(workspace.iterdir()) == []


def test_N25_what_a_killed_session_left_goes_with_the_next(make_sandbox: Any, workspace: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from penguin.environment.sandbox.command_sandbox import CommandSandbox\n"
        "from penguin.environment.sandbox.settings import SandboxSettings\n"
        "workspace, private = map(Path, sys.argv[1:])\n"
        "CommandSandbox(SandboxSettings('workspace-write'), workspace, private=private).prepare()\n"
        "os.kill(os.getpid(), 9)"
    )
    (workspace / ".git/objects").mkdir(parents=True)
    subprocess.run([sys.executable, "-c", script, str(workspace), str(workspace.parent / "private")], check=False)
    assert (workspace / ".git/commondir").read_text() == ".\n"
    assert (workspace / ".claude").is_dir()
    sandbox = make_sandbox()
    sandbox.prepare()
    sandbox.close()
    assert [path.name for path in workspace.rglob("*")] == [".git", "objects"]


def test_N25_what_is_there_is_never_taken_away(make_sandbox: Any, workspace: Path) -> None:
    (workspace / ".claude").mkdir()
    (workspace / ".claude/settings.json").write_text("{}")
    (workspace / "AGENTS.md").write_text("")
    sandbox = make_sandbox()
    sandbox.prepare()
    (workspace / ".agents/mine").touch()  # by the user, meanwhile
    sandbox.close()
    kept = sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*"))
    assert kept == [".agents", ".agents/mine", ".claude", ".claude/settings.json", "AGENTS.md"]


def test_N25_a_directory_that_was_made_for_a_name_stays_with_what_is_put_in_it(
    make_sandbox: Any, workspace: Path
) -> None:
    sandbox = make_sandbox()
    sandbox.prepare()
    command = sandbox.confine(["bash", "-c", "mkdir .github/workflows && echo x >.github/workflows/ci.yml"], workspace)
    subprocess.run(command, check=True)
    sandbox.close()
    assert sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*")) == [
        ".github",
        ".github/workflows",
        ".github/workflows/ci.yml",
    ]


def test_N25_S5_instructions_further_down_are_kept_as_they_are(make_sandbox: Any, workspace: Path) -> None:
    for name in ("a/AGENTS.md", "a/b/c/CLAUDE.md", "a/.cursor/rules/x.mdc", "node_modules/x/AGENTS.md"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("as it is\n")
    (workspace / "a/CLAUDE.md").symlink_to("AGENTS.md")
    sandbox = make_sandbox()
    sandbox.prepare()
    for name in ("a/AGENTS.md", "a/b/c/CLAUDE.md", "a/.cursor/rules/x.mdc"):
        assert "does not allow" in (sandbox.refusal(workspace / name, writing=True) or "")
        for script in (f"echo evil >{name}", f"rm -f {name}", f"mv {name} x", "mv a z && mkdir a"):
            command = sandbox.confine(["bash", "-c", script], workspace)
            assert subprocess.run(command, capture_output=True, check=False).returncode, script
        assert (workspace / name).read_text() == "as it is\n"
    command = sandbox.confine(["bash", "-c", "echo x >a/code.py && echo x >node_modules/x/AGENTS.md"], workspace)
    subprocess.run(command, check=True)


def test_N25_a_tree_full_of_instructions_does_not_make_each_command_slow(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    for number in range(MOST_FURTHER_DOWN + 5):
        (workspace / f"package{number:02}/deep").mkdir(parents=True)
        (workspace / f"package{number:02}/deep/AGENTS.md").touch()
    (workspace / "package36/AGENTS.md").touch()
    (workspace / "package36/.git/hooks").mkdir(parents=True)
    zones = Zones(SandboxSettings("workspace-write"), Places(workspace, tmp_path / "p"))
    guarded = [zone.path for zone in zones.table if zones.is_protected(zone)]
    assert len([path for path in guarded if path.name == "AGENTS.md" and path.parent != workspace]) == MOST_FURTHER_DOWN
    assert {workspace / "package36/AGENTS.md", workspace / "package36/.git/hooks"} <= {*guarded}


def test_N25_a_second_name_of_a_protected_file_is_no_reason_to_refuse(make_sandbox: Any, workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("as it is\n")
    (workspace / "CLAUDE.md").symlink_to("AGENTS.md")
    sandbox = make_sandbox()
    sandbox.prepare()
    command = sandbox.confine(["bash", "-c", "echo evil >CLAUDE.md"], workspace)
    assert subprocess.run(command, capture_output=True, check=False).returncode
    assert (workspace / "AGENTS.md").read_text() == "as it is\n"


def test_N25_git_works_where_its_hooks_and_configuration_are_held(make_sandbox: Any, workspace: Path) -> None:
    subprocess.run(["git", "init", "-q", "--template=", str(workspace)], check=True)
    sandbox = make_sandbox()
    sandbox.prepare()
    me = "-c user.name=n -c user.email=e@example.com"
    cmd = (
        f"echo x >f && git add f && git {me} commit -q -m one && git checkout -q -b other && git status -s && git gc -q"
    )
    done = subprocess.run(sandbox.confine(["bash", "-c", cmd], workspace), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    sandbox.close()
    log = subprocess.run(["git", "log", "--format=%s"], cwd=workspace, capture_output=True, text=True, check=True)
    assert log.stdout == "one\n"


def test_N25_parts_of_the_repository_that_are_guarded(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    git = workspace / ".git"
    for directory in (
        git / "modules/a/b",
        workspace / "sub/deep/.git/objects",
        git / "worktrees/w",
        workspace / ".husky",
    ):
        directory.mkdir(parents=True)
    (git / "modules/a/b/HEAD").touch()
    (git / "config").write_text(
        "[core]\n\thooksPath = .husky\n[include]\n\tpath = ../no/such/file\n[x]\nworktreeConfig=1"
    )
    zones = Zones(SandboxSettings("workspace-write"), Places(workspace, tmp_path / "p"))
    guarded = {str(zone.path.relative_to(workspace)) for zone in zones.table if zones.is_protected(zone)}
    assert guarded == {
        ".git/hooks", ".git/config", ".git/commondir", ".git/config.worktree", ".husky", "no",
        ".git/modules/a/b/hooks", ".git/modules/a/b/config", ".git/modules/a/b/commondir",
        ".git/worktrees/w/commondir", ".git/worktrees/w/gitdir",
        "sub/deep/.git/hooks", "sub/deep/.git/config", "sub/deep/.git/commondir",
        *(name for name in PROTECTED if name != ".git" and name not in NOT_HELD),
    }  # fmt: skip
    on_the_way = {str(zone.path.relative_to(workspace)) for zone in zones.table if zone.access == "write"}
    assert on_the_way >= {".git", ".git/modules", ".git/modules/a", ".git/modules/a/b", "sub", "sub/deep/.git"}


def test_N25_a_worktree_file_is_guarded_and_the_repository_it_names(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    (workspace / "real").mkdir(parents=True)
    (workspace / ".git").write_text("gitdir: real\n")
    zones = Zones(SandboxSettings("workspace-write", protected=(".git",)), Places(workspace, tmp_path / "p"))
    guarded = {str(zone.path.relative_to(workspace)) for zone in zones.table if zones.is_protected(zone)}
    assert guarded == {".git", "real/hooks", "real/config", "real/commondir"}


def test_N25_the_code_of_the_harness_is_not_for_commands_to_change(
    make_sandbox: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is loaded piece by piece while the session runs, outside the sandbox."""
    (workspace / ".venv/lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(workspace / ".venv"))
    sandbox = make_sandbox()
    sandbox.prepare()
    assert "does not allow" in (sandbox.refusal(workspace / ".venv/lib/evil.py", writing=True) or "")
    command = sandbox.confine(["touch", ".venv/lib/evil.py"], workspace)
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


def test_N25_the_private_tmp_lasts_for_the_session(make_sandbox: Any, workspace: Path) -> None:
    sandbox = make_sandbox("read-only")
    sandbox.prepare()
    subprocess.run(sandbox.confine(["bash", "-c", "echo kept >/tmp/file"], workspace), check=True)
    look = ["bash", "-c", "cat /tmp/file /var/tmp/file"]
    again = subprocess.run(sandbox.confine(look, workspace), capture_output=True, text=True, check=True)
    assert again.stdout == "kept\nkept\n"
    other = make_sandbox("read-only")
    other.prepare()
    assert subprocess.run(other.confine(look, workspace), capture_output=True, check=False).returncode
    private = sandbox._private
    sandbox.close()
    assert private
    assert not private.exists()


def test_N25_a_writable_place_outside_is_writable_in_that_mode_only(
    make_sandbox: Any, workspace: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    for mode, status in (("workspace-write", 0), ("read-only", 1)):
        sandbox = make_sandbox(mode, writable=(str(cache),), shown=(cache,))
        sandbox.prepare()
        done = subprocess.run(
            sandbox.confine(["touch", str(cache / mode)], workspace), capture_output=True, check=False
        )
        assert done.returncode == status
    assert [path.name for path in cache.iterdir()] == ["workspace-write"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_N25_it_works_for_a_user_who_is_not_root(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = Path("/var/tmp") / f"penguin-nobody-{os.getpid()}"  # noqa: S108 - where others may look
    place.mkdir()
    try:
        workspace = place / "ws"
        workspace.mkdir()
        os.chown(workspace, 65534, 65534)
        sandbox = CommandSandbox(SandboxSettings("workspace-write", network=False), workspace, private=place / "tmp")
        sandbox.prepare()
        os.chown(place / "tmp", 65534, 65534)
        script = "id -u; touch in && echo written; touch /etc/x 2>/dev/null || echo refused; ls -A /proc/1/root | wc -l"
        command = ["setpriv", "--reuid", "65534", "--clear-groups", *sandbox.confine(["bash", "-c", script], workspace)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[:3] == ["65534", "written", "refused"], done.stderr
        sandbox.close()
    finally:
        shutil.rmtree(place)


def test_N25_the_sockets_that_listen_are_found_and_no_other_file(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("listening", "datagrams", "bound", "gone")}
    kinds = {"datagrams": socket.SOCK_DGRAM}
    servers = {name: socket.socket(socket.AF_UNIX, kinds.get(name, socket.SOCK_STREAM)) for name in places}
    for name, server in servers.items():
        server.bind(str(places[name]))
        if name not in {"datagrams", "bound"}:
            server.listen()
    places["gone"].unlink()
    found = {path.name for path in listening_sockets() if path.parent == tmp_path}
    for server in servers.values():
        server.close()
    assert found == {"listening", "datagrams"}


def test_N25_what_a_command_writes_to_the_keepers_pipe_is_not_believed_blindly(
    make_sandbox: Any, workspace: Path
) -> None:
    sandbox = make_sandbox()
    sandbox.prepare()
    for told in (b"begun 99999", b"begun 999999", b"begun x", b"begun \n5", b"egun 5", b"begun 127"):
        arguments = ["bash", "-c", f"printf '{told.decode()}' >&$0; exit 7", UNTOLD]
        command = RunningCommand(Launch("", arguments, str(workspace), dict(os.environ), ""))
        while not command.exited:
            select.select([command.fileno()], [], [], 10)
            command.notice_exit()
        assert command.returncode == 7
        command.close()
