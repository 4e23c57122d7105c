"""Folding records: how many a second, decoded ones, as a resume and every live turn do."""

from __future__ import annotations

import sys
import time

from _measure import Report, median

from penguin.engine.ledger import Ledger
from penguin.protocol.builders import (
    approval_decision,
    assistant_text,
    request_begin,
    request_end,
    token_usage,
    tool_call,
    tool_call_output,
)
from penguin.protocol.events import TokenCounts
from penguin.protocol.messages import Message

TURNS = 20_000
ROUNDS = 5


def records() -> list[Message]:
    counts = TokenCounts(1, 1, 1, 3)
    every: list[Message] = []
    for number in range(TURNS):
        call_id = f"call_{number}"
        every += [
            request_begin(),
            assistant_text("words"),
            tool_call("read_file", "{}", call_id),
            token_usage(counts, counts),
            request_end("completed"),
            approval_decision("allow", call_id),
            tool_call_output("content", call_id),
        ]
    return every


def main() -> int:
    every = records()
    rates = []
    for _ in range(ROUNDS):
        ledger = Ledger()
        started = time.process_time()
        for message in every:
            ledger.observe(message)
        rates.append(len(every) / (time.process_time() - started))
        assert ledger.turns == TURNS
    report = Report()
    report.figure("folding 200,000 records", 200_000 / median(rates), "s CPU", 1.0)
    return report.status


if __name__ == "__main__":
    sys.exit(main())
