from __future__ import annotations

import random
import sys
import threading
from pathlib import Path

import pytest

from penguin.environment.policy.grammar import syntax_tree
from penguin.environment.policy.reader import read_command_line


def test_what_is_read_through_the_window_is_the_whole_text() -> None:
    for length in (1, 1022, 1023, 1024, 1025, 5_000):
        source = ("é" * length + "; b").encode()
        root = syntax_tree(source)
        assert root is not None
        assert [source[child.start_byte : child.end_byte] for child in root.named_children] == [source[:-3], b"b"]


def test_threads_may_read_at_the_same_time() -> None:
    wrong: list[str] = []

    def read(name: str) -> None:
        for count in range(1, 200):
            cmd = f"{name} 'x y'; " * (count % 40 + 1)
            if {command.name for command in read_command_line(cmd).commands} != {name}:
                wrong.append(cmd)

    threads = [threading.Thread(target=read, args=(f"program{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident size from /proc")
def test_reading_commands_keeps_no_memory() -> None:
    # Different texts of 20 kB each: one that stayed behind per command would make 20 MB here.
    rng = random.Random(1)  # noqa: S311 - texts that differ, no secrets
    commands = [f"cat > f <<'E'\n{rng.randbytes(10_000).hex()}\nE\nls" for _ in range(20)]

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096

    for cmd in commands:
        read_command_line(cmd + "x")
    before = resident()
    for count in range(1_000):
        read_command_line(f"{commands[count % 20]} {count}")
    assert resident() - before < 6_000_000
