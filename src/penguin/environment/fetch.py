"""Fetching a small file from the public web; every hop goes through the address filter (N17)."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from penguin.environment.addresses import RefusedAddress, resolve_public

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PIECE = 64 * 1024


class FetchError(Exception):
    """The file was not fetched; the text says why, for the model."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """``size`` in bytes, ``seconds`` for the whole, ``redirects`` hops."""

    size: int = 20 * 1024 * 1024
    seconds: float = 30.0
    redirects: int = 5


def fetch(url: str, limits: FetchLimits | None = None, allowed_hosts: Collection[str] = ()) -> bytes:
    """Fetch ``url``; blocks, so call it in a worker thread.

    Connects to the very address that was checked, so a name server cannot answer twice differently.

    Raises:
        FetchError: not http(s), a refused address, an error status, too large, too slow.

    Example::

        await anyio.to_thread.run_sync(fetch, "https://example.org/logo.png")
    """
    bounds = limits or FetchLimits()
    deadline = time.monotonic() + bounds.seconds
    for _ in range(bounds.redirects + 1):
        answer = _hop(url, bounds, deadline, allowed_hosts)
        if isinstance(answer, bytes):
            return answer
        url = urljoin(url, answer)
    raise FetchError(f"more than {bounds.redirects} redirects")


def _hop(url: str, limits: FetchLimits, deadline: float, allowed_hosts: Collection[str]) -> bytes | str:
    """The content, or where the server sends us instead."""
    parts = _checked(url)
    connection = _connection(parts, deadline, allowed_hosts)
    try:
        connection.request("GET", _target(parts), headers={"User-Agent": "penguin", "Accept": "image/*,*/*;q=0.5"})
        response = connection.getresponse()
        location = response.getheader("Location")
        if response.status in _REDIRECTS and location:
            return location
        if response.status != http.client.OK:
            raise FetchError(f"{parts.hostname} answered {response.status} {response.reason}")
        return _content(response, limits, deadline)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(f"{parts.hostname}: {_words(error)}") from None
    finally:
        connection.close()


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise FetchError(f"not a usable URL: {error}") from None
    if parts.scheme not in {"http", "https"}:
        raise FetchError(f"only http and https are fetched, not {parts.scheme or 'a relative address'}")
    if not parts.hostname:
        raise FetchError("the URL names no host")
    return parts


def _connection(parts: SplitResult, deadline: float, allowed_hosts: Collection[str]) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        addresses = resolve_public(host, port, allowed_hosts)
        plain = _first_open([str(address) for address in addresses], port, deadline)
        if parts.scheme == "https":
            plain = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    except RefusedAddress as error:
        raise FetchError(str(error)) from None
    except (OSError, UnicodeError) as error:
        raise FetchError(f"{host}: {_words(error)}") from None
    connection = http.client.HTTPConnection(host, port)
    # An open socket is handed over, so that the library does not look the name up again.
    connection.sock = plain
    return connection


def _first_open(addresses: list[str], port: int, deadline: float) -> socket.socket:
    trouble: OSError | None = None
    for address in addresses:
        try:
            return socket.create_connection((address, port), timeout=_left(deadline))
        except OSError as error:
            trouble = error
    raise trouble or OSError("the name stands for no address")


def _content(response: http.client.HTTPResponse, limits: FetchLimits, deadline: float) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(_PIECE):
        size += len(piece)
        if size > limits.size:
            raise FetchError(f"the file is larger than {limits.size // (1024 * 1024)} MB")
        _left(deadline)
        pieces.append(piece)
    return b"".join(pieces)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise FetchError("it took too long")
    return left


def _target(parts: SplitResult) -> str:
    target = parts.path or "/"
    return f"{target}?{parts.query}" if parts.query else target


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
