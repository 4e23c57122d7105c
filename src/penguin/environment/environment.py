"""The environment of one session: which tools there are, and what happens around each call (N1-N4)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from penguin.environment.arguments import ArgumentCheck, parse_arguments
from penguin.environment.function_tool import as_tool
from penguin.environment.masking import Secrets
from penguin.environment.output_segment import Ending, OutputSegment
from penguin.environment.repeats import RepeatLimits, Repeats
from penguin.environment.tool import (
    DEFAULT_MAX_OUTPUT_LENGTH,
    Closable,
    Confinement,
    Services,
    Tool,
    ToolContext,
    ToolDefinitionConfig,
    ToolError,
    ToolSetup,
)
from penguin.environment.tool_run import ToolRun, describe_error, failed
from penguin.environment.tools.builtin import BUILTIN_TOOL_DEFINITIONS, BUILTIN_TOOL_FACTORIES, SUBAGENT_TOOLS
from penguin.environment.truncation import Truncation, archive_path
from penguin.protocol.blocks import ABORTED_BY_USER, interrupted
from penguin.protocol.interfaces import Emit, Permission, SupportsContextNotes, TaskStart, ToolExecutionRequest
from penguin.protocol.messages import Message, Subagent, ToolCall, ToolDefinition

if TYPE_CHECKING:
    from penguin.environment.checkpoints.limits import CheckpointConfig
    from penguin.environment.checkpoints.task_checkpoints import TaskCheckpoints
    from penguin.environment.mcp.report import McpReport, McpToolOrigin
    from penguin.environment.mcp.servers import McpServers

_LEGAL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_log = logging.getLogger("penguin.environment")


@dataclass(slots=True)
class ToolConfig:
    """Which tools an environment has.

    ``builtin`` replaces the default list as a whole when given. ``custom_tools`` are tools, functions made into
    tools by ``@tool``, or plain typed functions. ``mcp_servers`` are ``{name, config}`` entries; see
    :class:`penguin.environment.mcp.config.McpServerConfig` for what ``config`` may hold.
    """

    builtin: Sequence[ToolDefinitionConfig] | None = None
    custom_tools: Sequence[Tool | Callable[..., Any]] = ()
    mcp_servers: Sequence[Mapping[str, Any]] = ()


class Refused(Protocol):
    """A call that a policy denies; ``text`` is for the model."""

    @property
    def text(self) -> str:
        """Why, and what to do instead."""


class CommandGuard(Protocol):
    """Judges calls before anybody is asked; :class:`penguin.environment.policy.command_policy.CommandPolicy` is one."""

    def refusal_of_call(self, tool: str, arguments: Mapping[str, Any]) -> Refused | None:
        """Why this call may not run, or ``None``."""


@dataclass(slots=True)
class EnvironmentConfig:
    """Everything an environment is built from.

    ``scratchpad_dir`` is the session's own directory (full outputs, what was seen of which file); without one
    nothing is kept on disk. ``vision`` says whether the model takes images. ``vault`` maps names to secret values.
    ``custody_dir`` is where harness processes note that they run (N9). ``on_mcp_report`` hears of MCP servers that
    cannot be reached, and of those that came late; :meth:`Environment.take_mcp_reports` gives the same.
    ``checkpoints`` says where the state before each task is kept for undo; without it, or a session id, none is.
    ``allowed_hosts`` are names, addresses and networks (``10.0.0.0/8``) that tools may fetch from though they are
    not public (N17).
    """

    workspace_dir: Path
    tool_config: ToolConfig = field(default_factory=ToolConfig)
    services: Services = field(default_factory=Services)
    vault: Mapping[str, str] = field(default_factory=dict)
    scratchpad_dir: Path | None = None
    session_id: str = ""
    vision: bool = True
    confinement: Confinement | None = None
    repeat_limits: RepeatLimits = field(default_factory=RepeatLimits)
    command_guard: CommandGuard | None = None
    custody_dir: Path | None = None
    on_mcp_report: Callable[[McpReport], None] | None = None
    checkpoints: CheckpointConfig | None = None
    allowed_hosts: Collection[str] = ()


class Environment:
    """A workspace with tools; satisfies ``EnvironmentInterface``, ``SupportsContextNotes`` and ``SupportsTasks``.

    Raises:
        ValueError: Two tools share a name, or a name is not one that every provider accepts.
        TypeError: A custom tool is neither a tool nor a function that can be made one.
        ConfigError: An entry of ``mcp_servers`` is wrong.

    Example::

        environment = Environment(EnvironmentConfig(Path("project"), ToolConfig(custom_tools=[look_up])))
        await environment.execute_tool(ToolExecutionRequest(call), emit)
        await environment.aclose()
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self.workspace_dir = config.workspace_dir.absolute()
        self.setup = ToolSetup(
            self.workspace_dir,
            config.scratchpad_dir,
            config.session_id,
            config.services,
            config.vault,
            config.confinement,
            allowed_hosts=config.allowed_hosts,
        )
        self._repeats = Repeats(config.repeat_limits)
        self._checkpoint_config = config.checkpoints if config.session_id else None
        self._checkpoints: TaskCheckpoints | None = None
        self._task: TaskStart | None = None
        self._secrets = Secrets(config.vault)
        self._guard = config.command_guard
        self._own = _by_name(_offered(config, self.setup))
        self._tools: dict[str, Tool] = {}
        self._checks: dict[str, ArgumentCheck] = {}
        self._offer({})
        self._mcp = _mcp_servers(config, self.workspace_dir)

    async def list_tools(self) -> list[ToolDefinition]:
        """The tools a new context begins with, in a fixed order; waits for MCP servers, each for its own limit (N20).

        What servers add or change later appears in the next call.
        """
        if self._mcp is not None:
            self._offer({tool.definition.name: tool for tool in await self._mcp.tools()})
        return [tool.definition.for_the_model() for tool in self._tools.values()]

    def _offer(self, of_servers: Mapping[str, Tool]) -> None:
        """Our own tools come first: a server can neither replace one nor change its place."""
        self._tools = self._own | {name: tool for name, tool in of_servers.items() if name not in self._own}
        self._checks = {name: ArgumentCheck(tool.definition) for name, tool in self._tools.items()}

    def connect(self) -> None:
        """Start to connect to MCP servers without waiting, as a resumed session does, whose tools are known (T7)."""
        if self._mcp is not None:
            self._mcp.begin()

    def refusal(self, tool_call: ToolCall) -> str | None:
        """Why the command policy denies a call (N12); arguments that cannot be read are somebody else's matter."""
        if self._guard is None:
            return None
        try:
            arguments = parse_arguments(tool_call.arguments)
        except ToolError:
            return None
        refused = self._guard.refusal_of_call(tool_call.name, arguments)
        return refused.text if refused is not None else None

    def tool_permission(self, name: str) -> Permission | None:
        """``"r"``, ``"rw"``, or ``None`` for an unknown tool."""
        tool = self._tool(name)
        return tool.definition.permission if tool else None

    def _tool(self, name: str) -> Tool | None:
        """The tool of that name; a stand-in when a server that is configured has not listed it yet."""
        return self._tools.get(name) or (self._mcp.late_tool(name) if self._mcp else None)

    def mcp_origin(self, name: str) -> McpToolOrigin | None:
        """The server and the server's own name of a tool, for people who are asked to approve a call (D32)."""
        return self._mcp.origin(name) if self._mcp else None

    @property
    def mcp_status(self) -> list[McpReport]:
        """How each MCP server is now."""
        return self._mcp.status if self._mcp else []

    def take_mcp_reports(self) -> list[McpReport]:
        """What people should know about MCP servers and was not taken yet; each trouble comes once (N20)."""
        return self._mcp.take_reports() if self._mcp else []

    async def execute_tool(self, request: ToolExecutionRequest, emit: Emit) -> None:
        """Emit output partials, then exactly one complete ``tool_call_output``; raises only a cancellation."""
        call = request.tool_call.payload
        tool = self._tool(call.name)
        segment = self._segment(call, tool, emit)
        segment.open()
        if tool is None:
            segment.close(failed(_unknown_tool(call.name, list(self._tools))))
            return
        try:
            args = self._checked_arguments(call)
        except Exception as error:  # noqa: BLE001 - the schema and its checker are third-party code
            segment.close(failed(describe_error(error)))
            return
        if tool.definition.permission == "rw":
            await self._keep_what_is(segment)
        ctx = self._context(request, segment, emit)
        await ToolRun(tool, args, ctx, segment).complete()

    async def _keep_what_is(self, segment: OutputSegment) -> None:
        """Before a task's first change: a checkpoint to go back to. Without one the task goes on all the same."""
        checkpoints = self._task_checkpoints()
        if checkpoints is None:
            return
        try:
            note = await checkpoints.before_change()
        except BaseException:
            segment.close(Ending("aborted", interrupted(ABORTED_BY_USER)))
            raise
        segment.add_note(note or "")

    def begin_task(self, start: TaskStart) -> None:
        """Remember where the task begins; nothing is looked at before it wants to change something."""
        self._task = start
        if self._checkpoints is not None:
            self._checkpoints.begin_task(start)

    async def end_task(self) -> None:
        """Note the task for undo, and how it left the workspace if it may have changed it."""
        checkpoints = self._task_checkpoints()
        if checkpoints is not None:
            await checkpoints.end_task()

    def _task_checkpoints(self) -> TaskCheckpoints | None:
        """Made when a task first needs them: what they import would delay the first request."""
        config = self._checkpoint_config
        if self._checkpoints is None and config is not None and self._task is not None:
            from penguin.environment.checkpoints.task_checkpoints import TaskCheckpoints  # noqa: PLC0415 - see above

            self._checkpoints = TaskCheckpoints(config, self.workspace_dir, self.setup.session_id)
            self._checkpoints.begin_task(self._task)
        return self._checkpoints

    def _segment(self, call: ToolCall, tool: Tool | None, emit: Emit) -> OutputSegment:
        limit = tool.definition.max_output_length if tool else DEFAULT_MAX_OUTPUT_LENGTH
        archive = archive_path(self.setup.scratchpad_dir, call.tool_call_id)
        return OutputSegment(
            call.tool_call_id,
            emit,
            Truncation(limit, archive),
            lambda result: self._repeats.note(call.name, call.arguments, result),
            self._secrets or None,
        )

    def _checked_arguments(self, call: ToolCall) -> dict[str, Any]:
        refusal = self._repeats.refusal(call.name, call.arguments)
        if refusal is not None:
            raise ToolError(refusal)
        args = parse_arguments(call.arguments)
        check = self._checks.get(call.name)
        return check.check(args) if check else args  # a stand-in checks when it knows the tool

    def _context(self, request: ToolExecutionRequest, segment: OutputSegment, emit: Emit) -> ToolContext:
        def forward(message: Message) -> None:
            if not message.origin and not isinstance(message.payload, Subagent):
                raise ValueError("a tool may forward only messages of a child session, which carry an origin")
            if not segment.closed:
                emit(message)

        return ToolContext(
            workspace_dir=self.workspace_dir,
            tool_call_id=request.tool_call.payload.tool_call_id,
            approve=request.approve,
            scratchpad_dir=self.setup.scratchpad_dir,
            services=self.setup.services,
            write=segment.write,
            add_note=segment.add_note,
            forward=forward,
        )

    def context_notes(self) -> str:
        """What must survive a compaction verbatim: edited files, live processes; may be empty."""
        notes = [part.context_notes() for part in self._parts() if isinstance(part, SupportsContextNotes)]
        return "\n".join(note for note in notes if note)

    async def aclose(self) -> None:
        """Close what the tools share, then the tools; a failure is logged and does not stop the rest."""
        with anyio.CancelScope(shield=True):
            for part in self._parts():
                if isinstance(part, Closable):
                    await _close(part)

    def _parts(self) -> list[object]:
        return [*self.setup.shared.values(), *self._own.values(), *filter(None, (self._mcp, self._checkpoints))]


async def _close(part: Closable) -> None:
    try:
        await part.aclose()
    except Exception:  # noqa: BLE001 - the rest must be closed all the same
        _log.exception("%s could not be closed", type(part).__name__)


def _mcp_servers(config: EnvironmentConfig, workspace_dir: Path) -> McpServers | None:
    if not config.tool_config.mcp_servers:
        return None
    from penguin.environment.mcp.config import read_servers  # noqa: PLC0415 - few sessions have servers
    from penguin.environment.mcp.servers import McpServers  # noqa: PLC0415 - the same

    return McpServers(
        read_servers(config.tool_config.mcp_servers),
        workspace_dir,
        custody_dir=config.custody_dir,
        vision=config.vision,
        on_report=config.on_mcp_report,
    )


def _offered(config: EnvironmentConfig, setup: ToolSetup) -> list[Tool]:
    chosen = config.tool_config.builtin
    builtin = list(BUILTIN_TOOL_DEFINITIONS.values()) if chosen is None else chosen
    tools = [_built(each, setup) for each in builtin if _suits(each, vision=config.vision) and _served(each, setup)]
    custom = [as_tool(each) for each in config.tool_config.custom_tools]
    return tools + [each for each in custom if _suits(each.definition, vision=config.vision)]


def _built(definition: ToolDefinitionConfig, setup: ToolSetup) -> Tool:
    factory = BUILTIN_TOOL_FACTORIES.get(definition.name)
    if factory is None:
        known = ", ".join(BUILTIN_TOOL_FACTORIES)
        raise ValueError(f"there is no built-in tool {definition.name!r}; there are {known}")
    return factory(definition, setup)


def _suits(definition: ToolDefinitionConfig, *, vision: bool) -> bool:
    return definition.for_model in {"any", "vision" if vision else "text-only"}


def _served(definition: ToolDefinitionConfig, setup: ToolSetup) -> bool:
    """Whether the host lends what the tool needs: a child session, say, has nobody to make it children."""
    return definition.name not in SUBAGENT_TOOLS or setup.services.subagent_runner is not None


def _by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        name = tool.definition.name
        if not _LEGAL_NAME.fullmatch(name):
            raise ValueError(f"tool name {name!r}: providers accept 1 to 64 letters, digits, '_' and '-'")
        if name in named:
            raise ValueError(f"two tools are called {name!r}; rename one, or leave the built-in one out of the list")
        named[name] = tool
    return named


def _unknown_tool(name: str, known: list[str]) -> str:
    import difflib  # noqa: PLC0415 - 10 ms to import, for a rare mistake

    near = difflib.get_close_matches(name, known, 1)
    guess = f" Did you mean {near[0]}?" if near else ""
    return f"There is no tool called {name[:100]!r}.{guess} Tools: {', '.join(known) or 'none'}."
