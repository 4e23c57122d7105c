from __future__ import annotations

import pytest

from penguin.environment import backlog
from penguin.environment.backlog import Backlog


def test_N7_what_is_taken_is_forgotten() -> None:
    kept = Backlog()
    assert not kept
    kept.add(b"one ")
    kept.add(b"two")
    assert kept
    assert kept.take() == (b"one two", 0, b"")
    assert kept.take() == (b"", 0, b"")


def test_N7_beginning_and_end_are_kept_and_the_gap_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "HEAD_LIMIT", 4)
    monkeypatch.setattr(backlog, "TAIL_LIMIT", 5)
    kept = Backlog()
    for piece in (b"0123456", b"789", b"abcdef"):
        kept.add(piece)
    assert kept.last_words(3) == "def"
    assert kept.take() == (b"0123", 7, b"bcdef")


def test_E17_the_last_words_are_text() -> None:
    kept = Backlog()
    kept.add("\x1b[1mgrün\x1b[0m\n10%\r100%".encode())
    assert kept.last_words(100) == "grün\n100%"
    assert kept.last_words(4) == "100%"
