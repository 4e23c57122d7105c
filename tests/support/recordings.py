"""Scenarios played by the real engine, with the live facts after each record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
from tests.support.engine_kit import META, Drive, ListTrace, allow

from penguin.engine.compaction import CompactionPolicy
from penguin.engine.engine import EngineSettings
from penguin.engine.ledger import Facts
from penguin.engine.retry import RetryPolicy
from penguin.protocol.events import Decision
from penguin.protocol.interfaces import LLMInterface, ModelConfig
from penguin.protocol.messages import Message, OmniMessage, PartialText, RequestEnd, ToolCall
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import call, fail, hang, pause, say, think, turn, usage


@dataclass(frozen=True)
class Recording:
    """The files of a session (lines without newlines) and the live facts after each line."""

    files: list[list[bytes]]
    facts: list[list[Facts]]


class _NotingTrace(ListTrace):
    """Notes the engine's facts as they are when the next record comes: those after the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], Facts] | None = None
        self.noted: list[list[Facts]] = [[]]

    def append(self, message: Message) -> None:
        self.note()
        super().append(message)

    def note(self) -> None:
        if self.look is not None and len(self.noted[-1]) < len(self.records):
            self.noted[-1].append(self.look())

    def open_new_file(self) -> None:
        self.note()
        super().open_new_file()
        self.noted.append([])


class _Source:
    def __init__(self, script: ScriptedModel) -> None:
        self._factory = script.factory()

    def new_model(self) -> LLMInterface:
        return self._factory(ModelConfig("p", "m"))

    async def next_meta(self) -> Message:
        return META


async def _busy(drive: Drive) -> None:
    """Three tools, one denied; a retry; an interruption in words and one in a tool; steering; an orphan."""

    async def approve(tool_call: OmniMessage[ToolCall]) -> Decision:
        return "deny" if tool_call.payload.tool_call_id == "c" else "allow"

    await drive.run("first", approve=approve)
    drive.on_message = lambda m: (
        drive.engine.interrupt() if isinstance(m.payload, PartialText) and "two" in m.payload.text else None
    )
    await drive.run("second")
    drive.on_message = lambda m: drive.engine.interrupt() if isinstance(m.payload, RequestEnd) else None
    await drive.run("third")
    drive.on_message = lambda m: None
    await drive.run("fourth")


_BUSY = [
    turn(think("plan", fidelity={"signature": "S1=="}), say("Doing."), call("echo", {"text": "A"}, id="a"),
         call("careless", id="b"), call("echo", id="c")),
    turn(say("lost"), call("slow", {"seconds": 0.01}, id="d"), pause(0.02), fault=fail("timeout")),
    turn(say("Finished the first.")),
    turn(say("one two three"), hang()),
    turn(call("slow", {"seconds": 60}, id="e"), call("echo", {"text": "F"}, id="f")),
    turn(call("echo", {"text": "G"}, id="g")),
    turn(say("Finished the fourth.")),
]  # fmt: skip


async def _compacting(drive: Drive) -> None:
    await drive.run("first")
    await drive.run("second")
    await drive.engine.compact()
    await drive.run("third")


_COMPACTING = [
    turn(call("echo", {"text": "A"}, id="a"), usage=usage(cache_write=5_000)),
    turn(usage=usage(output=1)),
    turn(say("[summary]Sum one.[/summary]"), usage=usage(output=1)),
    turn(say("Finished the first."), usage=usage(output=1)),
    turn(say("Finished the second."), usage=usage(output=1)),
    turn(say("[summary]Sum two.[/summary]"), usage=usage(output=1)),
    turn(say("Finished the third."), usage=usage(output=1)),
]


def record(turns: list[object], play: Callable[[Drive], Awaitable[None]], *, compaction: bool) -> Recording:
    """Play one scenario on asyncio and keep what was written."""
    policy = CompactionPolicy(prompt="Summarize.", max_context_length=1_000) if compaction else None
    script = ScriptedModel(turns)  # type: ignore[arg-type]
    trace = _NotingTrace()
    drive = Drive(
        model=script,
        settings=EngineSettings(retry=RetryPolicy(base=0.01), compaction=policy),
        source=_Source(script),
        trace=trace,
    )
    trace.look = drive.engine.ledger.facts
    anyio.run(play, drive)
    trace.note()
    return Recording([[record.line for record in file] for file in trace.files], trace.noted)


def recordings() -> dict[str, Recording]:
    """Every scenario by its name."""
    return {
        "busy": record(list(_BUSY), _busy, compaction=False),
        "compacting": record(list(_COMPACTING), _compacting, compaction=True),
    }


__all__ = ["Recording", "allow", "recordings"]
