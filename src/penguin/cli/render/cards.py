"""Tool calls as cards: what was called, its output while it comes, how it ended.

Tools run side by side, but lines cannot: the oldest unfinished card is live, the others collect their
output until it is their turn. What is read is therefore in call order, whatever finished first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from penguin.cli.render.arguments import about, in_full
from penguin.cli.render.look import Look
from penguin.cli.render.text import cut, one_line, visible
from penguin.protocol.messages import StopReason

HEAD, TAIL = 8, 8


@dataclass
class Card:
    """One call. ``started`` and ``ended`` are the timestamps of its messages."""

    name: str
    arguments: str
    started: str
    ended: str | None = None
    stop_reason: StopReason | None = None
    decided: bool = False
    denied: bool = False
    dropped: bool = False
    announced: bool = False
    wrote: bool = False
    _lines: deque[str] = field(default_factory=deque)
    _unfinished: str = ""

    def write(self, text: str) -> None:
        """Take a fragment of output."""
        *whole, self._unfinished = (self._unfinished + text).split("\n")
        self._lines.extend(whole)
        self.wrote = self.wrote or bool(text)

    def finish(self, stop_reason: StopReason | None, timestamp: str) -> None:
        """The complete output is there."""
        if self._unfinished:
            self._lines.append(self._unfinished)
            self._unfinished = ""
        self.stop_reason, self.ended = stop_reason, timestamp

    def drain(self) -> Iterator[str]:
        """The whole lines that have come since the last time."""
        while self._lines:
            yield self._lines.popleft()


class CardStack:
    """All cards of a transcript.

    ``full`` shows each line of output and each argument whole; otherwise the first and the last few lines
    of a card are kept.
    """

    def __init__(self, look: Look, *, full: bool = False) -> None:
        self._look = look
        self._full = full
        self._waiting: dict[str, Card] = {}
        self._dropped: set[str] = set()
        self._shown = 0
        self._held: deque[str] = deque(maxlen=TAIL)
        self._left_out = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def call(self, call_id: str, name: str, arguments: str, timestamp: str) -> None:
        """A new call, complete with its arguments."""
        self._waiting[call_id] = Card(name, arguments, timestamp)

    def decide(self, call_id: str, *, allowed: bool, timestamp: str) -> None:
        """The verdict: time counts from here, so that a slow human is not taken for a slow tool."""
        card = self._waiting.get(call_id)
        if card is not None:
            card.started, card.decided, card.denied = timestamp, True, not allowed

    def give_up_undecided(self, timestamp: str) -> None:
        """The request failed: calls nobody had decided about will have no output (E13)."""
        for call_id, card in self._waiting.items():
            if not card.decided and card.ended is None:
                card.dropped, card.ended = True, timestamp
                self._dropped.add(call_id)

    def write(self, call_id: str, text: str) -> None:
        """A fragment of a call's output."""
        if call_id in self._waiting:
            self._waiting[call_id].write(text)

    def finish(self, call_id: str, output: str, stop_reason: StopReason | None, timestamp: str) -> None:
        """A call's complete output; a call that was never seen (cut away by a compaction) gets a card without name."""
        if call_id in self._dropped:
            return
        card = self._waiting.setdefault(call_id, Card("output of an earlier call", "", timestamp))
        if not card.wrote:
            card.write(output)
        card.finish(stop_reason, timestamp)

    def lines(self) -> Iterator[str]:
        """Everything that can be shown now, in call order."""
        while self._waiting:
            call_id, card = next(iter(self._waiting.items()))
            yield from self._lines_of(card)
            if card.ended is None:
                return
            del self._waiting[call_id]

    def leave(self) -> Iterator[str]:
        """No more will come: the cards without an output say so."""
        while self._waiting:
            yield from self.lines()
            if self._waiting:
                card = self._waiting.pop(next(iter(self._waiting)))
                card.finish(None, card.started)
                yield from self._body(card)
                yield from self._rest()
                yield self._look.dim(f"  {self._corner} no output was recorded")
                self._start_anew()

    # --- one card -----------------------------------------------------------------------------------

    @property
    def _corner(self) -> str:
        return self._look.symbol("└", "`-")

    def _lines_of(self, card: Card) -> Iterator[str]:
        if not card.announced:
            card.announced = True
            yield from self._header(card)
        yield from self._body(card)
        if card.ended is not None:
            yield from self._rest()
            yield self._footer(card)
            self._start_anew()

    def _header(self, card: Card) -> Iterator[str]:
        look = self._look
        dot, name = look.symbol("●", "*"), one_line(card.name)
        if self._full:
            yield f"{dot} {look.bold(name)}"
            for argument, value in in_full(card.arguments) if card.arguments else ():
                first, *more = visible(value).split("\n")
                yield f"  {one_line(argument)}: {first}"
                yield from (f"      {line}" for line in more)
            return
        width = look.width()
        room = None if width is None else max(8, width - len(name) - 4)
        subject = cut(about(card.arguments), room, look.symbol("…", "..."))
        yield f"{dot} {look.bold(name)}  {subject}".rstrip()

    def _body(self, card: Card) -> Iterator[str]:
        for line in card.drain():
            if self._full or self._shown < HEAD:
                self._shown += 1
                yield self._output_line(line)
            else:
                self._left_out += len(self._held) == TAIL
                self._held.append(line)

    def _rest(self) -> Iterator[str]:
        if self._left_out:
            dots = self._look.symbol("⋮", ":")
            yield self._look.dim(f"  {dots} {self._left_out} more line{'s' if self._left_out > 1 else ''}")
        yield from map(self._output_line, self._held)

    def _output_line(self, line: str) -> str:
        width = None if self._full else self._look.width()
        shown = cut(visible(line), None if width is None else width - 4, self._look.symbol("…", "..."))
        return self._look.dim(f"  {self._look.symbol('│', '|')} {shown}".rstrip())

    def _footer(self, card: Card) -> str:
        look = self._look
        if card.denied or card.dropped:
            return f"  {self._corner} {look.bad('denied' if card.denied else 'not run')}"
        # Not "ok": that the tool ran says nothing about the exit code of its command.
        ended = card.stop_reason in {None, "completed"}
        verdict = look.dim("done") if ended else look.bad(str(card.stop_reason))
        return f"  {self._corner} {verdict}{look.dim(_duration(card))}"

    def _start_anew(self) -> None:
        self._shown, self._left_out = 0, 0
        self._held.clear()


def _duration(card: Card) -> str:
    try:
        took = datetime.fromisoformat(card.ended or "") - datetime.fromisoformat(card.started)
    except ValueError:
        return ""
    return f", {max(0.0, took.total_seconds()):.1f} s"
