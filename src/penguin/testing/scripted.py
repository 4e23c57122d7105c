"""A model that says what a script tells it, with exact streams and faults on demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest
from typing import Literal, TypeAlias

import anyio
import anyio.lowlevel
from msgspec import Struct

from penguin.protocol import builders
from penguin.protocol.call_ids import ToolCallIdAllocator
from penguin.protocol.errors import ScriptError
from penguin.protocol.events import StopReason
from penguin.protocol.interfaces import Emit, GenerateRequest, LLMOutcome, ModelConfig, ModelError, ModelFactory
from penguin.protocol.messages import Message, Text, Thinking, ToolCall, ToolCallOutput
from penguin.testing.turns import Block, Call, Fault, Pause, Say, Think, Turn, TurnLike, as_turn, pieces, usage

_MOST_AT_ONCE = 16
"""How many overdue deltas a reader gets before others have their turn."""

_Spoken: TypeAlias = Say | Think | Call
_AllocateId: TypeAlias = Callable[[str | None], str]
_RefusalKind: TypeAlias = Literal["unknown", "bad_request"]


@dataclass(slots=True)
class _Script:
    """What all contexts of one scripted model share."""

    turns: deque[TurnLike]
    played: int = 0
    requests: list[GenerateRequest] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    contexts: list[ScriptedModel] = field(default_factory=list)
    configs: list[ModelConfig] = field(default_factory=list)
    own_ids: ToolCallIdAllocator = field(default_factory=ToolCallIdAllocator)

    def next_turn(self, request: GenerateRequest, history: list[Message]) -> Turn:
        if not self.turns:
            raise ScriptError(f"the script is exhausted: request {len(self.requests)} came after {self.played} turns")
        self.played += 1
        scripted = self.turns.popleft()
        return as_turn(scripted(request, list(history)) if callable(scripted) else scripted)


class ScriptedModel:
    """A model whose replies are data: each request takes the next turn of the script.

    It keeps the contract of `LLMInterface` to the letter: exact segments, a history that only grows
    when an attempt completed, no exceptions, open segments closed on cancellation. A request the
    script does not foresee, or one that no provider would accept, fails and is noted in `problems`.

    Args:
        turns: One entry for each request, retries included: a turn, a block, a string, or a function
            ``(request, history) -> turn``.
        tool_call_ids: Makes ids unique in the session; without it ids are sent as they are written.

    Attributes:
        requests: Every request so far, of all contexts that share the script.
        problems: What was wrong with how the script was used; empty is good.
        history: The committed messages of this context.
        contexts: The models that `factory()` built, oldest first.
        configs: What they were built from.

    Example::

        model = ScriptedModel([
            turn(say("I will look."), call("read_file", {"file_path": "a.txt"})),
            "It says hi.",
        ])
        ...
        model.assert_exhausted()
    """

    def __init__(self, turns: Iterable[TurnLike], *, tool_call_ids: ToolCallIdAllocator | None = None) -> None:
        self._script = _Script(deque(turns))
        self._ids = tool_call_ids
        self.history: list[Message] = []

    @property
    def requests(self) -> list[GenerateRequest]:
        """Every request so far, of all contexts that share the script."""
        return self._script.requests

    @property
    def problems(self) -> list[str]:
        """What was wrong with how the script was used."""
        return self._script.problems

    @property
    def contexts(self) -> list[ScriptedModel]:
        """The models that `factory()` built, oldest first."""
        return self._script.contexts

    @property
    def configs(self) -> list[ModelConfig]:
        """What `factory()` built its models from."""
        return self._script.configs

    def factory(self) -> ModelFactory:
        """Builds empty contexts that take their turns from this script.

        Example::

            script = ScriptedModel(["first", "[summary]so far[/summary]", "second"])
            session = create_session(model=script.factory(), ...)
        """

        def new_context(config: ModelConfig) -> ScriptedModel:
            context = ScriptedModel([], tool_call_ids=config.tool_call_ids or self._ids)
            context._script = self._script
            self._script.contexts.append(context)
            self._script.configs.append(config)
            return context

        return new_context

    def set_history(self, messages: list[Message]) -> None:
        """Take over committed messages, before the first request.

        Raises:
            ScriptError: The context already has a history.
        """
        if self.history:
            raise ScriptError("set_history is for a context that has no history yet")
        self.history = list(messages)

    def assert_exhausted(self) -> None:
        """Check that every turn was used and that every request was in order.

        Raises:
            ScriptError: Turns are left, or there are `problems`.
        """
        complaints = list(self._script.problems)
        if self._script.turns:
            complaints.append(f"{len(self._script.turns)} of the script's turns were never asked for")
        if complaints:
            raise ScriptError("; ".join(complaints))

    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        """Play the next turn of the script."""
        self._script.requests.append(replace(request, new_messages=list(request.new_messages)))
        stage = _Stage(emit, self._call_id)
        try:
            return await self._attempt(request, stage)
        except Exception as error:  # noqa: BLE001 - L1: a model never raises, whatever a scripted function does
            return self._refuse(stage, "unknown", error)
        except BaseException:
            # Cancelled: from here on every await would raise again, so the closing is synchronous.
            stage.close_all("aborted")
            raise

    async def _attempt(self, request: GenerateRequest, stage: _Stage) -> LLMOutcome:
        complaint = _why_illegal(self.history, request.new_messages)
        if complaint:
            return self._refuse(stage, "bad_request", ScriptError(complaint))
        turn = self._script.next_turn(request, self.history)
        fault = await stage.play(turn)
        if fault is not None:
            return fault.outcome()
        stage.emit(_usage_message(turn, self.history, request.new_messages, stage.said))
        self.history += [*request.new_messages, *stage.said]
        return LLMOutcome("completed", note=turn.note)

    def _refuse(self, stage: _Stage, kind: _RefusalKind, error: Exception) -> LLMOutcome:
        message = str(error) if isinstance(error, ScriptError) else f"{type(error).__name__}: {error}"
        self._script.problems.append(message)
        stage.close_all("failed")
        return LLMOutcome("failed", ModelError(kind, message))

    def _call_id(self, wanted: str | None) -> str:
        if self._ids is not None:
            return self._ids.allocate(wanted)
        return wanted if wanted is not None else self._script.own_ids.allocate(None)


class _Segment:
    """One block while it is streamed."""

    def __init__(self, block: _Spoken, call_id: str) -> None:
        self._block = block
        self._call_id = call_id
        self._streamed: list[str] = []

    def start(self) -> Message:
        match self._block:
            case Say():
                return builders.partial_text("start")
            case Think():
                return builders.partial_thinking("start")
            case Call(name=name):
                return builders.partial_tool_call("start", self._call_id, name=name)

    def delta(self, piece: str) -> Message:
        self._streamed.append(piece)
        match self._block:
            case Say():
                return builders.partial_text("delta", piece)
            case Think():
                return builders.partial_thinking("delta", piece)
            case Call():
                return builders.partial_tool_call("delta", self._call_id, piece)

    def stop(self, reason: StopReason | None) -> Message:
        match self._block:
            case Say():
                return builders.partial_text("stop", stop_reason=reason)
            case Think():
                return builders.partial_thinking("stop", stop_reason=reason)
            case Call():
                return builders.partial_tool_call("stop", self._call_id, stop_reason=reason)

    def complete(self, reason: StopReason | None) -> Message:
        content = "".join(self._streamed)
        fidelity = None if self._block.fidelity is None else dict(self._block.fidelity)
        match self._block:
            case Say():
                return builders.assistant_text(content, fidelity=fidelity, stop_reason=reason)
            case Think():
                return builders.thinking(content, fidelity=fidelity, stop_reason=reason)
            case Call(name=name):
                return builders.tool_call(name, content, self._call_id, fidelity=fidelity, stop_reason=reason)


class _Stage:
    """Plays one turn: emits its segments and knows which are open."""

    def __init__(self, emit: Emit, call_id: _AllocateId) -> None:
        self.emit = emit
        self.said: list[Message] = []
        self._call_id = call_id
        self._open: dict[int, _Segment] = {}
        self._deltas = 0
        self._due = 0.0

    async def play(self, turn: Turn) -> Fault | None:
        """Stream the turn; the fault, if one ended it."""
        await anyio.sleep(turn.delay)
        self._due = anyio.current_time()
        fault_after = turn.fault.after if turn.fault else None
        if fault_after != 0:
            for step in _steps(turn):
                if type(step) is _Piece:  # by far the most, so first and short
                    await self._keep_pace(turn.delta_delay)
                    self._deltas += 1
                    self.emit(self._open[step.number].delta(step.text))
                    if self._deltas == fault_after:
                        break
                else:
                    await self._pause(step)
                    self._due = anyio.current_time()
                    self._take(step)
        if turn.fault:
            self.close_all(turn.fault.status)
        return turn.fault

    def close_all(self, reason: StopReason) -> None:
        """Close what is open, oldest first; synchronous."""
        for number in list(self._open):
            self._close(number, reason)

    async def _keep_pace(self, delay: float) -> None:
        # A provider's pace does not depend on how busy its reader is: each delta has a time of its own, and one that
        # is late does not make the next one late. A busy reader finds what is overdue all at once, as in a socket.
        self._due += delay
        wait = self._due - anyio.current_time() if delay > 0 else 0
        if wait > 0:
            await anyio.sleep(wait)
        elif delay <= 0 or self._deltas % _MOST_AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()

    @staticmethod
    async def _pause(step: _Step) -> None:
        match step:
            case Pause(until=until) if until is not None:
                await until()
            case Pause(seconds=seconds):
                await (anyio.sleep_forever() if seconds is None else anyio.sleep(seconds))
            case _:
                await anyio.lowlevel.checkpoint()

    def _take(self, step: _Step) -> None:
        match step:
            case _Opening(number, block):
                self._start(number, block)
            case _Closing(number):
                self._close(number, None)
            case _:
                pass

    def _start(self, number: int, block: _Spoken) -> None:
        call_id = self._call_id(block.id) if isinstance(block, Call) else ""
        self._open[number] = _Segment(block, call_id)
        self.emit(self._open[number].start())

    def _close(self, number: int, reason: StopReason | None) -> None:
        segment = self._open.pop(number)
        complete = segment.complete(reason)
        self.said.append(complete)
        self.emit(segment.stop(reason))
        self.emit(complete)


@dataclass(frozen=True, slots=True)
class _Opening:
    number: int
    block: _Spoken


class _Piece(Struct, frozen=True, gc=False):
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class _Closing:
    number: int


_Step: TypeAlias = _Opening | _Piece | _Closing | Pause


def _steps(turn: Turn) -> Iterator[_Step]:
    """The turn as single steps; a segment is named by the position of its block."""
    numbered = enumerate(turn.blocks)
    for together, group in groupby(numbered, key=lambda entry: turn.interleaved and isinstance(entry[1], Call)):
        blocks = list(group)
        if together:
            yield from _interleaved(blocks, turn.delta_size)
        else:
            for number, block in blocks:
                yield from _one_block(number, block, turn.delta_size)


def _one_block(number: int, block: Block, size: int) -> Iterator[_Step]:
    if isinstance(block, Pause):
        yield block
        return
    yield _Opening(number, block)
    yield from (_Piece(number, piece) for piece in pieces(_content(block), size))
    yield _Closing(number)


def _interleaved(calls: list[tuple[int, Block]], size: int) -> Iterator[_Step]:
    rows = [list(_one_block(number, block, size)) for number, block in calls]
    closings = [row.pop() for row in rows]
    for column in zip_longest(*rows):
        yield from (step for step in column if step is not None)
    yield from closings


def _content(block: _Spoken) -> str:
    match block:
        case Say(text=text):
            return text
        case Think(thinking=thinking):
            return thinking
        case Call(arguments=arguments):
            return arguments


def _usage_message(turn: Turn, history: list[Message], new: list[Message], said: list[Message]) -> Message:
    counts = turn.usage or usage(
        cache_read=_tokens(history), cache_write=max(1, _tokens(new)), output=max(1, _tokens(said))
    )
    return builders.token_usage(counts, counts)


def _tokens(messages: list[Message]) -> int:
    return sum(_characters(message) for message in messages) // 4


def _characters(message: Message) -> int:
    match message.payload:
        case Text(text=text) | Thinking(thinking=text) | ToolCallOutput(output=text):
            return len(text)
        case ToolCall(name=name, arguments=arguments):
            return len(name) + len(arguments)
        case _:
            return 0


def _why_illegal(history: list[Message], new: list[Message]) -> str | None:
    """What a provider would refuse about this request."""
    if not new:
        return "the request has no new messages"
    strangers = [type(message.payload).__name__ for message in new if not _is_from_the_user(message)]
    if strangers:
        return f"the request may hold messages of the user's side only, not {', '.join(strangers)}"
    unanswered = _open_calls(history)
    answers = [m.payload.tool_call_id for m in new if isinstance(m.payload, ToolCallOutput)]
    if sorted(unanswered) != sorted(answers):
        return f"the last turn called {unanswered or 'nothing'}, but the request answers {answers or 'nothing'}"
    return None


def _is_from_the_user(message: Message) -> bool:
    return getattr(message.payload, "role", None) == "user" and builders.is_complete_model_message(message)


def _open_calls(history: list[Message]) -> list[str]:
    calls: list[str] = []
    for message in history:
        match message.payload:
            case ToolCall(tool_call_id=call_id):
                calls.append(call_id)
            case ToolCallOutput(tool_call_id=call_id) if call_id in calls:
                calls.remove(call_id)
            case _:
                pass
    return calls
