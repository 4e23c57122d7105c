"""A history as the wire items of a protocol, each encoded once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from penguin.llm.providers.openai_chat_body import Run, WireIds, encode, runs
from penguin.protocol.messages import Message

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
        self._last: list[Message] = []
        self._ids = make_ids()

    def items(self, history: Sequence[Message]) -> list[bytes]:
        """The items of ``history``, each as JSON."""
        known = len(self._last)
        if known and (len(history) < known or history[known - 1] is not self._last[-1]):
            self._forget()
            known = 0
        fresh: list[bytes] = []
        for side, run in runs(history[known:]):
            word = self._of_user if side == "user" else self._of_model
            fresh += [encode(item) for item in word(run, self._ids)]
            if side == "assistant":
                # New words of the user may still be joined by others when an attempt is repeated.
                self._settled += fresh
                self._last = list(history[: known + run[-1][0] + 1])
                fresh = []
        return self._settled + fresh

    def _forget(self) -> None:
        self._settled, self._last, self._ids = [], [], self._make_ids()
