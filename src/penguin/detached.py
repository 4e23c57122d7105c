"""Starting a task that belongs to no task group, on either backend.

Some work outlives the call that started it: the task behind ``async for m in session.run(…)``, whose
loop has no block that could own a task group; a subagent in the background; a connection to a server.
anyio has no such call, so this module speaks to the two backends itself. It lies below the layers
because several of them need it.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - the one place that needs the backend's own call, see above
import contextvars
import sys
from collections.abc import Callable, Coroutine
from typing import Any

_running: set[asyncio.Task[None]] = set()


def start_detached(function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Run ``function`` in the background. It must not raise anything but cancellation."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        trio.lowlevel.spawn_system_task(function, name=name, context=contextvars.copy_context())
        return
    task = asyncio.get_running_loop().create_task(function(), name=name)
    # The loop keeps weak references only: without this the task could vanish in the middle.
    _running.add(task)
    task.add_done_callback(_running.discard)
