"""The boundaries of the engine: the model, the environment and the human's approval.

All three speak OmniMessages and push them through a synchronous ``emit`` that cannot fail. An
implementation never raises for trouble of its own: it returns an outcome or emits an output.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from penguin.protocol.call_ids import ToolCallIdAllocator
from penguin.protocol.events import Decision, ErrorDetail, ErrorKind, StopReason
from penguin.protocol.messages import Message, OmniMessage, ThinkingLevel, ToolCall, ToolDefinition

Emit: TypeAlias = Callable[[Message], None]
"""Takes one message; synchronous, never raises, so it may be called after a scope was cancelled."""

ApproveFn: TypeAlias = Callable[[OmniMessage[ToolCall]], Awaitable[Decision]]
"""Asked once for each complete call: ``"allow"`` or ``"deny"``. Raising means deny."""

Permission: TypeAlias = Literal["r", "rw"]
"""``r`` only looks, ``rw`` may change things."""

ToolCalls: TypeAlias = Literal["native", "text", "auto"]
"""How a model writes its calls: in the protocol's own field, as text, or either."""

ThinkingControl: TypeAlias = Literal[
    "effort",
    "openrouter",
    "type",
    "type-and-effort",
    "enable",
    "budget",
    "adaptive",
    "adaptive-on",
    "adaptive-between-tools",
    "level",
]
"""How a model is told how much to think; each protocol knows some of the words.

Chat Completions: ``effort`` is ``reasoning_effort``; ``openrouter`` is ``reasoning.effort``; ``type`` is
``thinking.type``, ``type-and-effort`` the two together; ``enable`` is ``enable_thinking``. Anthropic Messages:
``budget`` in tokens, off when left out; ``adaptive`` is an effort, off when left out; ``adaptive-on`` an effort, off
by ``disabled``; ``adaptive-between-tools`` an effort, off by ``between_tools``. Gemini: ``budget`` in tokens (2.5)
and ``level`` by name (3 and later). Responses has one way only.
"""


@dataclass(frozen=True, slots=True)
class ModelError:
    """Why an attempt did not complete; ``retry_after`` is in seconds from now."""

    kind: ErrorKind
    message: str
    http_status: int | None = None
    retry_after: float | None = None

    def detail(self) -> ErrorDetail:
        """The part that is recorded in ``request_end``."""
        return ErrorDetail(self.kind, self.message, self.http_status)


@dataclass(frozen=True, slots=True)
class LLMOutcome:
    """How one attempt ended.

    ``cut_off`` says that the output limit cut the reply inside a tool call (status ``malformed``):
    such an attempt is repeated without a wait. ``note`` is a remark for the user about a completed
    attempt (text cut at the limit, say). ``unfinished`` says that the limit or a filter ended the words of a
    completed attempt. ``request_digest`` is the sha256 of the body as sent.
    """

    status: StopReason
    error: ModelError | None = None
    request_digest: str | None = None
    cut_off: bool = False
    note: str | None = None
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """What is new since the last committed request: user-side messages only.

    ``thinking_level`` overrides the model's own for this request. ``context_tokens`` is what the context
    held after the last request, 0 when nobody knows: being told keeps an implementation free of memory
    that a resumed session would not have.
    """

    new_messages: list[Message]
    thinking_level: ThinkingLevel | None = None
    context_tokens: int = 0


class LLMInterface(Protocol):
    """A model with the history of one context."""

    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        """Run one attempt: emit partials, complete messages and ``token_usage``; return how it ended.

        Never raises (cancellation aside) and never retries. A turn joins the history only when the
        attempt completed. When cancelled it closes its open segments through ``emit`` without awaiting.
        """
        ...


@runtime_checkable
class SupportsHistory(Protocol):
    """Optional ability of a model, needed for resume."""

    def set_history(self, messages: list[Message]) -> None:
        """Take over the committed messages of an earlier process; called once, before any request."""
        ...


@runtime_checkable
class SupportsIsolation(Protocol):
    """Optional ability of a model: go on without an item that its provider refuses for good."""

    def isolate(self, error: ModelError, new_messages: list[Message]) -> str | None:
        """Hide the item the error names or implies from the model, for this context.

        ``new_messages`` are those of the refused request, which is sent again when something was hidden.
        Returns what was left out, in words for people, or ``None`` when nothing fits the error.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything a model factory needs.

    ``request_timeout_ms`` sets both clocks: time to the first event and idle time between events;
    ``<= 0`` turns them off. Sizes are in tokens. ``extra_body`` is merged into the request body.
    ``config_file`` is where a person changes all this, for the words of errors.

    ``max_output`` (what the model can write at most), ``thinking_levels`` (those it accepts; empty: it does not
    think) and ``thinking_control`` override what the catalogue knows of the model; ``None`` leaves it to that.
    ``max_tokens_named`` says that somebody chose ``max_tokens`` for this very model: like ``max_output`` it is then
    sent even where nobody knows the window.
    """

    provider: str
    model_id: str
    client_type: str | None = None
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    tools: list[ToolDefinition] = field(default_factory=list)
    system_prompt: str | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    thinking_level: ThinkingLevel | None = None
    request_timeout_ms: int = 120_000
    tool_call_ids: ToolCallIdAllocator | None = None
    vision: bool = True
    tool_calls: ToolCalls = "auto"
    extra_body: dict[str, Any] = field(default_factory=dict)
    config_file: str | None = None
    max_output: int | None = None
    thinking_levels: tuple[ThinkingLevel, ...] | None = None
    thinking_control: ThinkingControl | None = None
    max_tokens_named: bool = False


ModelFactory: TypeAlias = Callable[[ModelConfig], LLMInterface]
"""Builds a model with an empty context; used for each new context and for child sessions."""


@dataclass(frozen=True, slots=True)
class ToolExecutionRequest:
    """One approved call; ``approve`` is forwarded to tools that start sessions of their own."""

    tool_call: OmniMessage[ToolCall]
    approve: ApproveFn | None = None


class EnvironmentInterface(Protocol):
    """The workspace and the tools that act in it."""

    async def list_tools(self) -> list[ToolDefinition]:
        """The tools the model may call."""
        ...

    async def execute_tool(self, request: ToolExecutionRequest, emit: Emit) -> None:
        """Emit output partials, then exactly one complete ``tool_call_output``.

        Never raises (cancellation aside). When cancelled the output so far is closed through
        ``emit`` without awaiting.
        """
        ...

    def tool_permission(self, name: str) -> Permission | None:
        """``"r"``, ``"rw"``, or ``None`` for an unknown tool."""
        ...

    async def aclose(self) -> None:
        """Release everything; may be called more than once."""
        ...


@runtime_checkable
class SupportsPolicy(Protocol):
    """Optional ability of an environment: calls that are denied before anybody is asked."""

    def refusal(self, tool_call: ToolCall) -> str | None:
        """Why the call may not run, in words for the model, or ``None``."""
        ...


@runtime_checkable
class SupportsContextNotes(Protocol):
    """Optional ability of an environment: facts that must survive a compaction verbatim."""

    def context_notes(self) -> str:
        """Live processes, files edited in this session and the like; may be empty."""
        ...


@dataclass(frozen=True, slots=True)
class TaskStart:
    """The place in a conversation where a task begins, so that one can go back to it.

    Attributes:
        context: which of the session's contexts, from 1; 0 when nothing is known of it.
        records: how many records of that context come before the task.
        requests: how many requests of that context were committed before it.
        title: the beginning of its prompt.
    """

    context: int = 0
    records: int = 0
    requests: int = 0
    title: str = ""


@runtime_checkable
class SupportsTasks(Protocol):
    """Optional ability of an environment: be told where tasks begin and end."""

    def begin_task(self, start: TaskStart) -> None:
        """Called before anything of the task is recorded."""
        ...

    async def end_task(self) -> None:
        """Called after the last record of the task, also when ``begin_task`` was not; never raises."""
        ...
