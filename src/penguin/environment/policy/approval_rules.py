"""Rules learnt from answers (N24): what the user always allows in this project.

A rule covers a command line only when each part of it is covered and nothing stays hidden. Where two readings of a line
could differ, the answer is no: the user is asked once more, which costs a moment, and the other mistake costs files.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penguin.environment.policy.command_line import CommandLine, SimpleCommand, Word
from penguin.environment.policy.open_programs import never_learnt, open_program
from penguin.environment.policy.reader import read_command_line
from penguin.protocol.errors import ConfigError

COMMAND_TOOL = "exec_command"
NEVER_BY_NAME = frozenset({COMMAND_TOOL, "input_command"})
"""Tools that a rule without a command cannot allow: each of them would be an interpreter."""

HARMLESS_VARIABLES = frozenset(
    {"CI", "COLUMNS", "FORCE_COLOR", "LANG", "LC_ALL", "NO_COLOR", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "TZ"}
)
"""Variables that no program takes for a command or a place of code; any other before a command is asked about."""


class ApprovalRule(Struct, frozen=True):
    """Something the user always allows.

    Attributes:
        tool: The tool's name.
        command: For ``exec_command``: the words of one simple command; ``*`` as the last word leaves the rest open.

    Example::

        ApprovalRule("exec_command", "pytest *")
        ApprovalRule("write_file")
    """

    tool: str
    command: str | None = None

    def __str__(self) -> str:
        return self.tool if self.command is None else self.command

    def to_dict(self) -> dict[str, str]:
        """As written in ``[approvals].rules``."""
        return {"tool": self.tool} if self.command is None else {"tool": self.tool, "command": self.command}


class ApprovalRules:
    """The rules of one project, in the order they were learnt.

    Raises:
        ConfigError: a rule would cover an interpreter wholesale, or is no rule.

    Example::

        rules = ApprovalRules()
        for rule in rules.propose("pytest -q tests"):
            rules.add(rule)                                   # pytest *
        rules.covers("cd src && timeout 60 pytest -x")        # True
        rules.covers("pytest; rm -rf src")                    # False
    """

    def __init__(self, rules: Iterable[ApprovalRule] = ()) -> None:
        self._rules: list[ApprovalRule] = []
        self._commands: list[_Words] = []
        for rule in rules:
            self.add(rule)

    @classmethod
    def from_dicts(cls, entries: Iterable[Mapping[str, Any]]) -> ApprovalRules:
        """Read ``[approvals].rules``; raises ConfigError with the position of a wrong entry."""
        rules = cls()
        for index, entry in enumerate(entries):
            try:
                rules.add(_from_dict(entry))
            except ConfigError as error:
                raise ConfigError(f"approvals.rules[{index}]: {error}") from None
        return rules

    def to_dicts(self) -> list[dict[str, str]]:
        """The form that :meth:`from_dicts` reads."""
        return [rule.to_dict() for rule in self._rules]

    @property
    def rules(self) -> tuple[ApprovalRule, ...]:
        """What is allowed, as listed; the position is what :meth:`remove` takes."""
        return tuple(self._rules)

    def add(self, rule: ApprovalRule) -> bool:
        """Learn a rule; ``False`` when it is known already. Raises ConfigError as the constructor does."""
        words = _checked(rule)
        if rule in self._rules:
            return False
        self._rules.append(rule)
        if words is not None:
            self._commands.append(words)
        return True

    def remove(self, index: int) -> ApprovalRule:
        """Forget the rule at this position; raises ConfigError when there is none."""
        if not 0 <= index < len(self._rules):
            raise ConfigError(f"there is no approval rule {index}; there are {len(self._rules)}, counted from 0")
        rule = self._rules.pop(index)
        self._commands = [words for kept in self._rules if (words := _checked(kept)) is not None]
        return rule

    # ------------------------------------------------------------ covering

    def covers(self, cmd: str) -> bool:
        """Whether everything the command line may run is allowed; never raises."""
        return _PLAIN.fullmatch(cmd) is not None and self._covers_line(read_command_line(cmd), moved=False)

    def covers_call(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """The same for a tool call.

        ``exec_command`` is judged by its command and its directory, ``input_command`` is never covered, and any other
        tool is covered by a rule with its name.
        """
        if tool != COMMAND_TOOL:
            return tool not in NEVER_BY_NAME and ApprovalRule(tool) in self._rules
        cmd, workdir = arguments.get("cmd"), arguments.get("workdir")
        if not isinstance(cmd, str) or not (workdir is None or isinstance(workdir, str)):
            return False
        if workdir and not _stays_inside(workdir):
            return False
        return _PLAIN.fullmatch(cmd) is not None and self._covers_line(read_command_line(cmd), moved=bool(workdir))

    def _covers_line(self, line: CommandLine, *, moved: bool) -> bool:
        if line.opaque:
            return False
        moved = moved or any(command.name == "cd" for command in line.commands)
        parts = [command for command in line.commands if not _is_free(command)]
        return bool(parts) and all(self._covers_command(command, moved=moved) for command in parts)

    def _covers_command(self, command: SimpleCommand, *, moved: bool) -> bool:
        if not _is_transparent(command):
            return False
        # A relative program is another program in another directory.
        if moved and "/" in command.words[0].text and not command.words[0].text.startswith("/"):
            return False
        return any(rule.match(command) for rule in self._commands)

    # ------------------------------------------------------------ learning

    def propose(self, cmd: str) -> tuple[ApprovalRule, ...]:
        """The rules that "always" would add for this line, so that it is covered from then on.

        Empty when the line is covered already, or when no rule may cover it.
        """
        line = read_command_line(cmd)
        if _PLAIN.fullmatch(cmd) is None or line.opaque:
            return ()
        parts = [command for command in line.commands if not _is_free(command)]
        found = [_proposal(command) for command in parts]
        rules = tuple(dict.fromkeys(rule for rule in found if rule is not None and rule not in self._rules))
        after = ApprovalRules((*self._rules, *rules)) if all(found) else None
        return rules if after is not None and after.covers(cmd) else ()

    def propose_for_call(self, tool: str, arguments: Mapping[str, Any]) -> tuple[ApprovalRule, ...]:
        """The same for a tool call; tools other than ``exec_command`` are allowed by their name."""
        cmd = arguments.get("cmd")
        if tool == COMMAND_TOOL and isinstance(cmd, str):
            rules = self.propose(cmd)
            after = ApprovalRules(dict.fromkeys((*self._rules, *rules)))
            return rules if after.covers_call(tool, arguments) else ()
        rule = ApprovalRule(tool)
        return () if tool in NEVER_BY_NAME or rule in self._rules else (rule,)


# ---------------------------------------------------------------- one rule


class _Words(Struct, frozen=True):
    """A rule's command, ready to be compared."""

    words: tuple[str, ...]
    is_open: bool

    def match(self, command: SimpleCommand) -> bool:
        texts = tuple(word.text for word in command.words)
        named = len(self.words)
        if texts[1:named] != self.words[1:] or not _is_same_program(texts[0], self.words[0]):
            return False
        if any(word.form != "literal" for word in command.words[:named]):
            return False
        known = open_program(texts)
        if not self.is_open:
            # A program that nobody knows may run what it reads.
            return len(texts) == named and (known is not None or not command.fed)
        rest = command.words[named:]
        if not all(map(_is_decided, rest)):
            return False
        return not command.fed if known is None else known[1].lets_through(command.words[known[0] :])


def _is_same_program(written: str, allowed: str) -> bool:
    """``/usr/bin/git`` is ``git``; ``./git`` and ``/tmp/git`` are something else."""
    return written == allowed or written.rpartition("/")[0::2] in {
        (directory, allowed) for directory in ("/bin", "/usr/bin", "/usr/local/bin")
    }


def _is_decided(word: Word) -> bool:
    """Whether an argument cannot turn into an option: a file name may start with a dash."""
    return word.form == "literal" or (word.form == "pattern" and word.shown[:1] not in _MAY_BECOME_OPTION)


_MAY_BECOME_OPTION = frozenset("-+*?[{")


def _proposal(command: SimpleCommand) -> ApprovalRule | None:
    texts = tuple(word.text for word in command.words)
    if not texts:
        return None
    known = open_program(texts)
    if known is not None:
        return ApprovalRule(COMMAND_TOOL, shlex.join(texts[: known[0]]) + " *")
    if never_learnt(texts) or any(word.form != "literal" for word in command.words):
        return None
    rule = ApprovalRule(COMMAND_TOOL, shlex.join(texts))
    return rule if not any("*" in text for text in texts) else None


def _from_dict(entry: Mapping[str, Any]) -> ApprovalRule:
    tool, command = entry.get("tool"), entry.get("command")
    if not isinstance(tool, str) or not tool or not (command is None or isinstance(command, str)):
        raise ConfigError(
            f'expected {{tool = "NAME"}} or {{tool = "{COMMAND_TOOL}", command = "WORDS *"}}, found {entry!r}'
        )
    return ApprovalRule(tool, command)


def _checked(rule: ApprovalRule) -> _Words | None:
    """The words of a command rule; raises ConfigError for rules that allow more than anybody can have meant."""
    if rule.command is None:
        if rule.tool in NEVER_BY_NAME:
            raise ConfigError(f"a rule for {rule.tool} without a command would allow every command; name one")
        return None
    if rule.tool != COMMAND_TOOL:
        raise ConfigError(f"only rules for {COMMAND_TOOL} have a command, found one for {rule.tool}")
    try:
        words = tuple(shlex.split(rule.command))
    except ValueError as error:
        raise ConfigError(f"found command {rule.command!r}, expected words: {error}") from None
    is_open = words[-1:] == ("*",)
    named = words[:-1] if is_open else words
    _refuse_too_wide(rule.command, named, is_open=is_open)
    return _Words(named, is_open)


def _refuse_too_wide(command: str, named: tuple[str, ...], *, is_open: bool) -> None:
    if not named:
        raise ConfigError(f"command {command!r} names no program")
    if any("*" in word for word in named):
        raise ConfigError(
            f"command {command!r}: `*` has a meaning only as the last word, where it leaves the rest open"
        )
    if named[0].rpartition("/")[2] in _ROOT_PROGRAMS:
        raise ConfigError(f"command {command!r}: commands as another user are always asked about")
    known = open_program(named)
    if is_open and known is None and (never_learnt(named) or named[0] in _SUBCOMMANDS):
        if _runs_one_script(named):
            return
        raise ConfigError(
            f"command {command!r} would allow whatever {named[0]} can be told to do; name more of the command"
        )


_ROOT_PROGRAMS = frozenset({"sudo", "doas", "su", "pkexec", "runuser"})
_SUBCOMMANDS = frozenset({"cargo", "git", "gmake", "go", "just", "make", "ninja", "npm", "rake", "ruff", "task"})


def _runs_one_script(named: Sequence[str]) -> bool:
    """``python tools/check.py *``, written by hand: the file is named, so it is not the interpreter wholesale."""
    return len(named) > 1 and re.fullmatch(r"(?:[\w.-]+/)*[\w-][\w.-]*\.\w+", named[1]) is not None


# ---------------------------------------------------------------- what needs no rule

# Only these forms: no escape of a line end, no `$` but `$?`, no backtick, parenthesis, brace, comment, lone `&` or file
# redirection. On them a shell and a grammar cannot disagree about where words and commands end.
_PLAIN = re.compile(
    r"""(?:(?<=[ \t])[12]?>&[12](?=[ \t\n;|]|$)|(?<=[ \t])[12]?>>?[ ]?/dev/null(?=[ \t\n;|]|$)"""
    r"""|[\w./:=,@%+^*?\[\]~-]|[^\x00-\x7f\s]|[ \t\n]|(?<=[ \t])\\\n|'[^'\x00]*+'|\\[!-~]"""
    r"""|"(?:[^"$`\\\x00]++|\\[^\n\x00]|\$\?)*+"|\$\?(?![\w{(])|&&|\|\|?(?!&)|;(?![;&]))*+"""
)
_SET_OPTIONS = re.compile(r"[-+][eux]+|[-+]e?u?x?o|pipefail")


def _is_free(command: SimpleCommand) -> bool:
    """Whether a part says nothing worth asking about: ``cd src``, ``echo done``, ``timeout 60`` before a command."""
    if not command.words or not _is_transparent(command):
        return False
    texts = [word.text for word in command.words[1:]]
    match command.words[0].text:
        case "cd":
            return len(texts) == 1 and command.words[1].form == "literal" and _stays_inside(texts[0])
        case "echo":
            return all(
                word.form == "literal" or word.text.replace("$?", "").isprintable() for word in command.words[1:]
            )
        case "true" | "false" | ":" | "pwd":
            return True
        case "exit" | "sleep":
            return all(text.replace("$?", "0").replace(".", "").isdecimal() for text in texts)
        case "set":
            return bool(texts) and all(map(_SET_OPTIONS.fullmatch, texts))
        case "time":
            return texts[:1] == ["-p"] or not any(text.startswith("-") for text in texts[:1])  # `-o FILE` writes
        case "timeout" | "nice" | "ionice" | "stdbuf":
            return True
        case _:
            return False


def _is_transparent(command: SimpleCommand) -> bool:
    """Whether nothing but the words decides what runs, and nothing is written to a file."""
    return (
        bool(command.words)
        and HARMLESS_VARIABLES.issuperset(command.assignments)
        and all(redirection.is_harmless for redirection in command.redirections)
    )


def _stays_inside(directory: str) -> bool:
    return not directory.startswith(("/", "~", "-")) and ".." not in directory.split("/") and directory != ""
