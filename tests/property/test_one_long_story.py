"""Compactions, subagents, interruptions and resumes: the answer is the one of an undisturbed session (D5)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.world import CHILD_PROMPT, MINDS, Plan, World

from penguin.protocol.events import TokenCounts
from penguin.protocol.messages import (
    CompactionBegin,
    CompactionEnd,
    Message,
    PartialText,
    PartialThinking,
    PartialToolCall,
    RequestBegin,
    RequestEnd,
    Subagent,
    ToolCallOutput,
)
from penguin.testing.turns import call, say, think, turn, usage

STEPS = 12
IN_FRONT, BEHIND = {2, 6}, {4}

FACT = re.compile(r"FACT-(\d+)=(\d+);")
ANSWER = " ".join(str(step * 7 + 3) for step in range(1, STEPS + 1))


class Story:
    """A model that asks for one fact after the other and writes them down when it has all.

    It knows only what its requests tell it: a fact that a compaction or an interruption loses has to be asked for
    again, and one that comes back wrong shows in the answer.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked = 0
        self.cut_at: int | None = None
        self.hang_at: int | None = None
        world.brain, world.childs_brain = self.reply, self.childs_reply
        world.more_tools = (self._reveal(), self._note())

    # --- its tools

    def _reveal(self) -> Callable[..., Any]:
        async def reveal(step: int) -> str:
            """Tell a fact."""
            if self.hang_at is not None and step >= self.hang_at:
                self.hang_at = None
                self.world.stop_soon()
                await anyio.sleep_forever()
            return f"FACT-{step}={step * 7 + 3};"

        return reveal

    def _note(self) -> Callable[..., Any]:
        async def note(answer: str) -> str:
            """Write the answer down."""
            (self.world.root / "workspace" / "answer.txt").write_text(answer)
            return "The answer is written down."

        return note

    # --- what it says

    def reply(self, body: dict[str, Any]) -> Plan:
        text = json.dumps(body)
        facts = dict(FACT.findall(text))
        if "PLEASE-SUMMARIZE" in text:
            told = " ".join(f"FACT-{step}={value};" for step, value in sorted(facts.items()))
            return Plan(turn(think("All of it."), say(f"[summary]{told}[/summary]"), usage=_tokens(big=False)))
        if "is written down" in text:
            return Plan(turn(say("All is done."), usage=_tokens(big=False)))
        self.asked += 1
        step = self._next(facts, text)
        if step is None:
            answer = " ".join(facts[known] for known in sorted(facts, key=int))
            noted = call("note", {"answer": answer}, id=f"note-{self.asked}")
            return Plan(turn(think("That is all."), noted, usage=_tokens(big=_has_replies(body))))
        said = [think("And now?"), say(f"Step {step}, please."), self._call(step)]
        plan = Plan(turn(*said, usage=_tokens(big=_has_replies(body)), delta_size=3))
        if self.cut_at is not None and step >= self.cut_at:
            self.cut_at = None
            return Plan(plan.said, "cut", 9)
        return plan

    def _next(self, facts: dict[str, str], text: str) -> int | None:
        """The first fact that is missing; one that is worked on in the background comes last."""
        missing = [step for step in range(1, STEPS + 1) if str(step) not in facts]
        at_once = [step for step in missing if step not in BEHIND or not self._is_at_work(step, text)]
        return next(iter([*at_once, *missing]), None)

    def _is_at_work(self, step: int, text: str) -> bool:
        return "works in the background; its end" in text or f"(step {step}): working" in text

    def _call(self, step: int) -> Any:
        call_id = f"step-{step}-{self.asked}"
        if step not in IN_FRONT | BEHIND:
            return call("reveal", {"step": step}, id=call_id)
        given = {"prompt": f"{CHILD_PROMPT} step {step}", "description": f"step {step}"}
        return call("run_subagent", given | {"run_in_background": step in BEHIND}, id=call_id)

    def childs_reply(self, body: dict[str, Any]) -> Plan:
        text = json.dumps(body)
        step = re.findall(rf"{re.escape(CHILD_PROMPT)} step (\d+)", text)[-1]
        known = [value for number, value in FACT.findall(text) if number == step]
        if known:
            return Plan(turn(think("I know."), say(f"FACT-{step}={known[-1]};"), usage=_tokens(big=False)))
        self.asked += 1
        asks = call("reveal", {"step": int(step)}, id=f"child-{self.asked}")
        return Plan(turn(think("I ask."), asks, usage=_tokens(big=False)))


def _has_replies(body: dict[str, Any]) -> bool:
    """From its second reply on a context is too large, so it lasts for two steps."""
    items = body.get("messages") or body.get("input") or body.get("contents") or []
    return any(item.get("role") in {"assistant", "model"} or item.get("type") == "function_call" for item in items)


def _tokens(*, big: bool) -> TokenCounts:
    return usage(cache_write=300_000 if big else 900, output=9)


class Disturbance:
    """Interrupts at the first sight of each moment."""

    def __init__(self, world: World) -> None:
        self.left = dict(_MOMENTS)
        self._world = world
        self._summarizing = False

    def __call__(self, message: Message) -> None:
        match message.payload:
            case CompactionBegin():
                self._summarizing = True
            case CompactionEnd():
                self._summarizing = False
            case _:
                pass
        for name, is_it in self.left.items():
            if is_it(message, self._summarizing):
                del self.left[name]
                self._world.open.interrupt()
                return


def _is_delta(message: Message, kind: type) -> bool:
    payload = message.payload
    return not message.origin and isinstance(payload, kind) and getattr(payload, "event_type", "") == "delta"


def _is_own(message: Message, kind: type) -> bool:
    return not message.origin and isinstance(message.payload, kind)


_MOMENTS: dict[str, Callable[[Message, bool], bool]] = {
    "a request began": lambda m, _: _is_own(m, RequestBegin),
    "it thinks": lambda m, _: _is_delta(m, PartialThinking),
    "it speaks": lambda m, summarizing: not summarizing and _is_delta(m, PartialText),
    "it calls": lambda m, _: _is_delta(m, PartialToolCall),
    "the request ended": lambda m, _: (
        isinstance(m.payload, RequestEnd) and not m.origin and m.payload.status == "completed"
    ),
    "a retry is waited for": lambda m, _: isinstance(m.payload, RequestEnd) and m.payload.retry_in_ms is not None,
    "a tool answered": lambda m, _: _is_own(m, ToolCallOutput),
    "a compaction began": lambda m, _: _is_own(m, CompactionBegin),
    "the summary is written": lambda m, summarizing: summarizing and _is_delta(m, PartialText),
    "a child works": lambda m, _: bool(m.origin) and isinstance(m.payload, RequestEnd),
}


def tell(world: World) -> int:
    """Run until it is done; how many tasks it took."""
    world.start()
    for number in range(1, 60):
        if number == 4:
            world.restart()
        if number == 8:
            world.die_after(6, 30)
        result = world.run("Find the facts." if number == 1 else "Go on.")
        world.records_left = None
        world.check()
        if result is not None and result.stop_reason == "completed":
            return number
        assert result is None or result.stop_reason == "aborted", result
    raise AssertionError("it does not come to an end")


def count(world: World, kind: type) -> int:
    return sum(isinstance(record.payload, kind) for record in world.records())


def compactions(world: World) -> int:
    return sum(r.payload.status == "completed" for r in world.records() if isinstance(r.payload, CompactionEnd))


@pytest.mark.parametrize("mind", MINDS)
def test_D5_the_same_answer_with_and_without_everything_that_can_happen(mind: str, tmp_path: Path) -> None:
    calm = World(tmp_path / "calm", mind)
    try:
        Story(calm)
        assert tell(calm) == 1
        assert compactions(calm) >= 5
        assert count(calm, Subagent) == 3
        assert (calm.root / "workspace" / "answer.txt").read_text() == ANSWER
    finally:
        calm.close()

    wild = World(tmp_path / "wild", mind)
    try:
        story = Story(wild)
        story.cut_at, story.hang_at = 3, 5
        wild.decisions += ["allow", "allow", "ponder"]
        wild.on_message = disturbance = Disturbance(wild)
        tasks = tell(wild)
        assert not disturbance.left, "these moments never came"
        undone = [story.cut_at, story.hang_at]
        assert undone == [None, None]
        assert not wild.decisions
        assert tasks >= len(_MOMENTS)
        assert compactions(wild) >= 5
        assert count(wild, Subagent) >= 3
        assert (wild.root / "workspace" / "answer.txt").read_text() == ANSWER
    finally:
        wild.close()
