"""A real engine over a scripted model and an environment of small hostile tools, with its invariants."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio

from penguin.engine.engine import ContextEngine, EngineSettings, TaskResult
from penguin.engine.ledger import Facts, Ledger
from penguin.engine.ports import ContextSource
from penguin.protocol.builders import (
    is_partial,
    partial_tool_call_output,
    session_meta,
    tool_call_output,
    user_text,
)
from penguin.protocol.codec import decode
from penguin.protocol.events import Decision
from penguin.protocol.interfaces import ApproveFn, Emit, LLMInterface, Permission, ToolExecutionRequest
from penguin.protocol.messages import (
    Abort,
    ApprovalDecision,
    Message,
    OmniMessage,
    PartialText,
    RequestEnd,
    SessionMeta,
    Text,
    ToolCall,
    ToolCallOutput,
    ToolDefinition,
)
from penguin.testing.framing import assert_well_framed
from penguin.testing.scripted import ScriptedModel

ToolFunction = Callable[[dict[str, Any], str, Emit], Awaitable[None]]


async def echo(args: dict[str, Any], call_id: str, emit: Emit) -> None:
    text = str(args.get("text", ""))
    emit(partial_tool_call_output("start", call_id))
    emit(partial_tool_call_output("delta", call_id, text))
    emit(partial_tool_call_output("stop", call_id))
    emit(tool_call_output(text, call_id))


async def slow(args: dict[str, Any], call_id: str, emit: Emit) -> None:
    """Says `begun`, sleeps; closes itself when cancelled, as a good environment does."""
    emit(partial_tool_call_output("start", call_id))
    emit(partial_tool_call_output("delta", call_id, "begun\n"))
    try:
        await anyio.sleep(float(args.get("seconds", 1)))
    except BaseException:
        marker = "[interrupted: tool aborted by user]"
        emit(partial_tool_call_output("delta", call_id, marker))
        emit(partial_tool_call_output("stop", call_id, stop_reason="aborted"))
        emit(tool_call_output("begun\n" + marker, call_id, stop_reason="aborted"))
        raise
    emit(partial_tool_call_output("delta", call_id, "ended"))
    emit(partial_tool_call_output("stop", call_id))
    emit(tool_call_output("begun\nended", call_id))


async def careless(args: dict[str, Any], call_id: str, emit: Emit) -> None:
    """Opens a segment and leaves it open, whatever happens."""
    emit(partial_tool_call_output("start", call_id))
    emit(partial_tool_call_output("delta", call_id, "half"))
    await anyio.sleep(float(args.get("seconds", 0)))


async def boom(args: dict[str, Any], call_id: str, emit: Emit) -> None:
    raise RuntimeError("boom")


async def silent(args: dict[str, Any], call_id: str, emit: Emit) -> None:
    return


async def chatty(args: dict[str, Any], call_id: str, emit: Emit) -> None:
    """Answers twice, answers for somebody else, and emits what is none of its business."""
    emit(tool_call_output("one", call_id))
    emit(tool_call_output("two", call_id))
    emit(tool_call_output("for another", "nobody"))
    emit(user_text("pretending to be the user"))


TOOLS: dict[str, ToolFunction] = {
    "echo": echo,
    "slow": slow,
    "careless": careless,
    "boom": boom,
    "silent": silent,
    "chatty": chatty,
}


class FakeEnvironment:
    """Tools as plain functions; `executed` lists the ids that really ran."""

    def __init__(self, tools: dict[str, ToolFunction] | None = None) -> None:
        self.tools = TOOLS | (tools or {})
        self.executed: list[str] = []
        self.closed = 0

    async def list_tools(self) -> list[ToolDefinition]:
        return [ToolDefinition(name, f"the tool {name}") for name in self.tools]

    async def execute_tool(self, request: ToolExecutionRequest, emit: Emit) -> None:
        call = request.tool_call.payload
        self.executed.append(call.tool_call_id)
        await self.tools[call.name](json.loads(call.arguments or "{}"), call.tool_call_id, emit)

    def tool_permission(self, name: str) -> Permission | None:
        return "r" if name == "echo" else "rw"

    async def aclose(self) -> None:
        self.closed += 1


class ListTrace:
    """A trace in memory; `syncs` counts fsync calls."""

    def __init__(self) -> None:
        self.files: list[list[Message]] = [[]]
        self.syncs = 0
        self.error: str | None = None
        self.lost = False

    def append(self, message: Message) -> None:
        self.records.append(message)

    def open_new_file(self) -> None:
        if self.records:
            self.files.append([])

    @property
    def records(self) -> list[Message]:
        """The present file."""
        return self.files[-1]

    @property
    def everything(self) -> list[Message]:
        return [record for file in self.files for record in file]

    async def sync(self) -> None:
        self.syncs += 1
        await anyio.lowlevel.checkpoint()


async def allow(tool_call: OmniMessage[ToolCall]) -> Decision:
    return "allow"


META = session_meta(
    session_id="session-2026-01-02-03-04-05-abcdef01",
    provider="p",
    model_id="m",
    system_prompt="s",
    workspace="/w",
    tools=[],
)


class Drive:
    """One engine with everything it emitted and recorded."""

    def __init__(
        self,
        turns: Iterable[Any] = (),
        *,
        model: LLMInterface | None = None,
        tools: dict[str, ToolFunction] | None = None,
        settings: EngineSettings | None = None,
        source: ContextSource | None = None,
        trace: ListTrace | None = None,
        records: Iterable[Message] = (),
    ) -> None:
        self.model = model or ScriptedModel(turns)
        self.environment = FakeEnvironment(tools)
        self.trace = trace or ListTrace()
        self.stream: list[Message] = []
        self.on_message: Callable[[Message], None] = lambda message: None
        ledger = Ledger()
        for record in records:
            ledger.observe(record)
            self.trace.append(record)
        if isinstance(self.model, ScriptedModel) and ledger.history:
            self.model.set_history(ledger.history)
        self.engine = ContextEngine(
            self.model, self.environment, self.trace, feed=self._take, ledger=ledger, settings=settings, source=source
        )
        if not self.trace.records:
            self.trace.append(META)
            ledger.observe(META)

    def _take(self, message: Message) -> None:
        self.stream.append(message)
        self.on_message(message)

    async def run(self, prompt: str = "go", approve: ApproveFn | None = allow) -> TaskResult:
        messages = [user_text(prompt)] if prompt else []
        return await self.engine.run(messages, approve=approve)

    # --- what was seen ------------------------------------------------------------------------------

    @property
    def scripted(self) -> ScriptedModel:
        assert isinstance(self.model, ScriptedModel)
        return self.model

    def sent(self, number: int = -1) -> list[Message]:
        """The new messages of one request."""
        return self.scripted.requests[number].new_messages

    def sent_texts(self, number: int = -1) -> list[str]:
        return [text_of(message) for message in self.sent(number)]

    def outline(self, messages: Iterable[Message] | None = None) -> list[str]:
        """One word a message: enough to compare an order."""
        return [word for word in map(outline_of, self.stream if messages is None else messages) if word]

    def check(self) -> None:
        """What holds after every task, whatever happened in it."""
        assert_well_framed(self.stream)
        assert_same_order(self.stream, self.trace.everything)
        assert_answered_once(self.trace.everything)
        assert_resumes_alike(self.engine.ledger.facts(), self.trace.everything)
        assert len(self.environment.executed) == len(set(self.environment.executed))


def text_of(message: Message) -> str:
    match message.payload:
        case Text(text=text) | PartialText(text=text) | ToolCallOutput(output=text):
            return text
        case payload:
            return type(payload).__name__


def call_id_of(message: Message) -> str:
    match message.payload:
        case ToolCall(tool_call_id=call_id) | ToolCallOutput(tool_call_id=call_id):
            return call_id
        case _:
            return ""


def outline_of(message: Message) -> str:
    match message.payload:
        case PartialText() | SessionMeta():
            return ""
        case ToolCall(tool_call_id=call_id):
            return f"call {call_id}"
        case ApprovalDecision(decision=decision, tool_call_id=call_id):
            return f"{decision} {call_id}"
        case ToolCallOutput(tool_call_id=call_id, stop_reason=reason):
            return f"output {call_id}" + (f" {reason}" if reason else "")
        case RequestEnd(status=status):
            return f"end {status}"
        case Text(role=role, stop_reason=reason):
            return f"{role} text" + (f" {reason}" if reason else "")
        case payload if is_partial(message):
            return ""
        case payload:
            return type(payload).__name__


def assert_same_order(stream: list[Message], records: list[Message]) -> None:
    """E7: what is on both is in the same order, and everything complete on the stream is recorded."""
    recorded = [id(record) for record in records]
    shared = [message for message in stream if id(message) in set(recorded)]
    positions = [recorded.index(id(message)) for message in shared]
    assert positions == sorted(positions), "stream and trace disagree about the order"
    lost = [message for message in stream if not is_partial(message) and not message.origin]
    assert [id(message) for message in lost] == [id(message) for message in shared], (
        "the stream shows more than the trace"
    )


def assert_answered_once(records: list[Message]) -> None:
    """E5 and E3: each committed call has one output, and a decision stands before it."""
    attempt: list[str] = []
    committed: list[str] = []
    decided: set[str] = set()
    answered: list[str] = []
    for record in records:
        match record.payload:
            case ToolCall(tool_call_id=call_id):
                attempt.append(call_id)
            case ApprovalDecision(tool_call_id=call_id):
                assert call_id not in decided, f"two decisions for {call_id}"
                assert call_id not in answered, f"the decision for {call_id} came after its output"
                decided.add(call_id)
            case ToolCallOutput(tool_call_id=call_id):
                answered.append(call_id)
            case RequestEnd(status=status):
                committed += attempt if status == "completed" else []
                attempt = []
            case _:
                pass
    assert len(answered) == len(set(answered)), f"answered twice: {answered}"
    assert set(committed) <= set(answered), f"never answered: {set(committed) - set(answered)}"


def assert_resumes_alike(live: Facts, records: list[Message]) -> None:
    """T11: folding the lines that were written gives the facts of the engine that wrote them."""
    resumed = Ledger()
    for record in records:
        resumed.observe(decode(record.line))
    assert resumed.facts() == live


def ends_with_abort(stream: list[Message]) -> bool:
    return bool(stream) and isinstance(stream[-1].payload, Abort)


__all__ = ["META", "Drive", "FakeEnvironment", "ListTrace", "allow", "ends_with_abort", "text_of"]
