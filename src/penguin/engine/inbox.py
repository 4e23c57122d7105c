"""What waits to be said to a running task: the user's words (steering) and notices of background work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from penguin.protocol.blocks import block
from penguin.protocol.builders import user_text
from penguin.protocol.messages import Message, Text

TicketState = Literal["waiting", "delivered", "dropped"]


class SteeringTicket:
    """The receipt for words given to a running task.

    ``state`` is ``waiting`` until the next input assembly, then ``delivered``; ``dropped`` when the task
    ended first or the words were withdrawn.
    """

    def __init__(self, inbox: Inbox, messages: Sequence[Message]) -> None:
        self._inbox = inbox
        self.messages = list(messages)
        self.state: TicketState = "waiting"

    def withdraw(self) -> bool:
        """Take the words back; ``False`` when they were already delivered or dropped."""
        return self._inbox.withdraw(self)


class Inbox:
    """Drained at every input assembly: notices first, the user's words last (E16)."""

    def __init__(self) -> None:
        self._notices: list[Message] = []
        self._tickets: list[SteeringTicket] = []

    @property
    def waiting(self) -> bool:
        """Whether there is something to deliver."""
        return bool(self._notices or self._tickets)

    def steer(self, messages: Sequence[Message]) -> SteeringTicket:
        """Queue the user's words."""
        ticket = SteeringTicket(self, messages)
        self._tickets.append(ticket)
        return ticket

    def post(self, notice: Message) -> None:
        """Queue a notice of background work."""
        self._notices.append(notice)

    def withdraw(self, ticket: SteeringTicket) -> bool:
        """Remove a waiting ticket."""
        if ticket not in self._tickets:
            return False
        self._tickets.remove(ticket)
        ticket.state = "dropped"
        return True

    def drain(self) -> list[Message]:
        """Everything that waits, as the messages to record and send; tickets become ``delivered``."""
        messages = [*self._notices]
        for ticket in self._tickets:
            messages += [_as_steering(message) for message in ticket.messages]
            ticket.state = "delivered"
        self._notices, self._tickets = [], []
        return messages

    def drain_notices(self) -> list[Message]:
        """The notices alone: those that came while no task ran open the next one."""
        notices, self._notices = self._notices, []
        return notices

    def drop(self) -> list[SteeringTicket]:
        """The task ended: what is left is dropped, notices are kept for the next task."""
        left, self._tickets = self._tickets, []
        for ticket in left:
            ticket.state = "dropped"
        return left


def _as_steering(message: Message) -> Message:
    match message.payload:
        case Text(role="user", text=text):
            return user_text(block("user_steering", text))
        case _:
            return message
