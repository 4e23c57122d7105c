"""A world for whole sessions: a real agent, engine, environment and trace over a provider in memory.

The provider speaks the real wire protocols and judges every request. A process can die at any record:
from then on nothing reaches the disk or the reader, as after a SIGKILL.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import anyio
import anyio.lowlevel
import msgspec
from tests.support.engine_kit import text_of

from penguin import create_agent
from penguin.agent.agent import Agent
from penguin.engine.engine import TaskResult
from penguin.engine.inbox import SteeringTicket
from penguin.engine.ledger import Ledger
from penguin.engine.retry import Rung
from penguin.environment.tool import ToolContext, ToolResult
from penguin.llm.model import ADAPTERS, GenerativeModel
from penguin.llm.transport import HttpRequest, HttpResponse, TransportError
from penguin.protocol.builders import is_partial
from penguin.protocol.codec import decode
from penguin.protocol.events import Decision
from penguin.protocol.interfaces import LLMInterface, ModelConfig
from penguin.protocol.messages import (
    Abort,
    ApprovalDecision,
    Message,
    OmniMessage,
    RequestBegin,
    RequestEnd,
    SessionMeta,
    ToolCall,
    ToolCallOutput,
)
from penguin.session.resume import recover
from penguin.session.session import Session
from penguin.state.project import ModelEntry, ProjectConfigFile
from penguin.testing import legality
from penguin.testing.framing import StreamChecker
from penguin.testing.provider_server import WIRES
from penguin.testing.replies import Refusal, Style
from penguin.testing.turns import Say, Turn, call, say, turn
from penguin.testing.wire import Saying, Wire
from penguin.trace.append_file import AppendFile
from penguin.trace.names import files_of
from penguin.trace.reader import read_trace
from penguin.trace.writer import TraceWriter

COMPACTION_PROMPT = "PLEASE-SUMMARIZE everything so far."
CHILD_PROMPT = "CHILD-TASK: count to three."
TOKEN = re.compile(r"tok-[a-z]+-\d+")
"""Words that must not get lost: what the user says, what the model says, what tools answer."""

PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

MODELS: dict[str, tuple[str, str]] = {
    "openai-chat": ("custom", "openai-chat"),
    "chat-in-text": ("custom", "chat-in-text"),
    "openai-responses": ("custom", "openai-responses"),
    "anthropic-messages": ("custom", "anthropic-messages"),
    "anthropic-budget": ("anthropic", "claude-haiku-4-5"),
    "gemini": ("custom", "gemini"),
}
"""The minds a session can have: one for each protocol, one that gets its calls back as text, and one of Anthropic whose
thinking has a budget."""

CLIENT_TYPES = {"anthropic-budget": "anthropic-messages", "chat-in-text": "openai-chat"}
_WIRES: dict[str, Wire] = {wire.name: wire for wire in WIRES}
MINDS = [mind for mind in MODELS if CLIENT_TYPES.get(mind, mind) in {*ADAPTERS} & {*_WIRES}]
"""What can be spoken in this checkout: an adapter, and a wire of the scripted provider."""

Ending = Literal["whole", "cut", "silent", "busy", "limited", "refused", "overflow", "bad_image", "too_long"]
_REFUSALS: dict[Ending, tuple[int, str]] = {
    "busy": (503, "overloaded"),
    "limited": (429, "slow down"),
    "refused": (403, "you are not allowed to use this model"),
    "overflow": (400, "This model's maximum context length is exceeded"),
    "bad_image": (400, "the image cannot be read"),
}


@dataclass(frozen=True)
class Plan:
    """One reply: what is said and how it ends; ``after`` is how many pieces come before a cut."""

    said: Turn
    ending: Ending = "whole"
    after: int = 3


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class Provider:
    """What one session talks to; its watches live as long as the conversation."""

    mind: str
    world: World
    signatures: legality.SignatureWatch = field(init=False)
    complaints: list[str] = field(default_factory=list)
    number: int = 0
    first_prefix: legality.PrefixWatch | None = None
    last: tuple[legality.PrefixWatch, dict[str, Any]] | None = None
    left_out: bool = False

    def __post_init__(self) -> None:
        self.signatures = legality.SignatureWatch(self.protocol)

    @property
    def protocol(self) -> str:
        return CLIENT_TYPES.get(self.mind, self.mind)

    @property
    def wire(self) -> Wire:
        return _WIRES[self.protocol]

    def build(self, config: ModelConfig) -> LLMInterface:
        """The model factory of the session, over this provider."""
        prefix, self.first_prefix = self.first_prefix or legality.PrefixWatch(self.protocol), None
        config = replace(config, client_type=self.protocol, base_url="http://127.0.0.1:9/v1", api_key="k")
        if self.mind == "chat-in-text":
            config = replace(config, tool_calls="text")
        return GenerativeModel(config, transport=_Transport(self, prefix))

    def judge(self, body: dict[str, Any], prefix: legality.PrefixWatch, path: str) -> None:
        model = path.rpartition("/")[2].partition(":")[0]
        complaints = legality.check(self.protocol, body, model=model)
        complaints += prefix.check(body) + self.signatures.check(body)
        if not _is_childs(body):
            complaints += self.world.forgotten(body)
        self.complaints += [f"{complaint}\n{json.dumps(body)[-3000:]}" for complaint in complaints]

    def commit(self) -> None:
        """The engine has recorded that the last request completed."""
        if self.last is not None:
            prefix, body = self.last
            prefix.commit(body)

    def reply(self, body: dict[str, Any]) -> Plan:
        text = json.dumps(_conversation(body)[-1])
        if _is_childs(body):
            if self.world.childs_brain is not None and not self.world.child_replies:
                return self.world.childs_brain(body)
            return self.world.next_of(self.world.child_replies, Plan(turn(say("Child is done."))))
        if self.world.brain is not None and not (self.world.summaries and "PLEASE-SUMMARIZE" in text):
            return self.world.brain(body)
        if "PLEASE-SUMMARIZE" in text:
            return self.world.next_of(self.world.summaries, Plan(turn(say("[summary]Summed up.[/summary]"))))
        return self.world.next_of(self.world.replies, Plan(turn(say("Finished."))))


def _conversation(body: dict[str, Any]) -> list[Any]:
    items: list[Any] = body.get("messages") or body.get("input") or body.get("contents") or [{}]
    return items


def _is_childs(body: dict[str, Any]) -> bool:
    of_user: dict[str, Any] = next((item for item in _conversation(body) if item.get("role") == "user"), {})
    content = of_user.get("content") or of_user.get("parts") or ""
    opening = str(content if isinstance(content, str) else content[0].get("text", ""))
    # A child that has compacted its context begins with a summary, which quotes its task.
    return opening.startswith(CHILD_PROMPT) or f"[user_input]\n{CHILD_PROMPT}" in opening


class _Transport:
    """The model's way to the provider: every chunk is a chance to be interrupted."""

    def __init__(self, provider: Provider, prefix: legality.PrefixWatch) -> None:
        self._provider = provider
        self._prefix = prefix

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        await anyio.lowlevel.checkpoint()
        provider = self._provider
        if provider.world.dead:
            await anyio.sleep_forever()
        body = json.loads(request.body)
        provider.judge(body, self._prefix, request.url)
        if not _is_childs(body):
            provider.last = (self._prefix, body)
        plan = provider.reply(body)
        provider.number += 1
        style = Style(finish_reason="length") if plan.ending == "too_long" else Style()
        saying = Saying(plan.said, style, body, len(request.body), provider.number)
        if plan.ending in _REFUSALS:
            status, message = _REFUSALS[plan.ending]
            content = provider.wire.refusal(status, Refusal(message))
            if plan.ending == "bad_image":
                # An item is left out of the model's view from here on, so the prefix changes (E26).
                self._prefix.__init__(provider.protocol)  # type: ignore[misc]
                provider.left_out = True
            yield HttpResponse(status, {"content-type": "application/json"}, _one(content))
            return
        with suppress(ValueError):
            provider.signatures.issue(json.loads(provider.wire.whole(saying)))
        yield HttpResponse(200, {"content-type": "text/event-stream"}, self._pieces(saying, plan))

    async def _pieces(self, saying: Saying, plan: Plan) -> AsyncIterator[bytes]:
        for number, piece in enumerate(self._provider.wire.events(saying)):
            if plan.ending == "cut" and number >= plan.after:
                raise TransportError("the connection broke")
            if plan.ending == "silent" and number >= plan.after:
                self._provider.world.stop_soon()
                await anyio.sleep_forever()
            await anyio.lowlevel.checkpoint()
            if isinstance(piece, bytes):
                yield piece

    async def aclose(self) -> None:
        return None


async def _one(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _brief_wait(rung: Rung, skip: anyio.Event) -> None:
    """Stands in for `Rung.wait`: some scheduler steps long, so that a stop can fall into it."""
    for _ in range(4):
        if skip.is_set():
            return
        await anyio.lowlevel.checkpoint()


async def _saved_at_once(file: AppendFile) -> None:
    """Stands in for `AppendFile.save`: its thread would make the number of scheduler steps a matter of chance."""
    await anyio.lowlevel.checkpoint()
    file._saved = file._written


class World:
    """One process with one open session at a time.

    Everything is driven from outside by `act`, which runs a coroutine on the world's event loop; what was
    left in the background (subagents) goes on at the next one.
    """

    def __init__(self, root: Path, mind: str = "openai-chat") -> None:
        self.root = root
        self.mind = mind
        self.replies: deque[Plan] = deque()
        self.child_replies: deque[Plan] = deque()
        self.summaries: deque[Plan] = deque()
        self.decisions: deque[str] = deque()
        self.brain: Callable[[dict[str, Any]], Plan] | None = None
        self.childs_brain: Callable[[dict[str, Any]], Plan] | None = None
        self.more_tools: tuple[Any, ...] = ()
        self.on_message: Callable[[Message], None] = lambda message: None
        self.dead = False
        self.records_left: int | None = None
        self.torn = 0
        self.executed: list[str] = []
        self.asked: list[str] = []
        self.seen: list[Message] = []
        self.task_words: list[str] = []
        self.imported = 0
        self.excused: set[str] = set()
        self.tickets: list[tuple[SteeringTicket, str]] = []
        self.untouched: dict[Path, bytes] = {}
        self.squeezed = False
        self._task_number = 0
        self._runner = asyncio.Runner()
        self._patches: list[Any] = [
            mock.patch.object(Rung, "wait", _brief_wait),
            mock.patch.object(AppendFile, "save", _saved_at_once),
            mock.patch.object(TraceWriter, "append", self._guarded(TraceWriter.append)),
        ]
        for patch in self._patches:
            patch.start()
        (root / "workspace").mkdir(parents=True, exist_ok=True)
        self.agent: Agent = self.act(self._make_agent())
        self.session: Session | None = None
        self.max_turns: int | None = None
        self.provider = Provider(mind, self)

    def act(self, coroutine: Any) -> Any:
        return self._runner.run(coroutine)

    def close(self) -> None:
        try:
            if self.session is not None:
                self.act(self.session.close())
            self._runner.close()
        finally:
            for patch in self._patches:
                patch.stop()

    async def _make_agent(self) -> Agent:
        file = ProjectConfigFile(self.root / "data" / "default_project" / ".project_config.toml")
        for mind, (provider, model_id) in MODELS.items():
            if provider == "custom":
                kind: Any = CLIENT_TYPES.get(mind, mind)
                entry = ModelEntry(
                    provider=provider,
                    model_id=model_id,
                    client_type=kind,
                    base_url="http://127.0.0.1:9/v1",
                    api_key="k",
                )
                if CLIENT_TYPES.get(mind, mind) in ADAPTERS:
                    file.add_model(entry)
        agent = await create_agent(root=self.root / "data", environ={"ANTHROPIC_API_KEY": "k"})
        compaction = msgspec.structs.replace(agent.config.compaction, prompt=COMPACTION_PROMPT)
        return replace(agent, config=msgspec.structs.replace(agent.config, compaction=compaction))

    def configure(self, **compaction: Any) -> None:
        """Change when and how the agent compacts; for sessions that are opened after this."""
        settings = msgspec.structs.replace(self.agent.config.compaction, **compaction)
        self.agent = replace(self.agent, config=msgspec.structs.replace(self.agent.config, compaction=settings))

    # --- the session -------------------------------------------------------------------------------

    @property
    def open(self) -> Session:
        assert self.session is not None
        return self.session

    def start(self) -> None:
        """A new session."""
        provider, model_id = MODELS[self.mind]
        self.provider = Provider(self.mind, self)
        self.session = self.act(
            self.agent.create_session(
                workspace_dir=self.root / "workspace",
                provider=provider,
                model_id=model_id,
                model=self.provider.build,
                max_turns=self.max_turns,
                tools=self._tools(),
            )
        )
        self._watch()

    def resume(self, session_id: str) -> None:
        """Go on with a session from its trace; the provider remembers the conversation."""
        self.session = self.act(
            self.agent.resume_session(
                session_id,
                workspace_dir=self.root / "workspace",
                model=self.provider.build,
                max_turns=self.max_turns,
                tools=self._tools(),
            )
        )
        self._watch()

    def restart(self) -> None:
        """Close in good order and resume."""
        session_id = self.open.id
        self.act(self.open.close())
        if not self.files(session_id):
            self.start()
            return
        self._carry_prefix()
        self.resume(session_id)

    def fork(self, at_request: int | None, mind: str | None) -> None:
        """Go on with a copy, perhaps with another model; the source must stay as it is."""
        source = self.open.id
        self.act(self.open.close())
        for file in self.files(source):
            self.untouched[file] = file.read_bytes()
        switched = mind is not None and mind != self.mind
        provider, model_id = MODELS[mind] if switched and mind else (None, None)
        copy = self.agent.fork(source, at_request=at_request, provider=provider, model_id=model_id)
        if switched and mind:
            self.mind = mind
        if switched:
            self.provider = Provider(self.mind, self)
        self.provider.last = None
        self.seen, self.task_words, self.tickets = [], [], []
        self.imported = len(self.records(copy))
        self.executed, self.asked = [], []
        self.resume(copy)

    def take_in(self, files: Sequence[Path], session_id: str, mind: str) -> None:
        """Fork a trace that another program wrote, for this world's model."""
        self.put_down(files, session_id)
        for file in self.files(session_id):
            self.untouched[file] = file.read_bytes()
        provider, model_id = MODELS[mind]
        copy = self.agent.fork(session_id, provider=provider, model_id=model_id)
        self.mind = mind
        self.provider = Provider(mind, self)
        self.imported = len(self.records(copy))
        self.resume(copy)

    def put_down(self, files: Sequence[Path], session_id: str) -> None:
        """Copy trace files to where this world's agent looks for them."""
        day = self.agent.paths.traces / session_id[8:18]
        day.mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(files, start=1):
            (day / f"{session_id}_{number:03d}.jsonl").write_bytes(file.read_bytes())

    def crash(self) -> None:
        """The process is dead: release what the kernel would, and resume if there is anything."""
        session_id = self.open.id
        self.check_order()
        self.act(self.open.close())
        self.session = None
        self.dead, self.records_left = False, None
        self.seen, self.tickets = [], []
        self.provider.last = None
        files = self.files(session_id)
        # An empty file is what remains when the first line was torn at once.
        if not [file for file in files if b'"session_meta"' in file.read_bytes() and is_readable(file)]:
            self.start()
            self.executed, self.asked = [], []
            return
        self._carry_prefix()
        self.resume(session_id)
        self.excused |= set(self.open.engine.ledger.unanswered)

    def _carry_prefix(self) -> None:
        """A resumed session goes on with the same bytes, unless something was left out: it does not know of that."""
        if self.provider.last is not None and not self.provider.left_out:
            self.provider.first_prefix = self.provider.last[0]
        if self.provider.left_out:
            self.provider.left_out, self.provider.last = False, None

    def _watch(self) -> None:
        self.open.observe(self._see)

    def _see(self, message: Message) -> None:
        if self.dead:
            return
        self.seen.append(message)
        self.on_message(message)
        match message.payload:
            case RequestEnd(status="completed") if not message.origin:
                self.provider.commit()
            case _:
                pass

    # --- tools and approval --------------------------------------------------------------------------

    def _tools(self) -> tuple[Any, ...]:
        async def echo(text: str, ctx: ToolContext) -> str:
            """Say it again."""
            self._note(ctx)
            return text

        async def slow(text: str, steps: int, ctx: ToolContext) -> None:
            """Take some time."""
            self._note(ctx)
            ctx.write(text)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            ctx.write(" ended")

        async def endless(text: str, ctx: ToolContext) -> None:
            """Never end; somebody will interrupt."""
            self._note(ctx)
            ctx.write(text)
            self.stop_soon()
            await anyio.sleep_forever()

        async def boom(ctx: ToolContext) -> str:
            """Fail."""
            self._note(ctx)
            raise RuntimeError("boom")

        async def picture(ctx: ToolContext) -> ToolResult:
            """Show something."""
            self._note(ctx)
            return ToolResult(images=[PNG])

        return (echo, slow, endless, boom, picture, *self.more_tools)

    def _note(self, ctx: ToolContext) -> None:
        if not self.dead:
            self.executed.append(ctx.tool_call_id)

    async def approve(self, tool_call: OmniMessage[ToolCall]) -> Decision:
        if not self.dead:
            self.asked.append("/".join([*(tool_call.origin or ()), tool_call.payload.tool_call_id]))
        verdict = self.decisions.popleft() if self.decisions else "allow"
        if verdict == "ponder":
            self.stop_soon()
            await anyio.sleep_forever()
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        if verdict == "raise":
            raise RuntimeError("the window was closed")
        return "deny" if verdict == "deny" else "allow"

    def next_of(self, plans: deque[Plan], otherwise: Plan) -> Plan:
        return plans.popleft() if plans else otherwise

    # --- a task ------------------------------------------------------------------------------------

    def run(self, prompt: Any, words: Iterable[str] = (), actions: Iterable[tuple[int, str]] = ()) -> TaskResult | None:
        """One task; ``actions`` happen after so many scheduler steps. ``None`` when the host cancelled it."""
        self.task_words = list(words)
        result = self.act(self._run(prompt, list(actions)))
        if self.dead:
            self.crash()
        else:
            self._check_end(result)
        return result  # type: ignore[no-any-return]

    def _check_end(self, result: TaskResult | None) -> None:
        """E10: an abort is the last message, and there is one exactly when the task was stopped."""
        own = [message.payload for message in self.seen if not message.origin]
        if result is not None and own and isinstance(own[-1], Abort) is not (result.stop_reason == "aborted"):
            raise Violation(f"the task ended {result}, but its last message is {own[-1]}")

    async def _run(self, prompt: Any, actions: list[tuple[int, str]]) -> TaskResult | None:
        self._host = anyio.CancelScope()
        self._plan(actions)
        with anyio.fail_after(30), self._host:
            async with self.open.run(prompt, approve=self.approve) as stream:
                async for _ in stream:
                    pass
            return stream.result
        return None

    def _plan(self, actions: list[tuple[int, str]]) -> None:
        """Let things happen during this task; what comes too late does not happen in the next one."""
        self._task_number += 1
        number = self._task_number
        for steps, action in actions:
            self._later(steps, partial(self._perform, action, number))

    def compact(self, actions: Iterable[tuple[int, str]] = ()) -> None:
        self.task_words = []
        self.act(self._compact(list(actions)))
        if self.dead:
            self.crash()

    async def _compact(self, actions: list[tuple[int, str]]) -> None:
        self._host = anyio.CancelScope()
        self._plan(actions)
        with anyio.fail_after(30), self._host:
            await self.open.compact()

    def settle(self) -> None:
        """Let what works in the background come to its end."""

        async def some_steps() -> None:
            for _ in range(200):
                await anyio.lowlevel.checkpoint()

        self.act(some_steps())

    def stop_soon(self) -> None:
        self._later(15, partial(self._perform, "interrupt", self._task_number))

    def _later(self, steps: int, action: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        if steps <= 0:
            action()
        else:
            loop.call_soon(self._later, steps - 1, action)

    def _perform(self, action: str, task_number: int) -> None:
        if task_number != self._task_number or self.session is None or self.dead:
            return
        kind, _, words = action.partition(" ")
        match kind:
            case "interrupt":
                self.open.interrupt()
            case "cancel":
                self._host.cancel()
            case "steer":
                ticket = self.open.steer(words)
                if ticket is not None:
                    self.tickets.append((ticket, words))
            case "skip":
                self.open.skip_retry_wait()
            case "notice":
                self.open.engine.inbox.post(_notice(words))
            case _:
                raise AssertionError(action)

    # --- death -------------------------------------------------------------------------------------

    def die_after(self, records: int, torn: int) -> None:
        """The process dies when so many more records were written; of the next, ``torn`` bytes reach the disk."""
        self.records_left, self.torn = records, torn

    def _guarded(self, append: Callable[[TraceWriter, Message], None]) -> Callable[[TraceWriter, Message], None]:
        def guarded(writer: TraceWriter, message: Message) -> None:
            if self.dead:
                return
            if self.records_left is not None and not message.origin and not is_partial(message):
                if self.records_left == 0:
                    self._die(writer, message)
                    return
                self.records_left -= 1
            append(writer, message)

        return guarded

    def _die(self, writer: TraceWriter, message: Message) -> None:
        self.dead = True
        if writer.path is not None and writer.path.exists() and self.torn:
            whole = writer.path.read_bytes().endswith(b"\n")
            with writer.path.open("ab") as file:
                # As the writer does before it goes on with a file whose last line was torn.
                file.write((b"" if whole else b"\n") + message.line[: self.torn])
        asyncio.get_running_loop().call_soon(self.open.interrupt)

    # --- what must hold ----------------------------------------------------------------------------

    def files(self, session_id: str | None = None) -> list[Path]:
        return files_of(self.agent.paths.traces, session_id or self.open.id)

    def records(self, session_id: str | None = None) -> list[Message]:
        return [record for file in self.files(session_id) for record in read_trace(file)]

    def forgotten(self, body: dict[str, Any]) -> list[str]:
        """What the present context or the present task has said and this request does not hold."""
        if self.session is None or not (files := self.files()):
            return []
        sent = json.dumps(body, ensure_ascii=False)
        if "This is the conversation so far, as a transcript" in sent or "characters left out" in sent:
            return []
        newest = files[-1].read_text(errors="replace")
        known = dict.fromkeys(TOKEN.findall(newest))
        wanted = [*known, *(word for word in self.task_words if word in newest)]
        return [f"{token} was forgotten" for token in dict.fromkeys(wanted) if token not in sent]

    def check(self) -> None:
        """Everything that holds between two tasks."""
        if self.provider.complaints:
            raise Violation("\n".join(self.provider.complaints[:3]))
        self.check_order()
        self._check_framing()
        records = self.records()[self.imported :]
        check_answers(records, excused=self.excused)
        self._check_tickets(records)
        _once(self.executed, "executed")
        _once(self.asked, "asked about")
        self._check_resumes_alike()
        for file, content in self.untouched.items():
            if file.read_bytes() != content:
                raise Violation(f"{file.name} was changed, but it was only the source of a fork")

    def check_order(self) -> None:
        """E7: what was shown is in the trace, in the same order."""
        shown = [message.line for message in self.seen if not message.origin and not is_partial(message)]
        written = [line for file in self.files() for line in file.read_bytes().split(b"\n")]
        position = 0
        for line in shown:
            try:
                position = written.index(line, position) + 1
            except ValueError:
                raise Violation(f"shown, but not in the trace or in another order: {line!r}") from None

    def _check_framing(self) -> None:
        checker = StreamChecker()
        for message in self.seen:
            checker.observe(message)
        try:
            checker.finish()
        except AssertionError as error:
            own = [
                line for line in str(error).splitlines()[1:] if "never closed" not in line or " of session" not in line
            ]
            if own:
                raise Violation("\n".join(own)) from None

    def _check_tickets(self, records: list[Message]) -> None:
        """E16: what was delivered is recorded, what was not is dropped with the task, visibly."""
        said = "\n".join(text_of(record) for record in records)
        for ticket, words in self.tickets:
            recorded = f"[user_steering]\n{words}\n" in said
            if ticket.state == "waiting" or (ticket.state == "delivered") is not recorded:
                raise Violation(
                    f"steering {words!r} is {ticket.state}, and is {'' if recorded else 'not '}in the trace"
                )

    def _check_resumes_alike(self) -> None:
        files = self.files()
        if not files:
            return
        live, resumed = self.open.engine.ledger, recover(files).ledger
        if live.facts() != resumed.facts():
            raise Violation(f"live and resumed differ: {differences(live, resumed)}")


def _notice(words: str) -> Message:
    from penguin.protocol.blocks import block  # noqa: PLC0415
    from penguin.protocol.builders import user_text  # noqa: PLC0415

    return user_text(block("background_task_done", words))


def is_readable(file: Path) -> bool:
    """Whether a trace file holds its configuration; one that was torn in its first line does not."""
    try:
        return any(isinstance(message.payload, SessionMeta) for message in read_trace(file))
    except Exception:  # noqa: BLE001 - unreadable in whatever way
        return False


def differences(live: Ledger, resumed: Ledger) -> str:
    one, two = live.facts(), resumed.facts()
    return "\n".join(
        f"{name}:\n  live    {getattr(one, name)}\n  resumed {getattr(two, name)}"
        for name in ("history", "carry_over", "turns", "tokens", "unanswered")
        if getattr(one, name) != getattr(two, name)
    )


def _once(names: list[str], what: str) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise Violation(f"{what} twice: {sorted(twice)}")


def check_answers(records: list[Message], *, excused: Iterable[str] = ()) -> None:
    """E3 and E5: each committed call has exactly one output, and its decision stands before it."""
    attempt: list[str] = []
    committed: list[str] = []
    decided: set[str] = set()
    answered: list[str] = []
    called: set[str] = set()
    for record in records:
        match record.payload:
            case ToolCall(tool_call_id=call_id):
                attempt.append(call_id)
                called.add(call_id)
            case ApprovalDecision(tool_call_id=call_id):
                if call_id in decided:
                    raise Violation(f"two decisions for {call_id}")
                if call_id in answered:
                    raise Violation(f"the decision for {call_id} came after its output")
                if call_id not in called:
                    raise Violation(f"the decision for {call_id} came before the call")
                decided.add(call_id)
            case ToolCallOutput(tool_call_id=call_id):
                answered.append(call_id)
            case RequestBegin():
                attempt = []
            case RequestEnd(status=status):
                committed += attempt if status == "completed" else []
                attempt = []
            case _:
                pass
    _once(answered, "answered")
    missing = set(committed) - set(answered) - set(excused)
    if missing:
        raise Violation(f"never answered: {sorted(missing)}")


__all__ = [
    "MINDS",
    "MODELS",
    "Plan",
    "Say",
    "Violation",
    "World",
    "call",
    "check_answers",
    "decode",
    "say",
    "text_of",
    "turn",
]
