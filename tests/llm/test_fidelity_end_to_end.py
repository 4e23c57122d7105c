"""Opaque provider data from a block through trace and resume to the request: the same bytes (P5, L6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.strategies import json_objects

from penguin.engine.ledger import Ledger
from penguin.llm.model import GenerativeModel
from penguin.protocol.builders import assistant_text, request_begin, request_end, session_meta, thinking, user_text
from penguin.protocol.codec import fidelity_bytes
from penguin.protocol.interfaces import GenerateRequest, ModelConfig
from penguin.protocol.messages import Message
from penguin.session.resume import recover

META = session_meta(session_id="s", provider="custom", model_id="m", system_prompt="", workspace="/w")


def shaped(client_type: str, value: bytes) -> tuple[Message, bytes]:
    """A block whose fidelity carries ``value`` where the protocol's adapter keeps raw data, and those bytes."""
    kept_as = fidelity_bytes(value)
    assert isinstance(kept_as, Raw)
    raw = bytes(kept_as)
    match client_type:
        case "openai-chat":
            details = b"[" + raw + b"]"
            kept = b'{"reasoning_field":"reasoning_details","reasoning_details":' + details + b"}"
            return thinking("t", fidelity=fidelity_bytes(kept)), details
        case "openai-responses":
            item = b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e","extra":' + raw + b"}"
            return thinking("", fidelity=fidelity_bytes(b'{"item":' + item + b"}")), item
        case "anthropic-messages":
            block = b'{"type":"redacted_thinking","data":"x","extra":' + raw + b"}"
            return thinking("", fidelity=fidelity_bytes(b'{"content_block":' + block + b"}")), block
        case _:
            part = b'{"extra":' + raw + b"}"
            return thinking("", fidelity=fidelity_bytes(b'{"part":' + part + b"}")), part


@pytest.mark.parametrize("client_type", ["openai-chat", "openai-responses", "anthropic-messages", "gemini"])
@given(value=json_objects(), words=st.text(max_size=20))
def test_P5_L6_the_stored_bytes_reach_the_request_after_a_resume(
    client_type: str, value: bytes, words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    block, kept = shaped(client_type, value)
    said: list[Message] = [block, assistant_text(f"w{words}")]
    records: list[Message] = [META, user_text("hi"), request_begin()]
    records += [*said, request_end("completed"), user_text("go on")]
    path = tmp_path_factory.mktemp("trace") / "1.jsonl"
    path.write_bytes(b"".join(message.line + b"\n" for message in records))
    ledger: Ledger = recover([Path(path)]).ledger
    config = ModelConfig("custom", "m", client_type=client_type, base_url="http://127.0.0.1", api_key="k")
    model = GenerativeModel(config)
    model.set_history(ledger.history)
    body = model.rehearse(GenerateRequest(ledger.carry_over))
    assert kept in body
