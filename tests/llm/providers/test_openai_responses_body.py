"""Request bodies of Responses: byte for byte against files, and that the prefix never changes."""

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

from penguin.llm.providers.openai_responses import OpenAIResponses, responses_settings
from penguin.llm.providers.openai_responses_body import ResponsesBody, ResponsesSettings
from penguin.protocol.builders import (
    assistant_text,
    image_url,
    inline_data,
    thinking,
    tool_call,
    tool_call_output,
    user_text,
)
from penguin.protocol.codec import decode, encode
from penguin.protocol.interfaces import ModelConfig
from penguin.protocol.messages import Message, ThinkingLevel, ToolDefinition
from penguin.testing.legality import check

READ = ToolDefinition("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LIST = ToolDefinition("list_tasks", "Lists the tasks.")
PNG = "data:image/png;base64,iVBORw0KGgo="
MADE = Raw(b'{"item":{"type":"image_generation_call","id":"ig","status":"completed"}}')
LEVELS: list[ThinkingLevel] = ["none", "low", "medium", "high", "xhigh", "max"]


def reasoning(number: int, **more: Any) -> Message:
    item = {"id": f"rs_{number}", "type": "reasoning", "encrypted_content": f"gAAA{number}==", "summary": []} | more
    return thinking("Shown, not sent.", fidelity={"item": item})


def words(text: str, phase: str, number: int) -> Message:
    item = {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant"}
    part = {"type": "output_text", "annotations": []}
    return assistant_text(text, fidelity={"phase": phase, "item": item, "part": part})


ASKED: list[Message] = [user_text("Read a.txt and b.txt — both, please.")]
REPLIED: list[Message] = [
    reasoning(1),
    words("I read both.", "commentary", 1),
    reasoning(2, summary=[{"type": "summary_text", "text": "Both."}]),
    tool_call("read_file", '{"path": "a.txt", "limit": 1.0}', "call_1", fidelity={"item": {"id": "fc_1"}}),
    tool_call("read_file", '{"path": "b.txt"}', "call_2", fidelity={"item": {"id": "fc_2", "status": "completed"}}),
]
ANSWERED: list[Message] = [tool_call_output("A", "call_1"), tool_call_output("", "call_2")]
FINAL: list[Message] = [reasoning(3), words("Both are short.", "final_answer", 2), user_text("Thanks.")]
FOREIGN: list[Message] = [
    thinking("From Chat.", fidelity={"reasoning_field": "reasoning_content"}),
    thinking("From Anthropic.", fidelity={"signature": "SIG=="}),
    assistant_text("Words.", fidelity={"citations": [], "signature": "SIG=="}),
    tool_call("list_tasks", "{}", "c1", fidelity={"extra_content": {"google": {}}, "signature": "SIG=="}),
    tool_call_output("none", "c1"),
]


def build(history: list[Message], level: ThinkingLevel | None = None, **settings: Any) -> bytes:
    fixed: dict[str, Any] = {"system_prompt": "Be brief.", "tools": (READ, LIST)} | settings
    body = ResponsesBody(ResponsesSettings("some-model", **fixed))
    return body.build(history, max_tokens=32_000, thinking_level=level)


def resumed(history: list[Message]) -> list[Message]:
    """As read back from a trace."""
    return [decode(encode(message)) for message in history]


def of_model(model_id: str, level: ThinkingLevel | None) -> bytes:
    adapter = OpenAIResponses(ModelConfig("openai", model_id, system_prompt="Be brief."), "https://api.openai.com/v1")
    return adapter.body(ASKED, max_tokens=None, thinking_level=level)


CASES: dict[str, Callable[[], bytes]] = {
    "new_conversation": lambda: build([user_text("hi")], tools=()),
    "no_system_prompt": lambda: build([user_text("hi")], system_prompt=None),
    "tools": lambda: build(ASKED),
    "parallel_results": lambda: build([*ASKED, *REPLIED, *ANSWERED]),
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
            tool_call("read_file", '{"path":"a.png"}', "call_1"),
            tool_call_output("image/png, 74 B", "call_1", images=[PNG]),
        ]
    ),
    "images_for_a_blind_model": lambda: build(
        [image_url(PNG), tool_call("read_file", "{}", "c"), tool_call_output("74 B", "c", images=[PNG])], vision=False
    ),
    "foreign_fidelity": lambda: build([*ASKED, *FOREIGN]),
    "unknown_item": lambda: build(
        [*ASKED, thinking("", fidelity=Raw(rb'{"item":{"type":"web_search_call","id":"ws","q":"a\/b"}}')), *FINAL]
    ),
    "image_of_the_model": lambda: build(
        [
            *ASKED,
            reasoning(1),
            inline_data("iVBORw0KGgo=", "image/png", role="assistant", fidelity=MADE),
            inline_data("AAAA", "image/png", role="assistant"),
            user_text("Bluer."),
        ]
    ),
    "extra_tools": lambda: build(ASKED, extra_body={"tools": [{"type": "web_search"}]}),
    "nothing_but_extra_tools": lambda: build(ASKED, tools=(), extra_body={"tools": [{"type": "web_search"}, "junk"]}),
    "extra_body": lambda: build(
        ASKED, extra_body={"include": None, "service_tier": "flex", "input": "mine", "temperature": 0.5}
    ),
    **{f"thinking_{level}": lambda level=level: of_model("gpt-5.6", level) for level in LEVELS},  # type: ignore[misc]
    "thinking_default": lambda: of_model("gpt-5.6", None),
    "thinking_of_a_model_with_few_levels": lambda: of_model("gpt-5", "max"),
    "thinking_of_a_model_without": lambda: of_model("gpt-4.1", "high"),
    "thinking_of_an_unknown_model": lambda: of_model("nobody-knows", "xhigh"),
}


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    check_golden("openai_responses", case, CASES[case]())


@pytest.mark.parametrize("case", CASES)
def test_E25_the_provider_would_accept_it(case: str) -> None:
    assert check("openai-responses", json.loads(CASES[case]())) == []


def test_every_golden_file_has_its_case() -> None:
    assert golden_cases("openai_responses") == set(CASES)


def items(history: list[Message], **settings: Any) -> list[dict[str, Any]]:
    return list(json.loads(build(history, **settings))["input"])


def test_resume_sends_the_same_bytes() -> None:
    assert CASES["resume"]() == CASES["second_turn"]()


def test_P5_L6_reasoning_goes_back_with_its_bytes() -> None:
    raw = rb'{"type":"reasoning","id":"rs","encrypted_content":"a\/b\u00e9","summary":[],"n":1.50e3}'
    history: list[Message] = [user_text("a"), thinking("", fidelity=Raw(b'{"item":' + raw + b"}")), assistant_text("b")]
    assert raw in build(resumed(history))


@given(json_objects(), json_objects(), json_objects())
def test_P5_any_fidelity_goes_back_with_its_bytes(item: bytes, member: bytes, phase: bytes) -> None:
    history = resumed(
        [
            user_text("a"),
            thinking("", fidelity=Raw(b'{"item":' + item + b"}")),
            assistant_text("b", fidelity=Raw(b'{"phase":' + phase + b',"item":{"id":"m","m":' + member + b"}}")),
            tool_call("ls", "{}", "c", fidelity=Raw(b'{"item":{"caller":' + member + b"}}")),
            user_text("d"),
        ]
    )
    body = build(history)
    assert item in body
    assert b'"phase":' + phase in body
    assert body.count(member) >= 2


def test_L6_foreign_fidelity_is_removed() -> None:
    sent = build([*ASKED, *FOREIGN])
    assert b"SIG" not in sent
    assert b"reasoning_content" not in sent


def test_reasoning_that_nothing_follows_stays_out() -> None:
    assert [item["type"] for item in items([user_text("a"), reasoning(1), user_text("b")])] == ["message", "message"]


@pytest.mark.parametrize("given_content", [{"encrypted_content": None}, {"encrypted_content": "", "content": []}])
def test_reasoning_that_the_server_cannot_read_stays_out(given_content: dict[str, Any]) -> None:
    history: list[Message] = [user_text("a"), reasoning(1, **given_content), assistant_text("b"), user_text("c")]
    assert [item.get("role") for item in items(history)] == ["user", "assistant", "user"]


def test_open_reasoning_goes_back() -> None:
    content = [{"type": "reasoning_text", "text": "So."}]
    sent = items([user_text("a"), reasoning(1, encrypted_content=None, content=content), assistant_text("b")])
    assert sent[1]["content"] == content


def test_L9_illegal_and_repeated_ids() -> None:
    history: list[Message] = [
        user_text("a"),
        tool_call("ls", "{}", "same#2"),
        tool_call_output("1", "same#2"),
        tool_call("ls", "{}", "same#2"),
        tool_call_output("2", "same#2"),
    ]
    sent = items(history)[1:]
    assert [item["call_id"] for item in sent] == ["same_2", "same_2", "same_2_2", "same_2_2"]


def test_E25_a_name_that_no_provider_takes_is_made_legal() -> None:
    """Found by the state machine: a model had called what does not exist, and the next request was refused."""
    history: list[Message] = [
        user_text("go"),
        tool_call("no such.tool/ü", "{}", "a"),
        tool_call_output("there is none", "a"),
    ]
    assert items(history)[1]["name"] == "no_such_tool__"


def test_L10_what_is_no_json_object_is_sent_as_one() -> None:
    history: list[Message] = [user_text("a"), tool_call("ls", '{"a', "c"), tool_call_output("no", "c")]
    sent = items(history)
    assert json.loads(sent[1]["arguments"]) == {"unparsable_arguments": '{"a'}


def test_no_empty_words() -> None:
    assert [item["type"] for item in items([user_text(""), user_text("a"), assistant_text(""), user_text("b")])] == [
        "message",
        "message",
    ]


def test_L16_levels_come_from_the_catalogue() -> None:
    known = responses_settings(ModelConfig("openai", "gpt-5"))
    assert (known.reasons, tuple(known.thinking_levels)) == (True, ("low", "medium", "high"))
    assert responses_settings(ModelConfig("openai", "gpt-4.1")).reasons is False
    assert responses_settings(ModelConfig("custom", "m")).reasons is None


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/responses"),
        ("https://h/v1/", "https://h/v1/responses"),
        ("https://h/v1/responses", "https://h/v1/responses"),
        ("https://h/openai?api-version=1", "https://h/openai/responses?api-version=1"),
    ],
)
def test_L7_where_requests_go(base_url: str, url: str) -> None:
    assert OpenAIResponses(ModelConfig("custom", "m"), base_url).url() == url


# --- the prefix -------------------------------------------------------------------------------------------

_kinds = st.sampled_from(["text", "reasoning", "call", "empty", "unknown"])


def _conversation(turns: list[list[str]]) -> list[tuple[list[Message], list[Message]]]:
    """Pairs of what was new and what the model replied."""
    pairs: list[tuple[list[Message], list[Message]]] = []
    new: list[Message] = [user_text("start")]
    for number, kinds in enumerate(turns):
        reply: list[Message] = []
        results: list[Message] = []
        for place, kind in enumerate(kinds):
            match kind:
                case "text":
                    reply.append(words(f"text {number} {place} ✅", "commentary", place))
                case "reasoning":
                    reply.append(reasoning(place))
                case "unknown":
                    reply.append(thinking("", fidelity={"item": {"type": "x", "id": f"x{place}"}}))
                case "call":
                    reply.append(tool_call("ls", "{}", f"c{number}_{place}"))
                    results.append(tool_call_output("out", f"c{number}_{place}"))
                case _:
                    reply.append(assistant_text(""))
        pairs.append((new, reply))
        new = [*results, user_text(f"next {number}")]
    return pairs


@given(st.lists(st.lists(_kinds, min_size=1, max_size=4), max_size=6))
def test_T12_earlier_bytes_never_change_and_memory_changes_nothing(turns: list[list[str]]) -> None:
    settings = ResponsesSettings("m", "system", (READ,))
    remembering = ResponsesBody(settings)
    history: list[Message] = []
    before = b""
    for new, reply in _conversation(turns):
        history += new
        built = remembering.build(history)
        assert built == ResponsesBody(settings).build(history)
        assert built.startswith(before[:-2])
        before = built
        history += reply


def test_a_failed_attempt_leaves_no_trace_in_what_is_remembered() -> None:
    remembering = ResponsesBody(ResponsesSettings("m"))
    committed: list[Message] = [user_text("a"), assistant_text("b")]
    remembering.build([*committed, user_text("try 1")])
    again = [*committed, user_text("try 1"), user_text("[turn_retried]")]
    assert remembering.build(again) == ResponsesBody(ResponsesSettings("m")).build(again)


if __name__ == "__main__":
    write_golden("openai_responses", CASES)
