"""Images of the user are fitted once, on entry (L14, D44)."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
from PIL import Image
from tests.support.engine_kit import allow, text_of

from penguin import create_agent
from penguin.environment import images
from penguin.protocol.builders import image_url, user_text
from penguin.protocol.messages import ImageUrl, Message
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import call
from penguin.trace.reader import read_trace

pytestmark = pytest.mark.anyio


def data_url(size: tuple[int, int]) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", size, (1, 2, 3)).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


async def test_L14_D44_large_images_are_scaled_before_the_trace_and_bad_ones_become_a_line(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    script = ScriptedModel(["I see.", "Hello."])
    small, large = data_url((10, 10)), data_url((4000, 20))
    prompt: list[Message] = [
        user_text("look"),
        image_url(small),
        image_url(large),
        image_url("data:image/png;base64,AAAA"),
    ]
    async with await agent.create_session(model=script) as session:
        await session.ask([*prompt, image_url("https://example.org/x.png")])
        await session.ask("hello")
        path = session.trace_path
    sent = script.requests[0].new_messages
    shown = [m.payload.image_url for m in sent if isinstance(m.payload, ImageUrl)]
    assert shown[0] == small
    assert shown[1] != large
    assert shown[2] == "https://example.org/x.png"
    notes = [text_of(m) for m in sent if text_of(m).startswith("[")]
    assert "scaled from 4000x20" in notes[0]
    assert "left out" in notes[1]
    assert path is not None
    assert [m.payload for m in list(read_trace(path))[1:7]] == [m.payload for m in sent]


@pytest.mark.parametrize(
    ("setting", "words"),
    [('[fetch]\nallowed_hosts = ["127.0.0.1"]\n', "Connection refused"), ("", "is not a public address")],
)
async def test_D51_the_projects_setting_allows_its_own_hosts(tmp_path: Path, setting: str, words: str) -> None:
    config = tmp_path / "default_project" / ".project_config.toml"
    config.parent.mkdir()
    config.write_text(setting)
    nobody = call("read_image", {"source": "http://127.0.0.1:9/x.png"})
    script = ScriptedModel([nobody, "I see nothing."])
    agent = await create_agent(root=tmp_path)
    async with await agent.create_session(model=script) as session:
        await session.ask("look", approve=allow)
    assert words in text_of(script.requests[1].new_messages[0])


async def test_D51_an_embedded_image_of_too_many_bytes_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "LARGEST_FILE", 100_000)
    script = ScriptedModel(["I see nothing."])
    agent = await create_agent(root=tmp_path)
    async with await agent.create_session(model=script) as session:
        await session.ask([user_text("look"), image_url("data:image/png;base64," + "A" * 200_000)])
    sent = script.requests[0].new_messages
    assert not [m for m in sent if isinstance(m.payload, ImageUrl)]
    assert "an image was left out: it has 195 kB of base64; an image may have 98 kB" in text_of(sent[1])
