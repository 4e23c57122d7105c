"""A stream or a trace as text for people, message by message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from penguin.cli.render.cards import CardStack
from penguin.cli.render.look import Look
from penguin.cli.render.text import cut, one_line, visible
from penguin.protocol.messages import (
    Abort,
    ApprovalDecision,
    CompactionBegin,
    CompactionEnd,
    ImageUrl,
    InlineData,
    InlineThinking,
    Message,
    PartialText,
    PartialThinking,
    PartialToolCallOutput,
    RequestBegin,
    RequestEnd,
    SessionMeta,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolCallOutput,
)

Kind = Literal["text", "thinking", "note", "card", "user"]


class Transcript:
    """Writes what a person wants to see of a stream; takes partials, complete messages, or both.

    Args:
        write: where text goes; called with whole lines and, while the model speaks, with pieces of them.
        look: colour, width and symbols of that place.
        live: a task is running and its result is told elsewhere; otherwise this is a record being read, and
            failures and ends are part of it.
        answers: show the final answer too. Without, the words of a turn appear only when that turn called a
            tool (they are then on the way to the answer, not the answer).
        full: nothing is cut.

    Example::

        transcript = Transcript(sys.stdout.write, Look.of(sys.stdout))
        async for message in stream:
            transcript.show(message)
        transcript.close()
    """

    def __init__(
        self,
        write: Callable[[str], object],
        look: Look,
        *,
        live: bool = True,
        answers: bool = True,
        full: bool = False,
    ) -> None:
        self._write = write
        self._look = look
        self._live = live
        self._answers = answers
        self._full = full
        self._cards = CardStack(look, full=full)
        self._speaking: Kind | None = None
        self._streamed: Kind | None = None
        self._last: Kind | None = None
        self._column_zero = True
        self._words = ""
        self._endings: list[str] = []
        self.estimated = False

    def show(self, message: Message) -> None:
        """Show one message."""
        if message.origin:
            self._show_of_child(message)
        else:
            self._show_own(message)
        if self._speaking is None:
            self._block("card", self._cards.lines())
            if not self._cards:
                self._show_endings()

    def close(self) -> None:
        """Bring everything to an end: the stream is over."""
        self._finish_cards()

    # --- messages -----------------------------------------------------------------------------------

    def _show_own(self, message: Message) -> None:
        match message.payload:
            case PartialText(role="assistant", event_type=event, text=words):
                self._speak("text", event, words)
            case PartialThinking(event_type=event, thinking=words):
                self._speak("thinking", event, words)
            case Text(role="assistant", text=words, stop_reason=stop_reason):
                self._said("text", words, notice=self._live and stop_reason == "failed")
            case Thinking(thinking=words):
                self._said("thinking", words)
            case Text(role="user", text=words):
                self._block("user", self._quoted(words))
            case InlineThinking(data=data, mime_type=kind) | InlineData(data=data, mime_type=kind):
                self._note(f"[{kind}, {len(data) * 3 // 4:,} bytes]")
            case ImageUrl(image_url=url):
                self._note(f"[image {cut(one_line(url), 60)}]")
            case TokenUsage(estimated=estimated):
                self.estimated = self.estimated or estimated
            case RequestBegin():
                self._words = ""
            case _:
                self._show_step(message)

    def _show_step(self, message: Message) -> None:
        match message.payload:
            case ToolCall(name=name, arguments=arguments, tool_call_id=call_id):
                self._reveal_words()
                self._cards.call(call_id, name, arguments, message.timestamp)
            case ApprovalDecision(decision=decision, tool_call_id=call_id):
                self._cards.decide(call_id, allowed=decision == "allow", timestamp=message.timestamp)
            case PartialToolCallOutput(tool_call_id=call_id, output=output):
                self._cards.write(call_id, output)
            case ToolCallOutput(tool_call_id=call_id, output=output, stop_reason=stop_reason):
                self._cards.finish(call_id, output, stop_reason, message.timestamp)
            case RequestEnd():
                self._show_request_end(message.payload, message.timestamp)
            case CompactionBegin(context=context, turns=turns):
                self._note(f"[compacting the context: {context:,} tokens after {turns} turns]")
            case CompactionEnd(status=status):
                self._note("[context compacted]" if status == "completed" else f"[compaction {status}]")
            case Abort(reason=reason):
                self._finish_cards()
                self._note(f"[{one_line(reason) if isinstance(reason, str) else 'aborted'}]")
            case SessionMeta():
                self._show_meta(message.payload)
            case _:
                # Boundaries and fragments that say nothing to a person, and payloads of a later version.
                pass

    def _show_request_end(self, end: RequestEnd, timestamp: str) -> None:
        self._end_of_speech()
        if end.status == "completed":
            # A remark of the model side: a reply that was cut, or has no answer in it (L4).
            self._endings += [f"[{one_line(end.error.message)}]"] if end.error else []
            return
        self._cards.give_up_undecided(timestamp)
        if self._live and end.retry_in_ms is None:
            return
        self._words = ""
        self._endings.append(f"[the request ended as {_what_happened(end)}]")

    def _show_endings(self) -> None:
        """How requests ended, once the tools they started are done: in between it would tear their output apart."""
        endings, self._endings = self._endings, []
        for ending in endings:
            self._note(ending)

    def _show_meta(self, meta: SessionMeta) -> None:
        self._note(f"[{meta.session_id}: {meta.provider}/{meta.model_id} in {one_line(meta.workspace)}]")
        if self._full:
            self._block("note", (self._look.dim(visible(line)) for line in meta.system_prompt.split("\n")))

    def _show_of_child(self, message: Message) -> None:
        match message.payload:
            case ToolCall(name=name):
                self._note(f"  [subagent calls {one_line(name)}]")
            case Abort():
                self._note("  [subagent aborted]")
            case _:
                pass

    # --- speech -------------------------------------------------------------------------------------

    def _speak(self, kind: Kind, event: str, words: str) -> None:
        if event == "start":
            self._end_of_speech()
            self._streamed = kind
        if kind == "text" and not self._answers:
            self._words += words
        elif words:
            self._say(kind, words)
        if event == "stop":
            self._end_of_speech()

    def _say(self, kind: Kind, words: str) -> None:
        if self._speaking is None:
            # Some models open with blank lines; the space between blocks is ours.
            words = words.lstrip("\n")
            if not words:
                return
            self._open_block(kind)
            self._speaking = kind
            if kind == "thinking" and not self._look.colour:
                self._put("[thinking] ")
        shown = visible(words)
        self._put(self._look.dim(shown) if kind == "thinking" else shown)

    def _end_of_speech(self) -> None:
        self._speaking = None
        if not self._column_zero:
            self._put("\n")

    def _said(self, kind: Kind, words: str, *, notice: bool = False) -> None:
        """A complete message: news only when no fragments of it were shown."""
        streamed, self._streamed = self._streamed, None
        if streamed == kind or not words.strip():
            return
        if notice:
            self._note(one_line(words))
        elif kind == "text" and not self._answers:
            self._words += words
        else:
            self._say(kind, words.rstrip("\n"))
            self._end_of_speech()

    def _reveal_words(self) -> None:
        words, self._words = self._words, ""
        if words.strip():
            self._say("text", words.rstrip("\n"))
            self._end_of_speech()

    # --- blocks -------------------------------------------------------------------------------------

    def _quoted(self, words: str) -> Iterable[str]:
        mark = self._look.bold(">")
        return (f"{mark} {visible(line)}".rstrip() for line in words.rstrip("\n").split("\n"))

    def _note(self, words: str) -> None:
        self._end_of_speech()
        self._block("card", self._cards.lines())
        self._block("note", [self._look.dim(words)])

    def _finish_cards(self) -> None:
        self._end_of_speech()
        self._block("card", self._cards.leave())
        self._show_endings()

    def _block(self, kind: Kind, lines: Iterable[str]) -> None:
        for line in lines:
            if self._last != kind:
                self._open_block(kind)
            self._put(f"{line}\n")

    def _open_block(self, kind: Kind) -> None:
        if not self._column_zero:
            self._put("\n")
        if self._last is not None:
            self._put("\n")
        self._last = kind

    def _put(self, text: str) -> None:
        self._write(text)
        # Colour codes close after the text: what counts is the last character a person sees.
        self._column_zero = text.removesuffix("\x1b[0m").endswith("\n")


def _what_happened(end: RequestEnd) -> str:
    wait = f" in {end.retry_in_ms / 1000:g} s" if end.retry_in_ms else ""
    again = "" if end.retry_in_ms is None else f"; trying again{wait}"
    if end.error is None:
        return f"{end.status}{again}"
    kind = "" if end.error.kind == end.status else f" ({one_line(end.error.kind)})"
    return f"{end.status}: {one_line(end.error.message)}{kind}{again}"
