"""What a model made goes back to it, whatever protocol it is spoken to over from now on (L6, L14)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from penguin.llm.model import GenerativeModel
from penguin.protocol.builders import (
    assistant_text,
    inline_data,
    inline_thinking,
    thinking,
    tool_call,
    tool_call_output,
    user_text,
)
from penguin.protocol.interfaces import GenerateRequest, ModelConfig
from penguin.protocol.messages import Message, ToolDefinition
from penguin.testing.legality import check

PROTOCOLS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
DATA = "iVBORw0KGgo="
ITEM = Raw(b'{"item":{"type":"image_generation_call","id":"ig_1","status":"completed"}}')
REASONING = {"item": {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA==", "summary": []}}
LS = ToolDefinition("ls", "Lists.", {"type": "object", "properties": {}})


def body(client_type: str, history: list[Message], new: list[Message], *, vision: bool = True) -> dict[str, Any]:
    """The request body, checked for what the provider would refuse."""
    config = ModelConfig("custom", "m", client_type, base_url="http://127.0.0.1:9", tools=[LS], vision=vision)
    model = GenerativeModel(config)
    model.set_history(history)
    first, again = (model.rehearse(GenerateRequest(new)) for _ in range(2))
    assert first == again
    built: dict[str, Any] = json.loads(first)
    assert check(client_type, built) == []
    return built


DRAWN: list[Message] = [user_text("draw"), inline_data(DATA, "image/png", role="assistant")]
HISTORIES: dict[str, tuple[list[Message], list[Message]]] = {
    "alone": (DRAWN, [user_text("bluer")]),
    "with words": ([*DRAWN, assistant_text("There.")], [user_text("bluer")]),
    "before a call": ([*DRAWN, tool_call("ls", "{}", "c1")], [tool_call_output("a", "c1")]),
    "as an item": (
        [
            user_text("draw"),
            thinking("", fidelity=REASONING),
            inline_data(DATA, "image/png", role="assistant", fidelity=ITEM),
        ],
        [user_text("bluer")],
    ),
    "in the thoughts": (
        [user_text("draw"), inline_thinking(DATA, "image/png"), assistant_text("So.")],
        [user_text("?")],
    ),
}


@pytest.mark.parametrize("client_type", PROTOCOLS)
@pytest.mark.parametrize("name", [name for name in HISTORIES if name != "in the thoughts"])
def test_L6_an_image_of_the_model_is_not_lost_on_the_way_to_another(client_type: str, name: str) -> None:
    built = json.dumps(body(client_type, *HISTORIES[name]))
    assert built.count(DATA) == 1
    in_its_place = client_type == "gemini" or (client_type == "openai-responses" and name == "as an item")
    assert ("made by you" in built) is not in_its_place


@pytest.mark.parametrize("client_type", PROTOCOLS)
@pytest.mark.parametrize("name", HISTORIES)
def test_L14_a_blind_model_gets_not_even_the_image_it_made(client_type: str, name: str) -> None:
    built = json.dumps(body(client_type, *HISTORIES[name], vision=False))
    assert DATA not in built
    assert ("cannot see images" in built) is (name != "in the thoughts")


def test_L14_reasoning_that_led_to_an_image_stays_out_with_it() -> None:
    history, new = HISTORIES["as an item"]
    kinds = [item["type"] for item in body("openai-responses", history, new, vision=False)["input"]]
    assert kinds == ["message", "message", "message"]


@pytest.mark.parametrize("client_type", PROTOCOLS)
def test_T12_the_image_stays_where_it_was_first_sent(client_type: str) -> None:
    member = {"openai-responses": "input", "gemini": "contents"}.get(client_type, "messages")
    before = body(client_type, DRAWN, [user_text("bluer")])[member]
    after = body(client_type, [*DRAWN, user_text("bluer"), assistant_text("So.")], [user_text("redder")])[member]
    plain = [json.dumps(items).replace(', "cache_control": {"type": "ephemeral"}', "") for items in (before, after)]
    assert plain[1].startswith(plain[0][:-1])
