"""Fakes and checks that ship with Penguin, for its own tests and for yours."""

from __future__ import annotations

from penguin.testing.framing import StreamChecker, assert_well_framed
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

__all__ = [
    "Block",
    "Call",
    "Fault",
    "Pause",
    "ReadyTurn",
    "Say",
    "ScriptedModel",
    "StreamChecker",
    "Think",
    "Turn",
    "TurnLike",
    "assert_well_framed",
    "call",
    "fail",
    "hang",
    "pause",
    "say",
    "think",
    "turn",
    "usage",
]
