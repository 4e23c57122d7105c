"""Fakes and checks that ship with Penguin, for its own tests and for yours.

`ScriptedModel` stands in for a model inside the process, `ScriptedProvider` is an HTTP server that
stands in for a provider; both take the same turns. `StreamChecker` and the conformance kits check
that a model, an environment or a session keeps the protocol.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penguin.testing.chaos import ChaosModel
from penguin.testing.conformance import check_environment, check_llm
from penguin.testing.framing import StreamChecker, assert_well_framed
from penguin.testing.http_exchange import RecordedRequest
from penguin.testing.replies import (
    AT_THE_END,
    Reply,
    ReplyLike,
    cut,
    dripped,
    framed,
    raw,
    refuse,
    reply,
    stalled,
)
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import (
    Block,
    Call,
    Fault,
    Pause,
    ReadyTurn,
    Say,
    Think,
    Turn,
    TurnLike,
    call,
    fail,
    hang,
    pause,
    say,
    think,
    turn,
    usage,
)

if TYPE_CHECKING:
    from penguin.testing.provider_server import (
        ScriptedProvider,
        ThreadedProvider,
        prepared,
        serve_in_thread,
    )

__all__ = [
    "AT_THE_END",
    "Block",
    "Call",
    "ChaosModel",
    "Fault",
    "Pause",
    "ReadyTurn",
    "RecordedRequest",
    "Reply",
    "ReplyLike",
    "Say",
    "ScriptedModel",
    "ScriptedProvider",
    "StreamChecker",
    "Think",
    "ThreadedProvider",
    "Turn",
    "TurnLike",
    "assert_well_framed",
    "call",
    "check_environment",
    "check_llm",
    "cut",
    "dripped",
    "fail",
    "framed",
    "hang",
    "pause",
    "prepared",
    "raw",
    "refuse",
    "reply",
    "say",
    "serve_in_thread",
    "stalled",
    "think",
    "turn",
    "usage",
]

# Loaded on first use: the server is also run as `python -m`, which warns when its package has loaded it already.
_IN_THE_SERVER = frozenset({"ScriptedProvider", "ThreadedProvider", "prepared", "serve_in_thread"})


def __getattr__(name: str) -> Any:
    if name in _IN_THE_SERVER:
        return getattr(importlib.import_module("penguin.testing.provider_server"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
