"""What a server answers to a call, as output of a tool (D34)."""

from __future__ import annotations

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

from penguin.environment.images import UnusableImage, prepare_encoded

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

    Images are made to fit, by content whatever the server calls them; those that no model can take, or this one
    cannot, are described instead. Takes up to a second for each large image: see :func:`has_images`.
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


def has_images(result: CallToolResult) -> bool:
    """Whether :func:`answer_of` may take long, so that it belongs into a thread."""
    return any(isinstance(block, (ImageContent, EmbeddedResource)) for block in result.content)


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
    if not vision:
        return f"[{named}, {_measured(mime, data)}: this model does not take images]", None
    try:
        image = prepare_encoded(data)
    except UnusableImage as error:
        return f"[{named}, {_measured(mime, data)}, cannot be shown: {error}]", None
    words = f"[{named}: {image.note}]" if image.is_scaled else f"[{named}]" if uri else ""
    return words, image.data_url


def _measured(mime: str | None, data: str) -> str:
    size = len(data) * 3 // 4
    return (
        f"{mime or 'unknown type'}, {size} bytes"
        if size < _KILO_FROM
        else f"{mime or 'unknown type'}, {size // 1000} kB"
    )
