"""A real ``penguin run``, killed at every write of its trace and at random times, goes on (T9, T11, N9, D36, D37)."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import Place
from tests.support.world import check_answers, is_readable

from penguin.engine.ledger import Ledger
from penguin.protocol.builders import is_partial
from penguin.protocol.codec import decode
from penguin.protocol.messages import Message
from penguin.session.resume import recover
from penguin.testing import call, say, serve_in_thread, think, turn, usage
from penguin.testing.turns import Call, ReadyTurn
from penguin.trace.reader import read_trace

KILLER = Path(__file__).parent / "killed_run.py"
STEPS = 3
WRITES = 45
"""About as many writes as the whole task makes; a kill beyond the last one is no kill, and is checked too."""


def answer(body: dict[str, Any]) -> ReadyTurn:
    """The calls of the first step that no result shows as done: a model that knows where it is."""
    text = json.dumps(body["messages"])
    jobs = [
        f"{job}-{step}" for step in range(1, STEPS + 1) for job in ("work", "file", "wait")[: 3 if step == 2 else 2]
    ]
    done = [job for job in jobs if f"{job}-is-DONE" in text]
    if "replaced by a summary" in json.dumps(body["messages"][-1]):
        return say("[summary]" + " ".join(f"{job}-is-DONE" for job in done) + "[/summary]")
    missing = [job for job in jobs if job not in done]
    if not missing:
        return say("All is done.")
    step = missing[0][-1]
    number = text.count("function") + text.count("turn_aborted")
    calls = [_job(job, f"{job}-{number}") for job in missing if job[-1] == step]
    counts = usage(cache_write=200_000 if step == "2" else 900, output=9)
    return turn(think("Where was I?"), say(f"Step {step}."), *calls, usage=counts, delta_size=40)


def _job(job: str, call_id: str) -> Call:
    """Each command notes in a file that it ran; only its output, not the call, says that it is done."""
    begin = f"echo {call_id} >> executed.log; echo {job}-is-DO''NE"
    match job.partition("-"):
        case ("work", _, _):
            return call("exec_command", {"cmd": begin, "description": "work"}, id=call_id)
        case ("file", _, step):
            return call("exec_command", {"cmd": f"echo {step} > {step}.txt; {begin}", "description": "f"}, id=call_id)
        case _:
            arguments = {"cmd": f"{begin}; sleep 293", "description": "w", "yield_time_ms": 150}
            return call("exec_command", arguments, id=call_id)


@dataclass
class Case:
    """One process that is killed, and what has to be true afterwards."""

    place: Place
    mark: str = field(default_factory=lambda: f"mark-{uuid.uuid4().hex}")
    shown: list[bytes] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        environment = {**self.place.environment, "TEST_MARK": self.mark, "PYTHONPATH": ":".join(sys.path)}
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.place.workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def finish(self, process: subprocess.Popen[bytes]) -> int:
        """Wait; what was printed was shown to somebody."""
        output, errors = process.communicate(timeout=40)
        assert b"Traceback" not in errors, errors.decode()
        # The last line may be torn, like everything a killed process was about to say.
        self.shown += [line for line in output.split(b"\n")[:-1] if line]
        return process.returncode

    def check_nobody_survives(self) -> None:
        """N9: the guard ends what the killed process had started."""
        deadline = time.monotonic() + 10
        while alive := _marked(self.mark):
            assert time.monotonic() < deadline, f"still there: {alive}"
            time.sleep(0.02)

    def records(self) -> list[Message]:
        return [record for file in self.readable() for record in read_trace(file)]

    def readable(self) -> list[Path]:
        """A file whose very first write was torn says nothing; the session goes on in the next one."""
        return [file for file in self.place.traces() if is_readable(file)]

    def look_at_the_wreck(self) -> None:
        """What is on disk right after the kill holds what was shown, and can be folded."""
        if self.readable():
            ledger: Ledger = recover(self.place.traces()).ledger
            self.unanswered = set(ledger.unanswered)
        self.check_shown()

    def check_shown(self) -> None:
        written = [line for file in self.place.traces() for line in file.read_bytes().split(b"\n")]
        position = 0
        for line in self.shown:
            message = decode(line)
            if is_partial(message) or message.origin:
                continue
            assert line in written[position:], f"shown, but not in the trace or in another order: {line!r}"
            position = written.index(line, position) + 1

    def check_the_end(self) -> None:
        check_answers(self.records(), excused=self.unanswered)
        self.check_shown()
        executed = (self.place.workspace / "executed.log").read_text().split()
        assert len(executed) == len(set(executed)), f"run twice: {executed}"
        for step in range(1, STEPS + 1):
            assert (self.place.workspace / f"{step}.txt").read_text() == f"{step}\n"


def _marked(mark: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in file.read_bytes():
                found.append((file.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def die_and_go_on(case: Case, *, number: int = 0, when: str = "", delay: float | None = None) -> bool:
    """Kill one run, resume it to the end, check everything; whether it was really killed."""
    with serve_in_thread([answer], when_exhausted="repeat") as provider:
        case.place.connect(provider.base_url)
        if delay is None:
            process = case.start(str(KILLER), str(number), when, "run", "--json", "-m", "Do the steps")
        else:
            process = case.start("-m", "penguin", "run", "--json", "-m", "Do the steps")
            time.sleep(delay)  # the moment of death is the subject here, not a wait for something
            process.kill()
        status = case.finish(process)
        assert status in {0, -signal.SIGKILL}
        case.check_nobody_survives()
        case.look_at_the_wreck()
        go_on = ["--resume", "latest"] if case.readable() else []
        again = case.finish(case.start("-m", "penguin", "run", "--json", *go_on, "-m", "Go on"))
        assert again == 0
        assert provider.problems == []
    case.check_nobody_survives()
    case.check_the_end()
    return status != 0


WHENS = ("after", "half", "before")
FEW = [(1 + round(n * (WRITES - 1) / 13), WHENS[n % 3]) for n in range(14)]


@pytest.mark.parametrize(("number", "when"), FEW)
def test_D1_T11_killed_at_a_write(number: int, when: str, tmp_path: Path) -> None:
    die_and_go_on(Case(Place(tmp_path)), number=number, when=when)


@pytest.mark.parametrize("seed", range(6))
def test_D1_T11_killed_at_a_random_time(seed: int, tmp_path: Path) -> None:
    # The same moments each time as far as the script is concerned; the machine's speed does the rest.
    delay = random.Random(seed).uniform(0.3, 2.0)  # noqa: S311 - not a secret
    die_and_go_on(Case(Place(tmp_path)), delay=delay)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("number", range(1, WRITES + 6))
def test_D1_T11_killed_at_every_write(number: int, when: str, tmp_path: Path) -> None:
    die_and_go_on(Case(Place(tmp_path)), number=number, when=when)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1_000, 1_350))
def test_D1_T11_killed_at_many_random_times(seed: int, tmp_path: Path) -> None:
    delay = random.Random(seed).uniform(0.2, 3.0)  # noqa: S311 - not a secret
    die_and_go_on(Case(Place(tmp_path)), delay=delay)


def test_the_whole_task_makes_about_as_many_writes_as_are_tried(tmp_path: Path) -> None:
    """Else the kills above would miss a part of it."""
    case = Case(Place(tmp_path))
    killed = die_and_go_on(case, number=10_000, when="after")
    assert not killed
    # The second run begins with what it tells of the background command of the first, then its prompt.
    second = ("ended with the program that had started it", "Go on")
    first_run = next(n for n, record in enumerate(case.records()) if any(w in str(record.payload) for w in second)) - 1
    assert WRITES - 8 <= first_run <= WRITES + 5, first_run
