"""E4, N25: each attempt of the corpus is contained in each mode, and gets somewhere without a sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
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


@pytest.fixture(scope="module")
def shared_stage() -> Iterator[Stage]:
    with open_stage() as stage:
        yield stage


@pytest.fixture
def stage(shared_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    shared_stage.reset()
    monkeypatch.setenv("HOME", str(shared_stage.home))
    return shared_stage


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


async def attempt_carelessly(attempt: Attempt, stage: Stage, _sandbox: None) -> tuple[bool, str]:
    """The same by somebody who leaves open descriptors to the command; the harness does not, sandbox or none."""
    command = ["bash", "-c", attempt.script]
    done = await anyio.run_process(
        command, cwd=stage.workspace, env=stage.variables, pass_fds=stage.left_open, check=False
    )
    output = done.stdout.decode()
    return attempt.judge(stage, output), output


def sandbox_of(stage: Stage, settings: SandboxSettings) -> CommandSandbox:
    return CommandSandbox(settings, stage.workspace, secret=(stage.data,))


def test_E4_the_corpus_is_large_and_each_attempt_has_its_name() -> None:
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 40


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
async def test_E4_it_gets_somewhere_without_a_sandbox(attempt: Attempt, stage: Stage) -> None:
    if not attempt.can_be_shown:
        pytest.skip("not on this machine, or not as this user")
    got_somewhere, output = await (attempt_carelessly if attempt.careless else attempt_it)(attempt, stage, None)
    assert got_somewhere, output


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
async def test_E4_it_is_contained(attempt: Attempt, mode: str, stage: Stage) -> None:
    settings = SandboxSettings(mode, network=attempt.contained_with == "any network")  # type: ignore[arg-type]
    got_somewhere, output = await attempt_it(attempt, stage, sandbox_of(stage, settings))
    assert not got_somewhere, output
    assert "could not be set up" not in output
