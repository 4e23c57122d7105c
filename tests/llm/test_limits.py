from __future__ import annotations

import pytest

from penguin.llm.limits import IMAGE_TOKENS, TokenEstimator, characters, output_cap, output_tokens
from penguin.protocol.builders import image_url, tool_call, tool_call_output, user_text
from penguin.protocol.events import TokenCounts
from penguin.protocol.messages import Message


@pytest.mark.parametrize(
    ("max_tokens", "window", "estimated", "model_max", "expected"),
    [
        (32_000, 200_000, 10_000, None, 32_000),
        (32_000, 200_000, 10_000, 8_192, 8_192),
        (32_000, 8_192, 1_000, None, 8_192 - 1_000 - 1_024),
        (32_000, 8_192, 9_000, None, 256),
        (32_000, None, 1_000, None, None),
        (32_000, 4_095, 1_000, None, None),
        (32_000, 0, 1_000, None, None),
        (None, 200_000, 1_000, None, None),
        (None, 200_000, 1_000, 64_000, 64_000),
        (-1, 200_000, 1_000, None, None),
        (100, 8_192, 1_000, None, 100),
        (32_000, 8_192, 9_000, 100, 100),
    ],
)
def test_L11_output_cap(
    max_tokens: int | None, window: int | None, estimated: int, model_max: int | None, expected: int | None
) -> None:
    assert output_cap(max_tokens, window, estimated, model_max_output=model_max) == expected


@pytest.mark.parametrize(("window", "expected"), [(None, 9_000), (0, 9_000), (200_000, 9_000), (8_192, 6_168)])
def test_L11_what_a_person_named_is_asked_for_whether_or_not_the_window_is_known(
    window: int | None, expected: int
) -> None:
    assert output_cap(32_000, window, 1_000, named=9_000) == expected


def test_L12_the_estimate_learns_from_what_was_reported() -> None:
    estimator = TokenEstimator(fixed=400)
    assert estimator.estimate(3_600) == 1_000
    estimator.learn(3_600, TokenCounts(cache_read=500, cache_write=1_000, output=9, total=1_509))
    assert estimator.estimate(3_600) == 1_500
    assert estimator.estimate(7_600) == 3_000


def test_L12_one_odd_report_does_not_wreck_the_estimate() -> None:
    estimator = TokenEstimator(fixed=0)
    estimator.learn(4_000, TokenCounts(cache_write=3, total=3))
    assert estimator.estimate(4_000) == 500
    estimator.learn(4_000, TokenCounts())
    assert estimator.estimate(4_000) == 500


def test_images_count_as_tokens_not_as_base64() -> None:
    assert characters([image_url("data:image/png;base64," + "A" * 1_000_000)]) == IMAGE_TOKENS * 4
    seen = tool_call_output("xy", "c", images=["data:…"])
    messages: list[Message] = [user_text("abc"), tool_call("ls", "{}", "c"), seen]
    assert characters(messages) == 3 + 4 + 2 + IMAGE_TOKENS * 4


def test_anything_said_is_at_least_one_token() -> None:
    assert [output_tokens(count) for count in (0, 1, 4, 5)] == [0, 1, 1, 2]
