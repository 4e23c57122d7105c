"""What the model is shown after a provider refused an item (E26, D44)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.engine_kit import text_of

from penguin.llm.isolation import View
from penguin.llm.model import GenerativeModel
from penguin.protocol.builders import assistant_text, image_url, inline_data, thinking, tool_call_output, user_text
from penguin.protocol.interfaces import GenerateRequest, ModelConfig, ModelError
from penguin.protocol.messages import Message, Text, Thinking
from penguin.testing import ScriptedProvider, refuse

pytestmark = pytest.mark.anyio

PNG = "data:image/png;base64,iVBORw0KGgo="


def test_E26_only_the_newest_images_go_first() -> None:
    old, new = image_url("https://example.org/old.png"), tool_call_output("a picture", "c1", images=[PNG])
    view = View()
    error = ModelError("bad_request", "Could not process image", 400)
    assert view.isolate(error, [old], [new]) == "1 image the provider could not read"
    shown_old, shown_new = view.of([old, new])
    assert shown_old is old
    assert text_of(shown_new).startswith("a picture\n[an image was left out")
    assert view.isolate(error, [old], [new]) == "1 image the provider could not read"
    assert view.isolate(error, [old], [new]) is None


def test_E26_an_image_that_the_model_made_can_be_the_one() -> None:
    made = inline_data("iVBORw0KGgo=", "image/png", role="assistant")
    view = View()
    error = ModelError("bad_request", "image exceeds 5 MB maximum", 400)
    assert view.isolate(error, [made], [user_text("bluer")]) is not None
    [shown] = view.of([made])
    assert isinstance(shown.payload, Text)
    assert shown.payload.role == "assistant"


def test_E26_stale_signatures_are_dropped_and_the_rest_stays() -> None:
    signed: list[Message] = [thinking("plan", fidelity={"signature": "S"}), assistant_text("hi")]
    view = View()
    error = ModelError("bad_request", "messages.1.content.0: Invalid `signature` in `thinking` block", 400)
    assert view.isolate(error, signed, [user_text("go on")]) is not None
    thought, words = view.of(signed)
    assert isinstance(thought.payload, Thinking)
    assert not thought.payload.fidelity
    assert words is signed[1]


def test_E26_an_error_about_something_else_hides_nothing() -> None:
    view = View()
    messages: list[Message] = [user_text("hi")]
    assert view.isolate(ModelError("bad_request", "unknown parameter: foo", 400), messages, messages) is None
    assert view.of(messages) == messages
    shown: list[Message] = [user_text("look"), image_url(PNG)]
    assert view.isolate(ModelError("bad_request", "invalid value for 'seed': no number", 400), [], shown) is None
    assert view.of(shown) == shown
    assert view.isolate(ModelError("bad_request", "could not decode messages.0.content.1", 400), [], shown) is not None


async def test_D44_after_the_isolation_the_request_is_legal_and_hello_works(tmp_path: Path) -> None:
    async with ScriptedProvider([refuse(400, "image exceeds 5 MB maximum"), "fine", "hello"]) as provider:
        model = GenerativeModel(ModelConfig("custom", "m", base_url=provider.base_url))
        prompt: list[Message] = [user_text("look"), image_url(PNG)]
        said: list[Message] = []
        outcome = await model.stream_generate(GenerateRequest(prompt), said.append)
        assert outcome.error is not None
        assert outcome.error.kind == "bad_request"
        assert model.isolate(outcome.error, prompt) is not None
        assert (await model.stream_generate(GenerateRequest(prompt), said.append)).status == "completed"
        assert (await model.stream_generate(GenerateRequest([user_text("hi")]), said.append)).status == "completed"
        bodies = [request.raw for request in provider.requests]
        await model.aclose()
    assert PNG.encode() in bodies[0]
    assert not any(PNG.encode() in body for body in bodies[1:])
