"""Nothing is lost and no history is ever illegal: whole sessions driven at random, on every protocol (E25, T11).

Each step is a task with scripted replies, faults, denials, interruptions and steering, a compaction, a crash,
a restart or a fork. What must hold is in `tests.support.world`: every request legal, nothing said
forgotten, each committed call answered once, the stream as the trace, resumed as live.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.support.world import CHILD_PROMPT, MINDS, MODELS, PNG, Plan, World

from penguin.protocol.builders import image_url, user_text
from penguin.testing.turns import Block, call, say, think, turn, usage

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden"

BLOCKS = [
    *("say", "say", "say_nothing", "say_space", "say_odd", "think", "think_nothing"),
    *("echo", "echo", "echo", "slow", "endless", "boom", "picture", "unknown", "broken", "list", "odd_name", "child"),
]
ENDINGS = ["whole"] * 8 + ["cut", "cut", "silent", "busy", "limited", "refused", "overflow", "bad_image", "too_long"]

replies = st.fixed_dictionaries(
    {
        "blocks": st.lists(st.sampled_from(BLOCKS), max_size=4),
        "ids": st.sampled_from(["own", "own", "own", "reused", "odd", "none"]),
        "ending": st.sampled_from(ENDINGS),
        "after": st.integers(0, 14),
        "big": st.sampled_from([False, False, False, False, True]),
    }
)
summaries = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["good", "good", "good", "bare", "empty", "call", "words_and_call"]),
        "ending": st.sampled_from(["whole"] * 5 + ["cut", "silent", "busy", "refused", "overflow"]),
        "after": st.integers(0, 14),
    }
)
actions = st.lists(
    st.tuples(
        st.integers(0, 160), st.sampled_from(["interrupt", "interrupt", "cancel", "steer", "steer", "skip", "notice"])
    ),
    max_size=3,
)
tasks = st.fixed_dictionaries(
    {
        "replies": st.lists(replies, max_size=4),
        "summaries": st.lists(summaries, max_size=3),
        "decisions": st.lists(st.sampled_from(["allow", "allow", "allow", "deny", "raise", "ponder"]), max_size=6),
        "actions": actions,
        "image": st.sampled_from([False, False, False, True]),
    }
)


class Sessions(RuleBasedStateMachine):
    """One world; a subclass says which protocol it begins with."""

    mind = "openai-chat"
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="penguin-world-"))
        self.world = World(self.root, self.mind)
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

    @initialize(golden=st.none() | st.integers(0, 30))
    def begin(self, golden: int | None) -> None:
        scenes = sorted(path for path in GOLDEN.iterdir() if path.is_dir()) if GOLDEN.is_dir() else []
        if golden is None or golden >= len(scenes):
            self.world.start()
            return
        files = sorted(scenes[golden].glob("trace-*.jsonl"))
        session_id = files[0].name.removeprefix("trace-").rsplit("_", 1)[0]
        self.world.take_in([file for file in files if session_id in file.name], session_id, self.mind)
        self.world.check()

    # --- steps ---------------------------------------------------------------------------------------

    @rule(task=tasks)
    def task(self, task: dict[str, Any]) -> None:
        self._script(task)
        prompt, words = self._prompt(image=task["image"])
        self.world.run(prompt, words, self._actions(task["actions"]))
        self._done()

    @rule(task=tasks, records=st.integers(0, 25), torn=st.sampled_from([0, 0, 1, 40, 10_000]))
    def task_that_dies(self, task: dict[str, Any], records: int, torn: int) -> None:
        self._script(task)
        self.world.die_after(records, torn)
        prompt, words = self._prompt(image=task["image"])
        self.world.run(prompt, words, self._actions(task["actions"]))
        self.world.records_left = None
        self._done()

    @rule(task=tasks)
    def go_on(self, task: dict[str, Any]) -> None:
        """Without a new prompt, if something was kept."""
        if not self.world.open.engine.ledger.carry_over:
            return
        self._script(task)
        self.world.run([], [], self._actions(task["actions"]))
        self._done()

    @rule(scripted=st.lists(summaries, max_size=3), doing=actions, dies=st.none() | st.integers(0, 9))
    def compact(self, scripted: list[dict[str, Any]], doing: list[tuple[int, str]], dies: int | None) -> None:
        self._script({"replies": [], "summaries": scripted, "decisions": []})
        if dies is not None:
            self.world.die_after(dies, 0)
        self.world.compact([(at, what) for at, what in doing if what in {"interrupt", "cancel", "skip"}])
        self.world.records_left = None
        self._done()

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self._done()

    @rule(back=st.none() | st.integers(1, 4), mind=st.none() | st.sampled_from(sorted(MODELS)))
    def fork(self, back: int | None, mind: str | None) -> None:
        if not self.world.files():
            return
        turns = self.world.open.engine.ledger.turns
        at = None if back is None or turns == 0 else max(1, turns - back)
        self.world.fork(at, mind if mind in MINDS else None)
        self._done()

    @rule()
    def settle(self) -> None:
        self.world.settle()
        self._done()

    # --- from data to what is said ---------------------------------------------------------------------

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

    def _script(self, task: dict[str, Any]) -> None:
        world = self.world
        world.replies.clear()
        world.summaries.clear()
        world.decisions.clear()
        world.replies += [self._reply(entry) for entry in task["replies"]]
        world.summaries += [self._summary(entry) for entry in task["summaries"]]
        world.decisions += task["decisions"]

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


def drive(mind: str, *, examples: int, steps: int) -> int:
    machine: Any = type(f"Sessions_{mind}", (Sessions,), {"mind": mind, "steps": 0})
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
    return int(machine.steps)


@pytest.mark.parametrize("mind", MINDS)
def test_D1_E25_T11_sessions_at_random(mind: str) -> None:
    assert drive(mind, examples=12, steps=12) >= 50


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("mind", MINDS)
def test_D1_E25_T11_ten_thousand_steps(mind: str) -> None:
    done = 0
    while done < 10_000:
        done += drive(mind, examples=200, steps=30)
