"""Chat Completions: how a history becomes a request body.

Decisions a reader may wonder about:

- ``messages`` comes last and earlier messages never change their bytes, so that the provider's
  prefix cache hits (T12). A turn that was encoded once is not encoded again.
- Images a tool returned go into a user message after the results: most servers refuse them in a
  tool message, all that can see accept them there. So do images the model made, into the next words
  of the user, since an assistant message can hold none.
- A model that wrote its calls as text gets them back as native calls, unless its entry says
  ``tool_calls = "text"``: then tools, calls and results are text in both directions.
- Reasoning goes back under the name it came with, on the turn it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw, Struct

from penguin.llm.catalog import ThinkingStyle
from penguin.llm.providers.body_parts import encode, extra_tools, legal_tool_name, nearest_level, valid_arguments
from penguin.llm.providers.encoded_history import NO_WORDS, UNSEEN, EncodedHistory, Run, Thread, WireIds
from penguin.llm.providers.text_calls import call_as_text, result_as_text, tools_as_text
from penguin.llm.providers.think_tags import SOURCE as THINK_TAG
from penguin.protocol.codec import fidelity_fields
from penguin.protocol.messages import (
    Fidelity,
    ImageUrl,
    InlineData,
    Message,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    ToolCallOutput,
    ToolDefinition,
)

_RESERVED = frozenset({"model", "messages", "stream", "tools"})


class ChatSettings(Struct, frozen=True):
    """What stays the same over all requests of one context.

    ``thinking_levels`` are the ones the model accepts; empty means that nothing is said about
    thinking. ``thinks_with_tools`` is false where a request with tools must ask for no thinking at all.
    ``plain_content`` sends content as one string where a server knows no parts.
    ``returns_reasoning`` is false for servers that refuse their own reasoning.
    """

    model_id: str
    system_prompt: str | None = None
    tools: Sequence[ToolDefinition] = ()
    vision: bool = True
    max_tokens_field: str = "max_tokens"
    thinking_style: ThinkingStyle = "effort"
    thinking_levels: Sequence[ThinkingLevel] = ()
    thinks_with_tools: bool = True
    plain_content: bool = False
    returns_reasoning: bool = True
    text_calls: bool = False
    extra_body: dict[str, Any] = {}

    def extra_body_members(self) -> dict[str, Any]:
        """The entry's own members; ``None`` takes a member out of the body, the reserved ones stay ours.

        Its ``tools`` (what the server runs itself, a web search say) follow ours, see :func:`extra_tools`.
        """
        return {name: value for name, value in self.extra_body.items() if name not in _RESERVED}


class ChatBody:
    """Builds request bodies; the result depends on the arguments only, what is remembered is speed.

    Example::

        body = ChatBody(ChatSettings("some-model")).build([user_text("hi")], max_tokens=1000)
    """

    def __init__(self, settings: ChatSettings) -> None:
        self._settings = settings
        self._fixed = _fixed_members(settings)
        self._system = encode(_system_message(settings)) if _system_message(settings) else b""
        self._history = EncodedHistory(self._of_user, self._of_model, Thread)

    def build(
        self,
        history: Sequence[Message],
        *,
        max_tokens: int | None = None,
        thinking_level: ThinkingLevel | None = None,
    ) -> bytes:
        """The body for ``history``: complete messages in the order they were committed, then the new ones."""
        members = {"model": self._settings.model_id, "stream": True, "stream_options": {"include_usage": True}}
        if max_tokens is not None:
            members[self._settings.max_tokens_field] = max_tokens
        members |= thinking_members(self._settings, thinking_level)
        members |= self._settings.extra_body_members()
        members |= self._fixed
        head = encode({name: value for name, value in members.items() if value is not None})
        messages = [message for message in (self._system, *self._history.items(history)) if message]
        return head[:-1] + b',"messages":[' + b",".join(messages) + b"]}"

    def _of_user(self, run: Run, thread: Thread) -> Iterator[dict[str, Any]]:
        return _user_messages(run, self._settings, thread)

    def _of_model(self, run: Run, thread: Thread) -> Iterator[dict[str, Any]]:
        thread.made = [message.payload for _, message in run if isinstance(message.payload, InlineData)]
        return _assistant_messages(run, self._settings, thread)


# --- the user's side ----------------------------------------------------------------------------------


def _user_messages(run: Run, settings: ChatSettings, thread: Thread) -> Iterator[dict[str, Any]]:
    """Results first, in the order given, then one message with what the reply before made, all words and images."""
    parts = thread.made_parts(_text_part, lambda data: _user_parts(data, settings))
    for _, message in run:
        match message.payload:
            case ToolCallOutput(output=output, tool_call_id=call_id, images=images):
                wire_id = thread.result(call_id)
                if settings.text_calls:
                    parts.append(_text_part(result_as_text(wire_id, output)))
                else:
                    content = _content([_text_part(output or "[no output]")], settings)
                    yield {"role": "tool", "tool_call_id": wire_id, "content": content}
                parts += _tool_images(wire_id, images or [], settings)
            case payload:
                parts += _user_parts(payload, settings)
    if parts:
        yield {"role": "user", "content": _content(parts, settings)}


def _user_parts(payload: object, settings: ChatSettings) -> list[dict[str, Any]]:
    match payload:
        case Text(text=text) if text:
            return [_text_part(text)]
        case ImageUrl(image_url=url):
            return [_image_part(url, settings)]
        case InlineData(data=data, mime_type=mime) if mime.startswith("image/"):
            return [_image_part(f"data:{mime};base64,{data}", settings)]
        case InlineData(mime_type=mime):
            return [_text_part(f"[{mime} data left out: this protocol cannot carry it]")]
        case _:
            return []


def _tool_images(wire_id: str, images: list[str], settings: ChatSettings) -> list[dict[str, Any]]:
    if not images:
        return []
    label = "image" if len(images) == 1 else f"{len(images)} images"
    return [_text_part(f"[{label} returned by tool call {wire_id}]"), *(_image_part(url, settings) for url in images)]


def _image_part(url: str, settings: ChatSettings) -> dict[str, Any]:
    if not settings.vision:
        return _text_part(UNSEEN)
    return {"type": "image_url", "image_url": {"url": url}}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _content(parts: list[dict[str, Any]], settings: ChatSettings) -> Any:
    if settings.plain_content and all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


# --- the model's side ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reply:
    """One assistant message being put together."""

    texts: list[str] = field(default_factory=list)
    thinking_parts: list[dict[str, Any]] = field(default_factory=list)
    reasoning: dict[str, str] = field(default_factory=dict)
    details: list[Raw] = field(default_factory=list)
    extra_content: Raw | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    prefix: str = ""

    def say(self, text: str) -> None:
        if self.prefix or text:
            self.texts.append(self.prefix + text)
        self.prefix = ""


def _assistant_messages(run: Run, settings: ChatSettings, ids: WireIds) -> Iterator[dict[str, Any]]:
    reply, made = _Reply(), False
    for _, message in run:
        match message.payload:
            case Text(text=text, fidelity=fidelity):
                reply.say(text)
                reply.extra_content = fidelity_fields(fidelity).get("extra_content", reply.extra_content)
            case Thinking(thinking=thinking, fidelity=fidelity) if settings.returns_reasoning:
                _recall(reply, thinking, fidelity)
            case ToolCall(name=name, arguments=arguments, tool_call_id=call_id, fidelity=fidelity):
                if settings.text_calls:
                    reply.say(call_as_text(name, valid_arguments(arguments)))
                else:
                    reply.calls.append(_native_call(name, arguments, ids.call(call_id), fidelity))
            case InlineData():
                made = True
            case _:
                pass
    reply.say("")
    if not reply.texts and not reply.calls:
        # A turn that said nothing still stood there: without it the user would speak twice in a row.
        reply.say(NO_WORDS if made else "[no output]")
    yield {"role": "assistant", **_reply_members(reply, settings)}


def _recall(reply: _Reply, thinking: str, fidelity: Fidelity) -> None:
    """Put thinking back where it came from; thinking of another protocol is left out (L6)."""
    try:
        _recall_fields(reply, thinking, fidelity_fields(fidelity))
    except msgspec.DecodeError:
        # The same names with other contents: not ours after all.
        return


def _recall_fields(reply: _Reply, thinking: str, fields: dict[str, Raw]) -> None:
    if "reasoning_details" in fields:
        reply.details += msgspec.json.decode(fields["reasoning_details"], type=list[Raw])
    if "reasoning_field" in fields and thinking:
        name = msgspec.json.decode(fields["reasoning_field"], type=str)
        if name == "content.thinking":
            reply.thinking_parts.append({"type": "thinking", "thinking": [_text_part(thinking)]})
        else:
            reply.reasoning[name] = reply.reasoning.get(name, "") + thinking
    if THINK_TAG in fields:
        opening, closing = msgspec.json.decode(fields[THINK_TAG], type=tuple[str, str])
        reply.prefix += opening + thinking + closing


def _native_call(name: str, arguments: str, wire_id: str, fidelity: Fidelity) -> dict[str, Any]:
    function = {"name": legal_tool_name(name), "arguments": valid_arguments(arguments)}
    call: dict[str, Any] = {"id": wire_id, "type": "function", "function": function}
    extra = fidelity_fields(fidelity).get("extra_content")
    return call if extra is None else call | {"extra_content": extra}


def _reply_members(reply: _Reply, settings: ChatSettings) -> dict[str, Any]:
    members: dict[str, Any] = {}
    if reply.thinking_parts or (reply.texts and not settings.plain_content):
        members["content"] = [*reply.thinking_parts, *(_text_part(text) for text in reply.texts)]
    elif reply.texts or (reply.calls and settings.plain_content):
        members["content"] = "".join(reply.texts)
    members |= reply.reasoning
    if reply.details:
        members["reasoning_details"] = reply.details
    if reply.calls:
        members["tool_calls"] = reply.calls
    if reply.extra_content is not None:
        members["extra_content"] = reply.extra_content
    return members


# --- the rest of the body -----------------------------------------------------------------------------


def _fixed_members(settings: ChatSettings) -> dict[str, Any]:
    tools = _tools(settings)
    return {"tools": Raw(encode(tools))} if tools else {}


def _tools(settings: ChatSettings) -> list[dict[str, Any]]:
    ours = [] if settings.text_calls else [_tool(tool) for tool in settings.tools]
    return ours + extra_tools(settings.extra_body)


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def _system_message(settings: ChatSettings) -> dict[str, Any] | None:
    parts = [settings.system_prompt or ""]
    if settings.text_calls and settings.tools:
        parts.append(tools_as_text(settings.tools))
    content = "\n\n".join(part for part in parts if part)
    return {"role": "system", "content": content} if content else None


def thinking_members(settings: ChatSettings, level: ThinkingLevel | None) -> dict[str, Any]:
    """The members that ask for ``level``, or for the nearest one the model accepts (L16)."""
    if silences_thinking(settings):
        # Leaving it out is no way round: these models then think at a level of their own, and that is refused too.
        return _asking_for("none", settings.thinking_style)
    if level is None or not settings.thinking_levels:
        return {}
    return _asking_for(nearest_level(level, settings.thinking_levels), settings.thinking_style)


def _asking_for(nearest: ThinkingLevel, style: ThinkingStyle) -> dict[str, Any]:
    switch = {"type": "disabled" if nearest == "none" else "enabled"}
    match style:
        case "effort":
            return {"reasoning_effort": nearest}
        case "openrouter":
            return {"reasoning": {"enabled": False} if nearest == "none" else {"effort": nearest}}
        case "type":
            return {"thinking": switch}
        case "type-and-effort":
            return {"thinking": switch} | ({} if nearest == "none" else {"reasoning_effort": nearest})
        case "enable":
            return {"enable_thinking": nearest != "none"}


def silences_thinking(settings: ChatSettings) -> bool:
    """Whether requests ask for no thinking whatever level is wanted, because they bring tools.

    Also the entry's own tools count, and also a model whose entry says that it does not think is told not to.
    """
    return not settings.thinks_with_tools and bool(_tools(settings))
