from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from penguin.llm.usage import chat_usage
from penguin.protocol.events import TokenCounts


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, (0, 10, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}, (8, 2, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 8}, (8, 2, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 8}, (8, 2, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": None}, (0, 10, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 99}, (10, 0, 5)),
        ({"input_tokens": 10, "output_tokens": 5}, (0, 10, 5)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            (0, 10, 5),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 18,
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            (0, 10, 8),
        ),
        ({"prompt_tokens": 10.0, "completion_tokens": None}, (0, 10, 0)),
    ],
)
def test_P4_normalised(reported: dict[str, Any], expected: tuple[int, int, int]) -> None:
    read, write, output = expected
    assert chat_usage(Raw(json.dumps(reported).encode())) == TokenCounts(read, write, output, read + write + output)


@pytest.mark.parametrize(
    "reported", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": "9"}, []]
)
def test_L12_what_says_nothing(reported: Any) -> None:
    assert chat_usage(None if reported is None else Raw(json.dumps(reported).encode())) is None
