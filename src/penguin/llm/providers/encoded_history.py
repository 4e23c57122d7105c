"""A history as the wire items of a protocol, each encoded once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from penguin.llm.providers.body_parts import encode
from penguin.protocol.call_ids import legal_call_id
from penguin.protocol.messages import (
    ImageUrl,
    InlineData,
    InlineThinking,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolCallOutput,
)

Run: TypeAlias = list[tuple[int, Message]]
"""Messages with their positions in the history."""


def runs(history: Sequence[Message]) -> Iterator[tuple[Literal["user", "assistant"], Run]]:
    """Neighbouring messages of one side, with their positions."""
    run: Run = []
    side: Literal["user", "assistant"] = "user"
    for position, message in enumerate(history):
        its_side = side_of(message)
        if its_side is None:
            continue
        if run and its_side != side:
            yield side, run
            run = []
        side = its_side
        run.append((position, message))
    if run:
        yield side, run


def side_of(message: Message) -> Literal["user", "assistant"] | None:
    """Who said a complete message; ``None`` for what is no part of a context."""
    match message.payload:
        case Text(role=role) | InlineData(role=role):
            return role
        case ImageUrl() | ToolCallOutput():
            return "user"
        case Thinking() | InlineThinking() | ToolCall():
            return "assistant"
        case _:
            return None


class WireIds:
    """Ids as they are sent: legal, and unique even where an old trace uses one twice (L9)."""

    def __init__(self) -> None:
        self._current: dict[str, str] = {}
        self._used: set[str] = set()

    def call(self, tool_call_id: str) -> str:
        """The id a call is sent with."""
        base = wire_id = legal_call_id(tool_call_id)
        number = 1
        while wire_id in self._used:
            number += 1
            suffix = f"_{number}"
            wire_id = base[: 40 - len(suffix)] + suffix
        self._used.add(wire_id)
        self._current[tool_call_id] = wire_id
        return wire_id

    def result(self, tool_call_id: str) -> str:
        """The id of the call a result belongs to."""
        return self._current.get(tool_call_id) or legal_call_id(tool_call_id)


NO_WORDS: Final = "[no words]"
"""What a reply said that only made something."""

UNSEEN: Final = "[image left out: this model cannot see images]"
"""What a model without eyes is shown of any image, one it made included (L14)."""

_MADE: Final = "[made by you, in the reply above]"
Part = TypeVar("Part")


class Thread(WireIds):
    """Also knows what the last reply made and has no place in it: that goes back with the user's words after it.

    Three of the protocols have no form, or only their own server's, for an image in the model's words. A session
    that is forked to another model, or goes on with one, would lose it without a word.
    """

    def __init__(self) -> None:
        super().__init__()
        self.made: list[InlineData] = []

    def made_parts(self, say: Callable[[str], Part], show: Callable[[InlineData], Iterable[Part]]) -> list[Part]:
        """What the user's message begins with, in the protocol's words.

        Example::

            thread.made_parts(text_part, lambda data: [image_part(data)])  # [{"type": "text", …}, {"type": "image_url"…
        """
        return [part for data in self.made for part in (say(_MADE), *show(data))]


Ids = TypeVar("Ids", bound=WireIds)

Wording: TypeAlias = Callable[[Run, Ids], Iterable[Any]]
"""How one run of messages of one side becomes items that can be encoded."""


class EncodedHistory(Generic[Ids]):
    """Remembers the encoded items of turns that ended in the model's own words, since those come again unchanged.

    What is remembered is speed: the items depend on the history only. A history that does not continue
    the one before (resume, a new context) is encoded anew. ``make_ids`` makes what knows the calls.
    """

    def __init__(self, of_user: Wording[Ids], of_model: Wording[Ids], make_ids: Callable[[], Ids]) -> None:
        self._make_ids = make_ids
        self._of_user = of_user
        self._of_model = of_model
        self._settled: list[bytes] = []
        self._known = 0
        self._last: Message | None = None
        self._ids = make_ids()

    def items(self, history: Sequence[Message]) -> list[bytes]:
        """The items of ``history``, each as JSON."""
        known = self._known
        if known and (len(history) < known or history[known - 1] is not self._last):
            self._forget()
            known = 0
        fresh: list[bytes] = []
        for side, run in runs(history[known:]):
            word = self._of_user if side == "user" else self._of_model
            fresh += [encode(item) for item in word(run, self._ids)]
            if side == "assistant":
                # New words of the user may still be joined by others when an attempt is repeated.
                self._settled += fresh
                self._known, self._last = known + run[-1][0] + 1, run[-1][1]
                fresh = []
        return self._settled + fresh

    def _forget(self) -> None:
        self._settled, self._known, self._last, self._ids = [], 0, None, self._make_ids()
