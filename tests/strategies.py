"""Hypothesis strategies for messages: every payload, with text and opaque data nobody would think of."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET, Raw

from penguin.protocol import events as ev
from penguin.protocol import messages as m

STOP_REASONS = ["completed", "failed", "aborted", "timeout", "malformed"]
LEVELS = ["none", "low", "medium", "high", "xhigh", "max", "default"]

texts = st.text(st.characters(codec="utf-8"), max_size=40)
"""Any text that UTF-8 can hold, line breaks and control characters included."""

words = st.text("abcdefghij_-0123456789", min_size=1, max_size=12)
small_counts = st.integers(0, 10**7)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def json_objects(draw: st.DrawFn) -> bytes:
    """The text of a JSON object in one of the ways a provider may write it, without white space between tokens."""
    value = draw(st.dictionaries(texts, json_values, max_size=4))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), separators=(",", ":"))
    for written, other in draw(st.sampled_from([[], [("/", r"\/")], [("e+", "E+")]])):
        text = text.replace(written, other)
    return text.encode()


def _opaque() -> st.SearchStrategy[Any]:
    return st.just(UNSET) | json_objects().map(Raw)


def _optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


_role = st.sampled_from(["user", "assistant"])
_stop_reason = _optional(st.sampled_from(STOP_REASONS))
_images = _optional(st.lists(texts.map("data:image/png;base64,{}".format), min_size=1, max_size=2))
_event_type = st.sampled_from(["start", "delta", "stop"])
_assistant, _user = st.just("assistant"), st.just("user")

complete_payloads: st.SearchStrategy[Any] = st.one_of(
    st.builds(m.Text, _role, texts, _opaque(), _stop_reason),
    st.builds(m.Thinking, _assistant, texts, _opaque(), _stop_reason),
    st.builds(m.InlineThinking, _assistant, words, words, _opaque(), _stop_reason),
    st.builds(m.InlineData, _role, words, words, _opaque(), _stop_reason),
    st.builds(m.ImageUrl, _user, texts, _stop_reason),
    st.builds(m.ToolCall, _assistant, words, texts, words, _opaque(), _stop_reason),
    st.builds(m.ToolCallOutput, _user, texts, words, _images, _stop_reason),
)

partial_payloads: st.SearchStrategy[Any] = st.one_of(
    st.builds(m.PartialText, _role, _event_type, texts, _stop_reason),
    st.builds(m.PartialThinking, _assistant, _event_type, texts, _stop_reason),
    st.builds(m.PartialToolCall, _assistant, _event_type, texts, words, words | st.just(""), _stop_reason),
    st.builds(m.PartialToolCallOutput, _user, _event_type, texts, words, _images, _stop_reason),
)

_status = st.sampled_from(STOP_REASONS)
_counts = st.builds(ev.TokenCounts, small_counts, small_counts, small_counts, small_counts)
_error = _optional(st.builds(ev.ErrorDetail, words, texts, _optional(st.integers(100, 599))))
_attempt = _optional(st.integers(1, 9))
_reason = st.sampled_from(["context", "turns", "manual"])
_mode = st.sampled_from(["summarize", "discard"])

event_payloads: st.SearchStrategy[Any] = st.one_of(
    st.just(ev.RequestBegin()),
    st.builds(ev.RequestEnd, _status, _attempt, _error, _optional(small_counts), _optional(words)),
    st.builds(ev.ApprovalDecision, st.sampled_from(["allow", "deny"]), words),
    st.builds(ev.TokenUsage, _counts, _counts, st.booleans(), _opaque()),
    st.builds(ev.CompactionBegin, _reason, _mode, small_counts, small_counts),
    st.builds(ev.CompactionEnd, _reason, _mode, _status, _attempt, _error),
    st.builds(ev.Abort, st.just(UNSET) | st.none() | texts),
    st.builds(ev.Subagent, words),
)

_tools = _optional(
    st.lists(
        st.builds(m.ToolDefinition, words, texts, _optional(st.dictionaries(texts, json_values, max_size=3))),
        max_size=2,
    )
)
_window = _optional(st.integers(1, 2**70) | st.floats(1, 1e9) | words)

session_metas: st.SearchStrategy[Any] = st.builds(
    m.SessionMeta, words, words, words, texts, texts, texts, _window, _tools, _optional(st.sampled_from(LEVELS))
)

timestamps = st.datetimes().map(
    lambda moment: f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z".zfill(24)
)
origins = st.none() | st.lists(words, min_size=1, max_size=3)


def _envelopes(kind: Any, payloads: st.SearchStrategy[Any]) -> st.SearchStrategy[m.Message]:
    return st.builds(m.OmniMessage, timestamps, st.just(kind), payloads, origins)


def messages() -> st.SearchStrategy[m.Message]:
    """Any message this version knows."""
    return st.one_of(
        _envelopes("session_meta", session_metas),
        _envelopes("model_msg", complete_payloads | partial_payloads),
        _envelopes("event_msg", event_payloads),
    )


def recorded_messages() -> st.SearchStrategy[m.Message]:
    """Any message that goes to a trace after its ``session_meta``: complete, of this session (T2)."""
    return st.one_of(_envelopes("model_msg", complete_payloads), _envelopes("event_msg", event_payloads)).map(
        lambda message: m.OmniMessage(message.timestamp, message.type, message.payload)
    )
