"""The product's own model passes the kit that third parties run, and sends what the original sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.llm_kit import CALLS, STOP, Answer, ask, chunk, config, model, text, usage
from tests.support.llm_kit import call as call_piece

from penguin.llm.model import GenerativeModel
from penguin.llm.providers.encoded_history import side_of
from penguin.llm.providers.openai_chat_body import ChatBody, ChatSettings
from penguin.protocol.builders import tool_call_output
from penguin.protocol.codec import decode
from penguin.protocol.interfaces import LLMInterface
from penguin.protocol.messages import Message
from penguin.testing import ReplyLike, ScriptedProvider, call, check_llm, say, think, turn

pytestmark = pytest.mark.anyio
SPEAKING = [chunk({"reasoning": "hm"}), text("hel"), text("lo")]
CALLING = [call_piece("", index=0, id="call_0", name="list_tasks"), call_piece("{}", index=0), CALLS, usage()]


def history_of(one: LLMInterface) -> list[Message]:
    assert isinstance(one, GenerativeModel)
    return list(one.history)


async def test_the_conformance_kit() -> None:
    def build() -> LLMInterface:
        return model(*[Answer([*SPEAKING, *CALLING]) for _ in range(4)])[0]

    def failing() -> LLMInterface:
        return model(Answer(SPEAKING), *[Answer([text("ok"), STOP]) for _ in range(3)])[0]

    await check_llm(build, failing=failing, history=history_of)


async def test_against_the_scripted_provider() -> None:
    replies: list[ReplyLike] = [
        turn(think("Let me see."), say("Looking."), call("read_file", {"path": "a.txt"}), call("list_tasks", {})),
        "Done.",
    ]
    async with ScriptedProvider(replies) as provider:
        one = GenerativeModel(config(base_url=provider.base_url, api_key="k"))
        first = await ask(one)
        second = await ask(one, *[tool_call_output("ok", called.tool_call_id) for called in first.calls()])
        await one.aclose()
    assert first.thoughts() == ["Let me see."]
    assert first.texts() == ["Looking."]
    assert first.pairs() == [("read_file", '{"path": "a.txt"}'), ("list_tasks", "{}")]
    assert not first.usage().estimated
    assert second.texts() == ["Done."]
    provider.assert_exhausted()


@pytest.mark.golden
@pytest.mark.parametrize("scenario", ["plain_text", "thinking_text_chat", "tool_one"])
def test_what_the_original_sent(golden_dir: Path, scenario: str) -> None:
    (trace,) = sorted((golden_dir / scenario).glob("trace-*.jsonl"))
    records = [decode(line) for line in trace.read_bytes().splitlines()]
    history = [record for record in records if side_of(record) is not None]
    requests = (golden_dir / scenario / "llm_requests.jsonl").read_text().splitlines()
    for request in requests:
        expected = json.loads(request)["body"]["messages"][1:]
        assert _sent(history)[: len(expected)] == expected


def _sent(history: list[Message]) -> list[dict[str, Any]]:
    return list(json.loads(ChatBody(ChatSettings("fake")).build(history))["messages"])
