"""The bash grammar, loaded when the first command is read: a start without commands does not pay for it."""

from __future__ import annotations

import functools
import re
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Point

LONGEST_PARSE = 0.05
"""Seconds, and ``SECONDS_A_BYTE`` on top, of this thread's own time, so that a busy machine changes no answer.

The parser recovers from errors in quadratic time (40 kB of ``a|`` took it 49 s) and holds the interpreter meanwhile;
valid lines take a third of this.
"""

SECONDS_A_BYTE = 8e-6

MOST_JOINTS = 1500
"""Pipes and redirections outside heredocs: after ``a | a | a |`` the parser recovers without asking the clock."""

_HEREDOC = re.compile(rb"<<-?[ \t]*+['\"]?(\w++)['\"]?[^\n]*+\n.*?\n\t*+\1(?=\n|$)", re.DOTALL)
_JOINT = re.compile(rb"[|<>]")
_CHUNK = 1024


def syntax_tree(source: bytes) -> Node | None:
    """The root of the syntax tree of some bash, with error nodes where it is not bash; ``None`` if that takes long."""
    if len(source) > MOST_JOINTS and _joints(source) > MOST_JOINTS:
        return None
    return _grammar().parse(source)


def _joints(source: bytes) -> int:
    return len(_JOINT.findall(_HEREDOC.sub(b"", source)))


class _Grammar:
    """A parser and the window through which it reads; one thread at a time.

    The window exists because the binding (0.26) never lets go of a buffer that its callback returned: with slices of
    the source each command would stay in memory for good. These views are made once and lent again and again.
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._turn = threading.Lock()
        self._window = bytearray(_CHUNK)
        self._views = [memoryview(self._window)[:length] for length in range(_CHUNK + 1)]

    def parse(self, source: bytes) -> Node | None:
        def read(offset: int, _point: Point) -> memoryview:
            piece = source[offset : offset + _CHUNK]
            self._window[: len(piece)] = piece
            return self._views[len(piece)]

        def is_too_late(_offset: int, _has_error: bool) -> bool:  # noqa: FBT001 - the parser's own signature
            return time.thread_time() > deadline

        with self._turn:
            deadline = time.thread_time() + LONGEST_PARSE + SECONDS_A_BYTE * len(source)
            try:
                return self._parser.parse(read, progress_callback=is_too_late).root_node
            except ValueError:
                self._parser.reset()  # it would go on with this text next time
                return None


@functools.cache
def _grammar() -> _Grammar:
    import tree_sitter_bash  # noqa: PLC0415 - two native libraries that only a command needs
    from tree_sitter import Language, Parser  # noqa: PLC0415 - the same

    return _Grammar(Parser(Language(tree_sitter_bash.language())))
