"""What one command line may run, as plain values: words, simple commands, redirections, and what stays hidden."""

from __future__ import annotations

import re
import shlex
from typing import Literal

from msgspec import Struct

WordForm = Literal["literal", "pattern", "computed"]
"""``pattern`` expands to file names or alternatives; ``computed`` depends on a variable or on another command."""


class Word(Struct, frozen=True, gc=False):
    r"""One word after quoting.

    Attributes:
        text: The value; computed parts stand as written, ``${X}`` as ``$X``.
        shown: ``text`` for regular expressions: quoted where a space or a wildcard was quoted, so that
            ``rm '*'`` reads ``rm \*`` and ``rm *`` reads ``rm *``.
        form: Whether ``text`` is what the program gets.
    """

    text: str
    shown: str
    form: WordForm


class Redirection(Struct, frozen=True):
    """``operator`` without a descriptor (``>``, ``>>``, ``<``, ``>&`` ...); heredocs have no target."""

    operator: str
    target: Word | None

    @property
    def is_harmless(self) -> bool:
        """Whether it only joins descriptors or throws output away."""
        if self.target is None or self.target.form != "literal":
            return False
        if self.operator in {">&", "<&"}:
            return self.target.text == "-" or self.target.text.isdecimal()
        return self.operator in {">", ">>", "&>", "&>>"} and self.target.text == "/dev/null"


class SimpleCommand(Struct, frozen=True):
    """One program with its words, or only assignments or redirections (those of a whole pipe or block).

    Attributes:
        words: The program as written, then its arguments.
        assignments: Names of the variables set for it.
        redirections: In the order of the line.
        fed: Standard input comes from a pipe, a file or the line itself.
        wraps: The program starts another one, which follows as an entry of its own (``sudo``, ``timeout``).
        directory: Where a ``cd`` before it has led, absolute or from the home; empty when no literal one has.
    """

    words: tuple[Word, ...]
    assignments: tuple[str, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    fed: bool = False
    wraps: bool = False
    directory: str = ""

    @property
    def name(self) -> str:
        """The program without its directory; empty when there is none."""
        return program_name(self.words[0].text) if self.words else ""

    @property
    def text(self) -> str:
        r"""The normal form that rules match: name without its directory, words, then redirections to files.

        Example::

            read_command_line("sudo /bin/rm -r'f' \\"/\\" >log").commands[1].text      # "rm -rf / > log"
        """
        if not self.words:
            return " ".join(self._written_targets())
        name = program_name(self.words[0].shown)
        if not self.redirections:
            return " ".join((name, *[word.shown for word in self.words[1:]]))
        return " ".join((name, *[word.shown for word in self.words[1:]], *self._written_targets()))

    @property
    def text_there(self) -> str:
        r"""The same with relative words as seen from ``directory``; only what is no option counts as a path.

        Example::

            read_command_line("cd / && rm -rf *").commands[1].text_there      # "rm -rf /*"
        """
        if not self.words or not self.directory:
            return self.text
        name, *rest = (program_name(self.words[0].shown), *(word.shown for word in self.words[1:]))
        if name == "find" and not any(word[:1] not in _NO_PATH for word in rest[:1]):
            rest.insert(0, ".")
        return " ".join((name, *(seen_from(self.directory, word) for word in rest), *self._written_targets()))

    def _written_targets(self) -> list[str]:
        return [
            f"{redirection.operator} {redirection.target.shown}"
            for redirection in self.redirections
            if redirection.target is not None and not redirection.operator.endswith("&")
        ]


class CommandLine(Struct, frozen=True):
    """Everything a line may run that can be seen, and why anything cannot (empty: all was seen)."""

    commands: tuple[SimpleCommand, ...]
    opaque: tuple[str, ...] = ()


def program_name(written: str) -> str:
    """``/usr/bin/rm`` is ``rm``; a name that ends in a slash stays as it is."""
    return written.rpartition("/")[2] or written


MOVERS = frozenset({"cd", "chdir", "pushd"})
"""What changes the directory of the commands after it."""

_NO_PATH = frozenset("-+/~$'\"!(\\")


def seen_from(directory: str, shown: str) -> str:
    """A relative path as seen from ``directory``; anything else as it is."""
    if not shown or shown[0] in _NO_PATH:
        return shown
    kept = [part for part in shown.split("/") if part not in {"", "."}]
    return "/".join((directory.rstrip("/"), *kept)) if kept else directory


def literal_word(text: str) -> Word:
    """A word nobody has to quote or expand."""
    return Word(text, quoted_if_needed(text), "literal")


_splits = re.compile(r"[ \t\n\r'\";|&<>()]").search


def quoted_if_needed(shown: str) -> str:
    """In single quotes when a reader could take it for more than one word."""
    return shlex.quote(shown) if not shown or _splits(shown) else shown
