"""N25, N6-N11: a confined command ends, is interrupted, waits and is killed exactly as one outside: the same tests."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.environment.tools import test_exec_command, test_input_command

from penguin.environment.processes import CommandSessions
from penguin.environment.shell_environment import ShellEnvironment

pytestmark = pytest.mark.anyio

DIFFERENT = {
    # about the tools, not about commands
    *("test_N7_the_grace_period_is_two_seconds", "test_N6_the_definition_is_what_the_specification_says"),
    *("test_N7_the_definitions_are_short", "test_an_environment_of_its_own_ends_its_commands_when_closed"),
    "test_D22_commands_do_not_see_what_the_harness_keeps",
}


@pytest.fixture
async def commands(make_sandbox: Any, tmp_path: Path) -> AsyncIterator[CommandSessions]:
    # The tests talk to their commands through files beside the workspace.
    sandbox = make_sandbox("workspace-write", writable=(str(tmp_path),))
    sessions = CommandSessions(environment=ShellEnvironment(login_shell=False), grace=0.3, sandbox=sandbox)
    yield sessions
    await sessions.aclose()


def _take_over(module: Any) -> None:
    for name, value in vars(module).items():
        is_fixture = type(value).__name__ == "FixtureFunctionDefinition"
        if is_fixture or (name.startswith("test_") and inspect.isfunction(value) and name not in DIFFERENT):
            globals()[name] = value


_take_over(test_exec_command)
_take_over(test_input_command)
