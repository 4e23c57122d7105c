"""Cold starts, in wall time: ``import penguin``, ``penguin --version``, ``penguin run`` to its first byte sent.

The best of many, not the median: a start does the same each time, whatever comes on top is the machine.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _measure import Report, connect, cpu_seconds

from penguin.testing import prepared
from penguin.testing.replies import Raw

ROUNDS = 21
# The tests bring trio, which the HTTP client imports where it finds it; users of Penguin do not have it.
WITHOUT_TRIO = "import sys; sys.modules['trio'] = None; from penguin.cli.main import main; sys.exit(main())"


def whole(*arguments: str) -> tuple[float, float]:
    """Milliseconds of wall and of CPU time from start to end of a Python process."""
    started, before = time.perf_counter(), cpu_seconds(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1e3, (cpu_seconds(resource.RUSAGE_CHILDREN) - before) * 1e3


class Listener:
    """Stands in for a provider: notes when the first byte of a request comes, then answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        reply = prepared("hi")
        assert isinstance(reply.content, Raw)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        self._answer = head + reply.content.body

    def first_byte(self, pid: int) -> tuple[float, float]:
        """Wait for one request and answer it; when it began, and the CPU milliseconds its sender had used then."""
        connection, _ = self._socket.accept()
        with connection:
            request = connection.recv(65_536)
            came, spent = time.perf_counter(), cpu_of(pid)
            while not request.endswith(b"}"):
                request += connection.recv(65_536)
            connection.sendall(self._answer)
        return came, spent


def cpu_of(pid: int) -> float:
    """CPU milliseconds of a running process, all its threads (Linux)."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


def to_first_byte(listener: Listener, root: str, *python: str) -> tuple[float, float]:
    """Milliseconds of wall and of CPU time from the start of ``penguin run -m hi`` to the first byte it sends."""
    command = [sys.executable, *python, "run", "-m", "hi", "--root", root, "--workspace", root]
    started = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        came, spent = listener.first_byte(process.pid)
        output, errors = process.communicate()
    assert output == b"hi\n", errors.decode()
    return (came - started) * 1e3, spent


def measured(ways: dict[str, Callable[[], tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    """The best wall and CPU time of each way; they take turns, so that a busy moment meets all of them."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    for _ in range(ROUNDS):
        for name, way in ways.items():
            taken[name].append(way())
    return {name: (min(wall for wall, _ in values), min(cpu for _, cpu in values)) for name, values in taken.items()}


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
    python, python_cpu = taken["python"]
    report.figure("python -c pass", python, "ms")
    report.figure("import penguin, beyond that", taken["import"][0] - python, "ms", 80)
    report.figure("from penguin import create_agent, beyond that", taken["names"][0] - python, "ms")
    report.figure("penguin --version", taken["version"][0], "ms", 150)
    report.figure("  beside python -c pass, in CPU time", taken["version"][1] / python_cpu, "x")
    report.figure("penguin run -m hi, to the first byte sent", taken["run"][0], "ms", 350)
    report.figure("  of it CPU time, which a busy machine stretches less", taken["run"][1], "ms CPU", 350)
    report.figure("  beside python -c pass, in CPU time", taken["run"][1] / python_cpu, "x")
    report.figure("  where trio is installed", taken["run with trio"][1], "ms CPU")
    return report.status


if __name__ == "__main__":
    sys.exit(main())
