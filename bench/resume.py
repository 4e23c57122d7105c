"""Resuming a trace of 50,000 records of 500 bytes each: reading, folding, handing the history over."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from _measure import MEGABYTE, Report, median, peak_bytes

from penguin.protocol.builders import (
    approval_decision,
    assistant_text,
    request_begin,
    request_end,
    session_meta,
    token_usage,
    tool_call,
    tool_call_output,
    user_text,
)
from penguin.protocol.events import TokenCounts
from penguin.protocol.messages import Message
from penguin.session.resume import recover

RECORDS = 50_000
LENGTH = 500
ROUNDS = 5


def write_trace(path: Path) -> None:
    """A long conversation with tools; every record is padded to about the same length."""
    meta = session_meta(session_id="s", provider="p", model_id="m", system_prompt="", workspace="/w", tools=[])
    counts = TokenCounts(10, 10, 10, 30)
    count = 1
    with path.open("wb") as file:
        file.write(meta.line + b"\n")
        while count < RECORDS:
            call_id = f"call_{count}"
            turn: list[Message] = [
                user_text("u" * 330),
                request_begin(),
                assistant_text("a" * 330),
                tool_call("read_file", '{"file_path": "' + "f" * 280 + '"}', call_id),
                token_usage(counts, counts),
                request_end("completed"),
                approval_decision("allow", call_id),
                tool_call_output("o" * 3_000, call_id),
            ]
            file.writelines(message.line + b"\n" for message in turn)
            count += len(turn)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "session_001.jsonl")
        write_trace(path)
        length = path.stat().st_size / RECORDS
        before = peak_bytes()
        taken = []
        for _ in range(ROUNDS):
            started = time.process_time()
            recovered = recover([path])
            taken.append(time.process_time() - started)
            assert recovered.ledger.turns > RECORDS / 9
            del recovered
    report = Report()
    report.figure(f"resume of {RECORDS} records of {length:.0f} bytes", median(taken), "s CPU", 0.5)
    report.figure("  peak memory of the process", peak_bytes() / MEGABYTE, "MB", 160)
    report.figure("  of that before the first resume", before / MEGABYTE, "MB")
    return report.status


if __name__ == "__main__":
    sys.exit(main())
