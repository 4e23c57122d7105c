"""Anthropic Messages: how a history becomes a request body.

Decisions a reader may wonder about:

- The prefix the provider caches is tools, system, messages, in this order whatever the order in the
  body. Cache markers aside, bytes of earlier messages never change (T12); a turn that was encoded
  once is not encoded again, and markers are put into the encoded bytes afterwards.
- There are three cache markers: the end of tools and system, the newest user message, and the one
  before it. The provider looks for an older entry only 20 blocks back from a marker, and one turn
  with a dozen parallel calls is longer than that; the older marker stands exactly where the last
  request wrote its entry.
- Thinking goes back unmodified with its signature, or not at all. What the model did with the
  provider's own tools, redacted thinking and kinds of blocks that do not exist yet lie in an empty
  ``thinking`` as they came, and go back in their place. Thinking that nothing of its turn follows stays
  out: the provider refuses an assistant message that ends in it. A turn of nothing but thinking is
  enough for that, or a paused one whose search was lost.
- Text of nothing but white space is refused by the provider and therefore left out.
- The protocol has no place for an image in the model's words: one it made goes with the next words of the user.
- ``temperature`` is never sent: current models refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw

from penguin.llm.providers.body_parts import encode, extra_tools, legal_tool_name, nearest_level, valid_arguments
from penguin.llm.providers.encoded_history import NO_WORDS, UNSEEN, EncodedHistory, Run, Thread, WireIds
from penguin.llm.providers.lenient import ABSENT, kept_members, string
from penguin.protocol.blocks import NO_OUTPUT
from penguin.protocol.codec import fidelity_bytes, fidelity_fields
from penguin.protocol.errors import CodecError
from penguin.protocol.interfaces import ThinkingControl
from penguin.protocol.messages import (
    THINKING_LEVELS,
    UNSET,
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

USUAL_MAX_TOKENS = 8_192
"""The output limit where nobody knows better: the protocol wants one in each request (L11)."""

BUDGETS: dict[ThinkingLevel, int] = {"low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_768, "max": 49_152}
"""Tokens of thinking for models that take a budget and no effort."""

_SMALLEST_BUDGET = 1_024
_RESERVED = frozenset({"model", "messages", "stream", "system", "tools"})
_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_END = b"}]}"
_MARKER = b',"cache_control":{"type":"ephemeral"}'
_CACHED = {"cache_control": {"type": "ephemeral"}}


@dataclass(frozen=True, slots=True)
class MessagesSettings:
    """What stays the same over all requests of one context.

    ``thinking_control`` is ``None`` for a model nobody knows: a level that is asked for is then sent
    as an effort, which is how the protocol does it today. ``thinking_levels`` are the ones the model accepts; it
    does not think when there are none. ``extra_body`` is the entry's own: its
    ``tools`` (the provider's server tools) follow ours, ``None`` takes a member out.
    """

    model_id: str
    system_prompt: str | None = None
    tools: Sequence[ToolDefinition] = ()
    vision: bool = True
    usual_max_tokens: int = USUAL_MAX_TOKENS
    thinking_control: ThinkingControl | None = None
    thinking_levels: Sequence[ThinkingLevel] = THINKING_LEVELS
    extra_body: dict[str, Any] = field(default_factory=dict)


class MessagesBody:
    """Builds request bodies; the result depends on the arguments only, what is remembered is speed.

    Example::

        body = MessagesBody(MessagesSettings("some-model")).build([user_text("hi")], max_tokens=1000)
    """

    def __init__(self, settings: MessagesSettings) -> None:
        self._settings = settings
        self._fixed = _fixed_members(settings)
        self._history = EncodedHistory(self._of_user, _of_model, Thread)

    def build(
        self,
        history: Sequence[Message],
        *,
        max_tokens: int | None = None,
        thinking_level: ThinkingLevel | None = None,
    ) -> bytes:
        """The body for ``history``: complete messages in the order they were committed, then the new ones."""
        settings, messages = self._settings, self._history.items(history)
        limit = max_tokens or settings.usual_max_tokens
        top: dict[str, Any] = {"model": settings.model_id, "stream": True, "max_tokens": limit}
        if settings.thinking_control != "budget" or _may_think(messages):
            top |= thinking_members(settings, thinking_level, limit)
        top |= {name: value for name, value in settings.extra_body.items() if name not in _RESERVED}
        top |= self._fixed
        head = encode({name: value for name, value in top.items() if value is not None})
        return head[:-1] + b',"messages":[' + b",".join(_with_markers(messages)) + b"]}"

    def _of_user(self, run: Run, thread: Thread) -> list[dict[str, Any]]:
        return [_message("user", _user_blocks(run, self._settings, thread))]


def _of_model(run: Run, thread: Thread) -> list[dict[str, Any]]:
    thread.made = [message.payload for _, message in run if isinstance(message.payload, InlineData)]
    blocks = _assistant_blocks(run, thread)
    return [_message("assistant", blocks or [_text_block(NO_WORDS)] if thread.made else blocks)]


def _message(role: str, blocks: list[Any]) -> dict[str, Any]:
    # A turn that said nothing still stood there: without it one side would speak twice in a row.
    return {"role": role, "content": blocks or [_text_block(NO_OUTPUT)]}


def _with_markers(messages: list[bytes]) -> list[bytes]:
    """The messages with a cache marker in the last block of the two newest user messages."""
    marked = list(messages)
    of_user = [position for position, message in enumerate(messages) if message.startswith(_USER)]
    for position in of_user[-2:]:
        marked[position] = messages[position].removesuffix(_END) + _MARKER + _END
    return marked


def _may_think(messages: list[bytes]) -> bool:
    """With a budget, a turn whose results are sent must begin with its thinking; one of another level did not."""
    if not messages[-1].startswith(_USER + b'{"type":"tool_result"'):
        return True
    return messages[-2].startswith((_ASSISTANT + b'{"type":"thinking"', _ASSISTANT + b'{"type":"redacted_thinking"'))


# --- the user's side ----------------------------------------------------------------------------------


def _user_blocks(run: Run, settings: MessagesSettings, thread: Thread) -> list[dict[str, Any]]:
    """Results first, in the order given, then what the reply before made, and all words and images."""
    results: list[dict[str, Any]] = []
    others = thread.made_parts(_text_block, lambda made: [_data_block(made.data, made.mime_type, settings)])
    for _, message in run:
        match message.payload:
            case ToolCallOutput(output=output, tool_call_id=call_id, images=images):
                content = _result_content(output, images or [], settings)
                results.append({"type": "tool_result", "tool_use_id": thread.result(call_id), "content": content})
            case Text(text=text) if text.strip():
                others.append(_text_block(text))
            case ImageUrl(image_url=url):
                others.append(_image_block(url, settings))
            case InlineData(data=data, mime_type=mime):
                others.append(_data_block(data, mime, settings))
            case _:
                pass
    return results + others


def _result_content(output: str, images: list[str], settings: MessagesSettings) -> list[dict[str, Any]]:
    pictures = [_image_block(url, settings) for url in images]
    if not output.strip():
        return pictures or [_text_block(NO_OUTPUT)]
    return [_text_block(output), *pictures]


def _image_block(url: str, settings: MessagesSettings) -> dict[str, Any]:
    head, comma, data = url.partition(",")
    if not head.startswith("data:"):
        source = {"type": "url", "url": url}
        return {"type": "image", "source": source} if settings.vision else _unseen()
    mime = head.removeprefix("data:").partition(";")[0]
    return _data_block(data if comma else "", mime, settings)


def _data_block(data: str, mime: str, settings: MessagesSettings) -> dict[str, Any]:
    mime = "image/jpeg" if mime == "image/jpg" else mime
    source = {"type": "base64", "media_type": mime, "data": data}
    if mime == "application/pdf":
        return {"type": "document", "source": source}
    if mime not in _IMAGE_TYPES:
        return _text_block(f"[{mime} data left out: this protocol cannot carry it]")
    return {"type": "image", "source": source} if settings.vision else _unseen()


def _unseen() -> dict[str, Any]:
    return _text_block(UNSEEN)


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# --- the model's side ---------------------------------------------------------------------------------


def _assistant_blocks(run: Run, ids: WireIds) -> list[Any]:
    blocks = list(_said_blocks(run, ids))
    # A search that was cut or paused has no result, and the provider refuses one without the other.
    opaque = {number: kept_members(block) for number, block in enumerate(blocks) if isinstance(block, Raw)}
    answered = {string(fields.get("tool_use_id")) for fields in opaque.values()}
    lost = {number for number, fields in opaque.items() if _calls_server(fields, answered)}
    sent = [block for number, block in enumerate(blocks) if number not in lost]
    while sent and _is_thinking(sent[-1]):
        sent.pop()
    return sent


def _is_thinking(block: Any) -> bool:
    kind = string(kept_members(block).get("type")) if isinstance(block, Raw) else block["type"]
    return kind in {"thinking", "redacted_thinking"}


def _calls_server(fields: dict[str, Raw], answered: set[str]) -> bool:
    return string(fields.get("type")) == "server_tool_use" and string(fields.get("id")) not in answered


def _said_blocks(run: Run, ids: WireIds) -> Iterator[Any]:
    for _, message in run:
        match message.payload:
            case Text(text=text, fidelity=fidelity) if text.strip():
                citations = fidelity_fields(fidelity).get("citations", ABSENT)
                yield _text_block(text) | ({"citations": citations} if bytes(citations).startswith(b"[") else {})
            case Thinking(thinking=thinking, fidelity=fidelity):
                yield from _recalled(thinking, fidelity)
            case ToolCall(name=name, arguments=arguments, tool_call_id=call_id, fidelity=fidelity):
                head = {"type": "tool_use", "id": ids.call(call_id), "name": legal_tool_name(name)}
                yield head | {"input": _input(arguments)} | _call_extras(fidelity)
            case _:
                pass


def _recalled(thinking: str, fidelity: Fidelity) -> Iterator[Any]:
    """Thinking as it came; without a signature of this protocol it would be refused (L6)."""
    fields = fidelity_fields(fidelity)
    block, signature = fields.get("content_block"), fields.get("signature")
    if block is not None and bytes(block).startswith(b"{"):
        yield block
    elif string(signature):
        yield {"type": "thinking", "thinking": thinking, "signature": signature}


def _call_extras(fidelity: Fidelity) -> dict[str, Raw]:
    """Members of the block that are not ours to understand, ``caller`` for example."""
    return kept_members(fidelity_fields(fidelity).get("tool_use", ABSENT))


def _input(arguments: str) -> Raw:
    """The arguments as an object with the numbers and strings as the model wrote them (L10)."""
    try:
        opaque = fidelity_bytes(valid_arguments(arguments))
    except CodecError:
        opaque = UNSET
    return opaque if isinstance(opaque, Raw) else Raw(b"{}")


# --- the rest of the body -----------------------------------------------------------------------------


def _fixed_members(settings: MessagesSettings) -> dict[str, Any]:
    """Tools and system prompt with the cache marker at their end; the marker of the system covers the tools."""
    fixed: dict[str, Any] = {}
    tools = [_tool(tool) for tool in settings.tools] + extra_tools(settings.extra_body)
    has_system = bool(settings.system_prompt and settings.system_prompt.strip())
    if tools:
        fixed["tools"] = Raw(encode(tools if has_system else [*tools[:-1], tools[-1] | _CACHED]))
    if has_system:
        fixed["system"] = Raw(encode([_text_block(settings.system_prompt or "") | _CACHED]))
    return fixed


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    schema = tool.parameters or {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def thinking_members(settings: MessagesSettings, level: ThinkingLevel | None, max_tokens: int) -> dict[str, Any]:
    """The members that ask for ``level``, or for the nearest one the model accepts (L16).

    Models that would leave the text of their thinking out are asked for its summary.
    """
    if level is None or not settings.thinking_levels:
        return {}
    nearest = nearest_level(level, settings.thinking_levels)
    match settings.thinking_control:
        case "adaptive-on" if nearest == "none":
            return {"thinking": {"type": "disabled"}}
        case "adaptive-between-tools" if nearest == "none":
            return {"thinking": {"type": "between_tools"}}
        case _ if nearest == "none":
            return {}
        case "budget":
            return _budget(nearest, max_tokens)
        case None:
            return {"thinking": {"type": "adaptive"}, "output_config": {"effort": nearest}}
        case _:
            return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": nearest}}


def _budget(level: ThinkingLevel, max_tokens: int) -> dict[str, Any]:
    """The budget counts towards the output limit, so a quarter of that stays for the answer."""
    budget = min(BUDGETS[level], max_tokens * 3 // 4)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _SMALLEST_BUDGET else {}
