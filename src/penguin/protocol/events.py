"""What happens beside the model's context: request boundaries, approvals, usage, compaction, aborts."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

StopReason: TypeAlias = Literal["completed", "failed", "aborted", "timeout", "malformed"]
Decision: TypeAlias = Literal["allow", "deny"]
CompactionReason: TypeAlias = Literal["context", "turns", "manual"]
CompactionMode: TypeAlias = Literal["summarize", "discard"]
ErrorKind: TypeAlias = Literal[
    "auth",
    "quota",
    "rate_limit",
    "overloaded",
    "network",
    "idle_timeout",
    "malformed",
    "bad_request",
    "context_overflow",
    "refused",
    "unknown",
]


class ErrorDetail(Struct, omit_defaults=True, frozen=True, forbid_unknown_fields=True):
    """Why a request ended: ``kind`` for programs (an ``ErrorKind``, or a newer word), ``message`` for people."""

    kind: str
    message: str
    http_status: int | None = None


class RequestBegin(
    Struct, tag_field="type", tag="request_begin", omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """One attempt of a model request starts."""


class RequestEnd(
    Struct, tag_field="type", tag="request_end", omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """The attempt ended; ``completed`` is what commits the turn.

    ``attempt`` is 1-based and absent on a clean first try. ``retry_in_ms`` is present only when the
    engine will retry after that many milliseconds. ``request_digest`` is the sha256 of the body sent.
    """

    status: StopReason
    attempt: int | None = None
    error: ErrorDetail | None = None
    retry_in_ms: int | None = None
    request_digest: str | None = None


class ApprovalDecision(
    Struct, tag_field="type", tag="approval_decision", omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """The verdict over one tool call."""

    decision: Decision
    tool_call_id: str


class TokenCounts(Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens by class: input from the cache, all other input, output with reasoning, and their sum."""

    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    total: int = 0


class TokenUsage(
    Struct, tag_field="type", tag="token_usage", omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """Usage of this request and of the session so far.

    ``estimated`` is true when the provider reported nothing usable and the numbers come from
    character counts. ``provider`` keeps the provider's own numbers as it sent them.
    """

    session: TokenCounts
    request: TokenCounts
    estimated: bool = False
    provider: Raw | UnsetType = UNSET


class CompactionBegin(
    Struct, tag_field="type", tag="compaction_begin", omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """Compaction starts: ``context`` tokens are in use after ``turns`` session turns."""

    reason: CompactionReason
    mode: CompactionMode
    context: int
    turns: int


class CompactionEnd(
    Struct, tag_field="type", tag="compaction_end", omit_defaults=True, frozen=True, forbid_unknown_fields=True
):
    """Compaction ended; anything but ``completed`` keeps the old context in force."""

    reason: CompactionReason
    mode: CompactionMode
    status: StopReason
    attempt: int | None = None
    error: ErrorDetail | None = None


class Abort(Struct, tag_field="type", tag="abort", omit_defaults=True, frozen=True, forbid_unknown_fields=True):
    """The task was interrupted. The one field of the protocol that may be an explicit ``null``."""

    reason: str | UnsetType | None = UNSET


class Subagent(Struct, tag_field="type", tag="subagent", omit_defaults=True, frozen=True, forbid_unknown_fields=True):
    """Pointer in a parent's trace to the session of a direct child."""

    session_id: str


EventPayload: TypeAlias = (
    RequestBegin | RequestEnd | ApprovalDecision | TokenUsage | CompactionBegin | CompactionEnd | Abort | Subagent
)


def empty_token_counts() -> TokenCounts:
    """All zero."""
    return TokenCounts()


def add_token_counts(first: TokenCounts, second: TokenCounts) -> TokenCounts:
    """Add two counts class by class.

    Example::

        add_token_counts(TokenCounts(output=1, total=1), TokenCounts(output=2, total=2)).total  # 3
    """
    return TokenCounts(
        cache_read=first.cache_read + second.cache_read,
        cache_write=first.cache_write + second.cache_write,
        output=first.output + second.output,
        total=first.total + second.total,
    )
