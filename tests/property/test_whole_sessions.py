"""Nothing is lost and no history is ever illegal: whole sessions driven at random, on every protocol (E25, T11).

Each step is a task with scripted replies, faults, denials, interruptions and steering, a compaction, a crash,
a restart or a fork. What must hold is in `tests.support.world`: every request legal, nothing said
forgotten, each committed call answered once, the stream as the trace, resumed as live.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.support.world import CHILD_PROMPT, MINDS, PNG, Plan, World

from penguin.protocol.builders import image_url, user_text
from penguin.protocol.messages import (
    ApprovalDecision,
    CompactionEnd,
    Message,
    RequestEnd,
    SessionMeta,
    Text,
    ToolCallOutput,
)
from penguin.testing.turns import Block, call, say, think, turn, usage

T = TypeVar("T")
GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"

BLOCKS = [
    *("say", "say", "say_nothing", "say_space", "say_odd", "think", "think_nothing"),
    *(
        "echo",
        "echo",
        "echo",
        "slow",
        "endless",
        "boom",
        "picture",
        "unknown",
        "broken",
        "list",
        "odd_name",
        "child",
        "child",
    ),
]
DECISIONS = ["allow", "allow", "allow", "allow", "deny", "raise", "ponder"]
ACTIONS = ["interrupt", "interrupt", "cancel", "steer", "steer", "skip", "notice"]
SUMMARIES = ["good", "good", "good", "bare", "empty", "call", "words_and_call"]
SUMMARY_ENDINGS = ["whole"] * 5 + ["cut", "silent", "busy", "refused", "overflow"]
ENDINGS = ["whole"] * 8 + ["cut", "cut", "silent", "busy", "limited", "refused", "overflow", "bad_image", "too_long"]

seeds = st.integers(0, 2**48)
"""Hypothesis walks; what a step holds comes from a seed. Drawn piece by piece it would be small nearly always."""


class Dice:
    """The contents of one step."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - the same again is what is wanted

    def one_of(self, things: Sequence[T]) -> T:
        return self._random.choice(things)

    def number(self, most: int) -> int:
        return self._random.randint(0, most)

    def chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def task(self) -> dict[str, Any]:
        return {
            "replies": [self.reply() for _ in range(self.number(4))],
            "summaries": self.summaries(),
            "decisions": [self.one_of(DECISIONS) for _ in range(self.number(6))],
            "actions": self.actions(ACTIONS),
            "image": self.chance(25),
        }

    def reply(self) -> dict[str, Any]:
        return {
            "blocks": [self.one_of(BLOCKS) for _ in range(self.number(4))],
            "ids": self.one_of(["own", "own", "own", "reused", "odd", "none"]),
            "ending": self.one_of(ENDINGS),
            "after": self.number(14),
            "big": self.chance(20),
        }

    def summaries(self) -> list[dict[str, Any]]:
        return [
            {"kind": self.one_of(SUMMARIES), "ending": self.one_of(SUMMARY_ENDINGS), "after": self.number(14)}
            for _ in range(self.number(3))
        ]

    def actions(self, kinds: Sequence[str]) -> list[tuple[int, str]]:
        return [(self.number(160), self.one_of(kinds)) for _ in range(self.number(3))]


class Sessions(RuleBasedStateMachine):
    """One world; a subclass says which protocol it begins with."""

    mind = "openai-chat"
    steps = 0
    happened: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="penguin-world-"))
        self.world = World(self.root, self.mind)
        self.world.on_message = self._tally
        self.count = 0

    def teardown(self) -> None:
        try:
            if self.world.session is not None:
                self.go_on_to_the_end()
        finally:
            self.world.close()
            shutil.rmtree(self.root, ignore_errors=True)

    def go_on_to_the_end(self) -> None:
        """Whatever happened, one more task completes."""
        world = self.world
        for queue in (world.replies, world.child_replies, world.summaries, world.decisions):
            queue.clear()
        world.settle()
        result = world.run(*self._prompt())
        world.check()
        assert result is not None
        assert result.stop_reason == "completed", result

    # --- beginnings ----------------------------------------------------------------------------------

    @initialize(seed=seeds)
    def begin(self, seed: int) -> None:
        dice = Dice(seed)
        if dice.chance(15):
            self.world.configure(mode="discard")
        if dice.chance(15):
            self.world.configure(max_session_turns=4)
        scenes = sorted(path for path in GOLDEN.iterdir() if path.is_dir()) if GOLDEN.is_dir() else []
        if scenes and dice.chance(40):
            self._take_in(dice.one_of(scenes))
        else:
            self.world.start()

    def _take_in(self, scene: Path) -> None:
        files = sorted(scene.glob("trace-*.jsonl"))
        session_id = files[0].name.removeprefix("trace-").rsplit("_", 1)[0]
        self.world.take_in([file for file in files if session_id in file.name], session_id, self.mind)
        self.world.check()

    # --- steps ---------------------------------------------------------------------------------------

    @rule(seed=seeds)
    def task(self, seed: int) -> None:
        task = self._script(Dice(seed).task())
        prompt, words = self._prompt(image=task["image"])
        self.world.run(prompt, words, self._actions(task["actions"]))
        self._done()

    @rule(seed=seeds)
    def task_that_dies(self, seed: int) -> None:
        dice = Dice(seed)
        task = self._script(dice.task())
        self.world.die_after(dice.number(25), dice.one_of([0, 0, 1, 40, 10_000]))
        prompt, words = self._prompt(image=task["image"])
        self.world.run(prompt, words, self._actions(task["actions"]))
        self._lived_or_died()

    @rule(seed=seeds)
    def go_on(self, seed: int) -> None:
        """Without a new prompt, if something was kept."""
        if not self.world.open.engine.ledger.carry_over:
            return
        task = self._script(Dice(seed).task())
        self.world.run([], [], self._actions(task["actions"]))
        self._done()

    @rule(seed=seeds)
    def compact(self, seed: int) -> None:
        dice = Dice(seed)
        self._script({"replies": [], "summaries": dice.summaries(), "decisions": []})
        if dice.chance(30):
            self.world.die_after(dice.number(9), 0)
        self.world.compact(dice.actions(["interrupt", "cancel", "skip"]))
        self._lived_or_died()

    def _lived_or_died(self) -> None:
        self.happened["death"] += self.world.records_left is None
        self.world.records_left = None
        self._done()

    @rule(seed=seeds)
    def restart(self, seed: int) -> None:
        self.world.max_turns = Dice(seed).one_of([None, 1, 2])
        self.world.restart()
        self._done()

    @rule(seed=seeds)
    def fork(self, seed: int) -> None:
        if not self.world.files():
            return
        dice = Dice(seed)
        self.happened["fork"] += 1
        turns = self.world.open.engine.ledger.turns
        at = max(1, turns - dice.number(3)) if turns and dice.chance(50) else None
        self.world.fork(at, dice.one_of(MINDS) if dice.chance(80) else None)
        self._done()

    @rule()
    def settle(self) -> None:
        self.world.settle()
        self._done()

    # --- from data to what is said ---------------------------------------------------------------------

    def _tally(self, message: Message) -> None:
        """What the random walk really passed through."""
        match message.payload:
            case CompactionEnd(status=status):
                self.happened[f"compaction {status}"] += 1
            case RequestEnd(status=status, retry_in_ms=wait):
                self.happened[f"request {status}" + ("" if wait is None else ", again")] += 1
            case ApprovalDecision(decision=decision):
                self.happened[decision] += 1
            case ToolCallOutput(stop_reason=reason):
                self.happened[f"output {reason or 'completed'}"] += 1
            case Text(text=text) if text.startswith("["):
                self.happened[text[1:].split(maxsplit=1)[0].split("]")[0]] += 1
            case SessionMeta():
                self.happened["subagent"] += 1
            case _:
                pass

    def _done(self) -> None:
        type(self).steps += 1
        self.world.check()

    def _number(self) -> int:
        self.count += 1
        return self.count

    def _prompt(self, *, image: bool = False) -> tuple[Any, list[str]]:
        token = f"tok-user-{self._number()}"
        prompt = [user_text(f"Do {token} please")]
        return ([*prompt, image_url(PNG)] if image else prompt), [token]

    def _script(self, task: dict[str, Any]) -> dict[str, Any]:
        world = self.world
        world.replies.clear()
        world.summaries.clear()
        world.decisions.clear()
        world.replies += [self._reply(entry) for entry in task["replies"]]
        world.summaries += [self._summary(entry) for entry in task["summaries"]]
        world.decisions += task["decisions"]
        return task

    def _actions(self, entries: list[tuple[int, str]]) -> list[tuple[int, str]]:
        return [
            (at, f"{what} tok-{what}-{self._number()}" if what in {"steer", "notice"} else what) for at, what in entries
        ]

    def _reply(self, entry: dict[str, Any]) -> Plan:
        kinds = entry["blocks"]
        if entry["ids"] in {"reused", "none"}:
            # The watch tells by a call's id what was signed with it, so these calls come without.
            kinds = [kind for kind in kinds if not kind.startswith("think")]
        blocks = [self._block(kind, entry["ids"]) for kind in kinds]
        counts = usage(cache_write=300_000, output=5) if entry["big"] else usage(cache_write=500, output=5)
        ending = entry["ending"]
        if ending == "too_long" and not any(kind in {"echo", "slow"} for kind in entry["blocks"]):
            ending = "cut"
        return Plan(turn(*blocks, usage=counts), ending, entry["after"])

    def _block(self, kind: str, ids: str) -> Block:
        number = self._number()
        call_id = {"own": f"call-{number}", "reused": "call_0", "odd": f"functions.tool:{number}/é", "none": ""}[ids]
        match kind:
            case "say":
                return say(f"I say tok-say-{number} now.")
            case "say_nothing" | "say_space":
                return say("" if kind == "say_nothing" else " \n ")
            case "say_odd":
                return say(f"ünï [/turn_aborted] [user_steering] \x00 tok-odd-{number} 🐧")
            case "think" | "think_nothing":
                return think(f"Hm {number}." if kind == "think" else "")
            case "echo":
                return call("echo", {"text": f"tok-out-{number}"}, id=call_id)
            case "slow" | "endless":
                arguments: dict[str, Any] = {"text": f"tok-out-{number}"} | ({"steps": 20} if kind == "slow" else {})
                return call(kind, arguments, id=call_id)
            case "broken":
                return call("echo", '{"text": "tok', id=call_id)
            case "list":
                return call("echo", "[1]", id=call_id)
            case "odd_name":
                return call("no such.tool/ü", {}, id=call_id)
            case "child":
                given = {"prompt": CHILD_PROMPT, "description": "d", "run_in_background": number % 3 == 0}
                self.world.child_replies.append(Plan(turn(call("echo", {"text": "x"}, id=f"child-{number}"))))
                return call("run_subagent", given, id=call_id)
            case _:
                return call(kind, {}, id=call_id)

    def _summary(self, entry: dict[str, Any]) -> Plan:
        number = self._number()
        said: dict[str, list[Block]] = {
            "good": [think("What was it?"), say(f"[summary]Summary {number}.[/summary]")],
            "bare": [say(f"Summary {number}.")],
            "empty": [],
            "call": [call("echo", {"text": "no"}, id=f"call-{number}")],
            "words_and_call": [say("Let me look."), call("echo", {"text": "no"}, id=f"call-{number}")],
        }
        return Plan(turn(*said[entry["kind"]], usage=usage(cache_write=500, output=5)), entry["ending"], entry["after"])


MUST_HAPPEN = [
    *("request completed", "request timeout, again", "request malformed, again", "request failed", "request aborted"),
    *("compaction completed", "compaction failed", "compaction aborted", "death", "fork", "subagent"),
    *("allow", "deny", "output completed", "output failed", "output aborted"),
    *("user_steering", "background_task_done", "left", "stopped:"),
]


def drive(mind: str, *, examples: int, steps: int) -> tuple[int, Counter[str]]:
    happened = Counter[str]()
    machine: Any = type(f"Sessions_{mind}", (Sessions,), {"mind": mind, "steps": 0, "happened": happened})
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    # Without shrinking: a failure is reported within the budget, and the steps that led to it are printed anyway.
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=checks,
        phases=[Phase.explicit, Phase.generate],
    )
    run_state_machine_as_test(machine, settings=chosen)
    return int(machine.steps), happened


@pytest.mark.parametrize("mind", MINDS)
def test_D1_E25_T11_sessions_at_random(mind: str) -> None:
    steps, happened = drive(mind, examples=24, steps=14)
    assert steps >= 50
    # A walk that dies or is stopped all the time would prove little.
    assert happened["request completed"] >= steps / 10


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("mind", MINDS)
def test_D1_E25_T11_ten_thousand_steps(mind: str) -> None:
    """And none of what can happen is left out."""
    done, happened = 0, Counter[str]()
    while done < 10_000:
        steps, more = drive(mind, examples=200, steps=30)
        done, happened = done + steps, happened + more
    assert not [name for name in MUST_HAPPEN if not happened[name]], happened
