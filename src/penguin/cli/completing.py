"""What the shell offers behind a command: sessions and models. A completion never fails and never asks anybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from penguin.state.paths import AgentPaths

MOST = 50
"""Sessions that are looked at: a key was pressed, and somebody waits."""

Offers: TypeAlias = "list[CompletionItem] | list[str]"
Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], Offers]


def _quietly(complete: Complete) -> Complete:
    """Nothing is offered when something is wrong: an error in the middle of a command line helps nobody."""

    @wraps(complete)
    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offers:
        try:
            return complete(ctx, param, incomplete)
        except Exception:  # noqa: BLE001 - see above
            return []

    return offer


@_quietly
def complete_session(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Offers:
    """Short names of the newest sessions, or whole ids once somebody has begun to type one."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - not needed to define the options

    from penguin.agent.sessions import short_name  # noqa: PLC0415 - as above
    from penguin.trace.index import list_sessions  # noqa: PLC0415

    whole = incomplete.startswith("session-")
    offered: Iterator[tuple[str, str]] = (
        (each.session_id if whole else short_name(each.session_id), each.title)
        for each in islice(list_sessions(_paths(ctx).traces), MOST)
    )
    return [CompletionItem(name, help=title) for name, title in offered if name.startswith(incomplete)]


@_quietly
def complete_provider(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Offers:
    """The providers of the project's models, then those of the catalogue."""
    names = dict.fromkeys([provider for provider, _ in _models(ctx)] + _catalogue_providers())
    return [name for name in names if name.startswith(incomplete)]


@_quietly
def complete_model(ctx: click.Context, _param: click.Parameter, incomplete: str) -> Offers:
    """The models of the provider that was named, or all that are configured."""
    from penguin.llm import catalog  # noqa: PLC0415 - as above

    provider = ctx.params.get("provider") or ctx.params.get("named_provider")
    known = [(entry.provider, entry.model_id) for entry in catalog.models()] if provider else []
    names = dict.fromkeys(model for of, model in (*_models(ctx), *known) if provider in {None, of})
    return [name for name in names if name.startswith(incomplete)]


def _models(ctx: click.Context) -> list[tuple[str, str]]:
    from penguin.state.project import ProjectConfigFile  # noqa: PLC0415 - as above

    entries = ProjectConfigFile(_paths(ctx).project.config).list_models()
    return [(entry.provider, entry.model_id) for entry in entries]


def _catalogue_providers() -> list[str]:
    from penguin.llm import catalog  # noqa: PLC0415 - as above

    return list(catalog.providers())


def _paths(ctx: click.Context) -> AgentPaths:
    from penguin.cli.options import agent_paths  # noqa: PLC0415 - it imports this module

    given = ctx.params
    return agent_paths(
        given.get("root"), given.get("project_id") or "default_project", given.get("agent_id") or "default_agent"
    )
