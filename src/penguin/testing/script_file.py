r"""Scripts of the provider as JSON, for ``python -m penguin.testing.provider_server SCRIPT.json``.

The file is a list of replies, or an object with ``replies`` and ``when_exhausted``. A reply is a
string or an object of one of three kinds: words, a refusal, or raw bytes::

    [
      "Just words.",
      {"blocks": [{"think": "hm"}, "I will look.", {"call": "read_file", "arguments": {"file_path": "a"}, "id": "c1"},
                  {"pause": 0.5}],
       "delta_delay": 0.01, "reasoning_field": "reasoning", "finish_reason": "stop"},
      {"status": 429, "message": "slow down", "retry_after": "2"},
      {"raw": "data: {}\n\n", "bytes_per_write": 1}
    ]

Field names and meanings are those of `turns.turn`, `replies.Style` and `replies.Delivery`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from penguin.protocol.errors import ScriptError
from penguin.testing.replies import Delivery, Raw, Refusal, Reply, ReplyLike, Style, UsageAt
from penguin.testing.turns import Block, Pause, Say, Think, Turn, call, turn, usage


class _UsageEntry(msgspec.Struct, forbid_unknown_fields=True):
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0


class _BlockEntry(msgspec.Struct, forbid_unknown_fields=True):
    """Exactly one of the first four fields is given."""

    say: str | None = None
    think: str | None = None
    call: str | None = None
    pause: float | None = None
    arguments: dict[str, Any] | str = "{}"
    id: str | None = None
    fidelity: dict[str, Any] | None = None

    def block(self) -> Block:
        """The block this entry stands for."""
        match (self.say, self.think, self.call, self.pause):
            case (str() as text, None, None, None):
                return Say(text, self.fidelity)
            case (None, str() as text, None, None):
                return Think(text, self.fidelity)
            case (None, None, str() as name, None):
                return call(name, self.arguments, id=self.id, fidelity=self.fidelity)
            case (None, None, None, float() as seconds):
                return Pause(seconds)
            case _:
                raise ScriptError("a block needs exactly one of say, think, call, pause")


class _ReplyEntry(msgspec.Struct, forbid_unknown_fields=True):
    """All three kinds in one: ``raw`` or ``blocks`` decides, else it is a refusal."""

    blocks: list[str | _BlockEntry] | None = None
    usage: _UsageEntry | None = None
    delay: float = 0.0
    delta_size: int = 8
    delta_delay: float = 0.0
    raw: str | None = None
    content_type: str = "text/event-stream"
    status: int = 200
    message: str = "scripted refusal"
    type: str | None = None
    code: str | None = None
    retry_after: str | None = None
    headers: dict[str, str] = {}
    reasoning_field: str = "reasoning_content"
    usage_at: UsageAt = "when_asked"
    whole_calls: bool = False
    call_index: bool = True
    finish_reason: str | None = None
    done: bool = True
    line_end: str = "\n"
    bytes_per_write: int | None = None
    write_delay: float = 0.0
    stall: int | None = None
    cut: int | None = None
    reset: bool = False
    framing: Literal["chunked", "length", "close"] = "chunked"

    def reply(self) -> Reply:
        """The reply this entry stands for."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.retry_after is not None:
            headers["retry-after"] = self.retry_after
        return Reply(self._content(), self.status, tuple(headers.items()), self._style(), self._delivery())

    def _content(self) -> Turn | Raw | Refusal:
        if self.raw is not None:
            return Raw(self.raw.encode(), self.content_type)
        if self.blocks is None:
            return Refusal(self.message, self.type, self.code)
        said = [block if isinstance(block, str) else block.block() for block in self.blocks]
        counts = None if self.usage is None else usage(**msgspec.structs.asdict(self.usage))
        return turn(*said, usage=counts, delay=self.delay, delta_size=self.delta_size, delta_delay=self.delta_delay)

    def _style(self) -> Style:
        return Style(**{name: getattr(self, name) for name in Style.__dataclass_fields__})

    def _delivery(self) -> Delivery:
        return Delivery(**{name: getattr(self, name) for name in Delivery.__dataclass_fields__})


class _File(msgspec.Struct, forbid_unknown_fields=True):
    replies: list[str | _ReplyEntry]
    when_exhausted: Literal["error", "repeat"] = "error"


@dataclass(frozen=True, slots=True)
class Script:
    """What a script file says."""

    replies: list[ReplyLike]
    when_exhausted: Literal["error", "repeat"] = "error"


def read_script(file: Path) -> Script:
    """Read a script file.

    Raises:
        ScriptError: It is no script; the text names the file, the place in it, and the reason.
    """
    try:
        return parse_script(file.read_bytes())
    except (OSError, ScriptError) as error:
        raise ScriptError(f"{file}: {error}") from None


def parse_script(text: bytes) -> Script:
    """The script in a JSON text; see the module's docstring.

    Raises:
        ScriptError: It is no script; the text names the place in it, and the reason.
    """
    try:
        read = msgspec.json.decode(text, type=_File | list[str | _ReplyEntry])
    except msgspec.DecodeError as error:
        raise ScriptError(str(error)) from None
    script = read if isinstance(read, _File) else _File(read)
    replies: list[ReplyLike] = [entry if isinstance(entry, str) else entry.reply() for entry in script.replies]
    return Script(replies, script.when_exhausted)
