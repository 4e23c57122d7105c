"""What a tool is: a definition and one coroutine.

A tool writes text and returns; it never sees a message. Framing, timeout, truncation, stop reasons
and the conversion of errors belong to the environment, so no tool can break the protocol.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from penguin.protocol.events import StopReason
from penguin.protocol.interfaces import ApproveFn, Permission
from penguin.protocol.messages import Message, ToolDefinition

ForModel: TypeAlias = Literal["any", "vision", "text-only"]
"""Which models are offered a tool: all, those that take images, or those that do not."""

DEFAULT_TIMEOUT_MS = 120_000
DEFAULT_MAX_OUTPUT_LENGTH = 16_000


class ToolError(Exception):
    """A tool cannot do what it was asked: the text goes to the model as it stands, so it says what to do instead.

    Example::

        raise ToolError("No such table: users. Tables: accounts, orders.")
    """


class ToolDefinitionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool's definition with the settings of the framework around it; an entry of ``tools.builtin``.

    ``parameters`` is a JSON Schema of type object. ``timeout_ms`` is in milliseconds, ``max_output_length`` in
    characters of text given to the model; ``<= 0`` turns either off (the text is then cut at 4,000,000).
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    permission: Permission = "rw"
    for_model: ForModel = "any"
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    max_output_length: int = DEFAULT_MAX_OUTPUT_LENGTH

    def for_the_model(self) -> ToolDefinition:
        """The part the model sees."""
        return ToolDefinition(self.name, self.description, self.parameters)

    @property
    def timeout_seconds(self) -> float:
        """The time limit for a scope; infinite when it is off."""
        return self.timeout_ms / 1000 if self.timeout_ms > 0 else math.inf


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a tool ended, beyond the text it wrote.

    ``note`` (an exit code and the like) is appended after the output was cut, so it always reaches the model.
    ``images`` are ``data:<mime>;base64,…`` URLs.
    """

    stop_reason: StopReason = "completed"
    note: str | None = None
    images: tuple[str, ...] | list[str] = ()


@dataclass(slots=True)
class Services:
    """What the host of an environment may lend to tools; each may be absent.

    The environment knows their shape only through the tools that use them, and never imports their makers.
    """

    subagent_runner: Any | None = None
    vision_describer: Any | None = None
    command_sessions: Any | None = None
    subagent_sessions: Any | None = None
    outlet: Any | None = None
    """Where background work reports to; see :class:`penguin.environment.subagents.Outlet`."""


@dataclass(slots=True)
class ToolContext:
    """What a running tool may use. ``write`` takes the next piece of output.

    Example::

        async def execute(self, args: dict[str, Any], ctx: ToolContext) -> None:
            for line in lines:
                ctx.write(line)
    """

    workspace_dir: Path
    tool_call_id: str
    approve: ApproveFn | None = None
    scratchpad_dir: Path | None = None
    services: Services = field(default_factory=Services)
    write: Callable[[str], None] = field(default=lambda _text: None)
    """Append text to the output; ignored once the call is answered. Call it on the event loop's thread."""
    add_note: Callable[[str], None] = field(default=lambda _text: None)
    """Append a line that survives the cut and an interruption, as :attr:`ToolResult.note` does not."""
    forward: Callable[[Message], None] = field(default=lambda _message: None)
    """Pass on a message of a child session: with an ``origin``, or the ``subagent`` pointer. It goes out unchanged."""
    stopped: threading.Event = field(default_factory=threading.Event)
    """Set when the call is to end early; a thread may wait on it instead of sleeping."""

    @property
    def cancelled(self) -> bool:
        """Whether the user interrupted or the time is up; a coroutine is cancelled as well, a thread has to look."""
        return self.stopped.is_set()


class Tool(Protocol):
    """A tool of any make."""

    @property
    def definition(self) -> ToolDefinitionConfig:
        """What the model is told and how the framework treats the tool."""
        ...

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult | None:
        """Do the work; ``args`` are valid to the schema. ``None`` means completed, an exception means failed."""
        ...


@runtime_checkable
class Closable(Protocol):
    """Optional ability of a tool or a shared part: release what it holds when the environment closes."""

    def aclose(self) -> Awaitable[None]:
        """May be called more than once."""
        ...


class Confinement(Protocol):
    """Optional limit on paths; the file tools ask it with the resolved path before they touch anything."""

    def refusal(self, path: Path, *, writing: bool) -> str | None:
        """Why ``path`` must not be read or written, or ``None`` when it may."""
        ...


@runtime_checkable
class Relocation(Protocol):
    """Optional ability of a confinement: some places are elsewhere for this session."""

    def seen_as(self, path: Path) -> Path:
        """Where an absolute path leads that a command of this session would use."""
        ...


@runtime_checkable
class NetworkConfinement(Protocol):
    """Optional ability of a confinement: a say in who reaches for the network."""

    def network_refusal(self) -> str | None:
        """Why a tool must not, or ``None`` when it may."""
        ...


@dataclass(slots=True)
class ToolSetup:
    """What a built-in tool is made from; one per environment, shared by all its tools.

    ``vault`` maps names to secret values: they go into subprocesses only. ``allowed_hosts`` are names, addresses
    and networks that may be fetched from though they are not public.
    """

    workspace_dir: Path
    scratchpad_dir: Path | None = None
    session_id: str = ""
    services: Services = field(default_factory=Services)
    vault: Mapping[str, str] = field(default_factory=dict)
    confinement: Confinement | None = None
    shared: dict[str, Any] = field(default_factory=dict)
    allowed_hosts: Collection[str] = ()

    def once(self, name: str, make: Callable[[ToolSetup], Any]) -> Any:
        """The part called ``name`` that several tools share, made by the first that asks.

        It is closed with the environment when it has ``aclose``, and asked for ``context_notes``.
        """
        if name not in self.shared:
            self.shared[name] = make(self)
        return self.shared[name]


BuiltinToolFactory: TypeAlias = Callable[[ToolDefinitionConfig, ToolSetup], Tool]
"""Builds a built-in tool from its (possibly reconfigured) definition."""
