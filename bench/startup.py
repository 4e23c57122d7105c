"""Cold starts, in wall time: ``import penguin``, ``penguin --version``, ``penguin run`` to its first byte sent.

The best of many, not the median: a start does the same each time, whatever comes on top is the machine.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _measure import Report, connect

from penguin.testing import prepared
from penguin.testing.replies import Raw

ROUNDS = 21
# The tests bring trio, which the HTTP client imports where it finds it; users of Penguin do not have it.
WITHOUT_TRIO = "import sys; sys.modules['trio'] = None; from penguin.cli.main import main; sys.exit(main())"


def whole(*arguments: str) -> float:
    """Milliseconds from start to end of a Python process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1e3


class Listener:
    """Stands in for a provider: notes when the first byte of a request comes, then answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        reply = prepared("hi")
        assert isinstance(reply.content, Raw)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        self._answer = head + reply.content.body

    def first_byte(self) -> float:
        """Wait for one request and answer it; when it began."""
        connection, _ = self._socket.accept()
        with connection:
            request = connection.recv(65_536)
            came = time.perf_counter()
            while not request.endswith(b"}"):
                request += connection.recv(65_536)
            connection.sendall(self._answer)
        return came


def to_first_byte(listener: Listener, root: str, *python: str) -> float:
    """Milliseconds from the start of ``penguin run -m hi`` to the first byte that reaches the provider."""
    command = [sys.executable, *python, "run", "-m", "hi", "--root", root, "--workspace", root]
    started = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        came = listener.first_byte()
        output, errors = process.communicate()
    assert output == b"hi\n", errors.decode()
    return (came - started) * 1e3


def measured(ways: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The best of each way; they take turns, so that a busy moment meets all of them."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    for _ in range(ROUNDS):
        for name, way in ways.items():
            taken[name].append(way())
    return {name: min(values) for name, values in taken.items()}


def main() -> int:
    listener = Listener()
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as bytecode:
        connect(Path(root), listener.base_url)
        # As in an installation: compiled once, by the round that does not count.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode
        taken = measured(
            {
                "python": lambda: whole("-c", "pass"),
                "import": lambda: whole("-c", "import penguin"),
                "names": lambda: whole("-c", "from penguin import create_agent"),
                "version": lambda: whole("-m", "penguin", "--version"),
                "run": lambda: to_first_byte(listener, root, "-c", WITHOUT_TRIO),
                "run with trio": lambda: to_first_byte(listener, root, "-m", "penguin"),
            }
        )
    report = Report()
    python = taken["python"]
    report.figure("python -c pass", python, "ms")
    report.figure("import penguin, beyond that", taken["import"] - python, "ms", 80)
    report.figure("from penguin import create_agent, beyond that", taken["names"] - python, "ms")
    report.figure("penguin --version", taken["version"], "ms", 150)
    report.figure("  beside python -c pass", taken["version"] / python, "x")
    report.figure("penguin run -m hi, to the first byte sent", taken["run"], "ms", 350)
    report.figure("  beside python -c pass", taken["run"] / python, "x")
    report.figure("  where trio is installed", taken["run with trio"], "ms")
    return report.status


if __name__ == "__main__":
    sys.exit(main())
