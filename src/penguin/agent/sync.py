"""One task from code that is not asynchronous: scripts and notebooks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio

from penguin.agent.agent import create_agent
from penguin.engine.engine import TaskResult
from penguin.protocol.interfaces import ApproveFn
from penguin.protocol.messages import Message
from penguin.session.prompt import Prompt


def run_sync(
    prompt: Prompt,
    *,
    approve: ApproveFn | None = None,
    on_message: Callable[[Message], None] | None = None,
    **session_options: Any,
) -> TaskResult:
    """Run one task in a session of its own and wait for its end.

    Works in a notebook too: with an event loop already running the task gets a thread and a loop of its
    own. ``session_options`` are those of :meth:`Agent.create_session`; ``on_message`` is called for each
    message, in that thread.

    Raises:
        ConfigError: as :func:`create_agent` and :meth:`Agent.create_session` do.

    Example::

        result = run_sync("Create hello.txt containing hi", approve=allow_all, workspace_dir=".")
        print(result.text)
    """

    async def main() -> TaskResult:
        agent = await create_agent()
        async with await agent.create_session(**session_options) as session:
            async with session.run(prompt, approve=approve) as stream:
                async for message in stream:
                    if on_message is not None:
                        on_message(message)
            return stream.result

    return _in_own_thread(main) if _loop_is_running() else anyio.run(main)


def _loop_is_running() -> bool:
    try:
        anyio.get_current_task()
    except (RuntimeError, anyio.NoEventLoopError):
        return False
    return True


def _in_own_thread(main: Callable[[], Any]) -> TaskResult:
    outcome: list[TaskResult] = []
    faults: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(anyio.run(main))
        except BaseException as fault:  # noqa: BLE001 - carried over to the caller's thread and raised there
            faults.append(fault)

    thread = threading.Thread(target=work, name="penguin run_sync")
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
    return outcome[0]
