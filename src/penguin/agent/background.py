"""What a session still does while no task runs: commands in the background, and subagents."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
from msgspec import Struct

from penguin.environment.environment import Environment
from penguin.environment.processes import CommandSessions
from penguin.environment.subagents import Subagents
from penguin.protocol.messages import Message
from penguin.session.session import Session

_ON_ITS_WAY = 0.2


class Running(Struct, frozen=True):
    """One piece of background work: ``name`` is the id the model knows it by."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name} ({self.what})"


def running_in(session: Session) -> list[Running]:
    """The background work of a session that has not ended; closing the session ends it.

    Example::

        [str(each) for each in running_in(session)]  # ["process p1 (npm start)"]
    """
    match session.environment:
        case Environment() as environment:
            return [*_commands(environment), *_subagents(environment)]
        case _:
            return []


def _commands(environment: Environment) -> Iterator[Running]:
    match environment.setup.services.command_sessions:
        case CommandSessions() as commands:
            for state in commands.states():
                if state.returncode is None:
                    what = " ".join(state.cmd.split())
                    yield Running(f"process {state.process_id}", "; ".join(filter(None, (what, state.serves))))
        case _:
            pass


def _subagents(environment: Environment) -> Iterator[Running]:
    match environment.setup.shared.get("subagents"):
        case Subagents() as children:
            for child in children.busy():
                yield Running(f"subagent {child.id}", child.description)
        case _:
            pass


class BackgroundNotices:
    """Waits for the reports of background work while no task runs (E17); one per session.

    Example::

        notices = BackgroundNotices(session)
        while reports := await notices.next():
            async with session.run(reports, approve=approve) as stream:
                ...
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._news = anyio.Event()
        session.on_notice = self._wake

    def _wake(self, _notice: Message) -> bool:
        self._news.set()
        return False  # it waits in the inbox, with those that came too late for the task before

    async def next(self) -> list[Message]:
        """The next reports, as the prompt of a further task; empty when nothing runs any more."""
        while True:
            self._news = anyio.Event()
            inbox = self._session.engine.inbox
            if reports := inbox.drain_notices():
                return reports
            if running_in(self._session):
                await self._news.wait()
                continue
            # A command counts as ended a moment before its report arrives from the thread that saw it end.
            with anyio.move_on_after(_ON_ITS_WAY):
                await self._news.wait()
            return inbox.drain_notices()
