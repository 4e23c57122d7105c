"""The ready-made approval modes and the rules learnt from answers (N23, N24)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.engine_kit import allow

from penguin import create_agent
from penguin.agent.approvals import ProjectRules
from penguin.protocol.builders import tool_call
from penguin.protocol.errors import ConfigError
from penguin.protocol.events import Decision
from penguin.protocol.interfaces import Permission
from penguin.protocol.messages import OmniMessage, ToolCall
from penguin.session.approval import Answer, Approval, ApprovalMode, one_at_a_time
from penguin.state.project import ProjectConfigFile
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import call, turn

pytestmark = pytest.mark.anyio


def permission_of(name: str) -> Permission | None:
    return "r" if name == "look" else "rw"


def a_call(name: str, arguments: str = "{}") -> OmniMessage[ToolCall]:
    return tool_call(name, arguments, "c1")


@pytest.mark.parametrize(
    ("mode", "look", "change"),
    [
        ("allow-all", "allow", "allow"),
        ("deny-all", "deny", "deny"),
        ("read-only", "allow", "asked"),
        ("always-ask", "asked", "asked"),
    ],
)
async def test_N23_the_modes(mode: ApprovalMode, look: str, change: str) -> None:
    for name, expected in (("look", look), ("change", change)):
        asked: list[str] = []

        async def ask(tool_call: OmniMessage[ToolCall], rules: Sequence[str], into: list[str] = asked) -> Answer:
            into.append(tool_call.payload.name)
            return "deny"

        verdict = await Approval(mode, permission_of, ask=ask)(a_call(name))
        assert ("asked" if asked else verdict) == expected


async def test_N23_with_nobody_there_a_declared_policy_decides_and_is_counted() -> None:
    approval = Approval("always-ask", permission_of)
    assert await approval(a_call("change")) == "deny"
    assert approval.unasked == 1
    approval = Approval("always-ask", permission_of, nobody="allow")
    assert await approval(a_call("change")) == "allow"
    assert approval.unasked == 0


class Book:
    def __init__(self) -> None:
        self.learnt: list[object] = []

    def covers_call(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        return (tool, arguments.get("cmd")) in self.learnt

    def propose_for_call(self, tool: str, arguments: Mapping[str, Any]) -> Sequence[object]:
        return [(tool, arguments.get("cmd"))] if "cmd" in arguments else []

    def learn(self, rules: Sequence[object]) -> None:
        self.learnt += rules


async def test_N24_always_keeps_what_was_proposed_and_is_not_asked_again() -> None:
    offered: list[Sequence[str]] = []

    async def ask(tool_call: OmniMessage[ToolCall], rules: Sequence[str]) -> Answer:
        offered.append(rules)
        return "always"

    approval = Approval("always-ask", permission_of, ask=ask, rules=Book())
    for _ in range(2):
        assert await approval(a_call("exec_command", '{"cmd": "pytest"}')) == "allow"
    assert offered == [["('exec_command', 'pytest')"]]
    assert await approval(a_call("exec_command", "not json")) == "allow"
    assert offered[1:] == [[]]


async def test_N24_rules_are_kept_in_the_project_and_can_be_removed(tmp_path: Path) -> None:
    file = ProjectConfigFile(tmp_path / ".project_config.toml")
    rules = ProjectRules(file)
    proposed = rules.propose_for_call("exec_command", {"cmd": "git status -s"})
    rules.learn(proposed)
    rules.learn(proposed)
    again = ProjectRules(file)
    assert len(again.rules) == 1
    assert again.covers_call("exec_command", {"cmd": "git status"})
    assert not again.covers_call("exec_command", {"cmd": "git status && touch pwned"})
    again.remove(0)
    assert ProjectRules(file).rules == ()
    with pytest.raises(ConfigError, match="there is no approval rule"):
        again.remove(0)


async def test_N12_the_factory_policy_is_in_force_in_every_session(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    script = ScriptedModel([turn(call("exec_command", {"cmd": "sudo rm -rf /", "description": "d"})), "ok"])
    async with await agent.create_session(model=script) as session:
        await session.ask("go", approve=allow)
    (output,) = script.requests[1].new_messages
    assert "rule" in getattr(output.payload, "output", "")


async def test_E3_questions_are_asked_one_at_a_time_over_a_whole_tree() -> None:
    asking = 0

    async def ask(tool_call: OmniMessage[ToolCall]) -> Decision:
        nonlocal asking
        asking += 1
        assert asking == 1
        await anyio.sleep(0.001)
        asking -= 1
        return "allow"

    approve = one_at_a_time(ask)

    async def one() -> None:
        assert await approve(a_call("x")) == "allow"

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(one)
