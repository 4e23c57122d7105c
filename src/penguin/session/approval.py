"""Ready-made approval: who decides about a tool call (N23).

An approval callback is ``async (tool_call) -> "allow" | "deny"``. The modes here are such callbacks;
"ask" goes to a callback of the host, and with nobody there the answer is a declared policy, counted
so that an exit status can show it. It never waits for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import anyio

from penguin.protocol.arguments import parse_arguments
from penguin.protocol.events import Decision
from penguin.protocol.interfaces import ApproveFn, Permission
from penguin.protocol.messages import OmniMessage, ToolCall

ApprovalMode = Literal["allow-all", "deny-all", "read-only", "always-ask"]
APPROVAL_MODES: tuple[ApprovalMode, ...] = ("allow-all", "deny-all", "read-only", "always-ask")


async def allow_all(tool_call: OmniMessage[ToolCall]) -> Decision:  # noqa: ARG001 - the shape of a callback
    """Run every call.

    Example::

        async with session.run("Tidy up", approve=allow_all) as stream: ...
    """
    return "allow"


async def deny_all(tool_call: OmniMessage[ToolCall]) -> Decision:  # noqa: ARG001 - the shape of a callback
    """Run no call."""
    return "deny"


Answer = Literal["allow", "deny", "always"]
"""What a human says; ``always`` also keeps the proposed rules for this project."""

AskFn = Callable[[OmniMessage[ToolCall], Sequence[str]], Awaitable[Answer]]
"""The way to a human: gets the call and the rules that "always" would keep, in words; none means it is not offered."""


class RuleBook(Protocol):
    """Rules learnt from answers (N24)."""

    def covers_call(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a rule allows the call."""
        ...

    def propose_for_call(self, tool: str, arguments: Mapping[str, Any]) -> Sequence[object]:
        """The rules that "always" would keep; ``str`` of one is shown. Empty when none would be safe."""
        ...

    def learn(self, rules: Sequence[object]) -> None:
        """Keep rules that were proposed."""
        ...


class Approval:
    """A mode as a callback.

    ``read-only`` allows tools that only look and asks for the rest; ``always-ask`` asks for all. What the
    project's learnt ``rules`` cover is allowed without asking. ``ask``
    is the host's way to a human, ``None`` when there is nobody: then ``nobody`` decides, and
    ``unasked`` counts the calls that were denied for that reason.

    Example::

        approve = Approval("read-only", session.environment.tool_permission, ask=ask_in_terminal)
    """

    def __init__(
        self,
        mode: ApprovalMode,
        permission_of: Callable[[str], Permission | None],
        *,
        ask: AskFn | None = None,
        nobody: Decision = "deny",
        rules: RuleBook | None = None,
    ) -> None:
        self.mode = mode
        self.unasked = 0
        self._permission_of = permission_of
        self._ask = ask
        self._nobody = nobody
        self._rules = rules

    async def __call__(self, tool_call: OmniMessage[ToolCall]) -> Decision:
        """Decide about one call."""
        match self.mode:
            case "allow-all":
                return "allow"
            case "deny-all":
                return "deny"
            case "read-only" if self._permission_of(tool_call.payload.name) == "r":
                return "allow"
            case _:
                return await self._asked(tool_call)

    async def _asked(self, tool_call: OmniMessage[ToolCall]) -> Decision:
        name, arguments = tool_call.payload.name, _arguments(tool_call.payload)
        if self._rules is not None and self._rules.covers_call(name, arguments):
            return "allow"
        if self._ask is not None:
            proposed = self._rules.propose_for_call(name, arguments) if self._rules is not None else ()
            answer = await self._ask(tool_call, [str(rule) for rule in proposed])
            if answer == "always" and self._rules is not None:
                self._rules.learn(proposed)
            return "deny" if answer == "deny" else "allow"
        if self._nobody == "deny":
            self.unasked += 1
        return self._nobody


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    try:
        return parse_arguments(call.arguments)
    except ValueError:
        return {}


def one_at_a_time(approve: ApproveFn) -> ApproveFn:
    """Serialize a callback over a whole tree of sessions: a human answers one question at a time (E3)."""
    lock = anyio.Lock()

    async def ask(tool_call: OmniMessage[ToolCall]) -> Decision:
        async with lock:
            return await approve(tool_call)

    return ask
