"""Penguin: an agent harness with one loop, one message protocol, a trace, and resume.

Example::

    from penguin import allow_all, create_agent

    agent = await create_agent()
    session = await agent.create_session(workspace_dir=".")
    async with session.run("Create hello.txt containing hi", approve=allow_all) as stream:
        async for message in stream:
            ...
    print(stream.result.text, stream.result.usage)

Names are loaded when they are first used, so importing the package costs little and prints nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penguin.agent.agent import Agent, create_agent
    from penguin.agent.sync import run_sync
    from penguin.agent.undo import Checkpoint, FileChange, UndoReport
    from penguin.engine.engine import TaskResult
    from penguin.engine.inbox import SteeringTicket
    from penguin.environment.function_tool import tool
    from penguin.environment.tool import ToolContext, ToolError, ToolResult
    from penguin.protocol.builders import (
        abort,
        approval_decision,
        assistant_text,
        compaction_begin,
        compaction_end,
        image_url,
        inline_data,
        inline_thinking,
        is_complete_model_message,
        is_event_message,
        is_model_message,
        is_partial,
        is_session_meta,
        partial_text,
        partial_thinking,
        partial_tool_call,
        partial_tool_call_output,
        request_begin,
        request_end,
        session_meta,
        subagent,
        thinking,
        token_usage,
        tool_call,
        tool_call_output,
        user_text,
        with_origin,
    )
    from penguin.protocol.codec import decode, encode
    from penguin.protocol.errors import (
        CodecError,
        ConfigError,
        CredentialError,
        NoModelError,
        PenguinError,
        ResultNotReady,
        ResumeError,
        SessionBusy,
        SessionClosed,
        SessionError,
        SessionLocked,
        TraceError,
        UndoConflict,
        UndoError,
    )
    from penguin.protocol.events import (
        Abort,
        ApprovalDecision,
        CompactionBegin,
        CompactionEnd,
        ErrorDetail,
        RequestBegin,
        RequestEnd,
        Subagent,
        TokenCounts,
        TokenUsage,
        add_token_counts,
        empty_token_counts,
    )
    from penguin.protocol.interfaces import (
        ApproveFn,
        Emit,
        EnvironmentInterface,
        GenerateRequest,
        LLMInterface,
        LLMOutcome,
        ModelConfig,
        ModelError,
        ModelFactory,
        SupportsHistory,
        ToolExecutionRequest,
    )
    from penguin.protocol.merge import PartialAggregator
    from penguin.protocol.messages import (
        ImageUrl,
        InlineData,
        InlineThinking,
        Message,
        OmniMessage,
        PartialText,
        PartialThinking,
        PartialToolCall,
        PartialToolCallOutput,
        SessionMeta,
        Text,
        Thinking,
        ToolCall,
        ToolCallOutput,
        ToolDefinition,
        UnknownPayload,
    )
    from penguin.session.approval import Approval, allow_all, deny_all
    from penguin.session.session import Session
    from penguin.session.stream import TaskStream

__all__ = [
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

# Where the names live, the light modules first: a name is looked for in this order.
_HOMES = (
    "penguin.protocol.errors",
    "penguin.protocol.events",
    "penguin.protocol.messages",
    "penguin.protocol.codec",
    "penguin.protocol.builders",
    "penguin.protocol.interfaces",
    "penguin.protocol.merge",
    "penguin.engine.inbox",
    "penguin.engine.engine",
    "penguin.session.approval",
    "penguin.session.stream",
    "penguin.session.session",
    "penguin.environment.tool",
    "penguin.environment.function_tool",
    "penguin.agent.agent",
    "penguin.agent.sync",
    "penguin.agent.undo",
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("penguin._version").VERSION
    if name in __all__:
        for home in map(importlib.import_module, _HOMES):
            if name in vars(home):
                return globals().setdefault(name, vars(home)[name])
    raise AttributeError(f"module 'penguin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
