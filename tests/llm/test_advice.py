"""Which setting an error names (L4): each row of the table, in providers' own words."""

from __future__ import annotations

import pytest

from penguin.llm.advice import ADVICE, advice_about
from penguin.llm.outcome import Place, Rejection, classify, disconnected, read_rejection, rejected
from penguin.llm.transport import TransportError

PLACE = Place("openai", "gpt-x", "https://api.example/v1", "OPENAI_API_KEY")
THINKING = "`thinking_levels`"
RESPONSES = '`client_type = "openai-responses"`'
SAID: list[tuple[int | None, str, str]] = [
    (401, "bad key", "Change `api_key`"),
    (402, "pay", "Top up"),
    (400, "foo/bar is not a valid model ID", "Check `model_id` in"),
    (400, "Model Not Exist", "Check `model_id` in"),
    (404, "The model `gpt-9` does not exist or you do not have access to it.", "Check `model_id` in"),
    (404, 'model "llama9" not found, try pulling it first', "Check `model_id` in"),
    (404, "models/gemini-9 is not found for API version v1beta", "Check `model_id` in"),
    (404, "model: claude-9", "Check `model_id` in"),
    (400, "Unsupported value: 'reasoning.effort' does not support 'xhigh' with this model.", THINKING),
    (400, "adaptive thinking is not supported on this model", THINKING),
    (400, "Thinking level is not supported for this model.", THINKING),
    (400, "Thinking level MINIMAL is not supported for this model.", THINKING),
    (400, "max_tokens: 32000 > 4096, which is the maximum allowed number of output tokens", "`max_output`"),
    (400, "max_tokens is too large: 32000. This model supports at most 4096 completion tokens", "`max_output`"),
    (400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", "`max_output`"),
    (500, "image input is not supported - hint: you may need to provide the mmproj", "`vision = false`"),
    (404, "No endpoints found that support image input", "`vision = false`"),
    (400, "registry.ollama.ai/library/gemma3:latest does not support tools", '`tool_calls = "text"`'),
    (404, "No endpoints found that support tool use.", '`tool_calls = "text"`'),
    (400, "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions.", RESPONSES),
    (None, "Unexpected endpoint or method. (POST /chat/completions)", "has to end in /v1"),
    (400, "Unknown parameter: 'reasoning_effort'.", "`extra_body`"),
    (404, "The model `gpt-5.9` does not exist", "Check `model_id` in"),
    (400, "Unknown parameter: 'enable_search'.", "`extra_body`"),
    (404, "no such path", "`base_url` (https://api.example/v1) and `client_type`"),
    (405, "Method Not Allowed", "`base_url` (https://api.example/v1) and `client_type`"),
    (301, "moved", "redirects"),
]


@pytest.mark.parametrize(("status", "words", "advised"), SAID)
def test_L4_the_error_names_the_setting(status: int | None, words: str, advised: str) -> None:
    error = rejected(Rejection(words, status), PLACE).error
    assert error is not None
    advice = error.message.partition(words.rstrip("."))[2]
    assert advised in advice
    assert "the [[models]] entry of openai/gpt-x" in advice


def test_L4_every_row_is_used() -> None:
    used = {advice_about(classify(Rejection(words, status)).kind, status, words) for status, words, _ in SAID}
    used.add(advice_about("network", None, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1000)"))
    assert {row.text for row in ADVICE} <= used


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (429, "slow down: reasoning not supported at this rate"),
        (400, "messages: must not be empty"),
        (503, "overloaded"),
        (400, "This model's maximum context length is 8192 tokens; lower max_tokens"),
    ],
)
def test_L4_no_advice_where_no_setting_helps(status: int, words: str) -> None:
    error = rejected(Rejection(words, status), PLACE).error
    assert error is not None
    assert "[[models]]" not in error.message


def test_L4_a_server_without_tls_is_named() -> None:
    words = "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1000)"
    outcome = disconnected(TransportError(words), PLACE, answering=False)
    assert outcome.status == "timeout"
    assert outcome.error is not None
    assert "http:// instead of https://" in outcome.error.message


def test_L4_lm_studio_says_so_with_200() -> None:
    said = read_rejection(b'{"error":"Unexpected endpoint or method. (POST /chat/completions)"}', None, {})
    assert (rule := classify(said)).kind == "bad_request"
    assert rule.status == "failed"
