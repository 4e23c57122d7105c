"""The options agree with the protocol's types, which the command line does not import at start-up."""

from __future__ import annotations

from penguin.cli.commands.run import LEVELS
from penguin.protocol.messages import THINKING_LEVELS


def test_thinking_offers_every_level_of_the_protocol() -> None:
    assert tuple(LEVELS) == THINKING_LEVELS
