"""Going on without an item that the provider refuses for good (E26)."""

from __future__ import annotations

import pytest
from tests.support.engine_kit import Drive, text_of

from penguin.protocol.builders import image_url, user_text
from penguin.protocol.interfaces import ModelError
from penguin.protocol.messages import Message, RequestEnd, Text
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import fail, turn

pytestmark = pytest.mark.anyio


class Picky(ScriptedModel):
    """A scripted model with the optional ability; `left_out` is what it says it hides."""

    left_out: str | None = "1 image"
    asked: int = 0

    def isolate(self, error: ModelError, new_messages: list[Message]) -> str | None:
        self.asked += 1
        return self.left_out


def refused() -> object:
    return turn(fault=fail("failed", "bad_request", "could not process image", http_status=400))


async def test_E26_the_item_is_left_out_the_request_repeated_once_and_the_user_told() -> None:
    model = Picky([refused(), "I cannot see it."])  # type: ignore[list-item]
    drive = Drive(model=model)
    result = await drive.engine.run([user_text("look"), image_url("https://example.org/a.png")])
    assert result.text == "I cannot see it."
    first, second = drive.sent(0), drive.sent(1)
    assert [m.payload for m in first] == [m.payload for m in second]
    assert [m.payload.retry_in_ms for m in drive.stream if isinstance(m.payload, RequestEnd)] == [0, None]
    notices = [text_of(m) for m in drive.stream if isinstance(m.payload, Text) and m.payload.stop_reason == "failed"]
    assert notices == ["[left out, trying again: 1 image]"]
    drive.check()


async def test_E26_once_a_turn_then_the_refusal_stands() -> None:
    model = Picky([refused(), refused(), "never"])  # type: ignore[list-item]
    drive = Drive(model=model)
    result = await drive.run()
    assert result.stop_reason == "failed"
    assert model.asked == 1
    drive.check()


async def test_E26_nothing_fits_the_error() -> None:
    model = Picky([refused(), "never"])  # type: ignore[list-item]
    model.left_out = None
    drive = Drive(model=model)
    assert (await drive.run()).stop_reason == "failed"
    drive.check()
