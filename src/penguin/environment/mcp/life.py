"""One connection to one server, from its start to its end, as seen from outside the task that owns it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread

from penguin.detached import start_detached
from penguin.environment.mcp.config import McpServerConfig
from penguin.environment.mcp.notes import ServerNotes

if TYPE_CHECKING:
    from penguin.environment.mcp.results import CallAnswer

LONGEST_START = 60.0
"""Seconds after which a server that never finishes connecting is given up, or six times its own limit if longer."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the servers of one environment share. ``scope`` is their custody, ``custody_dir`` its ledger."""

    workspace_dir: Path
    scope: str = ""
    custody_dir: Path | None = None
    vision: bool = True


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server lists it. ``read_only`` is the server's own word."""

    name: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool = False


class Speaker(Protocol):
    """The half of a connection that makes calls; see :mod:`penguin.environment.mcp.connection`."""

    def call(self, tool: str, args: dict[str, Any], write: Callable[[str], None]) -> Awaitable[CallAnswer]:
        """Run a tool and wait for its answer."""
        ...


class Life:
    """Begins with :meth:`start`, then belongs to a task of its own, which alone enters and leaves the SDK's scopes.

    ``ready``: it answers calls. ``ended``: nothing of it is left. ``reason`` says in words why it is not ready.
    ``changed`` is called whenever one of them, or the list of tools, has changed.
    """

    def __init__(self, config: McpServerConfig, place: Place, changed: Callable[[], None]) -> None:
        self.config = config
        self.place = place
        self.notes = ServerNotes(config.name)
        self.tools: tuple[ListedTool, ...] = ()
        self.speaker: Speaker | None = None
        self.reason: str | None = None
        self.launched = anyio.Event()
        self.settled = anyio.Event()
        self.ended = anyio.Event()
        self.began = math.nan
        self._changed = changed
        self._scope = anyio.CancelScope()
        self._wake = anyio.Event()
        self._leaving = False
        self._lost = False
        self._listing: anyio.Event | None = None

    # ------------------------------------------------------------ seen from outside

    @property
    def ready(self) -> bool:
        """Whether calls can be made."""
        return self.speaker is not None and not self.over

    @property
    def over(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._lost or self._leaving or self.ended.is_set()

    def start(self) -> None:
        """Begin in the background."""
        start_detached(self._run, f"MCP server {self.config.name}")

    async def settle(self, seconds: float) -> None:
        """Wait until it is ready or has failed, and ``seconds`` after its start at most."""
        with anyio.move_on_after(math.inf) as waiting:
            await self.launched.wait()
            # Not before: loading the SDK takes seconds on a busy machine, for which no server can be blamed.
            waiting.deadline = self.began + seconds
            await self.settled.wait()

    async def relist(self) -> None:
        """Wait until a changed list of tools was read again, if it changed; not longer than the server's limit."""
        if self._listing is not None:
            with anyio.move_on_after(self.config.timeout):
                await self._listing.wait()

    def lose(self) -> None:
        """The server is gone, or of no use any more."""
        self._lost = True
        self._wake.set()

    def leave(self) -> None:
        """Ask it to end in good order, or at once while it is still connecting."""
        self._leaving = True
        self._wake.set()
        if self.speaker is None:
            self._scope.cancel()

    async def gone(self, seconds: float) -> None:
        """Wait until nothing of it is left; after ``seconds`` it is no longer asked."""
        with anyio.move_on_after(seconds):
            await self.ended.wait()
        self._scope.cancel()
        await self.ended.wait()

    # ------------------------------------------------------------ for the task that owns it

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._connect_and_stay()
            if self._scope.cancelled_caught and not self._leaving:
                self.notes.problem = f"it did not finish connecting within {self._longest_start:g} s"
        except Exception as error:  # noqa: BLE001 - whatever a server does, the session goes on without it
            self.reason = self._why(error)
        finally:
            if self.reason is None:
                self.reason = self._why(None)
            self.launched.set()
            self.settled.set()
            self.ended.set()
            self._end_listing()
            self._changed()

    async def _connect_and_stay(self) -> None:
        connection = await anyio.to_thread.run_sync(_load)
        self.began = anyio.current_time()
        self._scope.deadline = self.began + self._longest_start
        self.launched.set()
        await connection.connect_and_stay(self)

    @property
    def _longest_start(self) -> float:
        return max(LONGEST_START, 6 * self.config.timeout)

    def become_ready(self, speaker: Speaker, tools: tuple[ListedTool, ...]) -> None:
        """It is connected and has listed its tools."""
        self._scope.deadline = math.inf
        self.speaker = speaker
        self.tools = tools
        self.settled.set()
        self._changed()

    async def next_listing(self) -> bool:
        """Wait until the list of tools is to be read again; ``False`` when it is time to go."""
        while not self.over:
            if self._listing is not None:
                return True
            await self._wake.wait()
            self._wake = anyio.Event()
        return False

    def tools_changed(self) -> None:
        """The server says that its list of tools is another one now."""
        if self._listing is None:
            self._listing = anyio.Event()
        self._wake.set()

    def listed(self, tools: tuple[ListedTool, ...] | None) -> None:
        """The list was read again; ``None`` keeps the old one."""
        self.tools = self.tools if tools is None else tools
        self._end_listing()
        self._changed()

    def _end_listing(self) -> None:
        if self._listing is not None:
            self._listing.set()
            self._listing = None

    def _why(self, error: Exception | None) -> str:
        from penguin.environment.mcp.words import why  # noqa: PLC0415 - it knows the SDK's errors

        return why(error, self.config, self.notes, was_ready=self.speaker is not None)


def _load() -> Any:
    """Import the half that needs the SDK. Runs in a thread: more than a second, in which a session must not stand."""
    from penguin.environment.mcp import connection  # noqa: PLC0415 - see above

    return connection
