"""Child sessions: how a subagent is made from its parent (N18)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from penguin.engine.budget import Budget
from penguin.environment.subagents import SubagentReport
from penguin.protocol.builders import with_origin
from penguin.protocol.events import Decision, StopReason
from penguin.protocol.interfaces import ApproveFn, Emit
from penguin.protocol.messages import OmniMessage, ThinkingLevel, ToolCall
from penguin.session.session import Session

_STOP: dict[str, StopReason] = {"completed": "completed", "aborted": "aborted"}


class ChildWish(Struct, frozen=True):
    """What the model asked for; ``None`` inherits from the parent."""

    agent_id: str | None = None
    provider: str | None = None
    model_id: str | None = None
    thinking_level: ThinkingLevel | None = None


class Spawner:
    """Makes children of one session; satisfies the environment's ``SubagentRunner``.

    ``budgets`` is asked at each run: what a child uses counts against its parent's limits too.
    """

    def __init__(self, open_child: Callable[[ChildWish], Awaitable[Session]]) -> None:
        self._open_child = open_child
        self.budgets: Callable[[], Sequence[Budget]] = tuple

    async def spawn(
        self,
        *,
        agent_id: str | None = None,
        provider: str | None = None,
        model_id: str | None = None,
        thinking_level: ThinkingLevel | None = None,
    ) -> Child:
        """Open a child session.

        Raises:
            ConfigError: no such agent or model.
        """
        session = await self._open_child(ChildWish(agent_id, provider, model_id, thinking_level))
        return Child(session, self.budgets)


class Child:
    """A child session behind the environment's ``SubagentHandle``."""

    def __init__(self, session: Session, budgets: Callable[[], Sequence[Budget]]) -> None:
        self._session = session
        self._budgets = budgets
        self._introduced = False

    @property
    def session_id(self) -> str:
        """The child's session id: one hop of ``origin``."""
        return self._session.id

    async def run(self, prompt: str, *, approve: ApproveFn | None, emit: Emit) -> SubagentReport:
        """One task of the child; every message goes to ``emit`` with the child's id in its origin."""
        self._introduce(emit)
        asked = _from_child(approve, self.session_id) if approve is not None else None
        async with self._session.run(prompt, approve=asked, budgets=self._budgets()) as stream:
            async for message in stream:
                emit(with_origin(message, self.session_id))
        result = stream.result
        error = result.error.message if result.error else None
        return SubagentReport(_STOP.get(result.stop_reason, "failed"), result.text, result.usage, error)

    def interrupt(self) -> None:
        """Stop the child's task, as a user would."""
        self._session.interrupt()

    async def aclose(self) -> None:
        """Release the child's tools, model and trace."""
        await self._session.close()

    def _introduce(self, emit: Emit) -> None:
        """The first message of a child on its parent's stream is its configuration (N19)."""
        meta = self._session.meta
        if not self._introduced and meta is not None:
            self._introduced = True
            emit(with_origin(meta, self.session_id))


def _from_child(approve: ApproveFn, session_id: str) -> ApproveFn:
    async def ask(tool_call: OmniMessage[ToolCall]) -> Decision:
        return await approve(with_origin(tool_call, session_id))

    return ask
