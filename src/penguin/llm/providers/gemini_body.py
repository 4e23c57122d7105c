"""Gemini: how a history becomes a request body.

Decisions a reader may wonder about:

- A signature goes back on the part it came on. A part that was nothing but a signature is a part again;
  thoughts go back only if they are signed, since nothing reads the others.
- Ids of calls are sent only where the model gave some: older models refuse the very field. Without ids a
  result belongs to its call by name and order, so results stand in the order of the calls.
- Calls that no Gemini model made have no signature, and newer models refuse a turn without one; the first
  such call of a reply carries the placeholder that Google documents for this.
- An image the model made goes back in its place; to a model without eyes as a line of text, without the
  signature, which was of the image. Images it only thought of are left out there.
- Images a tool returned follow the results: only some models take them inside.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import Raw

from penguin.llm.providers.body_parts import encode, extra_tools, legal_tool_name, nearest_level, valid_arguments
from penguin.llm.providers.encoded_history import UNSEEN, EncodedHistory, Run, WireIds
from penguin.llm.providers.gemini_schema import gemini_schema
from penguin.llm.providers.lenient import members
from penguin.protocol.blocks import NO_OUTPUT
from penguin.protocol.codec import fidelity_fields
from penguin.protocol.messages import (
    Fidelity,
    ImageUrl,
    InlineData,
    InlineThinking,
    Message,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    ToolCallOutput,
    ToolDefinition,
)

LEVELS: Final[dict[ThinkingLevel, str]] = {
    "none": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "XHIGH",
}
"""Our levels as Gemini 3 and later name them."""

USUAL_LEVELS: Final[tuple[ThinkingLevel, ...]] = ("low", "medium", "high")
"""The levels that every model with levels accepts."""

BUDGETS: Final[dict[ThinkingLevel, int]] = {
    "none": 0,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 28_672,
    "max": 32_768,
}
"""Our levels in tokens of thinking, for Gemini 2.5."""

_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
_OTHER_DATA: Final = ("audio/", "video/", "text/", "application/pdf")
_RESERVED: Final = frozenset({"contents", "tools"})
_NO_SIGNATURE: Final = "skip_thought_signature_validator"


@dataclass(frozen=True, slots=True)
class GeminiSettings:
    """What stays the same over all requests of one context.

    ``thinking_levels`` are the ones the model accepts, ``thinking_control`` says how they are named.
    ``thinks`` says whether the model can think at all; ``None`` where nobody knows. The ``tools`` of
    ``extra_body`` (Google's own) follow ours.
    """

    system_prompt: str | None = None
    tools: Sequence[ToolDefinition] = ()
    vision: bool = True
    thinking_levels: Sequence[ThinkingLevel] = USUAL_LEVELS
    thinking_control: Literal["level", "budget"] = "level"
    thinks: bool | None = None
    extra_body: dict[str, Any] = field(default_factory=dict)


class GeminiBody:
    """Builds request bodies; the result depends on the arguments only.

    Example::

        body = GeminiBody(GeminiSettings("Be brief.")).build([user_text("hi")], max_tokens=1000)
    """

    def __init__(self, settings: GeminiSettings) -> None:
        self._settings = settings
        self._fixed = _fixed_members(settings)
        self._history = EncodedHistory(self._of_user, self._of_model, _CallIds)

    def build(
        self,
        history: Sequence[Message],
        *,
        max_tokens: int | None = None,
        thinking_level: ThinkingLevel | None = None,
    ) -> bytes:
        """The body for ``history``: complete messages in the order they were committed, then the new ones."""
        limit = {} if max_tokens is None else {"maxOutputTokens": max_tokens}
        config = limit | thinking_members(self._settings, thinking_level)
        extra = {name: value for name, value in self._settings.extra_body.items() if name not in _RESERVED}
        match extra.pop("generationConfig", None):
            case dict() as wanted:
                config = {name: value for name, value in (config | wanted).items() if value is not None}
            case _:
                pass
        named = ({"generationConfig": config} if config else {}) | extra | self._fixed
        head = encode({name: value for name, value in named.items() if value is not None})
        contents = b'"contents":[' + b",".join(self._history.items(history)) + b"]}"
        return head[:-1] + (b"," if len(head) > len(b"{}") else b"") + contents

    def _of_user(self, run: Run, ids: _CallIds) -> Iterator[dict[str, Any]]:
        parts = [*_results(run, ids), *_words(run, ids, vision=self._settings.vision)]
        if parts:
            yield {"role": "user", "parts": parts}

    def _of_model(self, run: Run, ids: _CallIds) -> Iterator[dict[str, Any]]:
        ids.begin_reply()
        parts = [part for _, message in run for part in _model_parts(message, ids, self._settings)]
        # A turn that said nothing still stood there: without it the user would speak twice in a row.
        yield {"role": "model", "parts": parts or [{"text": NO_OUTPUT}]}


def thinking_members(settings: GeminiSettings, level: ThinkingLevel | None) -> dict[str, Any]:
    """The members that ask for ``level``, or for the nearest one the model accepts (L16)."""
    if settings.thinks is False or not settings.thinking_levels:
        return {}
    if level is None:
        return {"thinkingConfig": {"includeThoughts": True}} if settings.thinks else {}
    nearest = nearest_level(level, settings.thinking_levels)
    if settings.thinking_control == "level":
        return {"thinkingConfig": {"thinkingLevel": LEVELS.get(nearest, "HIGH"), "includeThoughts": True}}
    # Thoughts of a model that is told not to think may not be asked for.
    shown = {"includeThoughts": True} if BUDGETS[nearest] else {}
    return {"thinkingConfig": {"thinkingBudget": BUDGETS[nearest]} | shown}


def _fixed_members(settings: GeminiSettings) -> dict[str, Any]:
    fixed: dict[str, Any] = {}
    if settings.system_prompt:
        fixed["systemInstruction"] = {"parts": [{"text": settings.system_prompt}]}
    ours = [{"functionDeclarations": [_declaration(tool) for tool in settings.tools]}] if settings.tools else []
    tools = ours + extra_tools(settings.extra_body)
    return fixed | ({"tools": Raw(encode(tools))} if tools else {})


def _declaration(tool: ToolDefinition) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": tool.name, "description": tool.description}
    schema = gemini_schema(tool.parameters)
    return declared if schema is None else declared | {"parametersJsonSchema": schema}


class _CallIds(WireIds):
    """Also knows the name of each call, its place in the reply, and whether its model gave it an id."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[str, tuple[str, int, bool]] = {}
        self._count = 0

    def begin_reply(self) -> None:
        self._count = 0

    def place_of_next(self) -> int:
        """How many calls the reply has so far."""
        return self._count

    def note(self, tool_call_id: str, name: str, *, given: bool) -> dict[str, str]:
        """A call of the reply; returns its id as a member, if it is sent."""
        self._calls[tool_call_id] = (name, self._count, given)
        self._count += 1
        wire_id = self.call(tool_call_id)
        return {"id": wire_id} if given else {}

    def named(self, tool_call_id: str) -> dict[str, str]:
        """Name and, if it is sent, id of the call a result belongs to."""
        name, _, given = self._calls.get(tool_call_id, ("unknown", 0, False))
        return ({"id": self.result(tool_call_id)} if given else {}) | {"name": name}

    def place(self, tool_call_id: str) -> int:
        """Where in its reply the call stood."""
        return self._calls.get(tool_call_id, ("", self._count, False))[1]


# --- the user's side ----------------------------------------------------------------------------------


def _results(run: Run, ids: _CallIds) -> Iterator[dict[str, Any]]:
    outputs = [message.payload for _, message in run if isinstance(message.payload, ToolCallOutput)]
    for output in sorted(outputs, key=lambda output: ids.place(output.tool_call_id)):
        said = {"response": {"output": output.output or NO_OUTPUT}}
        yield {"functionResponse": ids.named(output.tool_call_id) | said}


def _words(run: Run, ids: _CallIds, *, vision: bool) -> Iterator[dict[str, Any]]:
    """Words and data of the user and images of tools, in the order given."""
    for _, message in run:
        match message.payload:
            case ToolCallOutput(images=list(images), tool_call_id=call_id) if images:
                label = "image" if len(images) == 1 else f"{len(images)} images"
                call = ids.named(call_id)
                yield {"text": f"[{label} returned by {' '.join([call['name'], call.get('id', '')]).strip()}]"}
                yield from (_image(url, vision=vision) for url in images)
            case Text(text=text) if text:
                yield {"text": text}
            case ImageUrl(image_url=url):
                yield _image(url, vision=vision)
            case InlineData(data=data, mime_type=mime):
                yield _data(mime, data, vision=vision)
            case _:
                pass


def _image(url: str, *, vision: bool) -> dict[str, Any]:
    head, comma, data = url.partition(",")
    if url.startswith("data:") and comma:
        return _data(head.removeprefix("data:").partition(";")[0], data, vision=vision)
    if not vision:
        return {"text": UNSEEN}
    mime = mimetypes.guess_type(urlsplit(url).path)[0] or "image/jpeg"
    return {"fileData": {"mimeType": mime, "fileUri": url}}


def _data(mime: str, data: str, *, vision: bool) -> dict[str, Any]:
    if mime.startswith("image/") and not vision:
        return {"text": UNSEEN}
    if mime in _IMAGES or mime.startswith(_OTHER_DATA):
        return {"inlineData": {"mimeType": mime, "data": data}}
    return {"text": f"[{mime} data left out: Gemini does not take it]"}


# --- the model's side ---------------------------------------------------------------------------------


def _model_parts(message: Message, ids: _CallIds, settings: GeminiSettings) -> list[dict[str, Any]]:
    match message.payload:
        case Text(text=text, fidelity=fidelity):
            return _text_parts(text, fidelity)
        case Thinking(thinking=thinking, fidelity=fidelity):
            part = members(fidelity_fields(fidelity).get("part"))
            return [part | ({"text": thinking} if thinking else {})] if part else []
        case InlineData(data=data, mime_type=mime, fidelity=fidelity):
            part = _data(mime, data, vision=settings.vision)
            return [part | _signature(fidelity) if "inlineData" in part else part]
        case InlineThinking(data=data, mime_type=mime, fidelity=fidelity):
            if not settings.vision and mime.startswith("image/"):
                return []
            return [{"thought": True, "inlineData": {"mimeType": mime, "data": data}} | _signature(fidelity)]
        case ToolCall() as call:
            return [_call_part(call, ids, signed=settings.thinking_control == "level")]
        case _:
            return []


def _text_parts(text: str, fidelity: Fidelity) -> list[dict[str, Any]]:
    closing = members(fidelity_fields(fidelity).get("closing_part"))
    words: list[dict[str, Any]] = [{"text": text} | _signature(fidelity)] if text else []
    return words + ([dict(closing)] if closing else [])


def _call_part(call: ToolCall, ids: _CallIds, *, signed: bool) -> dict[str, Any]:
    fields = fidelity_fields(call.fidelity)
    own = members(fields.get("call"))
    is_first = ids.place_of_next() == 0
    name = _function_name(call.name)
    named = ids.note(call.tool_call_id, name, given="id" in own)
    function = own | named | {"name": name, "args": Raw(valid_arguments(call.arguments).encode())}
    part: dict[str, Any] = members(fields.get("part")) | _signature(call.fidelity)
    if signed and is_first and not fields.keys() & {"call", "signature"}:
        part["thoughtSignature"] = _NO_SIGNATURE
    return {"functionCall": function} | part


def _function_name(name: str) -> str:
    """A name as Gemini accepts it: models also call what cannot exist, and other providers let a digit begin."""
    legal = legal_tool_name(name)
    return legal if legal[0].isalpha() or legal[0] == "_" else f"_{legal}"[:64]


def _signature(fidelity: Fidelity) -> dict[str, Raw]:
    given = fidelity_fields(fidelity).get("signature")
    return {} if given is None else {"thoughtSignature": given}
