"""Keys do not belong on a screen or in a log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_SECRET_NAME = re.compile(r"(_API_KEY|_AUTH_TOKEN|_ACCESS_TOKEN|_SECRET|_PASSWORD)$", re.IGNORECASE)
_SHORTEST = 8
_SHAPES = re.compile(
    r"(?P<lead>\b(?:authorization|x-api-key|x-goog-api-key)[\"']?\s*[:=]\s*[\"']?(?:bearer\s+)?)"
    r"[^\s\"',}]+"
    r"|\bsk-[A-Za-z0-9_-]{12,}",
    re.IGNORECASE,
)
HIDDEN = "[hidden]"


def redacted(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """``text`` without the values of key variables and without whatever has the shape of a key.

    Example::

        redacted("Authorization: Bearer abc.def", {})  # "Authorization: Bearer [hidden]"
    """
    for name, value in environment.items():
        if len(value) >= _SHORTEST and _SECRET_NAME.search(name):
            text = text.replace(value, HIDDEN)
    return _SHAPES.sub(lambda found: f"{found['lead'] or ''}{HIDDEN}", text)


def masked(secret: str | None) -> str:
    """A key in a list: enough to tell two apart, too little to use one.

    Example::

        masked("sk-1234567890abcd")  # "sk-…abcd"
    """
    if not secret:
        return "none"
    return f"{secret[:3]}…{secret[-4:]}" if len(secret) >= 2 * _SHORTEST else "set"


def without_login(url: str) -> str:
    """An address without a name and password before the host (L17).

    Example::

        without_login("http://me:secret@127.0.0.1:8080/v1")  # "http://127.0.0.1:8080/v1"
    """
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
