"""Responses: how a history becomes a request body.

Decisions a reader may wonder about:

- The server stores nothing (``store: false``), so each request carries the whole history, and reasoning
  comes and goes back encrypted.
- An item of the model goes back as it came: whole for reasoning and for types nobody here knows; for
  words, calls and images, whose content is stored once, what was around it.
- Reasoning that nothing follows, or that holds neither encrypted nor open content, stays out: the server
  refuses the one, and cannot look up the other.
- Images a tool returned are part of its output, which this protocol allows. An image the model made is an item
  of its own only if it came as one; any other, and each for a model without eyes, goes with the next words of
  the user. Reasoning whose image was taken away so stays out too.
- ``strict`` is said to be off for every tool: it is on by default here, and refuses ordinary schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Raw

from penguin.llm.providers.body_parts import encode, extra_tools, legal_tool_name, nearest_level, valid_arguments
from penguin.llm.providers.encoded_history import NO_WORDS, UNSEEN, EncodedHistory, Run, Thread
from penguin.llm.providers.lenient import members, string
from penguin.protocol.blocks import NO_OUTPUT
from penguin.protocol.codec import fidelity_fields
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

_RESERVED: Final = frozenset({"model", "input", "stream", "tools"})


@dataclass(frozen=True, slots=True)
class ResponsesSettings:
    """What stays the same over all requests of one context.

    ``thinking_levels`` are the ones the model accepts. ``reasons`` says whether the model reasons at
    all; ``None`` where nobody knows. The ``tools`` of ``extra_body`` (the server's own) follow ours.
    """

    model_id: str
    system_prompt: str | None = None
    tools: Sequence[ToolDefinition] = ()
    vision: bool = True
    thinking_levels: Sequence[ThinkingLevel] = THINKING_LEVELS
    reasons: bool | None = None
    extra_body: dict[str, Any] = field(default_factory=dict)


class ResponsesBody:
    """Builds request bodies; the result depends on the arguments only.

    Example::

        body = ResponsesBody(ResponsesSettings("some-model")).build([user_text("hi")], max_tokens=1000)
    """

    def __init__(self, settings: ResponsesSettings) -> None:
        self._settings = settings
        self._fixed = _fixed_members(settings)
        self._history = EncodedHistory(self._of_user, self._of_model, Thread)

    def build(
        self,
        history: Sequence[Message],
        *,
        max_tokens: int | None = None,
        thinking_level: ThinkingLevel | None = None,
    ) -> bytes:
        """The body for ``history``: complete messages in the order they were committed, then the new ones."""
        settings = self._settings
        named: dict[str, Any] = {"model": settings.model_id, "stream": True, "store": False}
        if settings.reasons is not False:
            # Models without reasoning refuse to be asked for it.
            named["include"] = ["reasoning.encrypted_content"]
        named |= reasoning_members(settings, thinking_level)
        named["max_output_tokens"] = max_tokens
        named |= {name: value for name, value in settings.extra_body.items() if name not in _RESERVED}
        named |= self._fixed
        head = encode({name: value for name, value in named.items() if value is not None})
        return head[:-1] + b',"input":[' + b",".join(self._history.items(history)) + b"]}"

    def _of_user(self, run: Run, thread: Thread) -> Iterator[dict[str, Any]]:
        return _user_items(run, thread, vision=self._settings.vision)

    def _of_model(self, run: Run, thread: Thread) -> list[Any]:
        return _model_items(run, thread, vision=self._settings.vision)


def reasoning_members(settings: ResponsesSettings, level: ThinkingLevel | None) -> dict[str, Any]:
    """The members that ask for ``level``, or for the nearest one the model accepts (L16)."""
    if settings.reasons is False or not settings.thinking_levels:
        return {}
    if level is None:
        return {"reasoning": {"summary": "auto"}} if settings.reasons else {}
    nearest = nearest_level(level, settings.thinking_levels)
    return {"reasoning": {"effort": nearest} | ({} if nearest == "none" else {"summary": "auto"})}


def _fixed_members(settings: ResponsesSettings) -> dict[str, Any]:
    fixed: dict[str, Any] = {}
    if settings.system_prompt:
        fixed["instructions"] = settings.system_prompt
    if settings.tools:
        fixed["parallel_tool_calls"] = True
    tools = [_tool(tool) for tool in settings.tools] + extra_tools(settings.extra_body)
    return fixed | ({"tools": Raw(encode(tools))} if tools else {})


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
        "strict": False,
    }


# --- the user's side ----------------------------------------------------------------------------------


def _user_items(run: Run, thread: Thread, *, vision: bool) -> Iterator[dict[str, Any]]:
    """Results first, in the order given, then one message with what the reply before made, all words and images."""
    parts = thread.made_parts(_text_part, lambda data: _user_parts(data, vision=vision))
    for _, message in run:
        match message.payload:
            case ToolCallOutput(output=output, tool_call_id=call_id, images=images):
                output_text = output or NO_OUTPUT
                shown: Any = output_text
                if images:
                    shown = [_text_part(output_text), *(_image_part(url, vision=vision) for url in images)]
                yield {"type": "function_call_output", "call_id": thread.result(call_id), "output": shown}
            case payload:
                parts += _user_parts(payload, vision=vision)
    if parts:
        yield {"type": "message", "role": "user", "content": parts}


def _user_parts(payload: object, *, vision: bool) -> list[dict[str, Any]]:
    match payload:
        case Text(text=text) if text:
            return [_text_part(text)]
        case ImageUrl(image_url=url):
            return [_image_part(url, vision=vision)]
        case InlineData(data=data, mime_type=mime) if mime.startswith("image/"):
            return [_image_part(f"data:{mime};base64,{data}", vision=vision)]
        case InlineData(mime_type=mime):
            return [_text_part(f"[{mime} data left out: this protocol cannot carry it]")]
        case _:
            return []


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _image_part(url: str, *, vision: bool) -> dict[str, Any]:
    if not vision:
        return _text_part(UNSEEN)
    # Servers that check requests against OpenAI's own types insist on the detail.
    return {"type": "input_image", "image_url": url, "detail": "auto"}


# --- the model's side ---------------------------------------------------------------------------------


class _Reply:
    """The items of one reply; reasoning waits until something follows it."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._waiting: list[Raw] = []

    def add(self, item: Any) -> None:
        self.items += [*self._waiting, item]
        self._waiting = []

    def say(self, words: dict[str, Any]) -> None:
        """Add a message, or to it: its parts are texts of their own in the history."""
        match self.items[-1:]:
            case [{"id": known, "content": list(parts)}] if words.get("id") == known and not self._waiting:
                parts += words["content"]
            case _:
                self.add(words)

    def lose(self) -> None:
        """What the waiting reasoning led to cannot be sent."""
        self._waiting = []

    def recall(self, item: Raw) -> None:
        given = members(item)
        if string(given.get("type")) != "reasoning":
            self.add(item)
        elif _can_be_read(given):
            self._waiting.append(item)


def _model_items(run: Run, thread: Thread, *, vision: bool) -> list[Any]:
    reply = _Reply()
    thread.made = []
    for _, message in run:
        match message.payload:
            case Text(text=text, fidelity=fidelity) if text:
                reply.say(_words(text, fidelity))
            case Thinking(fidelity=fidelity) if "item" in (fields := fidelity_fields(fidelity)):
                reply.recall(fields["item"])
            case ToolCall(name=name, arguments=arguments, tool_call_id=call_id, fidelity=fidelity):
                reply.add(_call(name, arguments, thread.call(call_id), fidelity))
            case InlineData(data=data, fidelity=fidelity) as made:
                item = members(fidelity_fields(fidelity).get("item"))
                if item and vision:
                    reply.add({**item, "result": data})
                else:
                    reply.lose()
                    thread.made.append(made)
            case _:
                pass
    if thread.made and not reply.items:
        reply.say(_words(NO_WORDS, UNSET))
    return reply.items


def _words(text: str, fidelity: Fidelity) -> dict[str, Any]:
    """A message as it came; words of another protocol in the short form that every server takes."""
    fields = fidelity_fields(fidelity)
    phase = {"phase": fields["phase"]} if "phase" in fields else {}
    item, part = members(fields.get("item")), members(fields.get("part"))
    if not item:
        return {"type": "message", "role": "assistant", **phase, "content": text}
    part = part or {"type": Raw(b'"output_text"'), "annotations": Raw(b"[]")}
    said = "refusal" if string(part.get("type")) == "refusal" else "text"
    return {**item, **phase, "content": [{**part, said: text}]}


def _can_be_read(reasoning: dict[str, Raw]) -> bool:
    empty = {b"null", b"[]", b'""'}
    return any(bytes(reasoning.get(name, b"null")) not in empty for name in ("encrypted_content", "content"))


def _call(name: str, arguments: str, wire_id: str, fidelity: Fidelity) -> dict[str, Any]:
    around = members(fidelity_fields(fidelity).get("item"))
    own = {"call_id": wire_id, "name": legal_tool_name(name), "arguments": valid_arguments(arguments)}
    return {"type": "function_call", **around, **own}
