"""N16, N25: file tools keep to what commands may see and write, in the same places."""

# ruff: noqa: ASYNC240 - a test may look at a file while nothing else runs

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penguin.environment import changing_files
from penguin.environment.processes import CommandSessions
from penguin.environment.sandbox.command_sandbox import CommandSandbox
from penguin.environment.sandbox.settings import SandboxSettings
from penguin.environment.shell_environment import ShellEnvironment
from penguin.environment.tool import Services

pytestmark = pytest.mark.anyio


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text("the key\n")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def data_root(tmp_path: Path) -> Path:
    root = tmp_path / "data-root"
    (root / "scratchpad").mkdir(parents=True)
    (root / "vault").write_text("the vault\n")
    (root / "scratchpad/output").write_text("the output\n")
    return root


@pytest.fixture(params=["read-only", "workspace-write"])
def sandbox(
    request: pytest.FixtureRequest, make_sandbox: Any, home: Path, data_root: Path, tmp_path: Path
) -> CommandSandbox:
    # The tests' own files are in /tmp, which is another one inside: they are shown, as if they were elsewhere.
    made: CommandSandbox = make_sandbox(
        request.param, network=False, private=data_root / "scratchpad/tmp", shown=(tmp_path, data_root / "scratchpad")
    )
    return made


@pytest.fixture
def desk(make_desk: Any, sandbox: CommandSandbox) -> Any:
    return make_desk(confinement=sandbox)


async def test_N25_the_workspace_is_written_only_when_it_may(
    desk: Any, sandbox: CommandSandbox, workspace: Path
) -> None:
    answer = await desk.call("write_file", file_path="new/file", content="x\n")
    assert (workspace / "new/file").exists() == (sandbox.settings.mode == "workspace-write")
    if sandbox.settings.mode == "read-only":
        assert "the sandbox (read-only) does not allow to write there; it allows /tmp" in answer.output


async def test_N25_outside_is_read_and_not_written(desk: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("old\n")
    assert "old" in (await desk.call("read_file", file_path=str(outside))).output
    answer = await desk.call("edit_file", file_path=str(outside), old_string="old", new_string="new")
    assert answer.stop_reason == "failed"
    assert "does not allow to write there" in answer.output
    assert outside.read_text() == "old\n"


@pytest.mark.parametrize(
    "path",
    ["~/.ssh/id_ed25519", "{data}/vault", "/proc/self/environ", "/proc/1/cmdline", "/dev/null", "link", "/run/x"],
)
async def test_N25_secrets_and_the_processes_of_the_harness_are_hidden(
    desk: Any, path: str, workspace: Path, home: Path, data_root: Path
) -> None:
    (workspace / "link").symlink_to(home / ".ssh/id_ed25519")
    answer = await desk.call("read_file", file_path=path.format(data=data_root))
    assert answer.stop_reason == "failed"
    assert "the sandbox hides it" in answer.output


async def test_N25_what_the_session_itself_keeps_can_be_read(desk: Any, data_root: Path) -> None:
    assert "the output" in (await desk.call("read_file", file_path=str(data_root / "scratchpad/output"))).output


async def test_N25_tmp_is_the_one_that_commands_see(
    make_desk: Any, sandbox: CommandSandbox, data_root: Path, tmp_path: Path
) -> None:
    sessions = CommandSessions(environment=ShellEnvironment(login_shell=False), sandbox=sandbox)
    desk = make_desk(confinement=sandbox, services=Services(command_sessions=sessions))
    answer = await desk.call("write_file", file_path="/tmp/script", content="echo from a file\n")  # noqa: S108
    assert "Created /tmp/script" in answer.output
    assert (data_root / "scratchpad/tmp/script").exists()
    run = await desk.call("exec_command", cmd="bash /tmp/script; echo from a command >/var/tmp/said", description="t")
    assert run.output == "from a file\n"
    assert "from a command" in (await desk.call("read_file", file_path="/tmp/said")).output  # noqa: S108
    await sessions.aclose()
    assert not (data_root / "scratchpad/tmp").exists()


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".git/config",
        ".git",
        "AGENTS.md",
        ".claude/settings.json",
        ".penguin/x",
        "to-git/config",
    ],
)
async def test_N25_protected_names_are_refused_in_a_writable_workspace(
    make_desk: Any, make_sandbox: Any, path: str, workspace: Path
) -> None:
    (workspace / ".git/objects").mkdir(parents=True)
    (workspace / "to-git").symlink_to(".git")
    desk = make_desk(confinement=make_sandbox())
    answer = await desk.call("write_file", file_path=path, content="evil\n")
    assert answer.stop_reason == "failed"
    assert not list(workspace.rglob("*evil*"))
    assert "does not allow" in answer.output or "is a directory" in answer.output


async def test_N25_a_link_that_is_swapped_in_while_a_tool_works_leads_nowhere(
    make_desk: Any, make_sandbox: Any, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command in the background may do so at any instant between the check and the write."""
    (workspace / "d").mkdir()
    (workspace / "d/file").write_text("inside\n")
    (tmp_path / "file").write_text("outside\n")
    desk = make_desk(confinement=make_sandbox())
    look_at = changing_files.look_at

    def look_and_swap(place: Any) -> Any:
        found = look_at(place)
        (workspace / "d").rename(workspace / "aside")
        (workspace / "d").symlink_to(tmp_path)
        return found

    monkeypatch.setattr("penguin.environment.tools.edit_file.look_at", look_and_swap)
    answer = await desk.call("edit_file", file_path="d/file", old_string="inside", new_string="changed")
    assert "its path was changed by somebody else just now" in answer.output
    assert (tmp_path / "file").read_text() == "outside\n"
    assert sorted(os.listdir(tmp_path)) == sorted({*os.listdir(tmp_path)} - {".file.penguin-tmp"})  # noqa: PTH208


async def test_N17_N25_without_a_network_no_image_is_fetched(desk: Any) -> None:
    answer = await desk.call("read_image", source="https://example.com/x.png")
    assert "was not fetched: the sandbox of this session has no network" in answer.output


async def test_N25_when_it_cannot_be_drawn_file_tools_refuse_too(
    make_desk: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace / "home"))
    (workspace / "home").mkdir()
    (workspace / "file").write_text("x\n")
    sandbox = CommandSandbox(SandboxSettings("workspace-write"), workspace)
    answer = await make_desk(confinement=sandbox).call("read_file", file_path="file")
    sandbox.close()
    assert "holds the home directory" in answer.output
