"""Arguments and documents nested beyond what a parser takes: never an exception, whoever reads them (L1, L10)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support import anthropic_kit, gemini_kit, llm_kit, responses_kit
from tests.support.llm_kit import Answer, Said

from penguin.llm.model import GenerativeModel
from penguin.llm.outcome import read_rejection
from penguin.llm.providers.body_parts import valid_arguments
from penguin.llm.providers.text_calls import parse_calls
from penguin.protocol.builders import tool_call, tool_call_output, user_text
from penguin.protocol.interfaces import GenerateRequest

pytestmark = pytest.mark.anyio

DEEP = '{"cmd":' + "[" * 3000 + "]" * 3000 + "}"
WITHIN = '{"cmd":' + "[" * 150 + "]" * 150 + "}"
KITS: dict[str, Any] = {"chat": llm_kit, "responses": responses_kit, "anthropic": anthropic_kit, "gemini": gemini_kit}
FOLDS: dict[str, Callable[[], Awaitable[Said]]] = {
    "chat": lambda: llm_kit.fold(llm_kit.call(DEEP, index=0, id="c", name="list_tasks"), llm_kit.CALLS, llm_kit.DONE),
    "chat, as an object": lambda: llm_kit.fold(
        f'data: {{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"id":"c","function":{{"name":"list_tasks",'
        f'"arguments":{DEEP}}}}}]}}}}]}}\n\n'.encode(),
        llm_kit.CALLS,
    ),
    "chat, without an end": lambda: llm_kit.fold(llm_kit.call(DEEP, index=0, id="c", name="list_tasks"), llm_kit.DONE),
    "responses": lambda: responses_kit.fold(
        responses_kit.call(0, "list_tasks", DEEP),
        responses_kit.completed(responses_kit.call_item("list_tasks", DEEP, "1")),
    ),
    "anthropic": lambda: anthropic_kit.fold(
        anthropic_kit.start(), anthropic_kit.call(0, "list_tasks", DEEP), anthropic_kit.finish("tool_use")
    ),
    "gemini": lambda: gemini_kit.fold(
        f'data: {{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"list_tasks","args":{DEEP}}}}}]}},'
        '"finishReason":"STOP"}]}\n\n'.encode()
    ),
}


@pytest.mark.parametrize("case", FOLDS)
async def test_L1_a_deeply_nested_reply_is_a_call_or_a_malformed_attempt(case: str) -> None:
    said = await FOLDS[case]()
    assert said.outcome.status in {"completed", "malformed"}
    assert [call.arguments for call in said.calls() if call.stop_reason is None] in ([], [DEEP])


@pytest.mark.parametrize("protocol", KITS)
@pytest.mark.parametrize("arguments", [DEEP, r'{"cmd":"\ud800"}', " \n", "[1", "null"])
async def test_L10_whatever_the_arguments_are_the_next_request_holds_an_object(protocol: str, arguments: str) -> None:
    one: GenerativeModel = KITS[protocol].model(Answer([]))[0]
    one.set_history([user_text("a"), tool_call("list_tasks", arguments, "c1"), tool_call_output("x", "c1")])
    body = one.rehearse(GenerateRequest([user_text("b")]))
    sent = json.dumps(json.loads(body))
    assert '"error"' not in sent
    assert r"\ud800" not in sent


def test_L10_arguments_nested_too_deeply_are_wrapped_whoever_asks() -> None:
    assert json.loads(valid_arguments(DEEP)) == {"unparsable_arguments": DEEP}
    assert valid_arguments(WITHIN) == WITHIN
    brackets_in_text = json.dumps({"cmd": "[" * 3000})
    assert valid_arguments(brackets_in_text) == brackets_in_text


@pytest.mark.parametrize("arguments", ["", "  \n", " {}", "{}"])
def test_L10_white_space_alone_goes_back_as_an_empty_object(arguments: str) -> None:
    assert valid_arguments(arguments) == "{}"


def test_P12_lone_surrogates_in_arguments_are_replaced_not_wrapped() -> None:
    assert json.loads(valid_arguments(r'{"cmd":"a\ud800b\ud83d\ude00\\ud800"}')) == {"cmd": "a�b😀\\ud800"}


def test_L18_a_deeply_nested_text_is_no_call() -> None:
    assert parse_calls(DEEP, {"cmd"}) is None
    assert parse_calls("[" * 400 + "]" * 400, {"cmd"}) is None


def test_L4_a_deeply_nested_error_body_is_read_as_text() -> None:
    assert read_rejection(("[" * 5000).encode(), 400, {}).message.startswith("[[[")
    assert read_rejection(("[" * 900 + "]" * 900).encode(), 400, {}).status == 400
