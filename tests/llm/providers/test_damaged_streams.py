"""Many streams of each protocol with random damage, fed to the folds without a transport (L4, P8).

What a hypothesis run tries a few hundred times with a whole model around it is tried here by the thousand;
``--long`` tries thirty thousand of each. A failure prints its seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from tests.llm.providers import (
    test_gemini_fold,
    test_openai_chat_fold,
    test_openai_responses_fold,
)
from tests.support import anthropic_kit

from penguin.llm.adapter import Conclusion, StreamFold
from penguin.llm.providers.anthropic_messages_fold import MessagesFold
from penguin.llm.providers.gemini_fold import GeminiFold
from penguin.llm.providers.openai_chat_fold import ChatFold
from penguin.llm.providers.openai_responses_fold import ResponsesFold
from penguin.llm.segments import Segments
from penguin.llm.sse import EventSplitter
from penguin.protocol.call_ids import ToolCallIdAllocator
from penguin.protocol.events import StopReason
from penguin.protocol.messages import Message, PartialText, PartialThinking, ToolCall
from penguin.testing.framing import assert_well_framed

# The deltas of this protocol carry no number: two pieces of arguments that changed places cannot be noticed when the
# JSON stays whole, so each call has one.
MESSAGES = (
    anthropic_kit.start(input_tokens=3)
    + anthropic_kit.thinking(0, "Let me ", "see… 😀", signature="SIG+/=")
    + anthropic_kit.text(1, "I will ", "look: ", "ü")
    + anthropic_kit.call(2, "read_file", '{"path": "a.txt"}', id="c1")
    + anthropic_kit.call(3, "exec_command", '{"command": "rm -rf build"}', id="c2")
    + anthropic_kit.finish("tool_use")
)


def bare(*names: str) -> set[tuple[str, str]]:
    """When every piece of the arguments is lost, some protocols cannot tell the call from one without arguments."""
    return {(name, "{}") for name in names}


def split(stream: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in stream.split(b"\n\n") if event]


FOLDS: dict[str, tuple[Callable[[Segments], StreamFold], list[bytes], set[tuple[str, str]]]] = {
    "openai-chat": (
        ChatFold,
        split(test_openai_chat_fold.CLEAN),
        {("read_file", '{"path":"a.txt"}'), ("write_file", '{"b":2}'), *bare("read_file", "write_file")},
    ),
    "anthropic-messages": (
        MessagesFold,
        split(MESSAGES),
        {
            ("read_file", '{"path": "a.txt"}'),
            ("exec_command", '{"command": "rm -rf build"}'),
            *bare("read_file", "exec_command"),
        },
    ),
    "openai-responses": (ResponsesFold, test_openai_responses_fold.CLEAN, test_openai_responses_fold.WHOLE_CALLS),
    "gemini": (GeminiFold, test_gemini_fold.CLEAN, test_gemini_fold.WHOLE_CALLS),
}


def damaged(events: list[bytes], chance: random.Random) -> list[bytes]:
    """Events dropped, doubled, swapped and garbled; then perhaps cut, and split anywhere."""
    stream = list(events)
    for _ in range(chance.randrange(4)):
        place, other = chance.randrange(len(stream)), chance.randrange(len(stream))
        match chance.randrange(4):
            case 0:
                del stream[place : place + (len(stream) > 1)]
            case 1:
                stream.insert(other, stream[place])
            case 2:
                stream[place], stream[other] = stream[other], stream[place]
            case _:
                at = chance.randrange(len(stream[place]))
                stream[place] = stream[place][:at] + stream[place][at + chance.randrange(1, 9) :]
    data = b"".join(stream)
    data = data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(4)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def status_of(conclusion: Conclusion) -> StopReason:
    """As the model decides it."""
    if conclusion.rejection is not None:
        return "failed"
    if not conclusion.delivered or conclusion.cut_off or (conclusion.unreadable and not conclusion.refusal):
        return "malformed"
    return "failed" if conclusion.refusal else "completed"


def folded(make: Callable[[Segments], StreamFold], chunks: list[bytes]) -> tuple[StopReason, list[Message]]:
    emitted: list[Message] = []
    segments = Segments(emitted.append, ToolCallIdAllocator())
    fold, splitter = make(segments), EventSplitter()
    for chunk in chunks:
        for event in splitter.feed(chunk):
            fold.fold(event)
    for event in splitter.finish():
        fold.fold(event)
    status = status_of(fold.conclude())
    segments.close(status)
    return status, emitted


def try_many(protocol: str, seeds: range) -> None:
    make, clean, whole_calls = FOLDS[protocol]
    originals = events_of(b"".join(clean))
    came_through = 0
    for seed in seeds:
        garbled = damaged(clean, random.Random(seed))  # noqa: S311 - repeatable damage, no secret
        status, emitted = folded(make, garbled)
        assert_well_framed(emitted)
        assert status in {"completed", "failed", "malformed"}, seed
        # Elsewhere the announcement of a block that stays empty is proof too, and shows nothing.
        if status != "completed" and protocol in {"openai-chat", "gemini"}:
            assert proven(emitted), seed
        # An event with bytes missing may be another legal one; those that only moved are held to what they say.
        if status == "completed" and events_of(b"".join(garbled)) <= originals:
            calls = [m.payload for m in emitted if isinstance(m.payload, ToolCall) and m.payload.stop_reason is None]
            can_run = {(call.name, call.arguments) for call in calls if is_object(call.arguments)}
            assert can_run <= whole_calls, (seed, can_run - whole_calls)
            came_through += 1
    assert came_through > len(seeds) // 20


def proven(emitted: list[Message]) -> bool:
    """Whether each call that may run in a reply that failed was followed by more: none that a cut could have hit."""
    for message in reversed(emitted):
        match message.payload:
            case ToolCall(stop_reason=None):
                return False
            case PartialText(event_type="start") | PartialThinking(event_type="start"):
                return True
            case _:
                pass
    return True


def is_object(arguments: str) -> bool:
    """Whether the engine would run such a call; anything else is answered with what is wrong with it."""
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def events_of(data: bytes) -> set[bytes]:
    return set(data.replace(b"\r\n", b"\n").split(b"\n\n")) - {b""}


@pytest.mark.parametrize("protocol", FOLDS)
def test_any_damage_is_survived(protocol: str) -> None:
    try_many(protocol, range(1_500))


@pytest.mark.long
@pytest.mark.timeout(280)
@pytest.mark.parametrize("protocol", FOLDS)
def test_any_damage_is_survived_thirty_thousand_times(protocol: str) -> None:
    try_many(protocol, range(30_000))
