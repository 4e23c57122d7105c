from __future__ import annotations

import json
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penguin.llm.outcome import (
    RULES,
    Place,
    Rejection,
    classify,
    disconnected,
    read_rejection,
    rejected,
    rejection_from,
    retry_after,
)
from penguin.llm.transport import TransportError, UndecodableBody

PLACE = Place("openai", "gpt-x", "https://api.example/v1", "OPENAI_API_KEY", ("sk-secret-key-1234",))

OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "context_length_exceeded",
    "prompt is too long: 213462 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "the request exceeds the available context size, try increasing it",
    "tokens to keep from the initial prompt is greater than the context length",
    "invalid params, context window exceeds limit (2013)",
    "Your request exceeded model token limit: 262144",
    "Range of input length should be [1, 129024]",
    "Input is too long for requested model.",
    "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 47098.",
    "prompt too long; exceeded max context length by 12 tokens",
    (
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context"
        " length of only 4096 tokens, which is not enough"
    ),
]


@pytest.mark.parametrize("words", OVERFLOWS)
@pytest.mark.parametrize("status", [400, 429, 500, None])
def test_L4_overflow_wording_under_any_status(words: str, status: int | None) -> None:
    rule = classify(Rejection(words, status))
    assert (rule.status, rule.kind) == ("failed", "context_overflow")


@pytest.mark.parametrize(
    ("status", "words", "expected"),
    [
        (413, "Payload Too Large", ("failed", "context_overflow")),
        (429, "Number of input tokens has exceeded your per-minute rate limit", ("timeout", "rate_limit")),
        (429, "input tokens per minute exceed the limit: rate limited", ("timeout", "rate_limit")),
        (429, "Requests per minute usage limit exceeded", ("timeout", "rate_limit")),
        (504, "no credits charged for this failed request: upstream timed out", ("timeout", "overloaded")),
        (503, "You were not billed; no balance change. server overloaded", ("timeout", "overloaded")),
        (402, "Insufficient Balance", ("failed", "quota")),
        (429, "insufficient_quota: You exceeded your current quota", ("failed", "quota")),
        (429, "Your account org-1 is suspended due to insufficient balance", ("failed", "quota")),
        (403, "AllocationQuota.FreeTierOnly", ("failed", "quota")),
        (400, "Arrearage: Access denied", ("failed", "quota")),
        (400, "Your credit balance is too low to access the API", ("failed", "quota")),
        (429, "余额不足或无可用资源包", ("failed", "quota")),
        (429, "Your prepayment credits are depleted. Please go to AI Studio to manage them.", ("failed", "quota")),
        (500, "insufficient balance (1008)", ("failed", "quota")),
        (503, "1008: insufficient balance", ("failed", "quota")),
        (429, "1113: Your account is in arrears. Please recharge and try again.", ("failed", "quota")),
        (429, "1113 Insufficient balance or no resource package. Please recharge.", ("failed", "quota")),
        (
            429,
            "Rate limit reached for gpt-x on tokens per min (TPM): Limit 30000, Used 29000",
            ("timeout", "rate_limit"),
        ),
        (429, "", ("timeout", "rate_limit")),
        (429, "Too many tokens, please wait before trying again.", ("timeout", "rate_limit")),
        (408, "", ("timeout", "network")),
        (409, "", ("timeout", "overloaded")),
        (425, "", ("timeout", "overloaded")),
        (500, "", ("timeout", "overloaded")),
        (500, "The request took too long to complete", ("timeout", "overloaded")),
        (400, "string_above_max_length: tool call id too long", ("failed", "bad_request")),
        (503, "Loading model", ("timeout", "overloaded")),
        (529, "overloaded_error", ("timeout", "overloaded")),
        (599, "", ("timeout", "overloaded")),
        (400, "content_filter: the response was filtered", ("failed", "refused")),
        (400, "Content Exists Risk", ("failed", "refused")),
        (400, "DataInspectionFailed", ("failed", "refused")),
        (403, 'm requires moderation. Your input was flagged for "violence".', ("failed", "refused")),
        (403, "m requires moderation on X. Your input was flagged. No credits were charged.", ("failed", "refused")),
        (400, "cyber_policy", ("failed", "refused")),
        (400, "invalid_prompt: Invalid Responses API request", ("failed", "bad_request")),
        (400, "invalid_prompt: your prompt was flagged as violating our usage policy", ("failed", "refused")),
        (401, "", ("failed", "auth")),
        (403, "", ("failed", "auth")),
        (403, "no credits left", ("failed", "quota")),
        (400, "API key not valid: invalid_api_key", ("failed", "auth")),
        (400, "unknown field", ("failed", "bad_request")),
        (404, "model not found", ("failed", "bad_request")),
        (422, "", ("failed", "bad_request")),
        (418, "", ("failed", "bad_request")),
        (301, "", ("failed", "bad_request")),
        (None, "Overloaded overloaded_error", ("timeout", "overloaded")),
        (None, "slow too_many_requests", ("timeout", "rate_limit")),
        (None, "The engine is currently overloaded, please try again later", ("timeout", "overloaded")),
        (None, "server_error: The server had an error", ("timeout", "overloaded")),
        (None, "rate_limit_exceeded", ("timeout", "rate_limit")),
        (None, "insufficient_quota", ("failed", "quota")),
        (None, "content_filter", ("failed", "refused")),
        (None, "invalid_prompt: Invalid prompt", ("failed", "refused")),
        (None, "cyber_policy: this may be used for an attack", ("failed", "refused")),
        (None, "invalid_api_key", ("failed", "auth")),
        (None, "1004: login fail: Please carry the API secret key in the 'Authorization' field", ("failed", "auth")),
        (None, "2013: invalid params, messages is empty", ("failed", "bad_request")),
        (None, "invalid_request_error: bad schema", ("failed", "bad_request")),
        (None, "something new", ("failed", "unknown")),
    ],
)
def test_L4_row_by_row(status: int | None, words: str, expected: tuple[str, str]) -> None:
    rule = classify(Rejection(words, status))
    assert (rule.status, rule.kind) == expected


def test_L4_the_last_row_fits_everything() -> None:
    assert RULES[-1].statuses is None
    assert RULES[-1].words is None


def google(message: str, *quotas: str, delay: str = "34.07s", reason: str = "") -> bytes:
    details: list[dict[str, object]] = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": each} for each in quotas]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason},
    ]
    return json.dumps({"error": {"code": 429, "message": message, "status": "X", "details": details}}).encode()


EXCEEDED = "You exceeded your current quota, please check your plan and billing details."
BY_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
BY_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"


@pytest.mark.parametrize(
    ("status", "body", "expected", "wait"),
    [
        (429, google(EXCEEDED, BY_MINUTE), ("timeout", "rate_limit"), 34.07),
        (429, google(EXCEEDED, BY_DAY), ("failed", "quota"), 34.07),
        (429, google(EXCEEDED, BY_MINUTE, BY_DAY), ("failed", "quota"), 34.07),
        (429, google(EXCEEDED, delay="0s"), ("failed", "quota"), None),
        (429, google("Resource has been exhausted", delay="soon"), ("timeout", "rate_limit"), None),
        (400, google("API key not valid. Please pass a valid API key."), ("failed", "auth"), 34.07),
        (400, google("no", reason="API_KEY_INVALID"), ("failed", "auth"), 34.07),
        (400, google("The input token count (9) exceeds the maximum"), ("failed", "context_overflow"), 34.07),
        (400, google("Invalid JSON payload received"), ("failed", "bad_request"), 34.07),
    ],
)
def test_L4_what_google_says(status: int, body: bytes, expected: tuple[str, str], wait: float | None) -> None:
    rejection = read_rejection(body, status, {})
    rule = classify(rejection)
    assert (rule.status, rule.kind) == expected
    assert rejection.retry_after == wait
    assert read_rejection(body, status, {"retry-after": "7"}).retry_after == 7


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":{"message":"no","type":"t","code":"c"}}', Rejection("no", 400, "c", "t")),
        (b'{"error":"no"}', Rejection("no", 400)),
        (b'{"object":"error","message":"no","type":"t","code":40303}', Rejection("no", 400, "40303", "t")),
        (b'{"detail":"no"}', Rejection("no", 400)),
        (b'[{"error":{"message":"no"}}]', Rejection("no", 400)),
        (b'{"base_resp":{"status_code":1008,"status_msg":"no"}}', Rejection("no", 400, "1008")),
        (b"plain no", Rejection("plain no", 400)),
        (b"", Rejection("", 400)),
        (
            b"<html><head><title>502 Bad</title></head></html>",
            Rejection("a web page instead of an answer (502 Bad)", 400),
        ),
    ],
)
def test_error_bodies_of_many_shapes(body: bytes, expected: Rejection) -> None:
    assert read_rejection(body, 400, {}) == expected


def test_a_status_inside_a_stream_error_counts() -> None:
    assert rejection_from({"error": {"message": "Provider returned error", "code": 502}}).status == 502


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["error", "message", "code", "type", "detail", "errors", "metadata", "raw"]), inner
            )
        ),
    )
)
def test_any_json_is_some_rejection(document: object) -> None:
    assert classify(rejection_from(document)).status in {"failed", "timeout"}


def test_L17_keys_never_appear_and_the_setting_does() -> None:
    outcome = rejected(Rejection("Incorrect API key provided: sk-secret-key-1234 (also sk-abc***wxyz).", 401), PLACE)
    assert outcome.error is not None
    assert outcome.error.kind == "auth"
    assert "sk-" not in outcome.error.message
    assert "OPENAI_API_KEY" in outcome.error.message
    assert "openai/gpt-x" in outcome.error.message
    assert ".project_config.toml" in outcome.error.message
    assert "sk-" not in repr(outcome)


def test_L4_a_prompt_that_was_flagged_is_no_matter_of_the_key() -> None:
    outcome = rejected(Rejection('m requires moderation. Your input was flagged for "violence".', 403), PLACE)
    assert outcome.error is not None
    assert outcome.error.kind == "refused"
    assert "api_key" not in outcome.error.message


@pytest.mark.parametrize(
    ("key", "shown"), [("k", "take the key"), ("abcdefgh", "take the key"), ("take the", "[key] key")]
)
def test_L17_only_what_can_be_a_secret_is_hidden(key: str, shown: str) -> None:
    assert Place("p", "m", "u", secrets=(key,)).hidden("take the key") == shown


@pytest.mark.parametrize("text", ["Bearer abcdef123456", "AIzaSyA-1234567890", "gsk_abcdefgh", "sk-proj-****abcd"])
def test_L17_what_looks_like_a_key_is_hidden(text: str) -> None:
    assert Place("p", "m", "u").hidden(f"got {text}.").startswith("got [key]")


def test_the_providers_own_words_are_kept() -> None:
    outcome = rejected(Rejection("the field `foo` is unknown", 400, "unknown_field"), PLACE)
    assert outcome.error is not None
    assert outcome.error.message == "HTTP 400 unknown_field: the field `foo` is unknown"


def test_L4_a_connection_that_fails_before_and_after_the_answer_began() -> None:
    before = disconnected(TransportError("refused"), PLACE, answering=False)
    after = disconnected(TransportError("broke"), PLACE, answering=True)
    garbled = disconnected(UndecodableBody("not gzip"), PLACE, answering=True)
    assert [before.status, after.status, garbled.status] == ["timeout", "malformed", "malformed"]
    assert [outcome.error.kind for outcome in (before, after, garbled) if outcome.error] == [
        "network",
        "network",
        "malformed",
    ]


NOW = 1_764_500_000.0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": formatdate(NOW + 3, usegmt=True)}, 3.0),
        ({"retry-after": "0"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": formatdate(NOW - 60, usegmt=True)}, None),
        ({"retry-after": "Mon, 99 Foo 2026 99:99:99 GMT"}, None),
        ({"retry-after-ms": "500"}, None),
        ({}, None),
    ],
)
def test_D64_retry_after(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers, now=NOW) == expected


def test_D64_a_date_is_measured_against_the_servers_clock() -> None:
    headers = {"retry-after": formatdate(NOW + 3, usegmt=True), "date": formatdate(NOW, usegmt=True)}
    assert retry_after(headers) == 3.0


def test_D64_the_wait_is_handed_on_only_where_a_retry_follows() -> None:
    limited = rejected(Rejection("slow down", 429, retry_after=7.0), PLACE)
    broke = rejected(Rejection("insufficient_quota", 429, retry_after=7.0), PLACE)
    assert limited.error is not None
    assert limited.error.retry_after == 7.0
    assert broke.error is not None
    assert broke.error.retry_after is None


# --- the words ----------------------------------------------------------------------------------------


def test_the_providers_words_and_the_advice_are_two_sentences() -> None:
    place = Place("openai", "m", "http://127.0.0.1/v1", "OPENAI_API_KEY", config_file="/home/me/.project_config.toml")
    for words in ("bad key", "bad key."):
        outcome = rejected(Rejection(words, 401), place)
        assert outcome.error is not None
        assert outcome.error.message.startswith("HTTP 401: bad key. Change `api_key` in ")
        assert "in /home/me/.project_config.toml" in outcome.error.message


def test_an_error_without_a_status_is_named_by_its_type() -> None:
    error = {"message": "Overloaded", "type": "overloaded_error"}
    for status, words in ((None, "overloaded_error: Overloaded"), (529, "HTTP 529: Overloaded")):
        outcome = rejected(rejection_from({"error": error}, status), PLACE)
        assert outcome.error is not None
        assert (outcome.error.message, outcome.error.http_status) == (words, status)


def test_a_code_that_repeats_the_status_is_said_once() -> None:
    outcome = rejected(read_rejection(b'{"error":{"message":"slow down","code":429}}', 429, {}), PLACE)
    assert outcome.error is not None
    assert outcome.error.message == "HTTP 429: slow down"
