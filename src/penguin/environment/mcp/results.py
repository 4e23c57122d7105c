"""What a server answers to a call, as output of a tool (D34)."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

LARGEST_IMAGE = 5 << 20
"""Bytes of one image; providers refuse larger ones, and with them every later request."""
_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_KILO_FROM = 10_000
_NO_WORDS = "The tool reported an error without saying which."


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """``images`` are data URLs; ``failed`` means that the tool itself reported an error."""

    text: str
    images: tuple[str, ...] = ()
    failed: bool = False


def answer_of(result: CallToolResult, *, vision: bool) -> CallAnswer:
    """The text and images of a result; structured data only where there is nothing else.

    Images that the model cannot take are described instead.
    """
    texts: list[str] = []
    images: list[str] = []
    for block in result.content:
        text, image = _told(block, vision=vision)
        texts += [text] if text else []
        images += [image] if image else []
    text = "\n".join(texts)
    if not text and not images and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if result.is_error and not text.strip() and not images:
        text = _NO_WORDS
    return CallAnswer(text, tuple(images), failed=result.is_error)


def _told(block: ContentBlock, *, vision: bool) -> tuple[str, str | None]:
    """What is said of a block, and the image in it."""
    match block:
        case TextContent(text=text):
            return text, None
        case ImageContent(data=data, mime_type=mime):
            return _image(data, mime, "", vision=vision)
        case AudioContent(data=data, mime_type=mime):
            return f"[audio, {_measured(mime, data)}: it cannot be played to the model]", None
        case ResourceLink(uri=uri, name=name, description=description, mime_type=mime):
            about = ", ".join(each for each in (mime, description) if each)
            return f"[resource {name}: {uri}{f' ({about})' if about else ''}]", None
        case EmbeddedResource(resource=resource):
            return _resource(resource, vision=vision)


def _resource(resource: TextResourceContents | BlobResourceContents, *, vision: bool) -> tuple[str, str | None]:
    match resource:
        case TextResourceContents(uri=uri, text=text):
            return f"[resource {uri}]\n{text}", None
        case BlobResourceContents(uri=uri, blob=blob, mime_type=mime) if (mime or "").startswith("image/"):
            return _image(blob, mime or "", str(uri), vision=vision)
        case BlobResourceContents(uri=uri, blob=blob, mime_type=mime):
            return f"[resource {uri}, {_measured(mime, blob)}: binary, not shown]", None


def _image(data: str, mime: str, uri: str, *, vision: bool) -> tuple[str, str | None]:
    named = f"image {uri}".rstrip()
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{named}: its data is damaged]", None
    kind = _kind_of(content)
    measured = _measured(kind or mime, data)
    if kind is None:
        return f"[{named}, {measured}: not a PNG, JPEG, GIF or WebP picture, so it cannot be shown]", None
    if len(content) > LARGEST_IMAGE:
        return f"[{named}, {measured}: larger than {LARGEST_IMAGE >> 20} MiB, so it cannot be shown]", None
    if not vision:
        return f"[{named}, {measured}: this model does not take images]", None
    return (f"[{named}]" if uri else ""), f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _kind_of(content: bytes) -> str | None:
    """The type by content: what a server says of it may be wrong, and a provider refuses the whole request."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES.items() if content.startswith(start)), None)


def _measured(mime: str | None, data: str) -> str:
    size = len(data) * 3 // 4
    return (
        f"{mime or 'unknown type'}, {size} bytes"
        if size < _KILO_FROM
        else f"{mime or 'unknown type'}, {size // 1000} kB"
    )
