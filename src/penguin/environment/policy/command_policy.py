"""Commands that are never run (N12): an accident guard, matched against what a line runs, not how it is spelt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penguin.environment.policy.command_line import CommandLine
from penguin.environment.policy.factory_rules import FACTORY_RULES, PolicyRule
from penguin.environment.policy.first_look import first_look
from penguin.environment.policy.reader import read_command_line
from penguin.protocol.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command is not run: the rule's name and description, and the simple command it matched."""

    rule: str
    command: str
    description: str = ""

    @property
    def text(self) -> str:
        """The words for the model."""
        why = f" ({self.description})" if self.description else ""
        return (
            f"The command was not run: the command policy of this project denies {self.command!r} by its rule "
            f"{self.rule!r}{why}. Nobody was asked, and writing the same command differently will not help; "
            "find another way, or tell the user why the command is needed."
        )


class CommandPolicy:
    """The enabled rules of a project.

    Args:
        rules: ``None`` is the factory set; an empty list denies nothing.

    Raises:
        ConfigError: a pattern is no regular expression; the message names the rule.

    Example::

        CommandPolicy().refusal("sudo rm -rf /").rule      # "delete-system"
    """

    def __init__(self, rules: Iterable[PolicyRule] | None = None) -> None:
        self._rules = None if rules is None else _compiled(rules)
        self._needs_reading: Callable[[str], bool] | None = None

    def refusal(self, cmd: str) -> Refusal | None:
        """Why the command line must not run, or ``None``. Never raises."""
        if self._needs_reading is None:
            self._needs_reading = first_look(pattern for _, pattern in self._enabled())
        return self.refusal_of_line(read_command_line(cmd)) if self._needs_reading(cmd) else None

    def refusal_of_line(self, line: CommandLine) -> Refusal | None:
        """The same for a line that has been read already."""
        rules = self._enabled()
        for text, shown in _texts(line).items():
            for rule, pattern in rules:
                if pattern.search(text):
                    return Refusal(rule.name, shown, rule.description)
        return None

    def _enabled(self) -> list[tuple[PolicyRule, re.Pattern[str]]]:
        # The factory patterns are known to be right, so they are compiled (5 ms) when a command comes, if one does.
        if self._rules is None:
            self._rules = _compiled(FACTORY_RULES)
        return self._rules

    def refusal_of_call(self, tool: str, arguments: Mapping[str, Any]) -> Refusal | None:
        """The same for a tool call: the command of ``exec_command``, or what ``input_command`` types.

        Other tools, and arguments of another shape (which the schema refuses later), are not denied here.
        """
        field = COMMAND_FIELDS.get(tool)
        cmd = arguments.get(field) if field else None
        return self.refusal(cmd) if isinstance(cmd, str) else None


COMMAND_FIELDS: Mapping[str, str] = {"exec_command": "cmd", "input_command": "chars"}
"""Where the tools that run commands carry them."""


def _texts(line: CommandLine) -> dict[str, str]:
    """What the rules are searched in, and what a person is shown of it."""
    texts: dict[str, str] = {}
    for command in line.commands:
        text = command.text
        texts.setdefault(text, text)
        if command.directory:
            texts.setdefault(command.text_there, f"cd {command.directory} && {text}")
    return texts


def _compiled(rules: Iterable[PolicyRule]) -> list[tuple[PolicyRule, re.Pattern[str]]]:
    return [(rule, _pattern(rule)) for rule in rules if rule.enabled]


def _pattern(rule: PolicyRule) -> re.Pattern[str]:
    try:
        return re.compile(rule.pattern)
    except re.error as error:
        raise ConfigError(
            f"command policy: found {rule.pattern!r} as the pattern of rule {rule.name!r}, "
            f"expected a regular expression: {error}"
        ) from None
