"""Children of a session: what the parent's stream, trace and model see of them (N18, N19, E17, D61)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.deadline import Deadline
from tests.support.engine_kit import allow, call_id_of, text_of

from penguin import create_agent
from penguin.agent.agent import Agent
from penguin.engine.budget import Limits
from penguin.protocol.events import Decision
from penguin.protocol.interfaces import LLMInterface, ModelConfig, ModelFactory
from penguin.protocol.messages import (
    Abort,
    ApprovalDecision,
    Message,
    OmniMessage,
    SessionMeta,
    Subagent,
    Text,
    ToolCall,
    ToolCallOutput,
)
from penguin.session.session import Session
from penguin.testing.framing import assert_well_framed
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import call, hang, say, turn, usage
from penguin.trace.names import files_of
from penguin.trace.reader import read_trace

pytestmark = pytest.mark.anyio


class Family:
    """The first model that is built is the parent's, the others are its children's."""

    def __init__(self, parent: list[Any], *children: list[Any]) -> None:
        self.scripts = [ScriptedModel(turns) for turns in (parent, *children)]
        self._next = iter(self.scripts)

    def factory(self) -> ModelFactory:
        def build(config: ModelConfig) -> LLMInterface:
            return next(self._next)

        return build


def delegate(**more: Any) -> Any:
    return call("run_subagent", {"prompt": "count", "description": "counting", **more}, id="s")


async def play(agent: Agent, family: Family, **options: Any) -> tuple[Session, list[Message]]:
    session = await agent.create_session(model=family.factory(), **options)
    async with session, session.run("go", approve=allow) as stream:
        seen = [message async for message in stream]
    return session, seen


def child_of(session: Session) -> str:
    (child_id,) = [m.payload.session_id for m in _records(session) if isinstance(m.payload, Subagent)]
    return child_id


async def test_N19_the_child_is_seen_in_the_stream_and_pointed_to_in_the_trace(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    family = Family(
        [turn(delegate()), "Done."],
        [turn(say("Let me see. "), call("exec_command", {"cmd": "echo 3", "description": "count"})), "Three."],
    )
    session, seen = await play(agent, family)
    assert session.trace_path is not None
    child_id = child_of(session)
    nested = [message for message in seen if message.origin]
    assert {tuple(message.origin or ()) for message in nested} == {(child_id,)}
    assert isinstance(nested[0].payload, SessionMeta)
    assert not any(isinstance(message.payload, Subagent) for message in seen)
    assert not any(message.origin for message in read_trace(session.trace_path))
    assert_well_framed(seen)
    (answer,) = [text_of(message) for message in family.scripts[0].requests[1].new_messages]
    assert answer.startswith("Three.")
    assert "tokens" in answer
    (child_file,) = files_of(agent.paths.traces, child_id)
    assert any(isinstance(m.payload, Text) and m.payload.text == "count" for m in read_trace(child_file))


async def test_N18_a_child_has_no_subagent_tools_and_inherits_the_approval(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    configs: list[ModelConfig] = []
    asked: list[tuple[str, list[str] | None]] = []
    family = Family(
        [turn(delegate()), "ok"],
        [turn(call("exec_command", {"cmd": "true", "description": "d"}, id="x")), "done"],
    )
    build = family.factory()

    def noting(config: ModelConfig) -> LLMInterface:
        configs.append(config)
        return build(config)

    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        asked.append((tool_call.payload.name, tool_call.origin))
        return "allow" if tool_call.payload.name == "run_subagent" else "deny"

    async with await agent.create_session(model=noting) as session:
        await session.ask("go", approve=approve)
    parent, child = [{tool.name for tool in config.tools} for config in configs]
    assert parent - child == {"run_subagent", "input_subagent", "kill_subagent"}
    assert asked[0] == ("run_subagent", None)
    assert asked[1][0] == "exec_command"
    assert asked[1][1] is not None


async def test_N18_what_cannot_be_spawned_is_a_failed_output(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    _, seen = await play(agent, Family([turn(delegate(agent_id="nobody")), "ok"]))
    output = next(m for m in seen if isinstance(m.payload, ToolCallOutput))
    assert "nobody" in text_of(output)
    assert "[tool error]" in text_of(output)


async def test_D61_stop_reaches_a_child_in_the_foreground(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    family = Family([turn(delegate())], [turn(say("Working"), hang())])
    async with await agent.create_session(model=family.factory()) as session:
        async with session.run("go", approve=allow) as stream:
            async for message in stream:
                if message.origin and "Working" in text_of(message):
                    session.interrupt()
        child_id = child_of(session)
    assert stream.result.stop_reason == "aborted"
    (child_file,) = files_of(agent.paths.traces, child_id)
    last = list(read_trace(child_file))[-1].payload
    assert isinstance(last, Abort)
    assert last.reason == "aborted by user"
    output = next(m for m in _records(session) if isinstance(m.payload, ToolCallOutput))
    assert call_id_of(output) == "s"
    assert "Working" in text_of(output)


async def test_D61_stop_reaches_the_running_command_of_a_child(tmp_path: Path, long_sleep: LongSleep) -> None:
    agent = await create_agent(root=tmp_path)
    family = Family([turn(delegate())], [turn(long_sleep.call()), "never said"])
    async with await agent.create_session(model=family.factory()) as session:
        await _stopped_when(session, long_sleep.begun)
        child_id = child_of(session)
        assert not long_sleep.runs()
    assert [len(model.requests) for model in family.scripts] == [1, 1]
    assert _last_record(agent, child_id).reason == "aborted by user"
    (output,) = [m for m in _records(session) if isinstance(m.payload, ToolCallOutput)]
    assert call_id_of(output) == "s"


async def test_D61_N19_a_child_in_the_background_ends_with_the_session_and_asks_no_more(
    tmp_path: Path, long_sleep: LongSleep
) -> None:
    agent = await create_agent(root=tmp_path)
    family = Family(
        [turn(delegate(run_in_background=True)), turn(say("Waiting"), hang())], [turn(long_sleep.call()), "never said"]
    )
    async with await agent.create_session(model=family.factory()) as session:
        async with session.run("go", approve=allow) as stream:
            async for message in stream:
                if not message.origin and "Waiting" in text_of(message):
                    await long_sleep.begun()
                    session.interrupt()
        assert stream.result.stop_reason == "aborted"
        child_id = child_of(session)
        assert long_sleep.runs()  # it was started to outlive the task; see Session.interrupt
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert not long_sleep.runs()
    assert [len(model.requests) for model in family.scripts] == [2, 1]
    assert _last_record(agent, child_id).reason == "aborted by user"


async def test_D61_a_stop_reaches_a_child_in_front_beside_one_behind(tmp_path: Path, long_sleep: LongSleep) -> None:
    agent = await create_agent(root=tmp_path)
    behind = call("run_subagent", {"prompt": "count", "description": "behind", "run_in_background": True}, id="b")
    loop = {"cmd": f"while :; do {long_sleep.cmd}; echo x >> log; done", "description": "loop"}
    child = [turn(call("exec_command", loop, id="x")), "never said"]
    family = Family([turn(behind, delegate())], list(child), list(child))
    async with await agent.create_session(model=family.factory(), workspace_dir=tmp_path) as session:
        await _stopped_when(session, partial(long_sleep.begun, 2))
        assert long_sleep.count() == 1
        children = [m.payload.session_id for m in _records(session) if isinstance(m.payload, Subagent)]
    assert long_sleep.count() == 0
    assert [len(model.requests) for model in family.scripts] == [1, 1, 1]
    assert {_last_record(agent, each).reason for each in children} == {"aborted by user"}
    answered = [call_id_of(m) for m in _records(session) if isinstance(m.payload, ToolCallOutput)]
    assert sorted(answered) == ["b", "s"]


class LongSleep:
    """A command that nobody else on this machine runs, so that one can look for it."""

    def __init__(self) -> None:
        self.cmd = f"sleep 1000.{secrets.randbelow(10**12):012d}"

    def call(self) -> Any:
        return call("exec_command", {"cmd": self.cmd, "description": "sleep"}, id="x")

    def count(self) -> int:
        wanted = self.cmd.replace(" ", "\0").encode() + b"\0"
        return sum(_command_line(entry) == wanted for entry in Path("/proc").glob("[0-9]*"))

    def runs(self) -> bool:
        return self.count() > 0

    async def begun(self, count: int = 1) -> None:
        deadline = Deadline()
        while self.count() < count:
            deadline.check(f"{self.count()} commands of {count} began")
            await anyio.sleep(0.01)


async def _stopped_when(session: Session, condition: Callable[[], Awaitable[None]]) -> None:
    """Run a task, and press stop once the condition holds."""

    async def stop() -> None:
        await condition()
        session.interrupt()

    async with anyio.create_task_group() as group:
        group.start_soon(stop)
        await session.ask("go", approve=allow)


def _command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def long_sleep() -> LongSleep:
    return LongSleep()


def _last_record(agent: Agent, session_id: str) -> Abort:
    (file,) = files_of(agent.paths.traces, session_id)
    last = list(read_trace(file))[-1].payload
    assert isinstance(last, Abort)
    return last


def _records(session: Session) -> list[Message]:
    assert session.trace_path is not None
    return list(read_trace(session.trace_path))


async def test_E17_a_child_in_the_background_reports_to_the_running_task(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    told = anyio.Event()
    family = Family(
        [turn(delegate(run_in_background=True)), turn(call("wait", {}, id="w")), "I heard."], ["The count is three."]
    )

    async def wait() -> str:
        """Wait until the child has reported."""
        await told.wait()
        return "waited"

    async with await agent.create_session(model=family.factory(), tools=[wait]) as session:
        inbox = session.engine.inbox
        post = inbox.post

        def post_and_tell(notice: Message) -> None:
            post(notice)
            told.set()

        inbox.post = post_and_tell  # type: ignore[method-assign]
        await session.ask("go", approve=allow)
    waited, notice = [text_of(message) for message in family.scripts[0].requests[2].new_messages]
    assert waited == "waited"
    assert notice.startswith("[background_task_done]")
    assert "The count is three." in notice


async def test_N18_an_idle_child_takes_a_follow_up_and_can_be_killed(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)

    def follow_up(request: Any, history: Any) -> Any:
        return turn(call("input_subagent", {"subagent_id": _id_in(history), "prompt": "again"}, id="f"))

    def kill(request: Any, history: Any) -> Any:
        return turn(call("kill_subagent", {"subagent_id": _id_in(history)}, id="k"))

    def ask_the_dead(request: Any, history: Any) -> Any:
        return turn(call("input_subagent", {"subagent_id": _id_in(history)}, id="d"))

    def _id_in(history: list[Message]) -> str:
        calls = [text_of(m) for m in [*history, *family.scripts[0].requests[-1].new_messages]]
        return next(text.split("[subagent ")[1][:8] for text in calls if "[subagent " in text)

    family = Family([turn(delegate()), follow_up, kill, ask_the_dead, "ok"], ["Three.", "Four."])
    _, seen = await play(agent, family)
    outputs = [text_of(m) for m in seen if isinstance(m.payload, ToolCallOutput) and not m.origin]
    assert [output.split("\n")[0] for output in outputs[:2]] == ["Three.", "Four."]
    assert "is gone" in outputs[2]
    assert "There is no subagent" in outputs[3]


async def test_E23_what_a_child_uses_counts_against_its_parents_limits(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    big = usage(cache_write=900)
    family = Family([turn(delegate(), usage=usage(cache_write=50)), "never"], [turn(say("Three."), usage=big)])
    session, _ = await play(agent, family, limits=Limits(tokens=960))
    assert len(family.scripts[0].requests) == 1
    assert session.engine.ledger.tokens.total == 50


async def test_approvals_of_a_child_are_recorded_in_its_own_trace(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    family = Family(
        [turn(delegate()), "ok"], [turn(call("exec_command", {"cmd": "true", "description": "d"}, id="x")), "done"]
    )
    session, seen = await play(agent, family)
    own = [m for m in _records(session) if isinstance(m.payload, ApprovalDecision)]
    assert [m.payload.tool_call_id for m in own if isinstance(m.payload, ApprovalDecision)] == ["s"]
    assert any(isinstance(m.payload, ApprovalDecision) and m.origin for m in seen)
