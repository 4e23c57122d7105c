"""Deliberate faults are caught (D2): each is patched in, and the checker or an invariant must complain.

A random driver that finds nothing proves nothing unless it finds what was put there. The scenes are small
and fixed, so that it is known what would be caught by what.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.support.world import Plan, Violation, World

from penguin.engine import carry_over, ledger
from penguin.engine.inbox import Inbox
from penguin.engine.ledger import Ledger
from penguin.engine.recorder import Recorder
from penguin.engine.tool_desk import Answer, ToolDesk
from penguin.llm.model import GenerativeModel
from penguin.llm.providers import anthropic_messages_body
from penguin.llm.providers.anthropic_messages_body import MessagesBody
from penguin.llm.providers.openai_chat_body import ChatBody
from penguin.protocol.builders import approval_decision, is_partial
from penguin.protocol.call_ids import ToolCallIdAllocator
from penguin.protocol.messages import Message, Thinking, ToolCallOutput
from penguin.testing.turns import call, say, think, turn, usage
from penguin.trace.writer import TraceWriter

Scene = Callable[[World], None]
Mutation = Callable[[], contextlib.AbstractContextManager[Any]]


# --- scenes: each is green as the code stands ---------------------------------------------------------


def interrupted_tool(world: World) -> None:
    """A committed call is running when the user stops; then the task goes on."""
    world.replies.append(
        Plan(turn(call("endless", {"text": "tok-out-1"}, id="a"), call("echo", {"text": "b"}, id="b")))
    )
    world.run("tok-user-1")
    world.run("tok-user-2")


def interrupted_question(world: World) -> None:
    """The user stops instead of deciding; the second call was not even asked about."""
    world.replies.append(Plan(turn(call("echo", {"text": "a"}, id="a"), call("echo", {"text": "b"}, id="b"))))
    world.decisions.append("ponder")
    world.run("tok-user-1")
    world.run("tok-user-2")


def interrupted_words(world: World) -> None:
    """The reply is cut by the user; what was shown was said."""
    world.replies.append(Plan(turn(say("I say tok-say-1 and more"), delta_size=40), "silent", 4))
    world.run("tok-user-1")
    world.run("tok-user-2")


def failed_request(world: World) -> None:
    """The provider refuses for good; the prompt is kept."""
    world.replies.append(Plan(turn(), "refused"))
    world.run("tok-user-1")
    world.run("tok-user-2")


def retried_request(world: World) -> None:
    """The connection breaks in the middle of the words; the task goes on by itself."""
    world.replies.append(Plan(turn(say("I say tok-say-1 now " + "and then some " * 20), delta_size=20), "cut", 8))
    world.run("tok-user-1")
    world.run("tok-user-2")


def two_tools(world: World) -> None:
    world.replies.append(
        Plan(
            turn(
                think("hm"),
                call("slow", {"text": "tok-out-1", "steps": 9}, id="a"),
                call("echo", {"text": "x"}, id="b"),
            )
        )
    )
    world.run("tok-user-1")
    world.run("tok-user-2")


def two_replies(world: World) -> None:
    """Two signed replies, each with a call."""
    for number in range(2):
        world.replies.append(Plan(turn(think(f"hm {number}"), call("echo", {"text": "x"}, id=f"c{number}"))))
    world.run("tok-user-1")


def compacted_inside_a_task(world: World) -> None:
    """The turn's outputs go with the summary request; the next context must not get them again."""
    big = usage(cache_write=300_000, output=5)
    world.replies.append(Plan(turn(call("echo", {"text": "tok-out-1"}, id="a"), usage=big)))
    world.run("tok-user-1")
    world.run("tok-user-2")


def failed_compaction(world: World) -> None:
    """A summary attempt that was committed and useless stays in the history; nothing of it is sent again."""
    big = usage(cache_write=300_000, output=5)
    world.replies.append(Plan(turn(call("echo", {"text": "tok-out-1"}, id="a"), usage=big)))
    world.summaries += [Plan(turn(call("echo", {"text": "no"}, id="s"))), Plan(turn(), "refused")]
    world.run("tok-user-1")
    world.run("tok-user-2")


def crashed(world: World) -> None:
    """The process dies with one call allowed and one undecided."""
    world.replies.append(Plan(turn(say("tok-say-1"), call("slow", {"text": "tok-out-1", "steps": 50}, id="a"))))
    world.die_after(7, 0)
    world.run("tok-user-1")
    world.run("tok-user-2")


def repeated_ids(world: World) -> None:
    """A server that numbers the calls of each reply anew."""
    for number in range(2):
        world.replies.append(Plan(turn(call("echo", {"text": f"tok-out-{number}"}, id="call_0"))))
    world.run("tok-user-1")
    world.run("tok-user-2")


def steered(world: World) -> None:
    world.replies.append(Plan(turn(call("slow", {"text": "tok-out-1", "steps": 60}, id="a"))))
    world.run("tok-user-1", [], [(40, "steer tok-steer-1")])
    world.run("tok-user-2")


SCENES: list[Scene] = [
    interrupted_tool,
    interrupted_question,
    interrupted_words,
    failed_request,
    retried_request,
    two_tools,
    two_replies,
    compacted_inside_a_task,
    failed_compaction,
    crashed,
    repeated_ids,
    steered,
]


@contextlib.contextmanager
def a_world(root: Path, mind: str = "anthropic-messages") -> Iterator[World]:
    world = World(root, mind)
    try:
        world.start()
        yield world
    finally:
        world.close()


def play(root: Path, scene: Scene, mind: str = "anthropic-messages") -> None:
    with a_world(root, mind) as world:
        scene(world)
        world.check()
        result = world.run("tok-user-9")
        world.check()
        assert result is not None
        assert result.stop_reason == "completed", result


@pytest.mark.parametrize("mind", ["openai-chat", "openai-responses", "anthropic-messages", "gemini"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_D2_the_scenes_are_in_order_as_the_code_stands(scene: Scene, mind: str, tmp_path: Path) -> None:
    play(tmp_path, scene, mind)


# --- mutations -----------------------------------------------------------------------------------------


def without(owner: Any, name: str, result: Any = None) -> Mutation:
    """Do nothing instead."""
    return lambda: mock.patch.object(owner, name, return_value=result)


def instead(owner: Any, name: str, make: Callable[[Any], Any]) -> Mutation:
    """Do something else, made from the original."""
    original = owner.__dict__[name]
    return lambda: mock.patch.object(owner, name, make(original))


def _output_before_decision(original: Any) -> Any:
    async def take(desk: ToolDesk, answer: Answer) -> None:
        decision = await desk._decision(answer.call)
        answer.give("ran already", "completed")
        desk._recorder.emit(approval_decision(decision, answer.call.payload.tool_call_id))

    return take


def _stream_first(original: Any) -> Any:
    def emit(recorder: Recorder, message: Message) -> None:
        recorder._feed(message)
        if not message.origin and not is_partial(message):
            recorder.record(message)

    return emit


def _runs_twice(original: Any) -> Any:
    async def run(desk: ToolDesk, answer: Answer) -> None:
        await desk._environment.execute_tool(mock.Mock(tool_call=answer.call, approve=None), lambda message: None)
        await original(desk, answer)

    return run


def _commits_everything(original: Any) -> Any:
    """An attempt that did not complete joins the history."""

    def end(self: Ledger, message: Message, ended: Any) -> None:
        if self._trying and ended.status != "completed":
            self._attempts[-1].end = message
            self._commit(self._attempts[-1])
        else:
            original(self, message, ended)

    return end


def _resends_held_input(original: Any) -> Any:
    """What the summary request took along is owed once more."""

    def commit(self: Ledger, attempt: Any) -> None:
        sent = [message for message in attempt.input if isinstance(message.payload, ToolCallOutput)]
        original(self, attempt)
        if self._compaction is not None:
            self._compaction.held = sent

    return commit


def _drops_every(kind: type) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def append(writer: TraceWriter, message: Message) -> None:
            if not isinstance(message.payload, kind):
                original(writer, message)

        return append

    return make


def _words_first(original: Any) -> Any:
    def blocks(*args: Any) -> list[Any]:
        return sorted(original(*args), key=lambda block: str(block["type"] == "tool_result"))

    return blocks


def _delivers_nothing(original: Any) -> Any:
    def drain(inbox: Inbox) -> list[Message]:
        original(inbox)
        return []

    return drain


def _changes_thinking(original: Any) -> Any:
    def build(self: Any, history: Any, **rest: Any) -> bytes:
        body: bytes = original(self, history, **rest)
        return body.replace(b'"thinking":"hm"', b'"thinking":"hmm"')

    return build


def _forgets_first_thinking(original: Any) -> Any:
    """Only a second signed reply shows that signatures are sent and this one is missing."""

    def build(self: Any, history: Any, **rest: Any) -> bytes:
        first = next((message for message in history if isinstance(message.payload, Thinking)), None)
        body: bytes = original(self, [message for message in history if message is not first], **rest)
        return body

    return build


def _rewrites_the_past(original: Any) -> Any:
    def build(self: Any, history: Any, **rest: Any) -> bytes:
        body: bytes = original(self, history, **rest)
        return body.replace(b"tok-user-1", b"tok-user-1 (said earlier)") if b"tok-user-2" in body else body

    return build


def _same_id_again(original: Any) -> Any:
    def allocate(ids: ToolCallIdAllocator, wanted: str | None) -> str:
        return wanted or "call"

    return allocate


MUTATIONS: dict[str, tuple[Mutation, Scene]] = {
    # the five of the issue
    "the answer of an interrupted call is skipped": (without(ToolDesk, "answer_interrupted"), interrupted_question),
    "an interrupted call is not answered at all": (without(Answer, "interrupt"), interrupted_question),
    "carry-over is dropped: outputs": (without(Ledger, "_outputs", []), interrupted_tool),
    "carry-over is dropped: what a stopped turn held": (without(ledger, "closed_turn", []), interrupted_words),
    "carry-over is dropped: the prompt of a failed request": (without(ledger, "closed_turn", []), failed_request),
    "the output is written before the decision": (instead(ToolDesk, "_take", _output_before_decision), two_tools),
    "committed input is sent again after a compaction": (
        instead(Ledger, "_commit", _resends_held_input),
        failed_compaction,
    ),
    "an uncommitted turn is replayed": (instead(Ledger, "_end", _commits_everything), retried_request),
    # and more
    "an uncommitted turn is replayed after a stop": (instead(Ledger, "_end", _commits_everything), interrupted_words),
    "the account of failed attempts is left out": (
        instead(carry_over, "_account", lambda _: lambda a: ""),
        retried_request,
    ),
    "the stream is served before the trace": (instead(Recorder, "emit", _stream_first), crashed),
    "a call is run twice": (instead(ToolDesk, "_run", _runs_twice), two_tools),
    "outputs are not recorded": (instead(TraceWriter, "append", _drops_every(ToolCallOutput)), two_tools),
    "words are sent before the results": (
        instead(anthropic_messages_body, "_user_blocks", _words_first),
        interrupted_tool,
    ),
    "thinking is changed": (instead(MessagesBody, "build", _changes_thinking), two_tools),
    "thinking of one turn is forgotten": (instead(MessagesBody, "build", _forgets_first_thinking), two_replies),
    "the past is rewritten": (instead(MessagesBody, "build", _rewrites_the_past), two_tools),
    "call ids are not made unique": (instead(ToolCallIdAllocator, "allocate", _same_id_again), repeated_ids),
    "nothing is committed by the model": (without(GenerativeModel, "_commit"), two_tools),
    "steering is called delivered and is not": (instead(Inbox, "drain", _delivers_nothing), steered),
    "the user's words are not held": (without(Ledger, "_hold"), two_tools),
}
"""What is broken, and the scene that must not survive it."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_D2_a_deliberate_fault_is_caught(name: str, tmp_path: Path) -> None:
    mutation, scene = MUTATIONS[name]
    with pytest.raises((Violation, AssertionError)), mutation():
        play(tmp_path, scene)


def test_D2_the_prefix_watch_sees_a_changed_past_on_chat(tmp_path: Path) -> None:
    with pytest.raises(Violation, match="was changed"), instead(ChatBody, "build", _rewrites_the_past)():
        play(tmp_path, two_tools, "openai-chat")
