"""Request bodies of Chat Completions: what a history looks like on the wire, and that its prefix never changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penguin.llm.providers.body_parts import nearest_level, valid_arguments
from penguin.llm.providers.openai_chat_body import ChatBody, ChatSettings
from penguin.protocol.builders import (
    assistant_text,
    image_url,
    inline_data,
    thinking,
    tool_call,
    tool_call_output,
    user_text,
)
from penguin.protocol.messages import Message, ThinkingLevel, ToolDefinition

TOOL = ToolDefinition("ls", "lists", {"type": "object", "properties": {"path": {"type": "string"}}})
PNG = "data:image/png;base64,AAAA"


def body(history: list[Message], **settings: Any) -> dict[str, Any]:
    return dict(json.loads(ChatBody(ChatSettings("m", **settings)).build(history)))


def messages(history: list[Message], **settings: Any) -> list[dict[str, Any]]:
    return list(body(history, **settings)["messages"])


def test_the_whole_body_of_a_first_request() -> None:
    built = ChatBody(ChatSettings("m", "Be brief.", (TOOL,), max_tokens_field="max_completion_tokens")).build(
        [user_text("hi")], max_tokens=32_000
    )
    assert built == (
        b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":32000,'
        b'"tools":[{"type":"function","function":{"name":"ls","description":"lists",'
        b'"parameters":{"type":"object","properties":{"path":{"type":"string"}}}}}],'
        b'"messages":[{"role":"system","content":"Be brief."},'
        b'{"role":"user","content":[{"type":"text","text":"hi"}]}]}'
    )


def test_thinking_and_text_as_the_original_sends_them() -> None:
    history: list[Message] = [
        user_text("hi"),
        thinking("I should greet.", fidelity={"reasoning_field": "reasoning_content"}),
        assistant_text("Hello there."),
        user_text("again"),
    ]
    assert messages(history) == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Hello there."}],
            "reasoning_content": "I should greet.",
        },
        {"role": "user", "content": [{"type": "text", "text": "again"}]},
    ]


def test_parallel_calls_and_their_results_in_the_order_given() -> None:
    history: list[Message] = [
        user_text("go"),
        tool_call("ls", '{"path":"a"}', "c_a"),
        tool_call("ls", "{}", "c_b"),
        tool_call_output("A", "c_a"),
        tool_call_output("B", "c_b"),
    ]
    assert messages(history)[1:] == [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c_a", "type": "function", "function": {"name": "ls", "arguments": '{"path":"a"}'}},
                {"id": "c_b", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c_a", "content": [{"type": "text", "text": "A"}]},
        {"role": "tool", "tool_call_id": "c_b", "content": [{"type": "text", "text": "B"}]},
    ]


def test_neighbouring_user_messages_become_one_with_results_first() -> None:
    history: list[Message] = [
        user_text("go"),
        tool_call("ls", "{}", "c"),
        user_text("first words"),
        tool_call_output("A", "c"),
        user_text("second words"),
    ]
    assert [(m["role"], m.get("tool_call_id")) for m in messages(history)[2:]] == [("tool", "c"), ("user", None)]
    assert [part["text"] for part in messages(history)[3]["content"]] == ["first words", "second words"]


def test_no_empty_text_and_no_missing_turn() -> None:
    history: list[Message] = [user_text("a"), user_text(""), assistant_text(""), thinking("only"), user_text("b")]
    assert messages(history) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "[no output]"}]},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
    ]


def test_images_of_the_user_and_of_tools() -> None:
    history: list[Message] = [
        image_url(PNG),
        inline_data("BBBB", "image/gif"),
        tool_call("ls", "{}", "c"),
        tool_call_output("image/png, 74 B", "c", images=[PNG]),
    ]
    first, _, result, images = messages(history)
    assert [part["image_url"]["url"] for part in first["content"]] == [PNG, "data:image/gif;base64,BBBB"]
    assert result == {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "image/png, 74 B"}]}
    assert images["role"] == "user"
    assert images["content"][0] == {"type": "text", "text": "[image returned by tool call c]"}
    assert images["content"][1] == {"type": "image_url", "image_url": {"url": PNG}}


def test_L14_a_model_without_vision_never_gets_an_image() -> None:
    built = json.dumps(
        body([image_url(PNG), tool_call("ls", "{}", "c"), tool_call_output("x", "c", images=[PNG])], vision=False)
    )
    assert "image_url" not in built
    assert built.count("cannot see images") == 2


def made_and_asked(**settings: Any) -> list[dict[str, Any]]:
    history: list[Message] = [
        user_text("draw"),
        inline_data("iVBORw0KGgo=", "image/png", role="assistant"),
        tool_call("ls", "{}", "c1"),
        user_text("go on"),
        tool_call_output("a", "c1"),
    ]
    return messages(history, **settings)


def test_an_image_the_model_made_stands_after_the_results_and_before_the_words() -> None:
    roles = [message["role"] for message in made_and_asked()]
    assert roles == ["user", "assistant", "tool", "user"]
    kinds = [part.get("text") or part["type"] for part in made_and_asked()[3]["content"]]
    assert kinds == ["[made by you, in the reply above]", "image_url", "go on"]


def test_L14_a_blind_model_gets_not_even_its_own_image() -> None:
    texts = [part["text"] for part in made_and_asked(vision=False)[3]["content"]]
    assert texts[1] == "[image left out: this model cannot see images]"


def test_T12_a_remembered_reply_keeps_its_image() -> None:
    history: list[Message] = [user_text("draw"), inline_data("iVBORw0KGgo=", "image/png", role="assistant")]
    remembering = ChatBody(ChatSettings("m"))
    for words in ("bluer", "greener"):
        history += [user_text(words)]
        assert remembering.build(history) == ChatBody(ChatSettings("m")).build(history)
        history += [assistant_text("So.")]


def test_L6_foreign_fidelity_is_left_out() -> None:
    history: list[Message] = [
        user_text("a"),
        thinking("signed", fidelity={"signature": "S"}),
        tool_call("ls", "{}", "c", fidelity={"item": {"id": "fc_1"}}),
        tool_call_output("x", "c"),
    ]
    assert "signed" not in json.dumps(body(history))
    assert "fc_1" not in json.dumps(body(history))


def test_L6_fidelity_with_our_names_and_other_contents_is_left_out() -> None:
    for fidelity in ({"reasoning_details": 7}, {"reasoning_field": 7}, {"think_tag": "x"}):
        history: list[Message] = [
            user_text("a"),
            thinking("Hm", fidelity=fidelity),
            assistant_text("b"),
            user_text("c"),
        ]
        assert messages(history)[1] == {"role": "assistant", "content": [{"type": "text", "text": "b"}]}


def test_names_a_model_made_up_are_sent_in_the_providers_alphabet() -> None:
    history: list[Message] = [user_text("a"), tool_call("functions.read file!" + "x" * 99, "{}", "c")]
    name = messages(history)[1]["tool_calls"][0]["function"]["name"]
    assert name == ("functions_read_file_" + "x" * 99)[:64]


def test_D13_a_server_that_refuses_its_reasoning_does_not_get_it() -> None:
    history: list[Message] = [
        user_text("a"),
        thinking("Hm", fidelity={"reasoning_field": "reasoning"}),
        assistant_text("b"),
        user_text("c"),
    ]
    assert messages(history)[1]["reasoning"] == "Hm"
    assert "reasoning" not in messages(history, returns_reasoning=False)[1]


def test_D13_never_an_empty_string_in_place_of_reasoning() -> None:
    history: list[Message] = [
        user_text("a"),
        thinking("", fidelity={"reasoning_field": "reasoning"}),
        assistant_text("b"),
        user_text("c"),
    ]
    assert "reasoning" not in messages(history)[1]


def test_a_server_that_takes_only_strings() -> None:
    history: list[Message] = [
        user_text("a"),
        user_text("b"),
        tool_call("ls", "{}", "c"),
        tool_call_output("A", "c"),
        assistant_text("x"),
        user_text("d"),
    ]
    contents = [m["content"] for m in messages(history, plain_content=True)]
    assert contents == ["a\n\nb", "", "A", "x", "d"]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ("", "{}"),
        ("  ", "{}"),
        ('{"a":1.0}', '{"a":1.0}'),
        ('{"a":', '{"unparsable_arguments":"{\\"a\\":"}'),
        ("[1]", '{"unparsable_arguments":"[1]"}'),
        ("hello", '{"unparsable_arguments":"hello"}'),
    ],
)
def test_L10_arguments_sent_back_are_a_json_object(arguments: str, sent: str) -> None:
    assert valid_arguments(arguments) == sent


def test_L9_ids_of_old_traces_are_made_legal_and_unique() -> None:
    history: list[Message] = [user_text("go")]
    for _ in range(2):
        history += [tool_call("ls", "{}", "same"), tool_call("ls", "{}", "same#2")]
        history += [tool_call_output("1", "same"), tool_call_output("2", "same#2")]
    sent = messages(history)
    calls = [c["id"] for m in sent for c in m.get("tool_calls", [])]
    results = [m["tool_call_id"] for m in sent if m["role"] == "tool"]
    assert calls == ["same", "same_2", "same_3", "same_2_2"]
    assert results == calls


def test_extra_body_adds_replaces_and_removes() -> None:
    built = body([user_text("a")], extra_body={"top_k": 5, "stream_options": None, "messages": [], "model": "other"})
    assert built["top_k"] == 5
    assert "stream_options" not in built
    assert built["model"] == "m"
    assert len(built["messages"]) == 1


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"tools": [TOOL]}, ["function", "web_search"]),
        ({}, ["web_search"]),
        ({"tools": [TOOL], "text_calls": True}, ["web_search"]),
    ],
)
def test_tools_of_the_entry_follow_ours(settings: dict[str, Any], kinds: list[str]) -> None:
    extra = {"tools": [{"type": "web_search"}, "no tool"]}
    assert [tool["type"] for tool in body([user_text("a")], extra_body=extra, **settings)["tools"]] == kinds


@pytest.mark.parametrize("tools", [None, [], {}, "all"])
def test_what_is_no_list_of_tools_adds_none(tools: Any) -> None:
    assert "tools" not in body([user_text("a")], extra_body={"tools": tools})


@pytest.mark.parametrize(
    ("style", "levels", "level", "expected"),
    [
        ("effort", ["low", "medium", "high"], "max", {"reasoning_effort": "high"}),
        ("effort", ["low", "medium", "high"], "none", {"reasoning_effort": "low"}),
        ("effort", [], "high", {}),
        ("effort", ["low"], None, {}),
        ("openrouter", ["none", "low", "high"], "none", {"reasoning": {"enabled": False}}),
        ("openrouter", ["none", "low", "high"], "high", {"reasoning": {"effort": "high"}}),
        ("type", ["none", "high"], "low", {"thinking": {"type": "enabled"}}),
        ("type", ["none", "high"], "none", {"thinking": {"type": "disabled"}}),
        (
            "type-and-effort",
            ["none", "high", "max"],
            "max",
            {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
        ),
        ("enable", ["none", "high"], "none", {"enable_thinking": False}),
    ],
)
def test_L16_thinking_levels(
    style: Any, levels: list[ThinkingLevel], level: ThinkingLevel | None, expected: dict[str, Any]
) -> None:
    plain = set(body([user_text("a")]))
    built = json.loads(
        ChatBody(ChatSettings("m", thinking_style=style, thinking_levels=levels)).build(
            [user_text("a")], thinking_level=level
        )
    )
    assert {key: value for key, value in built.items() if key not in plain} == expected


def test_L16_some_thinking_never_becomes_none() -> None:
    assert nearest_level("low", ["none", "high"]) == "high"


# --- the prefix ---------------------------------------------------------------------------------------

_turns = st.lists(
    st.lists(
        st.sampled_from(["text", "thinking", "call", "empty"]),
        min_size=1,
        max_size=4,
    ),
    max_size=6,
)


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
                    reply.append(assistant_text(f"text {number} {place} ✅"))
                case "thinking":
                    reply.append(thinking("hm", fidelity={"reasoning_field": "reasoning"}))
                case "call":
                    reply.append(tool_call("ls", "{}", f"c{number}_{place}"))
                    results.append(tool_call_output("out", f"c{number}_{place}"))
                case _:
                    reply.append(assistant_text(""))
        pairs.append((new, reply))
        new = [*results, user_text(f"next {number}")]
    return pairs


@given(_turns)
def test_T12_earlier_bytes_never_change_and_memory_changes_nothing(turns: list[list[str]]) -> None:
    settings = ChatSettings("m", "system", (TOOL,))
    remembering = ChatBody(settings)
    history: list[Message] = []
    before = b""
    for new, reply in _conversation(turns):
        history += new
        built = remembering.build(history)
        assert built == ChatBody(settings).build(history)
        assert built.startswith(before[:-2])
        before = built
        history += reply


def test_a_failed_attempt_leaves_no_trace_in_what_is_remembered() -> None:
    settings = ChatSettings("m")
    remembering = ChatBody(settings)
    committed: list[Message] = [user_text("a"), assistant_text("b")]
    remembering.build([*committed, user_text("try 1")])
    again = [*committed, user_text("try 1"), user_text("[turn_retried]")]
    assert remembering.build(again) == ChatBody(settings).build(again)


def test_lone_surrogates_do_not_stop_a_request() -> None:
    assert b"\xef\xbf\xbd" in ChatBody(ChatSettings("m", "bad \ud800")).build([user_text("a")])


def test_text_mode_describes_tools_and_speaks_text_both_ways() -> None:
    history: list[Message] = [
        user_text("go"),
        tool_call("ls", '{"path":"a"}', "c"),
        tool_call_output("A", "c"),
        user_text("more"),
    ]
    built = body(history, tools=(TOOL,), text_calls=True)
    assert "tools" not in built
    system, _, assistant, user = built["messages"]
    assert '"name":"ls"' in system["content"]
    assert assistant["content"][0]["text"] == '<tool_call>{"name": "ls", "arguments": {"path":"a"}}</tool_call>'
    assert user["content"][0]["text"] == '<tool_response id="c">\nA\n</tool_response>'
