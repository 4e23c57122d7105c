"""Answers that are nearly right, put right; and what a right answer looks like to the model (D34)."""

from __future__ import annotations

import base64
import io
import logging
from typing import Any

import pytest
from mcp_types import CallToolResult, ListToolsResult, methods
from PIL import Image

from penguin.environment.images import LARGEST_BASE64
from penguin.environment.mcp.mending import mended_result, mended_tools
from penguin.environment.mcp.results import CallAnswer, answer_of


def picture(kind: str, size: tuple[int, int] = (2, 2), *, noise: bool = False) -> str:
    buffer = io.BytesIO()
    (Image.effect_noise(size, 200) if noise else Image.new("L", size)).save(buffer, kind, quality=98)
    return base64.b64encode(buffer.getvalue()).decode()


PNG = picture("PNG")
WEBP = picture("WEBP")


def answer(raw: dict[str, Any], *, vision: bool = True) -> CallAnswer:
    mended = mended_result(raw)
    methods.validate_server_result("tools/call", "2025-11-25", mended)
    return answer_of(CallToolResult.model_validate(mended, by_name=False), vision=vision)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"content": [], "structuredContent": {"answer": 42}, "isError": False}, CallAnswer('{"answer": 42}')),
        ({"content": [], "isError": True}, CallAnswer("The tool reported an error without saying which.", failed=True)),
        ({"content": [text("boom")], "isError": True}, CallAnswer("boom", failed=True)),
        ({}, CallAnswer("")),
        ({"structuredContent": {"answer": 42}}, CallAnswer('{"answer": 42}')),
        ({"structuredContent": [1, 2]}, CallAnswer("[1, 2]")),
        ({"content": [text("words")], "structuredContent": {"answer": 42}}, CallAnswer("words")),
        ({"content": [text("words")], "structuredContent": [1]}, CallAnswer("words")),
        ({"content": [], "structuredContent": {"code": 5}, "isError": True}, CallAnswer('{"code": 5}', failed=True)),
        ({"content": "plain"}, CallAnswer("plain")),
        ({"content": None, "isError": None}, CallAnswer("")),
        ({"content": [{"type": "video", "x": 1}, text("b")]}, CallAnswer('{"type": "video", "x": 1}\nb')),
        ({"content": [{"type": "text"}, "loose"]}, CallAnswer('{"type": "text"}\nloose')),
        ({"content": [{"type": "text", "text": "x", "annotations": None, "_meta": None}]}, CallAnswer("x")),
    ],
)
def test_D34_results(raw: dict[str, Any], expected: CallAnswer) -> None:
    assert answer(raw) == expected


def test_N21_images_become_data_urls_of_what_they_really_are() -> None:
    mislabelled = {"type": "image", "data": WEBP, "mimeType": "image/png"}
    resource = {"type": "resource", "resource": {"uri": "x://pic", "blob": PNG, "mimeType": "image/png"}}
    assert answer({"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}, mislabelled]}) == CallAnswer(
        "", (f"data:image/png;base64,{PNG}", f"data:image/webp;base64,{WEBP}")
    )
    assert answer({"content": [resource]}) == CallAnswer("[image x://pic]", (f"data:image/png;base64,{PNG}",))


@pytest.mark.parametrize(
    ("data", "mime", "words"),
    [
        ("%%%", "image/png", "its data is damaged"),
        (base64.b64encode(b"<svg/>").decode(), "image/svg+xml", "not an image of a known type"),
        (picture("PNG", (13_000, 4_000)), "image/png", "13000x4000 are too many pixels"),
    ],
)
def test_N21_an_image_no_provider_takes_is_described(data: str, mime: str, words: str) -> None:
    told = answer({"content": [{"type": "image", "data": data, "mimeType": mime}]})
    assert words in told.text
    assert not told.images


@pytest.mark.parametrize(
    ("data", "size"),
    [(picture("PNG", (2_600, 1_300)), (2_000, 1_000)), (picture("JPEG", (2_400, 2_400), noise=True), (2_000, 2_000))],
)
def test_L14_D44_a_large_image_of_a_server_is_scaled_on_entry(data: str, size: tuple[int, int]) -> None:
    told = answer({"content": [{"type": "image", "data": data, "mimeType": "image/png"}]})
    content = told.images[0].partition(",")[2]
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == size
    assert len(content) <= LARGEST_BASE64
    assert "(scaled from" in told.text


def test_N21_a_text_only_model_gets_no_images() -> None:
    told = answer({"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}, vision=False)
    assert told == CallAnswer(f"[image, image/png, {len(PNG) * 3 // 4} bytes: this model does not take images]")


def test_N21_audio_links_and_resources_are_described() -> None:
    told = answer(
        {
            "content": [
                {"type": "audio", "data": "AAAA" * 10_000, "mimeType": "audio/wav"},
                {"type": "resource_link", "uri": "file:///a.txt", "name": "a", "mimeType": "text/plain"},
                {"type": "resource", "resource": {"uri": "x://t", "text": "inside"}},
                {"type": "resource", "resource": {"uri": "x://b", "blob": "AAAA", "mimeType": "application/zip"}},
            ]
        }
    )
    assert told.text.splitlines() == [
        "[audio, audio/wav, 30 kB: it cannot be played to the model]",
        "[resource a: file:///a.txt (text/plain)]",
        "[resource x://t]",
        "inside",
        "[resource x://b, application/zip, 3 bytes: binary, not shown]",
    ]


def test_a_tool_that_cannot_be_understood_does_not_cost_the_others(caplog: pytest.LogCaptureFixture) -> None:
    raw = {
        "tools": [
            {"name": "fine", "inputSchema": {"type": "object"}, "outputSchema": {"type": "string"}},
            {"name": "no_schema"},
            {"name": "odd", "inputSchema": {"type": "string"}, "annotations": "none", "description": "kept"},
            {"name": "worse", "inputSchema": {"properties": {"a": 3, "b": {}}, "required": "b"}},
            {"title": "nameless"},
            7,
        ],
        "nextCursor": None,
    }
    with caplog.at_level(logging.WARNING):
        mended = mended_tools(raw, "shop")
    methods.validate_server_result("tools/list", "2025-11-25", mended)
    tools = {each.name: each for each in ListToolsResult.model_validate(mended, by_name=False).tools}
    assert list(tools) == ["fine", "no_schema", "odd", "worse"]
    assert tools["fine"].output_schema is None
    assert tools["odd"].description == "kept"
    assert tools["worse"].input_schema["properties"] == {"b": {}}
    assert caplog.text.count("MCP server shop lists something that is no tool") == 2


@pytest.mark.parametrize("raw", [{}, {"tools": None}, {"tools": "x"}])
def test_a_listing_without_tools_is_empty(raw: dict[str, Any]) -> None:
    assert mended_tools(raw, "s")["tools"] == []


def test_a_server_that_asks_back_is_let_through() -> None:
    asking = {"resultType": "inputRequired", "inputRequests": {}}
    assert mended_result(asking) is asking
