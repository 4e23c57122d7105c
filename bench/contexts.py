"""What a compaction and a subagent cost beside the model's own time, on a scripted model that answers at once."""

from __future__ import annotations

import sys
import tempfile
import time

import anyio
from _measure import Report, median

from penguin.agent.agent import create_agent
from penguin.protocol.interfaces import LLMInterface, ModelConfig
from penguin.protocol.messages import Message, RequestBegin, ToolCall
from penguin.session.approval import allow_all
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import call, turn

ROUNDS = 15
DELEGATE = call("run_subagent", {"prompt": "count", "description": "counting"}, id="s")


async def compaction(directory: str) -> float:
    agent = await create_agent(root=directory)
    script = ScriptedModel(["One.", "[summary]All is well.[/summary]"])
    async with await agent.create_session(model=script.factory(), workspace_dir=directory) as session:
        await session.ask("go")
        started = time.perf_counter()
        result = await session.compact()
        taken = time.perf_counter() - started
    assert result.stop_reason == "completed", result
    return taken


async def subagent(directory: str) -> float:
    """Seconds from the complete call to the child's first request."""
    agent = await create_agent(root=directory)
    scripts = iter([ScriptedModel([turn(DELEGATE), "Done."]), ScriptedModel(["Three."])])
    moments: dict[str, float] = {}

    def build(_config: ModelConfig) -> LLMInterface:
        return next(scripts)

    def look(message: Message) -> None:
        match message.payload:
            case ToolCall():
                moments["asked"] = time.perf_counter()
            case RequestBegin() if message.origin:
                moments["began"] = time.perf_counter()
            case _:
                pass

    async with await agent.create_session(model=build, workspace_dir=directory) as session:
        session.observe(look)
        await session.ask("go", approve=allow_all)
    return moments["began"] - moments["asked"]


async def main() -> int:
    report = Report()
    with tempfile.TemporaryDirectory() as directory:
        for what, measured, target in (
            ("a compaction beyond the model's time", compaction, 50),
            ("a subagent from its call to its first request", subagent, 30),
        ):
            await measured(directory)
            taken = [await measured(directory) for _ in range(ROUNDS)]
            report.figure(what, median(taken) * 1e3, "ms", target)
    return report.status


if __name__ == "__main__":
    sys.exit(anyio.run(main))
