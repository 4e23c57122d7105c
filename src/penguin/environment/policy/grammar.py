"""The bash grammar, loaded when the first command is read: a start without commands does not pay for it."""

from __future__ import annotations

import functools
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


LONGEST_PARSE = 0.05
"""Seconds, and ``SECONDS_A_BYTE`` on top. The parser recovers from errors in quadratic time (40 kB of ``a|`` took it
49 s) and holds the interpreter meanwhile; valid lines take a third of this."""

SECONDS_A_BYTE = 8e-6

MOST_JOINTS = 1500
"""Pipes and redirections outside heredocs: after ``a | a | a |`` the parser recovers without asking the clock."""

_HEREDOC = re.compile(rb"<<-?[ \t]*+['\"]?(\w++)['\"]?[^\n]*+\n.*?\n\t*+\1(?=\n|$)", re.DOTALL)
_JOINT = re.compile(rb"[|<>]")


def syntax_tree(source: bytes) -> Node | None:
    """The root of the syntax tree of some bash, with error nodes where it is not bash; ``None`` if that takes long."""
    if len(source) > MOST_JOINTS and _joints(source) > MOST_JOINTS:
        return None
    deadline = time.perf_counter() + LONGEST_PARSE + SECONDS_A_BYTE * len(source)

    def is_too_late(_offset: int, _has_error: bool) -> bool:  # noqa: FBT001 - the parser's own signature
        return time.perf_counter() > deadline

    parser = _parser()
    try:
        return parser.parse(lambda offset, _point: source[offset:], progress_callback=is_too_late).root_node
    except ValueError:
        parser.reset()  # it would go on with this text next time
        return None


def _joints(source: bytes) -> int:
    return len(_JOINT.findall(_HEREDOC.sub(b"", source)))


@functools.cache
def _parser() -> Parser:
    import tree_sitter_bash  # noqa: PLC0415 - two native libraries that only a command needs
    from tree_sitter import Language, Parser  # noqa: PLC0415 - the same

    return Parser(Language(tree_sitter_bash.language()))
