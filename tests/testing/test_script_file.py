from __future__ import annotations

from pathlib import Path

import pytest

from penguin.protocol.errors import ScriptError
from penguin.testing import call, cut, dripped, framed, pause, raw, refuse, reply, say, think, turn, usage
from penguin.testing.script_file import parse_script, read_script


def test_every_kind_of_reply_can_be_written_as_json() -> None:
    script = parse_script(
        rb"""{"when_exhausted": "repeat", "replies": [
            "words",
            {"blocks": [{"think": "hm"}, "look", {"call": "t", "arguments": {"a": 1}, "id": "c"}, {"pause": 0.5},
                        {"say": "x", "fidelity": {"k": 1}}, {"call": "t", "arguments": "{broken"}],
             "usage": {"cache_write": 2, "output": 3}, "delay": 1, "delta_size": 4, "delta_delay": 0.1},
            {"blocks": ["hi"], "reasoning_field": "reasoning", "usage_at": "every_chunk", "whole_calls": true,
             "call_index": false, "finish_reason": "stop", "done": false, "line_end": "\r\n"},
            {"status": 429, "message": "slow", "type": "t", "code": "c", "retry_after": "2", "headers": {"X-A": "b"}},
            {"raw": "data: {}\n\n", "bytes_per_write": 1},
            {"raw": "<html>", "content_type": "text/html", "status": 502, "framing": "length"},
            {"blocks": ["half"], "cut": 100, "reset": true}
        ]}"""
    )
    assert script.when_exhausted == "repeat"
    blocks = (
        think("hm"),
        say("look"),
        call("t", {"a": 1}, id="c"),
        pause(0.5),
        say("x", fidelity={"k": 1}),
        call("t", "{broken"),
    )
    assert script.replies == [
        "words",
        reply(turn(*blocks, usage=usage(cache_write=2, output=3), delay=1, delta_size=4, delta_delay=0.1)),
        reply(
            "hi",
            reasoning_field="reasoning",
            usage_at="every_chunk",
            whole_calls=True,
            call_index=False,
            finish_reason="stop",
            done=False,
            line_end="\r\n",
        ),
        refuse(429, "slow", type="t", code="c", retry_after="2", headers={"X-A": "b"}),
        dripped(raw("data: {}\n\n")),
        framed(raw("<html>", content_type="text/html", status=502), "length"),
        cut("half", after=100, reset=True),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"{", "truncated"),
        (b"3", "Expected"),
        (b'[{"blocks": [{"sya": "x"}]}]', r"unknown field `sya` - at `\$\[0\].blocks\[0\]"),
        (b'[{"blocks": [{"say": "x", "think": "y"}]}]', "exactly one of say, think, call, pause"),
        (b'[{"blocks": [{"id": "x"}]}]', "exactly one of"),
        (b'{"replies": [], "when_exhausted": "never"}', "when_exhausted"),
    ],
)
def test_a_wrong_script_is_refused_with_its_place(text: bytes, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_bytes(text)
    with pytest.raises(ScriptError, match=complaint) as caught:
        read_script(file)
    assert str(file) in str(caught.value)


def test_a_missing_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="No such file"):
        read_script(tmp_path / "none.json")
