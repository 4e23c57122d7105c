"""The one place that opens a connection to a provider.

:class:`Transport` is the port: a request goes out, a status, headers and chunks of bytes come back.
:class:`HttpTransport` implements it on httpx2, imported when the first request is sent: the import
and the certificates cost a quarter of a second, which ``penguin --version`` must not pay.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

    import httpx2

_CONNECT_SECONDS = 30.0
_POOL_SECONDS = 30.0
_IDLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is sent; headers and body are left out of ``repr`` since they hold the key and the conversation."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What came back; header names are lower case, ``chunks`` are decompressed bytes as they arrive."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class TransportError(Exception):
    """The connection failed; the text is for people and names no key.

    ``sent`` is false while it is certain that the provider has not seen the request.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class UndecodableBody(TransportError):
    """The response is compressed in a way that cannot be undone."""


class Transport(Protocol):
    """Sends one request at a time per call; no retries, no redirects."""

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpResponse]:
        """Send ``request``; leaving the block before the end closes the connection.

        Raises:
            TransportError: on entering the block or while reading ``chunks``.
        """
        ...

    async def aclose(self) -> None:
        """Close idle connections; may be called more than once."""
        ...


class HttpTransport:
    """:class:`Transport` on httpx2: connections are reused, loopback is never proxied (L19).

    ``HTTPS_PROXY``, ``NO_PROXY`` and ``SSL_CERT_FILE`` are read when the first request of a kind is
    sent. There is no read timeout here: the clocks of a request belong to the model (L5).
    """

    def __init__(self) -> None:
        self._clients: dict[tuple[bool, bool], httpx2.AsyncClient] = {}

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpResponse]:
        """See :meth:`Transport.stream`."""
        import httpx2  # noqa: PLC0415 - see the module's docstring

        sent = False
        try:
            client = self._client_for(request.url)
            outgoing = client.build_request(
                request.method, request.url, headers=dict(request.headers), content=request.body
            )
            response = await client.send(outgoing, stream=True)
            sent = True
        except (httpx2.HTTPError, httpx2.InvalidURL, ImportError, OSError, ValueError) as error:
            raise TransportError(_describe(error, request.url), sent=sent or _may_have_arrived(error)) from None
        try:
            yield HttpResponse(response.status_code, _lowered(response.headers), _chunks(response, request.url))
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """See :meth:`Transport.aclose`."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()

    def _client_for(self, url: str) -> httpx2.AsyncClient:
        parts = urlsplit(url)
        kind = (parts.scheme == "https", is_loopback(parts.hostname or ""))
        if kind not in self._clients:
            self._clients[kind] = _new_client(encrypted=kind[0], loopback=kind[1])
        return self._clients[kind]


def _new_client(*, encrypted: bool, loopback: bool) -> httpx2.AsyncClient:
    import httpx2  # noqa: PLC0415 - see the module's docstring

    # Reading the certificates takes longer than everything else before the first byte, so a plain
    # connection to this machine goes without; one that may meet an https proxy does not.
    verify = _certificates(*_certificate_settings()) if encrypted or not loopback else _nothing()
    return httpx2.AsyncClient(
        verify=verify,
        trust_env=not loopback,
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS, pool=_POOL_SECONDS),
        # Longer than the five seconds of the library: a tool may well run for half a minute between two requests.
        limits=httpx2.Limits(keepalive_expiry=_IDLE_SECONDS),
        follow_redirects=False,
    )


@lru_cache(maxsize=1)
def _nothing() -> ssl.SSLContext:
    """For connections without encryption; ``verify=False`` would build such a context for each client, 9 ms each."""
    import ssl  # noqa: PLC0415 - see the module's docstring

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _certificate_settings() -> tuple[str | None, str | None]:
    return os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")


@lru_cache(maxsize=4)
def _certificates(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    """Shared by all models of the process; the arguments are the key, the library reads them itself."""
    import httpx2  # noqa: PLC0415 - see the module's docstring

    return httpx2.create_ssl_context()


async def _chunks(response: httpx2.Response, url: str) -> AsyncIterator[bytes]:
    import httpx2  # noqa: PLC0415 - see the module's docstring

    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    source = response.aiter_raw() if encoding == "identity" else response.aiter_bytes()
    try:
        async for chunk in source:
            yield chunk
    except httpx2.DecodingError:
        raise UndecodableBody(f"the answer is marked as {encoding} and is not") from None
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise TransportError(_describe(error, url)) from None


def _lowered(headers: httpx2.Headers) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _may_have_arrived(error: Exception) -> bool:
    return type(error).__name__ not in {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "InvalidURL"}


def _describe(error: Exception, url: str) -> str:
    """The library's words with the host in front; many of its errors are empty, so the type stands in."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    words = str(error).strip() or _WORDS.get(type(error).__name__, type(error).__name__)
    return f"{host}: {words}"


_WORDS = {
    "ReadError": "the connection broke",
    "WriteError": "the connection broke while sending",
    "ConnectTimeout": f"no connection within {_CONNECT_SECONDS:.0f} s",
    "ConnectError": "no connection",
    "PoolTimeout": "no free connection",
}


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a name or an address, no port) is this machine.

    Example::

        is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("example.org")  # True, True, False
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
