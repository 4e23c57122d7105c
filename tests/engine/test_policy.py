"""A policy of the environment denies before anybody is asked (E3, E4, N12)."""

from __future__ import annotations

import pytest
from tests.support.engine_kit import Drive

from penguin.protocol.events import Decision
from penguin.protocol.messages import OmniMessage, ToolCall
from penguin.testing.turns import call, turn

pytestmark = pytest.mark.anyio


async def test_E3_N12_a_hit_is_denied_in_every_mode_and_nobody_is_asked() -> None:
    asked: list[str] = []

    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        asked.append(tool_call.payload.tool_call_id)
        return "allow"

    drive = Drive([turn(call("echo", {"text": "rm"}, id="a"), call("echo", {"text": "ls"}, id="b")), "ok"])
    drive.environment.refusal = (  # type: ignore[attr-defined]
        lambda tool_call: "Denied by the rule: no rm." if "rm" in tool_call.arguments else None
    )
    await drive.run(approve=approve)
    assert asked == ["b"]
    assert drive.environment.executed == ["b"]
    assert [word for word in drive.outline() if word.startswith(("allow", "deny"))] == ["deny a", "allow b"]
    assert drive.sent_texts() == ["Denied by the rule: no rm.", "ls"]
    drive.check()


async def test_N12_a_policy_that_fails_denies() -> None:
    def broken(tool_call: ToolCall) -> str | None:
        raise ValueError("bad pattern")

    drive = Drive([turn(call("echo", {"text": "x"}, id="a")), "ok"])
    drive.environment.refusal = broken  # type: ignore[attr-defined]
    await drive.run()
    assert drive.environment.executed == []
    assert "bad pattern" in drive.sent_texts()[0]
    drive.check()
