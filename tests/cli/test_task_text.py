"""Standard input of each kind, also the kind that never comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import click
import pytest

from penguin.cli import task_text
from penguin.cli.task_text import task_messages

pytestmark = pytest.mark.anyio


@contextmanager
def standard_input(descriptor: int) -> Iterator[None]:
    kept = os.dup(0)
    os.dup2(descriptor, 0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


class Writer:
    """The other end of standard input."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def close(self) -> None:
        self._file.close()


@pytest.fixture
def pipe() -> Iterator[Writer]:
    read_end, write_end = os.pipe()
    writer = Writer(write_end)
    with standard_input(read_end):
        os.close(read_end)
        yield writer
    writer.close()


async def test_D54_a_pipe_that_stays_silent_ends_in_an_error_that_names_the_ways_out(
    pipe: Writer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(task_text, "_MENTION_AFTER", 0.01)
    monkeypatch.setattr(task_text, "PATIENCE", 0.05)
    with pytest.raises(click.UsageError, match="--no-stdin"):
        await task_messages("hi", attach=None)
    assert "waiting for standard input" in capsys.readouterr().err


async def test_a_slow_pipe_is_read_to_its_end_once_it_has_begun(pipe: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_text, "_MENTION_AFTER", 0.01)
    monkeypatch.setattr(task_text, "PATIENCE", 5.0)
    said: list[str] = []

    async def read() -> None:
        said.extend(await task_messages("hi", attach=None))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        pipe.write(b"one ")
        await anyio.wait_all_tasks_blocked()
        pipe.write(b"two")
        pipe.close()
    assert said == ["hi", "one two"]


async def test_waiting_for_input_can_be_interrupted(pipe: Writer) -> None:
    with anyio.move_on_after(0.01) as scope:
        await task_messages(None, attach=None)
    assert scope.cancelled_caught


async def test_standard_input_is_not_looked_at_when_it_is_not_wanted(pipe: Writer) -> None:
    assert await task_messages("hi", attach=False) == ["hi"]


async def test_empty_and_blank_input_attach_nothing(pipe: Writer) -> None:
    pipe.write(b" \n")
    pipe.close()
    assert await task_messages("hi", attach=None) == ["hi"]


async def test_no_task_at_all_is_an_error(pipe: Writer) -> None:
    pipe.close()
    with pytest.raises(click.UsageError, match="-m TEXT"):
        await task_messages(None, attach=None)


async def test_too_much_input_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_text, "MOST_INPUT", 1_000)
    (tmp_path / "big").write_bytes(b"x" * 70_000)
    big = os.open(tmp_path / "big", os.O_RDONLY)
    with standard_input(big), pytest.raises(click.UsageError, match="name the file"):
        await task_messages("hi", attach=None)
    os.close(big)


async def test_a_directory_as_input_is_refused(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    with standard_input(directory), pytest.raises(click.UsageError, match="directory"):
        await task_messages("hi", attach=None)
    os.close(directory)
