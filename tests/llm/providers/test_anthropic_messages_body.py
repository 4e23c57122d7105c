"""Request bodies of Anthropic Messages: byte for byte against files, and that the prefix never changes.

The files lie in ``tests/golden_bodies/anthropic_messages``. After a change that is meant, write them anew with
``python -m tests.llm.providers.test_anthropic_messages_body`` and read the difference.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from penguin.llm import catalog
from penguin.llm.prefix import changed_block
from penguin.llm.providers.anthropic_messages import AnthropicMessages, messages_settings
from penguin.llm.providers.anthropic_messages_body import MessagesBody, MessagesSettings
from penguin.protocol.builders import (
    assistant_text,
    image_url,
    inline_data,
    thinking,
    tool_call,
    tool_call_output,
    user_text,
)
from penguin.protocol.interfaces import ModelConfig
from penguin.protocol.messages import Message, OmniMessage, Text, ThinkingLevel, ToolDefinition
from penguin.testing import legality

GOLDEN = Path(__file__).parents[2] / "golden_bodies" / "anthropic_messages"
READ = ToolDefinition("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LIST = ToolDefinition("list_tasks", "Lists the tasks.")
PNG = "data:image/png;base64,iVBORw0KGgo="
LEVELS: list[ThinkingLevel] = ["none", "low", "medium", "high", "xhigh", "max"]

ASKED: list[Message] = [user_text("Read a.txt and b.txt — both, please.")]
SIGNED: list[Message] = [
    thinking("Two calls at once.", fidelity={"signature": "SIG/abc+123=="}),
    assistant_text("I read both."),
    tool_call("read_file", '{"path": "a.txt", "limit": 1.0}', "toolu_1"),
    tool_call("read_file", '{"path": "b.txt"}', "toolu_2"),
]
ANSWERED: list[Message] = [tool_call_output("A", "toolu_1"), tool_call_output("", "toolu_2")]
OPAQUE: list[Message] = [
    thinking("", fidelity={"signature": "SIG-of-nothing=="}),
    thinking("", fidelity=Raw(rb'{"content_block":{"type":"redacted_thinking","data":"Zm\/9"}}')),
    assistant_text("Both are short.", fidelity={"citations": [{"type": "char_location", "cited_text": "A"}]}),
    tool_call("list_tasks", "", "toolu_3", fidelity={"tool_use": {"caller": {"type": "direct"}}}),
]


def build(history: list[Message], level: ThinkingLevel | None = None, **settings: Any) -> bytes:
    fixed: dict[str, Any] = {"system_prompt": "Be brief.", "tools": (READ, LIST)} | settings
    return MessagesBody(MessagesSettings("some-model", **fixed)).build(history, max_tokens=32_000, thinking_level=level)


def of_model(model_id: str, level: ThinkingLevel) -> bytes:
    config = ModelConfig("anthropic", model_id, system_prompt="Be brief.")
    adapter = AnthropicMessages(config, "https://api.anthropic.com")
    return adapter.body(ASKED, max_tokens=64_000, thinking_level=level)


CASES: dict[str, Callable[[], bytes]] = {
    "new_conversation": lambda: build([user_text("hi")], tools=()),
    "no_system_prompt": lambda: build([user_text("hi")], system_prompt=None),
    "tools": lambda: build(ASKED),
    "parallel_results": lambda: build([*ASKED, *SIGNED, *ANSWERED]),
    "steering_after_results": lambda: build([*ASKED, *SIGNED, user_text("Faster."), *ANSWERED, image_url(PNG)]),
    "images": lambda: build(
        [
            image_url(PNG),
            image_url("https://example.org/a.webp"),
            inline_data("JVBERi0=", "application/pdf"),
            inline_data("R0lG", "image/gif"),
            user_text("What is this?"),
            *SIGNED[2:3],
            tool_call_output("image/png, 74 B", "toolu_1", images=[PNG, "data:image/jpg;base64,/9j/"]),
        ]
    ),
    "images_without_vision": lambda: build(
        [image_url(PNG), user_text("?"), *SIGNED[2:3], tool_call_output("", "toolu_1", images=[PNG])], vision=False
    ),
    "resume": lambda: build([*ASKED, *SIGNED, *ANSWERED, *OPAQUE, tool_call_output("none", "toolu_3")]),
    "foreign_fidelity_removed": lambda: build(
        [
            *ASKED,
            thinking("Without a signature it stays here."),
            thinking("So does this.", fidelity={"reasoning_field": "reasoning_content"}),
            assistant_text("I read both.", fidelity={"thought_signature": "Eg=="}),
            tool_call("read_file", '{"path":"a.txt"}', "same#2", fidelity={"item": {"id": "fc_1"}}),
            tool_call_output("A", "same#2"),
        ]
    ),
    "unparsable_arguments": lambda: build(
        [*ASKED, tool_call("read_file", '{"path": "a', "c"), tool_call_output("x", "c")]
    ),
    "extra_body": lambda: build(
        ASKED, extra_body={"tools": [{"type": "web_search_20250305", "name": "web_search"}], "service_tier": "auto"}
    ),
    **{f"thinking_budget_{level}": lambda level=level: of_model("claude-haiku-4-5", level) for level in LEVELS},  # type: ignore[misc]
    **{f"thinking_adaptive_{level}": lambda level=level: of_model("claude-opus-4-8", level) for level in LEVELS},  # type: ignore[misc]
    **{f"thinking_on_{level}": lambda level=level: of_model("claude-opus-5", level) for level in LEVELS},  # type: ignore[misc]
    **{f"thinking_unknown_{level}": lambda level=level: of_model("claude-of-tomorrow", level) for level in LEVELS},  # type: ignore[misc]
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_body_is_the_golden_one(name: str) -> None:
    assert CASES[name]() + b"\n" == (GOLDEN / f"{name}.json").read_bytes()


def test_every_golden_body_is_made_by_a_case() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(CASES)


def messages(history: list[Message], **settings: Any) -> list[dict[str, Any]]:
    return list(json.loads(build(history, **settings))["messages"])


def markers(body: bytes) -> list[str]:
    """Where the cache markers are: the member, and for messages the position of message and block."""
    document = json.loads(body)
    places = [
        f"{member} {position}"
        for member in ("tools", "system")
        for position, item in enumerate(document.get(member, []))
        if "cache_control" in item
    ]
    return places + [
        f"messages {number}.{position}"
        for number, message in enumerate(document["messages"])
        for position, block in enumerate(message["content"])
        if "cache_control" in block
    ]


def unmarked(body: bytes) -> bytes:
    return body.replace(b',"cache_control":{"type":"ephemeral"}', b"")


# --- caching ------------------------------------------------------------------------------------------


def test_L13_markers_at_system_and_at_the_two_newest_user_messages() -> None:
    assert markers(build(ASKED)) == ["system 0", "messages 0.0"]
    assert markers(build([*ASKED, *SIGNED, *ANSWERED])) == ["system 0", "messages 0.0", "messages 2.1"]
    longer = [*ASKED, *SIGNED, *ANSWERED, *OPAQUE, tool_call_output("none", "toolu_3")]
    assert markers(build(longer)) == ["system 0", "messages 2.1", "messages 4.0"]


@pytest.mark.parametrize("tools", [None, [], {}, "all", ["no tool"]])
def test_what_is_no_list_of_tools_adds_none(tools: Any) -> None:
    assert build(ASKED, extra_body={"tools": tools}) == build(ASKED)


def test_L13_without_a_system_prompt_the_tools_carry_the_marker() -> None:
    assert markers(build(ASKED, system_prompt=None)) == ["tools 1", "messages 0.0"]
    assert markers(build(ASKED, system_prompt=None, tools=())) == ["messages 0.0"]


def test_T12_thirty_turns_have_one_prefix() -> None:
    body, earlier = MessagesBody(MessagesSettings("m", "Be brief.", (READ,))), b""
    history: list[Message] = [user_text("go")]
    for number in range(30):
        built = unmarked(body.build(history, max_tokens=32_000, thinking_level="high"))
        assert built == unmarked(MessagesBody(MessagesSettings("m", "Be brief.", (READ,))).build(
            history, max_tokens=32_000, thinking_level="high"
        ))  # fmt: skip
        assert built.startswith(earlier.removesuffix(b"]}"))
        earlier = built
        history += [thinking("Hm.", fidelity={"signature": f"S{number}"}), tool_call("read_file", "{}", f"c{number}")]
        history.append(tool_call_output(f"result {number}", f"c{number}"))


def test_words_added_when_an_attempt_is_repeated_join_the_same_message() -> None:
    body = MessagesBody(MessagesSettings("m"))
    history: list[Message] = [*ASKED, *SIGNED, *ANSWERED]
    first = unmarked(body.build(history))
    again = unmarked(body.build([*history, user_text("[turn_retried]")]))
    assert again.startswith(first.removesuffix(b"]}]}"))
    assert len(json.loads(again)["messages"]) == 3


def test_another_history_is_not_mixed_with_the_remembered_one() -> None:
    body = MessagesBody(MessagesSettings("m"))
    body.build([*ASKED, *SIGNED, *ANSWERED])
    other: list[Message] = [
        user_text("else"),
        assistant_text("ok"),
        user_text("x"),
        assistant_text("y"),
        user_text("z"),
    ]
    assert body.build(other) == MessagesBody(MessagesSettings("m")).build(other)


# --- history rules ------------------------------------------------------------------------------------


def test_P5_opaque_bytes_go_back_as_they_are_stored() -> None:
    body = build([*ASKED, *SIGNED, *ANSWERED, *OPAQUE, tool_call_output("none", "toolu_3")])
    assert rb'{"type":"redacted_thinking","data":"Zm\/9"}' in body
    assert b'"signature":"SIG/abc+123=="' in body
    assert b'"input":{"path":"a.txt","limit":1.0}' in body


@given(st.binary(max_size=60), st.text(max_size=20))
def test_P5_any_signature_goes_back_byte_for_byte(data: bytes, words: str) -> None:
    fidelity = Raw(b'{"signature":' + json.dumps("s" + data.decode("latin-1"), ensure_ascii=True).encode() + b"}")
    body = build([user_text("a"), thinking(words, fidelity=fidelity), assistant_text("b"), user_text("c")])
    assert bytes(fidelity)[1:-1] in body


def test_thinking_text_and_calls_keep_their_order() -> None:
    history: list[Message] = [
        *ASKED,
        thinking("a", fidelity={"signature": "A"}),
        tool_call("read_file", "{}", "c1"),
        thinking("b", fidelity={"signature": "B"}),
        assistant_text("words"),
        tool_call("read_file", "{}", "c2"),
    ]
    kinds = [block["type"] for block in messages(history)[1]["content"]]
    assert kinds == ["thinking", "tool_use", "thinking", "text", "tool_use"]


def test_roles_alternate_and_nothing_is_empty() -> None:
    history: list[Message] = [
        user_text("a"),
        user_text(" \n"),
        assistant_text("\n\n"),
        thinking("unsigned"),
        user_text(""),
        assistant_text("b"),
        user_text("c"),
        user_text("d"),
    ]
    sent = messages(history)
    assert [message["role"] for message in sent] == ["user", "assistant", "user", "assistant", "user"]
    texts = [[block["text"] for block in message["content"]] for message in sent]
    assert texts == [["a"], ["[no output]"], ["[no output]"], ["b"], ["c", "d"]]


def test_results_come_first_in_the_order_given() -> None:
    history: list[Message] = [*ASKED, *SIGNED, user_text("words"), *reversed(ANSWERED)]
    blocks = messages(history)[2]["content"]
    assert [block.get("tool_use_id", block["type"]) for block in blocks] == ["toolu_2", "toolu_1", "text"]


def test_D40_an_id_that_came_twice_is_sent_once() -> None:
    turn: list[Message] = [tool_call("read_file", "{}", "call_0"), tool_call_output("A", "call_0")]
    blocks = [block for message in messages([*ASKED, *turn, *turn, *turn]) for block in message["content"]]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert calls == results == ["call_0", "call_0_2", "call_0_3"]


@pytest.mark.parametrize("arguments", ["", "  \n", "[1]", '{"a": NaN}', '{"a', '{"a":"\\ud800"}'])
def test_L10_input_is_always_an_object(arguments: str) -> None:
    block = messages([*ASKED, tool_call("read_file", arguments, "c"), tool_call_output("x", "c")])[1]["content"][0]
    assert isinstance(block["input"], dict)


def test_odd_opaque_data_of_others_does_no_harm() -> None:
    history: list[Message] = [
        *ASKED,
        thinking("a", fidelity={"signature": 7, "content_block": "no object"}),
        assistant_text("b", fidelity={"citations": "none"}),
        tool_call("read_file", "{}", "c", fidelity={"tool_use": [1]}),
        tool_call_output("x", "c"),
    ]
    assert messages(history)[1]["content"] == [
        {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "c", "name": "read_file", "input": {}},
    ]


def test_a_server_tool_without_its_result_stays_here() -> None:
    def block(kind: str, **fields: str) -> Message:
        return thinking("", fidelity={"content_block": {"type": kind} | fields})

    history: list[Message] = [
        *ASKED,
        block("server_tool_use", id="s1"),
        block("web_search_tool_result", tool_use_id="s1"),
        block("server_tool_use", id="s2"),
        user_text("Go on."),
    ]
    assert [item["type"] for item in messages(history)[1]["content"]] == ["server_tool_use", "web_search_tool_result"]


REDACTED = thinking("", fidelity={"content_block": {"type": "redacted_thinking", "data": "Zm9v"}})
SIGNED_THOUGHT = thinking("Hm.", fidelity={"signature": "S"})
SEARCH = thinking("", fidelity={"content_block": {"type": "server_tool_use", "id": "s1", "name": "w", "input": {}}})


@pytest.mark.parametrize(
    ("turn", "kinds"),
    [
        ([assistant_text("Yes."), SIGNED_THOUGHT], ["text"]),
        ([SIGNED_THOUGHT, assistant_text("Yes."), SIGNED_THOUGHT, REDACTED], ["thinking", "text"]),
        ([SIGNED_THOUGHT, assistant_text("Yes."), SIGNED_THOUGHT, assistant_text(" \n")], ["thinking", "text"]),
        ([assistant_text("I look."), SIGNED_THOUGHT, SEARCH], ["text"]),
        ([SIGNED_THOUGHT], ["text"]),
        ([SIGNED_THOUGHT, REDACTED, SEARCH], ["text"]),
        ([REDACTED, assistant_text("Yes.")], ["redacted_thinking", "text"]),
    ],
)
def test_E25_thinking_that_nothing_of_its_turn_follows_stays_here(turn: list[Message], kinds: list[str]) -> None:
    history: list[Message] = [*ASKED, *turn, user_text("Go on.")]
    assert legality.check("anthropic-messages", json.loads(build(history)), model="m") == []
    assert [block["type"] for block in messages(history)[1]["content"]] == kinds
    assert [message["role"] for message in messages(history)] == ["user", "assistant", "user"]


def test_T12_thinking_that_stays_here_changes_nothing_before_it() -> None:
    history: list[Message] = [*ASKED]
    body = MessagesBody(MessagesSettings("m"))
    sent = [body.build(history)]
    for turn in ([SIGNED_THOUGHT], [assistant_text("Yes."), REDACTED], [SIGNED_THOUGHT, assistant_text("So.")]):
        history += [*turn, user_text("Go on.")]
        sent.append(body.build(history))
        assert sent[-1] == MessagesBody(MessagesSettings("m")).build(history)
    for earlier, later in itertools.pairwise(sent):
        assert changed_block(earlier, later) is None


def test_a_lone_surrogate_costs_a_character_not_the_request() -> None:
    odd = Text("user", "a\ud800")  # the builders would have cleaned it
    assert messages([OmniMessage("", "model_msg", odd)])[0]["content"][0]["text"] == "a\ufffd"


# --- limits and thinking ------------------------------------------------------------------------------


@pytest.mark.parametrize(("configured", "sent"), [(None, 8_192), (32_000, 8_192), (4_000, 4_000)])
def test_L11_there_is_always_a_limit(configured: int | None, sent: int) -> None:
    config = ModelConfig("custom", "m", max_tokens=configured)
    body = AnthropicMessages(config, "http://127.0.0.1").body(ASKED, max_tokens=None, thinking_level=None)
    assert json.loads(body)["max_tokens"] == sent


@pytest.mark.parametrize(("limit", "budget"), [(64_000, 16_384), (8_192, 6_144), (2_000, 1_500), (1_300, None)])
def test_L16_a_budget_leaves_room_for_the_answer(limit: int, budget: int | None) -> None:
    settings = MessagesSettings("m", thinking_control="budget")
    body = json.loads(MessagesBody(settings).build(ASKED, max_tokens=limit, thinking_level="high"))
    assert body.get("thinking", {}).get("budget_tokens") == budget


@pytest.mark.parametrize(
    ("turn", "thinks"),
    [
        ([thinking("a", fidelity={"signature": "A"}), tool_call("read_file", "{}", "c")], True),
        ([tool_call("read_file", "{}", "c")], False),
        ([assistant_text("words"), tool_call("read_file", "{}", "c")], False),
    ],
)
def test_L16_a_budget_is_left_out_when_the_turn_under_way_began_without_thinking(
    turn: list[Message], thinks: bool
) -> None:
    body = MessagesBody(MessagesSettings("m", thinking_control="budget"))
    history = [*ASKED, *turn, tool_call_output("A", "c")]
    assert ("thinking" in json.loads(body.build(history, thinking_level="high"))) is thinks
    history += [assistant_text("Done."), user_text("Next.")]
    assert "thinking" in json.loads(body.build(history, thinking_level="high"))


def test_L16_a_model_that_cannot_stop_thinking_thinks_little() -> None:
    settings = MessagesSettings("m", thinking_control="adaptive-on", thinking_levels=["low", "high"])
    body = json.loads(MessagesBody(settings).build(ASKED, thinking_level="none"))
    assert body["output_config"] == {"effort": "low"}


def test_L16_a_model_that_thinks_between_tools_instead() -> None:
    settings = MessagesSettings("m", thinking_control="adaptive-between-tools", thinking_levels=["none", "low"])
    assert json.loads(MessagesBody(settings).build(ASKED, thinking_level="none"))["thinking"] == {
        "type": "between_tools"
    }


def test_nothing_is_said_about_thinking_or_temperature_unless_asked() -> None:
    assert {"thinking", "output_config", "temperature"}.isdisjoint(json.loads(build(ASKED)))


def test_every_anthropic_model_of_the_catalogue_says_how_it_thinks() -> None:
    ours = [model for model in catalog.models() if model.provider == "anthropic"]
    assert ours
    assert all(model.thinking_control and model.thinking_levels for model in ours)
    assert all(messages_settings(ModelConfig("anthropic", model.model_id)).thinking_control for model in ours)


# --- the address and the headers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/", "https://api.anthropic.com/v1/messages"),
        ("http://127.0.0.1:1/v1/", "http://127.0.0.1:1/v1/messages"),
        ("http://127.0.0.1:1/anthropic", "http://127.0.0.1:1/anthropic/v1/messages"),
        ("http://127.0.0.1:1/v1/messages", "http://127.0.0.1:1/v1/messages"),
        ("http://127.0.0.1:1/a?beta=true", "http://127.0.0.1:1/a/v1/messages?beta=true"),
    ],
)
def test_L7_the_base_url_is_the_host(base_url: str, url: str) -> None:
    assert AnthropicMessages(ModelConfig("custom", "m"), base_url).url() == url


def test_headers_hold_the_key_and_the_version() -> None:
    headers = AnthropicMessages(ModelConfig("custom", "m", api_key="k"), "http://127.0.0.1").headers()
    assert headers["x-api-key"] == "k"
    assert headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in headers
    assert "x-api-key" not in AnthropicMessages(ModelConfig("custom", "m"), "http://127.0.0.1").headers()


@pytest.mark.parametrize(("model_id", "base_url", "asked"), [
    ("claude-haiku-4-5", None, True), ("claude-opus-5", None, False), ("claude-haiku-4-5", "http://127.0.0.1:1", False),
])  # fmt: skip
def test_thinking_between_tools_is_asked_of_models_that_want_it_asked(
    model_id: str, base_url: str | None, asked: bool
) -> None:
    config = ModelConfig("anthropic", model_id, base_url=base_url)
    assert ("anthropic-beta" in AnthropicMessages(config, base_url or "https://api.anthropic.com").headers()) is asked


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for case, make in CASES.items():
        (GOLDEN / f"{case}.json").write_bytes(make() + b"\n")
