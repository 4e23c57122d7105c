from __future__ import annotations

import re

import pytest
from hypothesis import given
from tests.strategies import messages

from penguin.protocol import builders as b
from penguin.protocol import messages as m
from penguin.protocol.events import TokenCounts, add_token_counts, empty_token_counts
from penguin.protocol.messages import Message

COUNTS = TokenCounts(cache_read=1, cache_write=2, output=3, total=6)

BUILT: list[tuple[Message, type]] = [
    (b.user_text("a"), m.Text),
    (b.assistant_text("a"), m.Text),
    (b.thinking("a"), m.Thinking),
    (b.inline_thinking("QQ==", "audio/ogg"), m.InlineThinking),
    (b.inline_data("QQ==", "image/png"), m.InlineData),
    (b.image_url("https://example.org/a.png"), m.ImageUrl),
    (b.tool_call("ls", "{}", "c"), m.ToolCall),
    (b.tool_call_output("a", "c", images=["data:image/png;base64,QQ=="]), m.ToolCallOutput),
    (b.partial_text("start"), m.PartialText),
    (b.partial_thinking("delta", "a"), m.PartialThinking),
    (b.partial_tool_call("start", "c", name="ls"), m.PartialToolCall),
    (b.partial_tool_call_output("stop", "c"), m.PartialToolCallOutput),
    (b.request_begin(), m.RequestBegin),
    (b.request_end("completed"), m.RequestEnd),
    (b.approval_decision("allow", "c"), m.ApprovalDecision),
    (b.token_usage(COUNTS, COUNTS), m.TokenUsage),
    (b.compaction_begin("manual", "summarize", context=1, turns=2), m.CompactionBegin),
    (b.compaction_end("manual", "summarize", "completed"), m.CompactionEnd),
    (b.abort(), m.Abort),
    (b.subagent("s"), m.Subagent),
    (b.session_meta(session_id="s", provider="p", model_id="m", system_prompt="", workspace="/w"), m.SessionMeta),
]


@pytest.mark.parametrize(("message", "payload"), BUILT, ids=lambda value: getattr(value, "__name__", ""))
def test_P15_there_is_a_builder_for_every_kind(message: Message, payload: type) -> None:
    assert type(message.payload) is payload
    assert message.origin is None
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z", message.timestamp)


def test_P15_no_payload_is_without_builder() -> None:
    kinds = {*m.ModelPayload.__args__, *m.EventPayload.__args__, m.SessionMeta}
    assert {payload for _, payload in BUILT} == kinds


@given(messages())
def test_P15_exactly_one_guard_names_the_kind_of_a_message(message: Message) -> None:
    complete, partial = b.is_complete_model_message(message), b.is_partial(message)
    kinds = [complete, partial, b.is_event_message(message), b.is_session_meta(message), b.is_unknown(message)]
    assert kinds.count(True) == 1
    assert b.is_model_message(message) == (complete or partial) == (message.type == "model_msg")


def test_P1_origin_grows_outwards() -> None:
    message = b.with_origin(b.with_origin(b.user_text("a"), "inner"), "outer")
    assert message.origin == ["outer", "inner"]


def test_P1_a_second_with_origin_leaves_the_first_message_alone() -> None:
    message = b.user_text("a")
    encoded = message.line
    assert b.with_origin(message, "child").line != encoded
    assert message.origin is None


def test_P4_token_counts_add_up_class_by_class() -> None:
    assert add_token_counts(COUNTS, COUNTS) == TokenCounts(2, 4, 6, 12)
    assert add_token_counts(empty_token_counts(), COUNTS) == COUNTS
