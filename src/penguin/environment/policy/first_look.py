r"""A first look at a command line: could any rule match anything in it? If not, nobody needs to know its syntax.

What a pattern cannot do without is read off the pattern itself: ``^find .*-delete`` needs a command whose name is
``find``, and the letters ``-delete``. Whatever a line runs is made of its own letters, so a line without those needs
no syntax tree, which costs twenty times as much.

The look may be wrong in one direction only, and each step takes that side:

- From a pattern come conditions that every match fulfils. What cannot be judged (a class, a back reference, flags)
  demands nothing, and a pattern that demands nothing lets every line through to the full way.
- Reading a line takes quotes, backslashes, continued lines and the braces of ``${x}`` out of it, splits it, joins
  words with one space, and adds quotes and backslashes of its own. So letters are looked for in the line without all
  these, and only runs without them are looked for.
- What puts other letters in place of those that are written goes the full way: ``$'\x72'``, ``{r,}m``, ``printf``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any

from penguin.environment.policy.command_line import MOVERS

_MOST_ALTERNATIVES = 64
_REMOVED = str.maketrans("", "", "\\'\"")
_QUOTES = str.maketrans("", "", "'\"}")
_BETWEEN = str.maketrans("", "", "\n}")
_RUN = re.compile(r"[\w./:=,@%+^-]{2,}", re.ASCII)
"""What stays together when a line is read; shorter ones could be a default of the reader (``>``, ``-``)."""

_OTHER_LETTERS = re.compile(r"\$[\\'\"\n}]*'|\{[^{}]*,")
_BRACED = re.compile(r"\$[\\'\"\n}]*\{")
_NO_ARGUMENTS = re.compile(r"\([\s}]*\)")
_SYNTHETIC = " function spawns itself"
"""What the reader says about a function that starts itself; no letters of the line."""


@dataclass(slots=True)
class Look:
    """A line as conditions see it.

    Attributes:
        letters: The line without quotes and backslashes.
        joined: ``letters`` without what may stand between two that belong together: an end of a continued line, or
            the brace of ``${x}``. The same text where the line has neither.
        moved: A ``cd`` may come before, after which ``lib`` is judged as ``/usr/lib``.
    """

    letters: str
    joined: str
    moved: bool = False

    @property
    def is_broken(self) -> bool:
        """Whether the two differ, so that nobody knows where words end."""
        return self.letters is not self.joined

    def with_more(self, text: str) -> Look:
        """The same with another word at the end."""
        letters = self.letters + text
        return Look(letters, self.joined + text if self.is_broken else letters, self.moved)


Condition = Callable[[Look], bool]


def first_look(patterns: Iterable[re.Pattern[str]]) -> Callable[[str], bool]:
    """A function that says whether the full way is needed: ``False`` means that no pattern can match.

    Example::

        is_needed = first_look([re.compile("^rm -rf /")])
        is_needed("git status && ls -l")        # False
        is_needed("git status && r''m x")       # True: it has an rm; what comes of it is not decided here
    """
    conditions = [_condition_of(pattern) for pattern in patterns]

    def is_needed(cmd: str) -> bool:
        if not conditions:
            return False
        if _OTHER_LETTERS.search(cmd) is not None:
            return True
        letters = cmd.translate(_REMOVED)
        look = Look(letters, letters.translate(_BETWEEN) if _is_broken(cmd) else letters)
        if _PRINTS.is_in(look):
            return True
        if _NO_ARGUMENTS.search(letters) is not None or _FUNCTION.is_in(look):
            look = look.with_more(_SYNTHETIC)
        look.moved = any(word.is_in(look) for word in _MOVES)
        return any(condition(look) for condition in conditions)

    return is_needed


def _is_broken(cmd: str) -> bool:
    return ("\\" in cmd and "\\\n" in cmd.translate(_QUOTES)) or ("$" in cmd and _BRACED.search(cmd) is not None)


# ---------------------------------------------------------------- letters that must be there


@dataclass(frozen=True, slots=True)
class _Letters:
    """A run of letters to look for: anywhere, or as the beginning (``starts``) or all (``ends``) of a program's name.

    A name follows what ends a word, or a slash. It also may be the value of an option that is written in one word
    with it: ``env -Srm``, ``su -crm``.
    """

    text: str
    ending: re.Pattern[str] | None = None
    whole: re.Pattern[str] | None = None
    scattered: re.Pattern[str] | None = None

    def is_in(self, look: Look) -> bool:
        # Most are not there at all, and finding that out takes no regular expression.
        if self.text not in look.joined:
            return False
        if self.whole is None or self.ending is None or self.scattered is None:
            return True
        if look.is_broken:
            return self.scattered.search(look.letters) is not None
        # `--format` has an `rm` too; a pattern that begins with letters passes it by in no time.
        return self.ending.search(look.letters) is not None and self.whole.search(look.letters) is not None


# From the beginning of the word, or a thousand dashes would be tried a thousand times.
_OPTION = r"(?<![^ \t\n\r\f\v])[^ \t\n\r\f\v+-]*+[-+][^ \t\n\r\f\v]*"
_OPTION_OVER_LINES = _OPTION.replace(r"\n", "")


def _letters(text: str, *, starts: bool = False, ends: bool = False) -> _Letters:
    if not starts:
        return _Letters(text)
    after = "(?![A-Za-z_])" if ends else ""
    name = re.escape(text) + after
    scattered = r"[\n}]*".join(map(re.escape, text)) + after
    return _Letters(
        text,
        re.compile(name),
        re.compile(rf"(?<![A-Za-z_]){name}|{_OPTION}{name}"),
        re.compile(rf"(?<![A-Za-z_]){scattered}|{_OPTION_OVER_LINES}{scattered}"),
    )


_PRINTS = _letters("printf")
_FUNCTION = _letters("function")
_MOVES = tuple(_letters(name, starts=True) for name in sorted(MOVERS))


def _demand(text: str, *, starts: bool, ends: bool) -> Condition:
    needed = _letters(text, starts=starts, ends=ends)
    # After `cd /usr` the word `lib` is judged as `/usr/lib`, whose parts stand in two places.
    parts = [_letters(part) for part in text.split("/")] if "/" in text else []

    def holds(look: Look) -> bool:
        return needed.is_in(look) or (look.moved and bool(parts) and all(part.is_in(look) for part in parts))

    return holds


def _all_of(conditions: Sequence[Condition]) -> Condition | None:
    if len(conditions) <= 1:
        return conditions[0] if conditions else None
    return lambda look: all(condition(look) for condition in conditions)


def _any_of(conditions: Sequence[Condition | None]) -> Condition | None:
    known = [condition for condition in conditions if condition is not None]
    if not known or len(known) < len(conditions):  # one of them demands nothing
        return None
    return known[0] if len(known) == 1 else lambda look: any(condition(look) for condition in known)


# ---------------------------------------------------------------- what a pattern cannot do without


def _condition_of(pattern: re.Pattern[str]) -> Condition:
    if pattern.flags & (re.IGNORECASE | re.MULTILINE | re.LOCALE):
        return _always
    try:
        from re import _parser  # type: ignore[attr-defined] # noqa: PLC0415 - what compiled the pattern

        return _Needs(_parser.parse(pattern.pattern, pattern.flags & re.VERBOSE)).condition() or _always
    except Exception:  # noqa: BLE001 - a parser that has changed demands nothing; the full way is always right
        return _always


def _always(_look: Look) -> bool:
    return True


class _Needs:
    """What a sequence of the parser's items needs.

    ``_written`` holds the texts that the items since the last unknown one may stand for; a delimiter (a space, or the
    end) is a space there.
    """

    def __init__(
        self, items: Iterable[tuple[Any, Any]], written: Sequence[str] = ("",), *, anchored: bool = False
    ) -> None:
        self._conditions: list[Condition] = []
        self._written = list(written)
        self._anchored = anchored
        self.exact = True
        for operation, argument in items:
            self._take(operation.name, argument)

    def condition(self) -> Condition | None:
        """What must hold, or ``None`` when anything will do."""
        self._flush()
        return _all_of(self._conditions)

    @property
    def texts(self) -> list[str]:
        """With ``exact``: all that the sequence matches."""
        return self._written

    def _take(self, operation: str, argument: Any) -> None:
        match operation, argument:
            case "LITERAL", code:
                self._append([chr(code)])
            case "IN", members if all(kind.name == "LITERAL" for kind, _ in members):
                self._append([chr(code) for _, code in members])
            case "BRANCH", (_, branches):
                self._branches(branches)
            case "SUBPATTERN", (_, added, removed, inner) if not added and not removed:
                self._branches([inner])
            case "ATOMIC_GROUP", inner:
                self._branches([inner])
            case (("MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT"), (least, most, inner)):
                self._repeated(least, most, inner)
            case "ASSERT", (direction, inner):
                self._looks(direction, inner)
            case "AT", where if where.name in {"AT_END", "AT_END_STRING"}:
                self._append([" "])
            case "AT", where if where.name in {"AT_BEGINNING", "AT_BEGINNING_STRING"}:
                self._unknown()
                self._anchored = True
            case _:
                self._unknown()

    def _append(self, alternatives: Sequence[str]) -> None:
        if len(self._written) * len(alternatives) > _MOST_ALTERNATIVES:
            self._unknown()
        if len(alternatives) <= _MOST_ALTERNATIVES:
            self._written = [text + more for text in self._written for more in alternatives]

    def _branches(self, branches: Sequence[Any]) -> None:
        needs = [_Needs(branch) for branch in branches]
        if all(need.exact for need in needs):
            self._append([text for need in needs for text in need.texts])
            return
        # Each continues what was written before it: `(?:dd .*|rm )` begins with the name, if the group does.
        continued = [_Needs(branch, self._written, anchored=self._anchored).condition() for branch in branches]
        self._forget()
        if (condition := _any_of(continued)) is not None:
            self._conditions.append(condition)

    def _repeated(self, least: int, most: int, inner: Any) -> None:
        needs = _Needs(inner)
        if needs.exact and (least, most) == (0, 1):
            self._append(["", *needs.texts])
            return
        self._unknown()
        if least > 0 and (condition := _Needs(inner).condition()) is not None:
            self._conditions.append(condition)

    def _looks(self, direction: int, inner: Any) -> None:
        # Ahead: what was written and what is seen there follow each other. What comes after it starts afresh.
        ahead = direction > 0
        needs = _Needs(inner, self._written, anchored=self._anchored) if ahead else _Needs(inner)
        if not ahead:
            self._unknown()
        self._forget()
        if (condition := needs.condition()) is not None:
            self._conditions.append(condition)

    def _unknown(self) -> None:
        self._flush()
        self._forget()

    def _forget(self) -> None:
        self._written, self._anchored, self.exact = [""], False, False

    def _flush(self) -> None:
        demands = [_demands(text, anchored=self._anchored) for text in self._written]
        condition = _any_of(demands)
        if condition is None:
            return
        # Looked for once, before the dozen of `/dev/sd`, `/dev/hd` ...
        common = commonprefix(self._written)  # noqa: RUF071 - of letters; no paths here
        if len(demands) > 1 and (shared := _demands(common, anchored=False)) is not None:
            self._conditions.append(shared)
        self._conditions.append(condition)


def _demands(text: str, *, anchored: bool) -> Condition | None:
    return _all_of(
        [
            _demand(
                found[0],
                starts=anchored and found.start() == 0,
                ends=anchored and found.start() == 0 and text[found.end() : found.end() + 1] == " ",
            )
            for found in _RUN.finditer(text)
        ]
    )
