"""What a configured model can do, asked over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from penguin.agent.probing import Ability, local_places, model_under_test, try_out
from penguin.protocol.errors import CredentialError, NoModelError
from penguin.state.agent_files import AgentConfig
from penguin.state.project import ModelEntry, ModelRef, ProjectConfig
from penguin.testing import ScriptedProvider, call, refuse, turn, usage

pytestmark = pytest.mark.anyio


def project(base_url: str, **more: Any) -> ProjectConfig:
    entry = ModelEntry(provider="custom", model_id="m", base_url=base_url, api_key="k", **more)
    return ProjectConfig(models=(entry,))


async def trial(provider: ScriptedProvider, ability: Ability, **entry: Any) -> Any:
    model = model_under_test(project(provider.base_url, **entry), AgentConfig(), {})
    return await try_out(model, ability)


async def test_an_answer_is_one_small_request() -> None:
    async with ScriptedProvider([turn("pong", usage=usage(cache_write=12, output=3))]) as provider:
        found = await trial(provider, "answers")
        (request,) = provider.requests
    assert (found.able, found.words, found.tokens_in, found.tokens_out) == (True, "pong", 12, 3)
    assert found.first_seconds is not None
    assert request.body["max_tokens"] <= 1_024
    assert "tools" not in request.body


async def test_a_tool_counts_as_called_when_its_argument_is_right() -> None:
    right, wrong = call("report_number", {"number": 7}), call("report_number", {"number": 5})
    async with ScriptedProvider([right, wrong, "report_number(7), of course."]) as provider:
        assert [(await trial(provider, "tools", tool_calls="native")).able for _ in range(3)] == [True, False, False]
        assert provider.requests[0].body["tools"][0]["function"]["name"] == "report_number"


async def test_a_picture_is_sent_even_to_a_model_that_is_marked_blind_and_must_be_seen() -> None:
    async with ScriptedProvider(["Red.", "I see no picture."]) as provider:
        assert (await trial(provider, "vision", vision=False)).able
        blind = await trial(provider, "vision")
        assert (blind.able, blind.certain) == (False, True)
        assert "data:image/png;base64," in str(provider.requests[0].body)


@pytest.mark.parametrize(("status", "certain"), [(400, True), (401, False), (503, False)])
async def test_a_refusal_is_a_verdict_in_the_providers_words(status: int, certain: bool) -> None:
    async with ScriptedProvider([refuse(status, "images are not for me")]) as provider:
        found = await trial(provider, "vision")
    assert (found.able, found.certain) == (False, certain)
    assert "images are not for me" in found.words


async def test_nobody_there_is_a_verdict_too() -> None:
    async with ScriptedProvider([]) as provider:
        url = provider.base_url
    found = await try_out(model_under_test(project(url), AgentConfig(), {}), "answers")
    assert (found.able, found.certain) == (False, False)


def test_what_cannot_be_tried_is_an_error() -> None:
    with pytest.raises(NoModelError):
        model_under_test(ProjectConfig(), AgentConfig(), {})
    with pytest.raises(CredentialError):
        model_under_test(ProjectConfig(), AgentConfig(), {}, ModelRef("openai", "gpt-5"))


def test_the_usual_servers_are_looked_for_on_this_machine_only() -> None:
    places = local_places()
    assert set(places) == {"ollama", "lmstudio", "llamacpp", "vllm"}
    assert [url.partition("//")[2] for url in places.values()] == [
        "localhost:11434/v1",
        "localhost:1234/v1",
        "localhost:8080/v1",
        "localhost:8000/v1",
    ]
