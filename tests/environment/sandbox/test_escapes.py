"""E4, N25: each attempt of the corpus is contained in each mode, and gets somewhere without a sandbox."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.environment.sandbox.escape_attempts import ATTEMPTS, Attempt
from tests.environment.sandbox.stage import Stage, open_stage

from penguin.environment.following import follow
from penguin.environment.processes import CommandSessions
from penguin.environment.sandbox.command_sandbox import CommandSandbox
from penguin.environment.sandbox.settings import SandboxSettings
from penguin.environment.shell_environment import ShellEnvironment

pytestmark = pytest.mark.anyio

PATIENCE = 20.0


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with open_stage() as stage:
        monkeypatch.setenv("HOME", str(stage.home))
        yield stage


@pytest.fixture
def furnished(stage: Stage) -> Iterator[Stage]:
    """With what only some attempts are about, and what lies outside the stage."""
    shown = stage.terminal()
    if os.geteuid() == 0:
        helper = stage.root / "suid-id"
        shutil.copy(str(shutil.which("id")), helper)
        os.chown(helper, 65534, 65534)
        helper.chmod(0o4755)
    shared = Path("/dev/shm", f"penguin-{stage.label}")  # noqa: S108 - a target
    shared.touch()
    make = f"$i = shmget(0, 40, 0600|512) or die; shmwrite($i, '{stage.token}', 0, 40); print $i"
    segment = subprocess.run(["perl", "-e", make], capture_output=True, text=True, check=True).stdout
    stage.variables["SHM"] = segment
    yield stage
    shown()
    subprocess.run(["perl", "-e", f"shmctl({segment}, 0, 0) or die"], check=True)
    shared.unlink(missing_ok=True)
    Path(tempfile.gettempdir(), f"ready-{stage.label}").unlink(missing_ok=True)
    _end(stage.label)


def _end(label: str) -> None:
    """What got away is not left behind."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if label.encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


async def attempt_it(attempt: Attempt, stage: Stage, sandbox: CommandSandbox | None) -> tuple[bool, str]:
    """Whether it got somewhere, and what it said; the session is closed before the question is asked."""
    environment = ShellEnvironment(base=stage.variables, login_shell=False)
    sessions = CommandSessions(environment=environment, grace=0.3, sandbox=sandbox)
    said: list[str] = []
    try:
        command = await sessions.start(attempt.script, stage.workspace)
        assert await follow(command, said.append, PATIENCE) == "over"
    finally:
        await sessions.aclose()
    output = "".join(said)
    return attempt.judge(stage, output), output


def sandbox_of(stage: Stage, settings: SandboxSettings) -> CommandSandbox:
    return CommandSandbox(settings, stage.workspace, secret=(stage.data,))


def test_E4_the_corpus_is_large_and_each_attempt_has_its_name() -> None:
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 40


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
async def test_E4_it_gets_somewhere_without_a_sandbox(attempt: Attempt, furnished: Stage) -> None:
    if not attempt.can_be_shown:
        pytest.skip("not on this machine, or not as this user")
    got_somewhere, output = await attempt_it(attempt, furnished, None)
    assert got_somewhere, output


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
async def test_E4_it_is_contained(attempt: Attempt, mode: str, furnished: Stage) -> None:
    settings = SandboxSettings(mode, network=attempt.contained_with == "any network")  # type: ignore[arg-type]
    got_somewhere, output = await attempt_it(attempt, furnished, sandbox_of(furnished, settings))
    assert not got_somewhere, output
    assert "could not be set up" not in output
