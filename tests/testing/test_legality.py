"""The legality checker knows each protocol's rules: a legal body has no complaint, each broken one has its own."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penguin.testing import ScriptedProvider, legality

PNG = "iVBORw0KGgo="
DATA_URL = f"data:image/png;base64,{PNG}"
SCHEMA = {"type": "object", "properties": {"p": {"type": "string"}}, "required": ["p"]}

LEGAL: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "look", "description": "d", "parameters": SCHEMA}}],
        "messages": [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": DATA_URL}}],
            },
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"p": "x"}'}},
                    {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"}]},
            {"role": "user", "content": "and?"},
            {"role": "assistant", "content": "so"},
            {"role": "user", "content": "go"},
        ],
    },
    "openai-responses": {
        "model": "m",
        "store": False,
        "max_output_tokens": 64,
        "tools": [{"type": "function", "name": "look", "parameters": SCHEMA}],
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "look", "arguments": '{"p": "x"}'},
            {"type": "function_call", "id": "fc_2", "call_id": "b", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "one"},
            {
                "type": "function_call_output",
                "call_id": "b",
                "output": [{"type": "input_image", "image_url": DATA_URL}],
            },
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and?"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            {"type": "message", "role": "user", "content": "go"},
        ],
    },
    "anthropic-messages": {
        "model": "m",
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "look", "description": "d", "input_schema": SCHEMA}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "ok"},
                    {"type": "tool_use", "id": "a", "name": "look", "input": {"p": "x"}},
                    {"type": "tool_use", "id": "b", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}]},
                    {"type": "tool_result", "tool_use_id": "b", "content": "two"},
                    {"type": "text", "text": "and?"},
                ],
            },
        ],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "s"}]},
        "tools": [{"functionDeclarations": [{"name": "look", "description": "d", "parametersJsonSchema": SCHEMA}]}],
        "generationConfig": {"maxOutputTokens": 100, "thinkingConfig": {"thinkingLevel": "low"}},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}]},
            {
                "role": "model",
                "parts": [
                    {"functionCall": {"name": "look", "args": {"p": "x"}}, "thoughtSignature": "c2ln"},
                    {"functionCall": {"name": "look", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "look", "response": {"output": "one"}}},
                    {"functionResponse": {"name": "look", "response": {"output": "two"}}},
                    {"text": "and?"},
                ],
            },
        ],
    },
}


def complaints(protocol: str, change: Callable[[dict[str, Any]], object] | None = None) -> list[str]:
    body = copy.deepcopy(LEGAL[protocol])
    if change is not None:
        change(body)
    return legality.check(protocol, body, model="gemini-3-pro")


def put(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Set what a dotted path leads to."""

    def change(body: dict[str, Any]) -> None:
        *way, last = path.split(".")
        place: Any = body
        for step in way:
            place = place[int(step) if isinstance(place, list) else step]
        place[int(last) if isinstance(place, list) else last] = value

    return change


def drop(path: str) -> Callable[[dict[str, Any]], None]:
    """Delete what a dotted path leads to."""

    def change(body: dict[str, Any]) -> None:
        *way, last = path.split(".")
        place: Any = body
        for step in way:
            place = place[int(step) if isinstance(place, list) else step]
        del place[int(last) if isinstance(place, list) else last]

    return change


def swap(path: str, first: int, second: int) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        place: Any = body
        for step in path.split("."):
            place = place[int(step) if isinstance(place, list) else step]
        place[first], place[second] = place[second], place[first]

    return change


@pytest.mark.parametrize("protocol", legality.PROTOCOLS)
def test_E25_a_legal_body_has_no_complaint(protocol: str) -> None:
    assert complaints(protocol) == []


CHAT, RESPONSES, ANTHROPIC, GEMINI = "openai-chat", "openai-responses", "anthropic-messages", "gemini"


@pytest.mark.parametrize(
    ("protocol", "change", "words"),
    [
        (CHAT, drop("model"), "model"),
        (CHAT, put("messages", []), "list with a message"),
        (CHAT, drop("messages.4"), "did not have response messages: b"),
        (CHAT, drop("messages.2"), "must be a response to a preceding message"),
        (CHAT, swap("messages", 4, 5), "did not have response messages: b"),
        (CHAT, put("messages.4.tool_call_id", "a"), "must be a response"),
        (CHAT, put("messages.2.tool_calls.1.id", "a"), "used twice"),
        (CHAT, put("messages.2.tool_calls.0.id", "x" * 41), "illegal id"),
        (CHAT, put("messages.2.tool_calls.0.function.name", "a b"), "illegal name"),
        (CHAT, put("messages.2.tool_calls.0.function.arguments", "{"), "not valid JSON"),
        (CHAT, put("messages.2.tool_calls.0.function.arguments", "[]"), "JSON object"),
        (CHAT, put("messages.2.tool_calls", []), "must not be empty"),
        (CHAT, put("messages.3.content", ""), "must not be empty"),
        (CHAT, put("messages.1.content", []), "list with a part"),
        (CHAT, put("messages.1.content.0.text", ""), "text must not be empty"),
        (CHAT, drop("messages.6"), "roles must alternate"),
        (CHAT, drop("messages.7"), "last word"),
        (CHAT, drop("messages.1"), "user must speak first"),
        (CHAT, put("messages.1.content.1.image_url.url", "data:image/tiff;base64,aaaa"), "image type"),
        (CHAT, put("messages.1.content.1.image_url.url", "data:image/png;base64,"), "no base64"),
        (CHAT, put("messages.4.content", [{"type": "image_url", "image_url": {"url": DATA_URL}}]), "cannot hold"),
        (CHAT, put("tools", []), "leave it out"),
        (CHAT, put("tools.0.function.parameters", {}), "schema of type object"),
        (CHAT, put("tools.0.function.parameters.required", ["q"]), "no property"),
        (CHAT, put("stream", False), "only allowed when stream"),
        (RESPONSES, put("input", []), "list with an item"),
        (RESPONSES, drop("input.5"), "no tool output found for function call b"),
        (RESPONSES, drop("input.2"), "no tool call found"),
        (RESPONSES, swap("input", 5, 6), "no tool output found"),
        (RESPONSES, put("input.3.call_id", "a"), "used twice"),
        (RESPONSES, put("input.3.id", "fc_1"), "duplicate item"),
        (RESPONSES, put("input.3.id", "call_1"), "begins with 'fc'"),
        (RESPONSES, put("input.2.arguments", "nope"), "not valid JSON"),
        (RESPONSES, drop("input.1.encrypted_content"), "nothing is stored"),
        (RESPONSES, swap("input", 0, 1), "without its required following item"),
        (RESPONSES, put("input.0.content.0.type", "output_text"), "invalid value"),
        (RESPONSES, put("input.7.content.0.type", "input_text"), "invalid value"),
        (RESPONSES, put("input.4.output", ""), "must not be empty"),
        (RESPONSES, drop("input.8"), "last item"),
        (RESPONSES, put("max_output_tokens", 1), "at least 16"),
        (ANTHROPIC, put("messages", []), "at least one message"),
        (ANTHROPIC, drop("max_tokens"), "is required"),
        (ANTHROPIC, drop("messages.0"), "roles must alternate"),
        (ANTHROPIC, drop("messages.1"), "roles must alternate"),
        (ANTHROPIC, drop("messages.2"), "without `tool_result` blocks"),
        (ANTHROPIC, drop("messages.2.content.1"), "without `tool_result` blocks immediately after: b"),
        (ANTHROPIC, put("messages.2.content.1.tool_use_id", "a"), "unexpected `tool_use_id`"),
        (ANTHROPIC, swap("messages.2.content", 0, 2), "must come first"),
        (ANTHROPIC, put("messages.1.content.3.id", "a"), "must be unique"),
        (ANTHROPIC, put("messages.1.content.3.id", "a b"), "illegal id"),
        (ANTHROPIC, put("messages.1.content.2.input", "{}"), "must be an object"),
        (ANTHROPIC, put("messages.1.content.1.text", "  \n"), "non-whitespace"),
        (ANTHROPIC, put("messages.2.content.1.content", ""), "empty"),
        (ANTHROPIC, put("messages.1.content.0.signature", ""), "signature"),
        (ANTHROPIC, swap("messages.1.content", 0, 1), "must start with a thinking block"),
        (ANTHROPIC, swap("messages.1.content", 0, 3), "final block in an assistant message cannot be `thinking`"),
        (
            ANTHROPIC,
            put("messages.1.content.3", {"type": "redacted_thinking", "data": "Zm9v"}),
            "final block in an assistant message cannot be `redacted_thinking`",
        ),
        (ANTHROPIC, put("messages.0.content.1.source.media_type", "image/bmp"), "image type"),
        (ANTHROPIC, put("thinking.budget_tokens", 5000), "greater than"),
        (ANTHROPIC, put("thinking.budget_tokens", 100), "at least 1024"),
        (ANTHROPIC, put("system.0.text", " "), "non-whitespace"),
        (ANTHROPIC, put("tools.0.input_schema", {"type": "array"}), "schema of type object"),
        (ANTHROPIC, put("messages.1.content.0.cache_control", {"type": "ephemeral"}), "thinking blocks"),
        (
            ANTHROPIC,
            put("messages.1.content.1", {"type": "server_tool_use", "id": "s", "name": "w", "input": {}}),
            "without its result block",
        ),
        (GEMINI, put("contents", []), "not specified"),
        (GEMINI, drop("contents.0"), "turns alternate"),
        (GEMINI, drop("contents.2"), "number of function response parts"),
        (GEMINI, drop("contents.2.parts.1"), "number of function response parts"),
        (GEMINI, drop("contents.1"), "turns alternate"),
        (GEMINI, swap("contents.2.parts", 0, 2), "must come first"),
        (GEMINI, put("contents.2.parts.0.functionResponse.name", "other"), "answers"),
        (GEMINI, put("contents.2.parts.0.functionResponse.response", "one"), "must be an object"),
        (GEMINI, put("contents.1.parts.0.functionCall.name", "1x"), "illegal name"),
        (GEMINI, put("contents.0.parts.0.text", ""), "text must not be empty"),
        (GEMINI, put("contents.0.parts", []), "must not be empty"),
        (GEMINI, put("contents.0.parts.0", {"text": "a", "inlineData": {}}), "oneof"),
        (GEMINI, put("contents.0.parts.1.inlineData.data", "?"), "base64"),
        (GEMINI, put("contents.1.parts.0.thoughtSignature", "?!"), "base64"),
        (GEMINI, put("generationConfig.thinkingConfig.thinkingBudget", 1), "only one of"),
    ],
)
def test_E25_what_a_provider_would_refuse_is_named(protocol: str, change: Callable[..., None], words: str) -> None:
    found = complaints(protocol, change)
    assert any(words in complaint for complaint in found), found


def test_gemini_3_wants_the_signature_of_the_first_call_of_each_step_since_the_users_words() -> None:
    body = copy.deepcopy(LEGAL[GEMINI])
    del body["contents"][2]["parts"][2]
    del body["contents"][1]["parts"][0]["thoughtSignature"]
    assert legality.check(GEMINI, body, model="gemini-2.5-pro") == []
    (complaint,) = legality.check(GEMINI, body, model="gemini-3.1-pro")
    assert "missing a thought_signature" in complaint


# --- rules that span requests -----------------------------------------------------------------------


def signed_reply(text: str = "hm") -> dict[str, Any]:
    thinking = {"type": "thinking", "thinking": text, "signature": f"sig of {text}"}
    return {"content": [thinking, {"type": "tool_use", "id": f"call-{text}", "name": "look", "input": {}}]}


def sent_back(*replies: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": reply["content"]} for reply in replies]}


def test_L6_what_was_signed_comes_back_unchanged_in_order_and_with_its_call() -> None:
    watch = legality.SignatureWatch(ANTHROPIC)
    one, two = signed_reply("one"), signed_reply("two")
    watch.issue(one)
    watch.issue(two)
    assert watch.check(sent_back(one, two)) == []
    assert watch.check(sent_back(two)) == []
    changed = copy.deepcopy(one)
    changed["content"][0]["thinking"] = "hmm"
    assert "never issued" in watch.check(sent_back(changed, two))[0]
    assert "another order" in watch.check(sent_back(two, one))[0]
    bare = {"content": one["content"][1:]}
    assert "without what was signed with it" in watch.check(sent_back(bare, two))[0]
    assert watch.check(sent_back(bare)) == []


def test_T12_what_a_completed_request_sent_is_the_beginning_of_the_next() -> None:
    watch = legality.PrefixWatch(CHAT)
    first = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}
    assert watch.check(first) == []
    watch.commit(first)
    more = [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert watch.check({"messages": [*first["messages"], *more]}) == []
    (complaint,) = watch.check({"messages": [{"role": "user", "content": [{"type": "text", "text": "A"}]}, *more]})
    assert "messages[0] was changed" in complaint
    assert watch.check({"messages": [{"role": "user", "content": "a new context"}]}) == []


# --- the scripted provider runs it ------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "protocol"), [("v1/chat/completions", CHAT), ("v1/responses", RESPONSES), ("v1/messages", ANTHROPIC)]
)
async def test_E25_the_scripted_provider_refuses_an_illegal_request_and_notes_it(path: str, protocol: str) -> None:
    body = copy.deepcopy(LEGAL[protocol])
    body.pop("model")
    async with ScriptedProvider(["ok"]) as provider, httpx2.AsyncClient() as client:
        refused = await client.post(f"{provider.host_url}/{path}", json=body)
        allowed = await client.post(f"{provider.host_url}/{path}", json=LEGAL[protocol])
    assert (refused.status_code, allowed.status_code) == (400, 200)
    assert "model" in refused.json()["error"]["message"]
    assert provider.problems == ["model: must be the name of a model"]


@pytest.mark.anyio
async def test_the_check_can_be_switched_off() -> None:
    async with ScriptedProvider(["ok"], check_requests=False) as provider, httpx2.AsyncClient() as client:
        answer = await client.post(f"{provider.base_url}/chat/completions", json={"stream": True})
    assert answer.status_code == 200


def test_the_checker_does_not_know_the_adapters() -> None:
    """Two authors must make the same mistake."""
    for file in Path(legality.__file__).parent.glob("*.py"):
        imported = [
            name.name if isinstance(node, ast.Import) else node.module or ""
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        ]
        assert not [name for name in imported if name.startswith("penguin") and ".legality" not in name]
