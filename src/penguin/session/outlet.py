"""Where background work reports to: the parent's stream and the model's inbox (E17, N19)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel

from penguin.protocol.builders import user_text
from penguin.protocol.messages import Message

_log = logging.getLogger("penguin.session")
_T = TypeVar("_T")


class SessionOutlet:
    """May be called from any thread; what it is told arrives on the session's event loop.

    The assembly makes it before the session, because the environment needs it; ``connect`` joins the two.
    """

    def __init__(self) -> None:
        self._token = anyio.lowlevel.current_token()
        self._thread = threading.get_ident()
        self._forward: Callable[[Message], None] | None = None
        self._post: Callable[[Message], None] | None = None

    def connect(self, forward: Callable[[Message], None], post: Callable[[Message], None]) -> None:
        """Say where messages of children and notices go."""
        self._forward, self._post = forward, post

    def forward(self, message: Message) -> None:
        """Show a message of a child in the parent's stream."""
        if self._forward is not None:
            self._on_loop(self._forward, message)

    def post(self, notice: str) -> None:
        """Tell the model at the next opportunity."""
        if self._post is not None:
            self._on_loop(self._post, user_text(notice))

    def _on_loop(self, function: Callable[[_T], None], argument: _T) -> None:
        if threading.get_ident() == self._thread:
            function(argument)
            return
        try:
            anyio.from_thread.run_sync(function, argument, token=self._token)
        except RuntimeError:  # the loop is gone, and with it whoever wanted to know
            _log.debug("a notice came after the end of its event loop")
