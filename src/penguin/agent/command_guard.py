"""The project's command policy, loaded with the first call it has to judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penguin.state.project import CommandRule

if TYPE_CHECKING:
    from penguin.environment.policy.command_policy import CommandPolicy, Refusal


class LazyCommandPolicy:
    """Stands for the policy until it is needed: its parser and patterns would delay every start.

    ``rules`` of ``None`` are the factory set. Broken patterns were refused when the configuration was read.
    """

    def __init__(self, rules: Sequence[CommandRule] | None) -> None:
        self._rules = rules
        self._policy: CommandPolicy | None = None

    def refusal_of_call(self, tool: str, arguments: Mapping[str, Any]) -> Refusal | None:
        """Why the call may not run, or ``None``."""
        if self._policy is None:
            self._policy = self._load()
        return self._policy.refusal_of_call(tool, arguments)

    def _load(self) -> CommandPolicy:
        from penguin.environment.policy.command_policy import CommandPolicy  # noqa: PLC0415 - see the class
        from penguin.environment.policy.factory_rules import PolicyRule  # noqa: PLC0415 - see the class

        if self._rules is None:
            return CommandPolicy()
        return CommandPolicy(
            PolicyRule(rule.name, rule.pattern, rule.description, rule.enabled) for rule in self._rules
        )
