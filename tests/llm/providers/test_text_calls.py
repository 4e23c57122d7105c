"""Calls written as text (L18): what is one, what is held back, and what the user sees of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.llm_kit import CALLS, STOP, Answer, ask, call, chunk, fold, model, text

from penguin.llm.providers.text_calls import TextCall, TextCallReader, parse_calls
from penguin.protocol.messages import PartialText

KNOWN = {"read_file", "write_file", "list_tasks", "exec_command"}
ONE = [TextCall("write_file", '{"file_path": "hello.txt", "content": "hi"}')]
CALL = '{"name": "write_file", "arguments": {"file_path": "hello.txt", "content": "hi"}}'


@pytest.mark.parametrize(
    "written",
    [
        CALL,
        f"\n {CALL}\n",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```",
        f"```tool_call\n{CALL}\n```",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>{CALL}",
        f"{CALL}</tool_call>",
        f"<tools>\n{CALL}\n</tools>",
        f"```xml\n<tools>\n{CALL}\n</tools>\n```",
        f"[{CALL}]",
        CALL.replace("arguments", "parameters"),
        '{"type": "function", "function": ' + CALL + "}",
        '{"tool_calls": [' + CALL + "]}",
        json.dumps({"name": "write_file", "arguments": '{"file_path": "hello.txt", "content": "hi"}'}),
        CALL.replace("{", "{{").replace("}", "}}"),
        "{" + CALL,  # seen from Qwen2.5-Coder 1.5B: doubled at the start, not at the end
        "{" + CALL + "}",
        "```json\n" + CALL.replace("{", "{{").replace("}", "}}") + "\n```",
        json.dumps(json.loads(CALL), indent=4),
    ],
)
def test_what_is_a_call(written: str) -> None:
    assert parse_calls(written, KNOWN) == ONE


def test_several_calls_in_a_row() -> None:
    other = '{"name": "list_tasks", "arguments": {}}'
    expected = [*ONE, TextCall("list_tasks", "{}")]
    for written in (
        f"{CALL}\n{other}",
        f"[{CALL}, {other}]",
        f"<tool_call>{CALL}</tool_call>\n<tool_call>{other}</tool_call>",
    ):
        assert parse_calls(written, KNOWN) == expected


def test_control_characters_in_strings_are_what_small_models_write() -> None:
    calls = parse_calls('{"name": "write_file", "arguments": {"content": "a\nb"}}', KNOWN)
    assert calls == [TextCall("write_file", '{"content": "a\\nb"}')]


@pytest.mark.parametrize(
    "written",
    [
        "",
        "Hello.",
        f"Here it is: {CALL}",
        f"{CALL} and then",
        '{"name": "unknown_tool", "arguments": {}}',
        '{"name": "write_file"}',
        '{"name": "write_file", "arguments": 7}',
        '{"result": 1}',
        "[]",
        "[1, 2]",
        f"```python\n{CALL}\n```",
        '{"name": "write_file", "arguments": {',
    ],
)
def test_what_is_none(written: str) -> None:
    assert parse_calls(written, KNOWN) is None


def read(pieces: list[str], *, between_words: bool = False, cut: bool = False) -> tuple[list[Any], list[str], bool]:
    """What came out in order, what had been said before the end, and whether a call was cut."""
    out: list[Any] = []
    reader = TextCallReader(
        KNOWN, out.append, lambda name, arguments: out.append(TextCall(name, arguments)), between_words=between_words
    )
    for piece in pieces:
        reader.read(piece)
    early = [item for item in out if isinstance(item, str)]
    was_cut = reader.finish(native_calls=False, cut=cut)
    return out, early, was_cut


@pytest.mark.parametrize(
    "words", ["I will", "# Title", "`code`", "```python\n", "{x}", '{"result"', "<b>", "[link]", '{"name": "bob', "[1"]
)
def test_ordinary_words_stream_at_once(words: str) -> None:
    _, early, _ = read([words])
    assert early == [words]


@pytest.mark.parametrize("size", [1, 3, 7, 200])
@pytest.mark.parametrize("written", [CALL, f"```json\n{CALL}\n```", f"<tool_call>\n{CALL}\n</tool_call>"])
def test_nothing_of_a_call_is_said(written: str, size: int) -> None:
    out, early, _ = read([written[index : index + size] for index in range(0, len(written), size)])
    assert early == []
    assert out == ONE


@given(st.text(alphabet='ab{}[]"`<>\n:, ntools_cj', max_size=60), st.integers(1, 9), st.booleans())
def test_text_that_holds_no_call_comes_out_unchanged(written: str, size: int, between_words: bool) -> None:
    out, _, _ = read([written[i : i + size] for i in range(0, len(written), size)], between_words=between_words)
    assert "".join(out) == written


@given(st.integers(1, 40), st.sampled_from(["Sure.\n", "", "Look: "]), st.sampled_from(["\nDone.", ""]))
def test_between_words_the_words_stay_text(size: int, before: str, after: str) -> None:
    written = f"{before}<tool_call>\n{CALL}\n</tool_call>{after}"
    out, _, _ = read([written[i : i + size] for i in range(0, len(written), size)], between_words=True)
    assert [item for item in out if isinstance(item, TextCall)] == ONE
    assert "".join(item for item in out if isinstance(item, str)) == before + after


def test_a_call_cut_at_the_limit_is_told_from_cut_text() -> None:
    assert read(['{"name": "write_file", "arguments": {"content": "lon'], cut=True)[2]
    assert not read(["just words"], cut=True)[2]


# --- through the model --------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "text"])
async def test_L18_a_reply_that_is_a_call_becomes_one(mode: str) -> None:
    one, transport = model(
        Answer([text("```json\n"), text(CALL), text("\n```"), STOP]), Answer([text("ok"), STOP]), tool_calls=mode
    )
    said = await ask(one)
    assert said.texts() == []
    assert not [m for m in said.messages if isinstance(m.payload, PartialText)]
    assert said.pairs() == [("write_file", ONE[0].arguments)]
    await ask(one)
    sent = transport.bodies()[1]["messages"]
    assistant = next(m for m in sent if m["role"] == "assistant")
    assert ("tool_calls" in assistant) == (mode == "auto")


@pytest.mark.anyio
@pytest.mark.parametrize("changes", [{"tool_calls": "native"}, {"provider": "openai", "base_url": None}, {"tools": []}])
async def test_L18_only_where_it_may_be(changes: dict[str, Any]) -> None:
    said = await fold(text(CALL), STOP, **({"tool_calls": "auto"} | changes))
    assert said.texts() == [CALL]
    assert said.calls() == []


@pytest.mark.anyio
async def test_L18_a_native_call_makes_the_held_text_text() -> None:
    said = await fold(text(CALL), call("{}", index=0, id="a", name="list_tasks"), CALLS, tool_calls="auto")
    assert said.texts() == [CALL]
    assert said.pairs() == [("list_tasks", "{}")]


DRAWN = {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}
LINKED = {"images": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}


@pytest.mark.anyio
@pytest.mark.parametrize("image", [DRAWN, LINKED], ids=["data", "link"])
@pytest.mark.parametrize("mode", ["auto", "text"])
@pytest.mark.parametrize("place", range(5))
async def test_L18_an_image_anywhere_does_not_end_the_reading_of_calls(
    image: dict[str, Any], mode: str, place: int
) -> None:
    written = f"<tool_call>{CALL}</tool_call>"
    steps = [text(written[:6]), text(written[6:40]), text(written[40:-4]), text(written[-4:])]
    said = await fold(*steps[:place], chunk(image), *steps[place:], STOP, tool_calls=mode)
    assert said.outcome.status == "completed"
    assert said.pairs() == [("write_file", ONE[0].arguments)]
    assert said.texts() == ([] if image is DRAWN else ["![image](https://example.org/a.png)"])


@pytest.mark.anyio
async def test_L18_an_image_in_one_delta_with_a_call() -> None:
    said = await fold(chunk({"content": CALL, **DRAWN}, finish="stop"), tool_calls="auto")
    assert said.pairs() == [("write_file", ONE[0].arguments)]


@pytest.mark.anyio
async def test_L18_a_text_call_cut_off_is_malformed() -> None:
    said = await fold(text(CALL[:-4]), chunk(finish="length"), tool_calls="auto")
    assert said.outcome.status == "malformed"
    assert said.outcome.cut_off
    assert said.pairs() == []


@pytest.mark.anyio
async def test_L18_after_thinking() -> None:
    said = await fold(text("<think>Let me.</think>\n"), text(CALL), STOP, tool_calls="auto")
    assert said.thoughts() == ["Let me."]
    assert said.pairs() == [("write_file", ONE[0].arguments)]


def between_words(*pieces: str) -> tuple[str, list[tuple[str, str]]]:
    """The words and the calls that a reader finds in a reply that comes in these pieces."""
    words: list[str] = []
    calls: list[tuple[str, str]] = []
    reader = TextCallReader(KNOWN, words.append, lambda *call: calls.append(call), between_words=True)
    for piece in pieces:
        reader.read(piece)
    reader.finish(native_calls=False, cut=False)
    return "".join(words), calls


parts = st.sampled_from(
    [
        CALL, f"<tool_call>{CALL}</tool_call>", f"```json\n{CALL}\n```", "Look: ", "\n", " ", "Done", '"', "{", "}",
        "[1]", '{"name": "list_tasks"', "<tool_call>", "</tool_call>", "```", "\n```\n", "{{", "`x`", "<b>",
        '<tool_call>{"name": "list_tasks", "arguments": {"a": "</tool_call>"}}</tool_call>',
    ]
)  # fmt: skip


@given(st.lists(parts, max_size=8).map("".join), st.data())
def test_L18_what_a_reply_says_does_not_depend_on_its_pieces(reply: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reply)), max_size=12)))
    pieces = [reply[start:end] for start, end in zip([0, *cuts], [*cuts, len(reply)], strict=True)]
    whole = between_words(*reply)
    assert between_words(*pieces) == whole
    assert between_words(reply) == whole


@pytest.mark.parametrize("size", [*range(1, 12), 16, 1_000])
def test_L18_a_call_that_is_only_quoted_in_a_sentence_never_runs(size: int) -> None:
    reply = f"To write it you would say {CALL} but I will not."
    pieces = [reply[at : at + size] for at in range(0, len(reply), size)]
    assert between_words(*pieces) == (reply, [])


@pytest.mark.parametrize("size", [*range(1, 12), 16, 1_000])
def test_L18_a_call_on_a_line_of_its_own_runs_whatever_follows(size: int) -> None:
    reply = f"I write it.\n{CALL}\nDone"
    pieces = [reply[at : at + size] for at in range(0, len(reply), size)]
    assert between_words(*pieces) == ("I write it.\n\nDone", [("write_file", ONE[0].arguments)])


@pytest.mark.parametrize("frame", ["<tool_call>{}</tool_call>", "```json\n{}\n```"])
def test_L18_an_argument_may_hold_what_ends_a_call(frame: str) -> None:
    arguments = {"file_path": "a", "content": 'x </tool_call> "y"\n```\n z'}
    written = json.dumps({"name": "write_file", "arguments": arguments})
    raw = written.replace("\\n", "\n")  # models forget to escape line ends
    for form in (written, raw):
        words, [(name, given)] = between_words("See:\n", *frame.replace("{}", form), "\nDone")
        assert (words, name, json.loads(given)) == ("See:\n\nDone", "write_file", arguments)


def test_L18_a_broken_call_does_not_hide_the_next() -> None:
    broken = '<tool_call>{"name": "list_tasks", "arguments": {"a": "b}}</tool_call>'
    words, calls = between_words(*f"{broken} and <tool_call>{CALL}</tool_call>")
    assert [name for name, _ in calls] == ["write_file"]
    assert words == f"{broken} and "
