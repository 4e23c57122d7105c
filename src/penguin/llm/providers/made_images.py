"""Images that a model makes, as the protocols word them."""

from __future__ import annotations

import base64
from typing import Any, Final

from penguin.protocol.messages import InlineData

_OTHER_NAMES: Final = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
_BEGINNINGS: Final = {"iVBOR": "image/png", "/9j/": "image/jpeg", "UklGR": "image/webp", "R0lGOD": "image/gif"}


def image_type(data: str, otherwise: str = "image/png") -> str:
    """The media type that base64 ``data`` begins like; ``otherwise`` where it begins like none we know.

    Example::

        image_type("iVBORw0KGgo=")  # "image/png"
    """
    return next((mime for start, mime in _BEGINNINGS.items() if data.startswith(start)), otherwise)


def shown_image(url: str) -> InlineData | str:
    """What is shown of an image at ``url``: its data, a link to it, or that it was left out.

    What no protocol takes back would stop every later request, so it is not kept.

    Example::

        shown_image("data:image/jpg;base64,/9j/4AAQ").mime_type  # "image/jpeg"
        shown_image("https://example.org/a.png")  # "![image](https://example.org/a.png)"
        shown_image("data:image/svg+xml,<svg/>")  # "[image/svg+xml data left out: it cannot be shown]"
    """
    if url[:5].lower() != "data:":
        return f"![image]({url})"
    head, _, content = url.partition(",")
    mime, *parameters = head[5:].lower().split(";")
    data = "".join(content.split())
    kind = image_type(data, _OTHER_NAMES.get(mime, mime))
    if kind in _BEGINNINGS.values() and "base64" in parameters and _is_base64(data):
        return InlineData("assistant", data, kind)
    return f"[{mime or 'image'} data left out: it cannot be shown]"


def _is_base64(data: str) -> bool:
    try:
        return bool(base64.b64decode(data, validate=True))
    except ValueError:
        return False


def image_address(part: Any) -> str:
    """Where an ``image_url`` part points; empty for anything else.

    Example::

        image_address({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}})
    """
    match part:
        case {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
            return url
        case _:
            return ""
