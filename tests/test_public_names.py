"""The public face of the package: these names and no others (K1)."""

from __future__ import annotations

import inspect
import types

import penguin

NAMES = [
    "Abort",
    "Agent",
    "Approval",
    "ApprovalDecision",
    "ApproveFn",
    "Checkpoint",
    "CodecError",
    "CompactionBegin",
    "CompactionEnd",
    "ConfigError",
    "CredentialError",
    "Emit",
    "EnvironmentInterface",
    "ErrorDetail",
    "FileChange",
    "GenerateRequest",
    "ImageUrl",
    "InlineData",
    "InlineThinking",
    "LLMInterface",
    "LLMOutcome",
    "Message",
    "ModelConfig",
    "ModelError",
    "ModelFactory",
    "NoModelError",
    "OmniMessage",
    "PartialAggregator",
    "PartialText",
    "PartialThinking",
    "PartialToolCall",
    "PartialToolCallOutput",
    "PenguinError",
    "RequestBegin",
    "RequestEnd",
    "ResultNotReady",
    "ResumeError",
    "Session",
    "SessionBusy",
    "SessionClosed",
    "SessionError",
    "SessionLocked",
    "SessionMeta",
    "SteeringTicket",
    "Subagent",
    "SupportsHistory",
    "TaskResult",
    "TaskStream",
    "Text",
    "Thinking",
    "TokenCounts",
    "TokenUsage",
    "ToolCall",
    "ToolCallOutput",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolExecutionRequest",
    "ToolResult",
    "TraceError",
    "UndoConflict",
    "UndoError",
    "UndoReport",
    "UnknownPayload",
    "__version__",
    "abort",
    "add_token_counts",
    "allow_all",
    "approval_decision",
    "assistant_text",
    "compaction_begin",
    "compaction_end",
    "create_agent",
    "decode",
    "deny_all",
    "empty_token_counts",
    "encode",
    "image_url",
    "inline_data",
    "inline_thinking",
    "is_complete_model_message",
    "is_event_message",
    "is_model_message",
    "is_partial",
    "is_session_meta",
    "partial_text",
    "partial_thinking",
    "partial_tool_call",
    "partial_tool_call_output",
    "request_begin",
    "request_end",
    "run_sync",
    "session_meta",
    "subagent",
    "thinking",
    "token_usage",
    "tool",
    "tool_call",
    "tool_call_output",
    "user_text",
    "with_origin",
]


def test_K1_the_public_names_are_these() -> None:
    assert sorted(penguin.__all__) == sorted(NAMES)
    assert sorted(dir(penguin)) == sorted(NAMES)


def test_K1_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in NAMES:
        value = getattr(penguin, name)
        if isinstance(value, type | types.FunctionType):
            assert inspect.getdoc(value), f"{name} has no docstring"


def test_K1_a_name_that_is_not_public_is_an_ordinary_attribute_error() -> None:
    assert not hasattr(penguin, "create_agents")
