from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from tests.strategies import messages

from penguin.protocol.builders import abort, user_text
from penguin.protocol.messages import Message
from penguin.protocol.schema import protocol_schema

VALIDATOR = jsonschema_rs.validator_for(protocol_schema())


def test_P15_the_checked_in_schema_is_what_the_types_say() -> None:
    file = resources.files("penguin.protocol") / "omni-message.schema.json"
    written = json.dumps(protocol_schema(), indent=2, ensure_ascii=False) + "\n"
    assert file.read_text("utf-8") == written, (
        "the protocol changed: write protocol_schema() into src/penguin/protocol/omni-message.schema.json"
    )


@given(messages())
def test_P15_every_message_this_version_writes_is_valid(message: Message) -> None:
    record = json.loads(message.line)
    assert [str(error) for error in VALIDATOR.iter_errors(record)] == []


@pytest.mark.parametrize(
    "change",
    [
        {"type": "event_msg"},
        {"timestamp": "yesterday"},
        {"origin": []},
        {"payload": {"type": "text", "role": "user"}},
        {"payload": {"type": "text", "role": "user", "text": "a", "stop_reason": None}},
        {"payload": {"type": "text", "role": "user", "text": "a", "fidelity": "AB"}},
    ],
)
def test_P15_what_the_protocol_forbids_is_invalid(change: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid({**json.loads(user_text("a").line), **change})


def test_P15_an_abort_reason_may_be_null_and_unknown_fields_are_allowed() -> None:
    assert VALIDATOR.is_valid(json.loads(abort(None).line))
    record = json.loads(user_text("a").line)
    record["payload"]["mood"] = "good"
    assert VALIDATOR.is_valid(record)


@pytest.mark.golden
def test_T14_current_payloads_of_the_golden_traces_are_valid(golden_dir: Path) -> None:
    checked = 0
    for path in golden_dir.glob("*/trace-*.jsonl"):
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            if record["payload"].get("type") in {"text", "tool_call", "tool_call_output", "token_usage"}:
                assert [str(error) for error in VALIDATOR.iter_errors(record)] == [], path
                checked += 1
    assert checked > 100
