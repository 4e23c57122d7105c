"""Request bodies of Gemini: byte for byte against files, and that the prefix never changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.strategies import json_objects
from tests.support.golden_bodies import check_golden, golden_cases, write_golden

from penguin.llm.providers.gemini import Gemini, gemini_settings
from penguin.llm.providers.gemini_body import GeminiBody, GeminiSettings
from penguin.protocol.builders import (
    assistant_text,
    image_url,
    inline_data,
    inline_thinking,
    thinking,
    tool_call,
    tool_call_output,
    user_text,
)
from penguin.protocol.codec import decode, encode
from penguin.protocol.interfaces import ModelConfig
from penguin.protocol.messages import Message, ThinkingLevel, ToolDefinition
from penguin.testing.legality import check

READ = ToolDefinition(
    "read_file",
    "Reads a file.",
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"path": {"type": "string"}, "mode": {"const": "text"}, "at": {"$ref": "#/$defs/At"}},
        "required": ["path"],
        "additionalProperties": False,
        "$defs": {"At": {"type": "object", "properties": {"line": {"type": "integer", "minimum": 1}}}},
    },
)
LIST = ToolDefinition("list_tasks", "Lists the tasks.", {"type": "object", "properties": {}})
PNG = "data:image/png;base64,iVBORw0KGgo="
LEVELS: list[ThinkingLevel] = ["none", "low", "medium", "high", "xhigh", "max"]
SIGNATURE = "c2ln/bmF0+dXJl=="

ASKED: list[Message] = [user_text("Read a.txt and b.txt — both, please.")]
REPLIED: list[Message] = [
    thinking("Only shown."),
    assistant_text("I read both.", fidelity={"signature": SIGNATURE}),
    tool_call(
        "read_file",
        '{"path": "a.txt", "limit": 1.0}',
        "call_1",
        fidelity={"signature": SIGNATURE, "call": {"id": "call_1"}},
    ),
    tool_call("read_file", '{"path": "b.txt"}', "call_2", fidelity={"call": {"id": "call_2"}}),
]
ANSWERED: list[Message] = [tool_call_output("A", "call_1"), tool_call_output("", "call_2")]
FINAL: list[Message] = [
    assistant_text("Both are short.", fidelity={"closing_part": {"text": "", "thoughtSignature": SIGNATURE}}),
    user_text("Thanks."),
]
NAMELESS: list[Message] = [
    tool_call("read_file", '{"path":"a"}', "read_file", fidelity={"call": {}}),
    tool_call("read_file", '{"path":"b"}', "read_file_2", fidelity={"call": {}}),
    tool_call_output("B", "read_file_2"),
    tool_call_output("A", "read_file"),
]
FOREIGN: list[Message] = [
    thinking("From Chat.", fidelity={"reasoning_field": "reasoning_content"}),
    thinking("From Anthropic.", fidelity={"signature": "SIG=="}),
    assistant_text("Words.", fidelity={"phase": "commentary", "item": {"id": "msg_SIG"}}),
    tool_call("list_tasks", "{}", "c1", fidelity={"item": {"id": "fc_SIG"}}),
    tool_call("list_tasks", "{}", "c2", fidelity={"tool_use": {"caller": "SIG"}}),
    tool_call_output("none", "c1"),
    tool_call_output("none", "c2"),
]


def build(history: list[Message], level: ThinkingLevel | None = None, **settings: Any) -> bytes:
    fixed: dict[str, Any] = {"system_prompt": "Be brief.", "tools": (READ, LIST)} | settings
    return GeminiBody(GeminiSettings(**fixed)).build(history, max_tokens=32_000, thinking_level=level)


def resumed(history: list[Message]) -> list[Message]:
    """As read back from a trace."""
    return [decode(encode(message)) for message in history]


def of_model(model_id: str, level: ThinkingLevel | None) -> bytes:
    adapter = Gemini(ModelConfig("google", model_id, system_prompt="Be brief."), "https://example.org")
    return adapter.body(ASKED, max_tokens=None, thinking_level=level)


CASES: dict[str, Callable[[], bytes]] = {
    "new_conversation": lambda: build([user_text("hi")], tools=()),
    "nothing_but_words": lambda: GeminiBody(GeminiSettings()).build([user_text("hi")]),
    "tools": lambda: build(ASKED),
    "parallel_results": lambda: build([*ASKED, *REPLIED, *ANSWERED]),
    "results_without_ids": lambda: build([*ASKED, *NAMELESS]),
    "steering_after_results": lambda: build([*ASKED, *REPLIED, user_text("Faster."), *ANSWERED, image_url(PNG)]),
    "second_turn": lambda: build([*ASKED, *REPLIED, *ANSWERED, *FINAL]),
    "resume": lambda: build(resumed([*ASKED, *REPLIED, *ANSWERED, *FINAL])),
    "images": lambda: build(
        [
            image_url(PNG),
            image_url("https://example.org/a.webp"),
            inline_data("R0lG", "image/gif"),
            inline_data("JVBERi0=", "application/pdf"),
            user_text("What is this?"),
            tool_call("read_file", '{"path":"a.png"}', "call_1", fidelity={"call": {}}),
            tool_call_output("image/png, 74 B", "call_1", images=[PNG, PNG]),
        ]
    ),
    "images_for_a_blind_model": lambda: build(
        [image_url(PNG), tool_call("read_file", "{}", "c"), tool_call_output("74 B", "c", images=[PNG])], vision=False
    ),
    "data_of_the_model": lambda: build(
        [
            *ASKED,
            inline_data("AAAA", "image/png", role="assistant", fidelity={"signature": SIGNATURE}),
            inline_thinking("BBBB", "image/png"),
            user_text("Nice."),
        ]
    ),
    "foreign_fidelity": lambda: build([*ASKED, *FOREIGN]),
    "foreign_fidelity_for_a_model_without_signatures": lambda: build([*ASKED, *FOREIGN], thinking_control="budget"),
    "unknown_part": lambda: build(
        [*ASKED, thinking("", fidelity=Raw(rb'{"part":{"executableCode":{"code":"a\/b"}}}')), *FINAL]
    ),
    "extra_tools": lambda: build(ASKED, extra_body={"tools": [{"googleSearch": {}}]}),
    "nothing_but_extra_tools": lambda: build(ASKED, tools=(), extra_body={"tools": [{"googleSearch": {}}, "junk"]}),
    "extra_body": lambda: build(
        ASKED,
        extra_body={
            "generationConfig": {"temperature": 0.5, "maxOutputTokens": None},
            "safetySettings": [],
            "contents": "mine",
        },
    ),
    **{f"thinking_{level}": lambda level=level: of_model("gemini-3.5-flash", level) for level in LEVELS},  # type: ignore[misc]
    **{f"thinking_budget_{level}": lambda level=level: of_model("gemini-2.5-pro", level) for level in LEVELS},  # type: ignore[misc]
    "thinking_budget_off": lambda: of_model("gemini-2.5-flash", "none"),
    "thinking_default": lambda: of_model("gemini-3.5-flash", None),
    "thinking_of_an_unknown_model": lambda: of_model("nobody-knows", "max"),
    "thinking_default_of_an_unknown_model": lambda: of_model("nobody-knows", None),
}


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    check_golden("gemini", case, CASES[case]())


@pytest.mark.parametrize("case", CASES)
def test_E25_the_provider_would_accept_it(case: str) -> None:
    unsigned = case in {"results_without_ids", "foreign_fidelity_for_a_model_without_signatures"}
    model = "gemini-2.5-pro" if unsigned else "gemini-3.5-flash"
    assert check("gemini", json.loads(CASES[case]()), model=model) == []


def test_every_golden_file_has_its_case() -> None:
    assert golden_cases("gemini") == set(CASES)


def contents(history: list[Message], **settings: Any) -> list[dict[str, Any]]:
    return list(json.loads(build(history, **settings))["contents"])


def test_resume_sends_the_same_bytes() -> None:
    assert CASES["resume"]() == CASES["second_turn"]()


@given(json_objects(), json_objects())
def test_P5_any_fidelity_goes_back_with_its_bytes(one: bytes, other: bytes) -> None:
    history = resumed(
        [
            user_text("a"),
            thinking("", fidelity=Raw(b'{"part":{"x":' + one + b"}}")),
            assistant_text("b", fidelity=Raw(b'{"signature":' + other + b',"closing_part":{"y":' + one + b"}}")),
            tool_call("ls", "{}", "c", fidelity=Raw(b'{"call":{"z":' + other + b'},"part":{"w":' + one + b"}}")),
            user_text("d"),
        ]
    )
    body = build(history)
    assert body.count(one) >= 3
    assert b'"thoughtSignature":' + other in body
    assert b'"z":' + other in body


def test_L6_foreign_fidelity_is_removed() -> None:
    sent = build([*ASKED, *FOREIGN])
    assert b"SIG" not in sent
    assert b"phase" not in sent


def test_calls_that_no_gemini_made_have_the_documented_excuse_once_a_reply() -> None:
    sent = contents([*ASKED, *FOREIGN])
    assert [part.get("thoughtSignature") for part in sent[1]["parts"] if "functionCall" in part] == [
        "skip_thought_signature_validator",
        None,
    ]


def test_T14_signatures_of_the_original_go_back() -> None:
    history: list[Message] = [
        user_text("a"),
        tool_call("ls", "{}", "c", fidelity={"signature": SIGNATURE}),
        tool_call_output("x", "c"),
    ]
    assert contents(history)[1]["parts"][0]["thoughtSignature"] == SIGNATURE


def test_roles_alternate_even_when_the_model_said_nothing() -> None:
    history: list[Message] = [user_text("a"), thinking("hm"), assistant_text(""), user_text(""), user_text("b")]
    assert contents(history) == [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"text": "[no output]"}]},
        {"role": "user", "parts": [{"text": "b"}]},
    ]


@pytest.mark.parametrize(("called", "sent"), [("no such.tool/ü", "no_such_tool__"), ("1st", "_1st"), ("", "tool")])
def test_E25_a_name_that_no_provider_takes_is_made_legal(called: str, sent: str) -> None:
    """Found by the state machine: a model had called what does not exist, and the next request was refused."""
    history: list[Message] = [user_text("go"), tool_call(called, "{}", "a"), tool_call_output("there is none", "a")]
    _, of_model, of_user = contents(history)
    assert of_model["parts"][0]["functionCall"]["name"] == sent
    assert of_user["parts"][0]["functionResponse"]["name"] == sent


def test_L10_what_is_no_json_object_is_sent_as_one() -> None:
    history: list[Message] = [user_text("a"), tool_call("ls", '{"a', "c"), tool_call_output("no", "c")]
    sent = contents(history)
    assert sent[1]["parts"][0]["functionCall"]["args"] == {"unparsable_arguments": '{"a'}


def test_L16_how_models_are_told_comes_from_the_catalogue() -> None:
    assert gemini_settings(ModelConfig("google", "gemini-2.5-pro")).thinking_control == "budget"
    assert gemini_settings(ModelConfig("google", "gemini-3.5-flash")).thinking_control == "level"
    assert gemini_settings(ModelConfig("custom", "m")).thinks is None


@pytest.mark.parametrize(
    ("base_url", "model", "url"),
    [
        ("https://h", "m", "https://h/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("https://h/", "m", "https://h/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("https://h/v1beta", "m", "https://h/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("https://h/gateway", "m", "https://h/gateway/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("https://h?x=1", "tunedModels/m", "https://h/v1beta/tunedModels/m:streamGenerateContent?x=1&alt=sse"),
        ("https://h", "a b?c", "https://h/v1beta/models/a%20b%3Fc:streamGenerateContent?alt=sse"),
    ],
)
def test_L7_where_requests_go(base_url: str, model: str, url: str) -> None:
    assert Gemini(ModelConfig("custom", model), base_url).url() == url


def test_L17_the_key_is_in_a_header_only() -> None:
    adapter = Gemini(ModelConfig("google", "m", api_key="AIza-secret"), "https://h")
    assert adapter.headers()["x-goog-api-key"] == "AIza-secret"
    assert "secret" not in adapter.url()
    assert "x-goog-api-key" not in Gemini(ModelConfig("google", "m"), "https://h").headers()


# --- the prefix -------------------------------------------------------------------------------------------

_kinds = st.sampled_from(["text", "signed", "call", "nameless", "empty", "unknown"])


def _conversation(turns: list[list[str]]) -> list[tuple[list[Message], list[Message]]]:
    """Pairs of what was new and what the model replied."""
    pairs: list[tuple[list[Message], list[Message]]] = []
    new: list[Message] = [user_text("start")]
    for number, kinds in enumerate(turns):
        reply: list[Message] = []
        results: list[Message] = []
        for place, kind in enumerate(kinds):
            call_id = f"c{number}_{place}"
            match kind:
                case "text":
                    reply.append(assistant_text(f"text {number} {place} ✅"))
                case "signed":
                    reply.append(assistant_text("signed", fidelity={"signature": SIGNATURE}))
                case "unknown":
                    reply.append(thinking("", fidelity={"part": {"x": place}}))
                case "call" | "nameless":
                    call = {"id": call_id} if kind == "call" else {}
                    reply.append(tool_call("ls", "{}", call_id, fidelity={"call": call}))
                    results.insert(0, tool_call_output("out", call_id))
                case _:
                    reply.append(assistant_text(""))
        pairs.append((new, reply))
        new = [*results, user_text(f"next {number}")]
    return pairs


@given(st.lists(st.lists(_kinds, min_size=1, max_size=4), max_size=6))
def test_T12_earlier_bytes_never_change_and_memory_changes_nothing(turns: list[list[str]]) -> None:
    settings = GeminiSettings("system", (READ,))
    remembering = GeminiBody(settings)
    history: list[Message] = []
    before = b""
    for new, reply in _conversation(turns):
        history += new
        built = remembering.build(history)
        assert built == GeminiBody(settings).build(history)
        assert built.startswith(before[:-2])
        before = built
        history += reply


if __name__ == "__main__":
    write_golden("gemini", CASES)
