"""Images that a model makes, as the protocols word them."""

from __future__ import annotations

import re
from typing import Any, Final

_DATA_URL: Final = re.compile(r"data:([a-z]+/[a-z0-9.+-]+)(?:;[^,;]*)*;base64,", re.IGNORECASE)
_BEGINNINGS: Final = {"iVBOR": "image/png", "/9j/": "image/jpeg", "UklGR": "image/webp", "R0lGOD": "image/gif"}


def image_type(data: str, otherwise: str = "image/png") -> str:
    """The media type that base64 ``data`` begins like; ``otherwise`` where it begins like none we know.

    Example::

        image_type("iVBORw0KGgo=")  # "image/png"
    """
    return next((mime for start, mime in _BEGINNINGS.items() if data.startswith(start)), otherwise)


def split_data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 of a data URL; ``None`` for any other address.

    Example::

        split_data_url("data:image/png;base64,iVBORw0KGgo=")  # ("image/png", "iVBORw0KGgo=")
    """
    match = _DATA_URL.match(url)
    data = url[match.end() :] if match else ""
    return (match[1].lower(), data) if match and data else None


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
