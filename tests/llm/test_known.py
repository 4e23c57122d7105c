"""What an entry says of a model overrides the catalogue, in every protocol (L15, L16)."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from penguin.agent.models import described, model_config
from penguin.llm.known import CHAT_LEVELS, CONTROLS, known_of
from penguin.llm.model import ADAPTERS, GenerativeModel, refuse_unusable
from penguin.llm.providers.anthropic_messages import AnthropicMessages
from penguin.llm.providers.gemini import Gemini
from penguin.llm.providers.openai_chat import OpenAIChat
from penguin.llm.providers.openai_responses import OpenAIResponses
from penguin.protocol.builders import user_text
from penguin.protocol.errors import ConfigError
from penguin.protocol.interfaces import GenerateRequest, ModelConfig, ThinkingControl
from penguin.protocol.messages import ThinkingLevel, ToolDefinition
from penguin.state.agent_files import AgentConfig
from penguin.state.project import ModelEntry, ProjectConfig

ASKED = [user_text("hi")]


def body(adapter: Any, config: ModelConfig, level: ThinkingLevel | None = "max") -> dict[str, Any]:
    built = adapter(config, "https://host.example/v1").body(ASKED, max_tokens=64_000, thinking_level=level)
    return dict(json.loads(built))


def test_L15_the_entry_comes_before_the_catalogue() -> None:
    own = ModelConfig("google", "gemini-2.5-pro", max_output=9_000, thinking_levels=("low",), thinking_control="level")
    known = known_of(own)
    assert (known.max_output, known.thinking_levels, known.thinking_control) == (9_000, ("low",), "level")
    assert known_of(ModelConfig("google", "gemini-2.5-pro")).thinking_control == "budget"
    nobody = known_of(ModelConfig("custom", "m"))
    assert (nobody.context_window, nobody.max_output, nobody.thinking_levels, nobody.thinking_control) == (None,) * 4


def test_L15_gemini_takes_the_control_of_the_entry() -> None:
    own = ModelConfig("google", "gemini-next", thinking_control="budget", thinking_levels=("none", "low"))
    assert body(Gemini, own)["generationConfig"]["thinkingConfig"]["thinkingBudget"] == 2_048
    mute = ModelConfig("google", "gemini-next", thinking_levels=())
    assert "thinkingConfig" not in body(Gemini, mute).get("generationConfig", {})


def test_L15_anthropic_takes_the_control_of_the_entry() -> None:
    own = ModelConfig("anthropic", "claude-next", thinking_control="budget", thinking_levels=("none", "low"))
    assert body(AnthropicMessages, own)["thinking"] == {"type": "enabled", "budget_tokens": 2_048}
    assert "thinking" not in body(AnthropicMessages, ModelConfig("anthropic", "claude-next", thinking_levels=()))
    assert body(AnthropicMessages, ModelConfig("anthropic", "claude-next"))["output_config"] == {"effort": "max"}


def test_L15_chat_takes_levels_and_control_of_the_entry() -> None:
    own = ModelConfig("custom", "m", thinking_control="enable", thinking_levels=("none", "high"))
    assert body(OpenAIChat, own)["enable_thinking"] is True
    assert body(OpenAIChat, ModelConfig("custom", "m", thinking_levels=("low",)))["reasoning_effort"] == "low"
    assert "reasoning" not in body(OpenAIChat, ModelConfig("openrouter", "x/y", thinking_levels=()))
    assert body(OpenAIChat, ModelConfig("openrouter", "x/y"))["reasoning"] == {"effort": "xhigh"}


@pytest.mark.parametrize(
    ("control", "level", "sent"),
    [
        ("effort", "max", {"reasoning_effort": "high"}),
        ("effort", "none", {"reasoning_effort": "low"}),
        ("openrouter", "none", {"reasoning": {"enabled": False}}),
        ("type", "low", {"thinking": {"type": "enabled"}}),
        ("type-and-effort", "low", {"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
        ("enable", "none", {"enable_thinking": False}),
    ],
)
def test_L16_a_control_works_alone_over_chat(
    control: ThinkingControl, level: ThinkingLevel, sent: dict[str, Any]
) -> None:
    for provider, model_id in (("custom", "m"), ("ollama", "qwen3:8b")):
        own = ModelConfig(provider, model_id, thinking_control=control)
        assert sent.items() <= body(OpenAIChat, own, level).items()
        mute = ModelConfig(provider, model_id, thinking_control=control, thinking_levels=())
        assert not sent.keys() & body(OpenAIChat, mute, level).keys()


def test_L16_every_control_of_chat_stands_for_levels() -> None:
    assert set(CONTROLS["openai-chat"]) == set(CHAT_LEVELS)


SEARCH = {"tools": [{"type": "function", "function": {"name": "x", "parameters": {"type": "object"}}}]}


@pytest.mark.parametrize(
    "settings",
    [
        {"extra_body": SEARCH},
        {"extra_body": SEARCH, "tools": [ToolDefinition("ls", "lists", {})], "tool_calls": "text"},
        {"tools": [ToolDefinition("ls", "lists", {})], "thinking_levels": ()},
        {"tools": [ToolDefinition("ls", "lists", {})], "thinking_levels": ("low", "high")},
    ],
)
@pytest.mark.parametrize("level", [None, "high"])
def test_L16_whatever_tools_a_request_brings_a_model_that_may_not_think_with_them_is_told_so(
    settings: dict[str, Any], level: ThinkingLevel | None
) -> None:
    own = ModelConfig("openai", "gpt-5.6", "openai-chat", **settings)
    assert body(OpenAIChat, own, level)["reasoning_effort"] == "none"


def test_L16_calls_as_text_are_no_tools() -> None:
    own = ModelConfig("openai", "gpt-5.6", "openai-chat", tools=[ToolDefinition("ls", "lists", {})], tool_calls="text")
    assert body(OpenAIChat, own, "high")["reasoning_effort"] == "high"


def test_L15_responses_takes_the_levels_of_the_entry() -> None:
    own = ModelConfig("openai", "gpt-next", thinking_levels=("none", "high"))
    assert body(OpenAIResponses, own)["reasoning"]["effort"] == "high"
    assert not {"reasoning", "include"} & body(OpenAIResponses, ModelConfig("openai", "x", thinking_levels=())).keys()


def test_L11_the_entrys_limit_of_the_model_caps_the_output() -> None:
    own = ModelConfig("openai", "gpt-4.1", api_key="k", max_tokens=32_000, max_output=5_000)
    sent = GenerativeModel(own).rehearse(GenerateRequest([user_text("hi")]))
    assert json.loads(sent)["max_completion_tokens"] == 5_000


@pytest.mark.parametrize(
    ("entry", "sent"),
    [({"max_tokens": 700}, 700), ({"max_output": 900}, 900), ({"max_tokens": 100, "max_output": 900}, 100), ({}, None)],
)
def test_L11_what_the_entry_names_is_sent_where_nobody_knows_the_window(
    entry: dict[str, int], sent: int | None
) -> None:
    own = ModelEntry(provider="custom", model_id="m", base_url="http://127.0.0.1:9", **entry)  # type: ignore[arg-type]
    choice = described(ProjectConfig(models=(own,)), own.ref)
    model = GenerativeModel(model_config(choice, AgentConfig(), {}, {}))
    assert json.loads(model.rehearse(GenerateRequest([user_text("hi")]))).get("max_tokens") == sent


@pytest.mark.parametrize(
    ("client_type", "control", "said"),
    [
        ("openai-chat", "budget", "allowed: effort, openrouter"),
        ("openai-responses", "effort", "take the key out"),
        ("ant-messages", "level", "allowed: budget, adaptive"),
        ("gemini", "adaptive", "allowed: budget, level"),
    ],
)
def test_L16_a_control_of_another_protocol_is_refused(client_type: str, control: ThinkingControl, said: str) -> None:
    own = ModelConfig("custom", "m", client_type, base_url="http://127.0.0.1:9", thinking_control=control)
    with pytest.raises(ConfigError, match=said):
        refuse_unusable(own)


@pytest.mark.parametrize("client_type", ["openai-responses", "anthropic-messages", "gemini"])
def test_L18_calls_as_text_are_refused_where_the_protocol_ignores_them(client_type: str) -> None:
    own = ModelConfig("custom", "m", client_type, base_url="http://127.0.0.1:9", tool_calls="text")
    with pytest.raises(ConfigError, match=r'tool_calls of custom/m: "text" is not known.*openai-chat'):
        refuse_unusable(own)


def test_L16_every_control_belongs_to_a_protocol() -> None:
    assert CONTROLS.keys() == ADAPTERS.keys()
    assert {control for fitting in CONTROLS.values() for control in fitting} == set(get_args(ThinkingControl))
