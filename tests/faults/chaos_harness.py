"""A harness process in the middle of a task: ``python chaos_harness.py ROOT WORKSPACE COMMANDS [SESSION]``.

It starts every command of the JSON file COMMANDS (arguments of ``exec_command``), tells where it is on standard output
and then waits for a model that never answers. With a SESSION it takes up that one instead, runs one more command, and
ends as it should.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio

from penguin import create_agent
from penguin.environment import custody
from penguin.protocol.events import Decision
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import call, hang, say, turn


async def allow(_tool_call: Any) -> Decision:
    return "allow"


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201 - the test reads it


async def begin(root: Path, workspace: Path, commands: list[dict[str, Any]]) -> None:
    def when_all_run(_request: Any, _history: Any) -> Any:
        tell(session=session.id, scope=custody.of_this_process().scope, guard=custody.of_this_process().guard)
        return turn(say("…"), hang())

    calls = [call("exec_command", {"description": "chaos"} | each, id=f"c{n}") for n, each in enumerate(commands)]
    model = ScriptedModel([turn(*calls), when_all_run])
    agent = await create_agent(root=root)
    async with await agent.create_session(model=model.factory(), workspace_dir=workspace) as session:
        await session.ask("go", approve=allow)


async def go_on(root: Path, workspace: Path, session_id: str) -> None:
    model = ScriptedModel([turn(call("exec_command", {"cmd": "echo back", "description": "d"})), "Done."])
    agent = await create_agent(root=root)
    async with await agent.resume_session(session_id, model=model.factory(), workspace_dir=workspace) as session:
        answer = await session.ask("go on", approve=allow)
    tell(answer=answer)


if __name__ == "__main__":
    place, directory, file = map(Path, sys.argv[1:4])
    if len(sys.argv) > 4:
        anyio.run(go_on, place, directory, sys.argv[4])
    else:
        anyio.run(begin, place, directory, json.loads(file.read_text()))
