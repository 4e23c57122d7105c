"""The project's learnt approval rules, as the session asks for them and the command line lists them (N24)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penguin.environment.policy.approval_rules import ApprovalRule, ApprovalRules
from penguin.state.project import ProjectConfigFile


class ProjectRules:
    """Rules of one project; what is learnt is written to its configuration at once.

    Example::

        rules = ProjectRules(ProjectConfigFile(agent.paths.project.config))
        approve = Approval("read-only", session.environment.tool_permission, ask=ask, rules=rules)
    """

    def __init__(self, file: ProjectConfigFile) -> None:
        self._file = file
        self._rules = ApprovalRules.from_dicts(file.read().approvals.rules)

    @property
    def rules(self) -> tuple[ApprovalRule, ...]:
        """The rules, in the order they were learnt."""
        return self._rules.rules

    def covers_call(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a rule allows the call."""
        return self._rules.covers_call(tool, arguments)

    def propose_for_call(self, tool: str, arguments: Mapping[str, Any]) -> Sequence[ApprovalRule]:
        """The rules that "always" would keep; empty when none would be safe."""
        return self._rules.propose_for_call(tool, arguments)

    def learn(self, rules: Sequence[object]) -> None:
        """Keep proposed rules, here and in the project's configuration.

        Raises:
            ConfigError: the file cannot be changed.
        """
        new = [rule for rule in rules if isinstance(rule, ApprovalRule) and self._rules.add(rule)]
        if new:
            self._file.add_approval_rules([rule.to_dict() for rule in new])

    def remove(self, index: int) -> ApprovalRule:
        """Forget the rule at ``index`` (from 0).

        Raises:
            ConfigError: there is none.
        """
        self._file.remove_approval_rule(index)
        return self._rules.remove(index)
