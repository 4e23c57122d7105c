"""The transport and the model over real sockets on the loopback."""

from __future__ import annotations

import gzip
import shutil
import socket
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener
from tests.support.llm_kit import DONE, STOP, Said, ask, config, text, usage

from penguin.llm import transport as transport_module
from penguin.llm.model import GenerativeModel
from penguin.llm.transport import HttpTransport, is_loopback
from penguin.protocol.builders import user_text
from penguin.protocol.interfaces import GenerateRequest

pytestmark = pytest.mark.anyio
Handler = Callable[[ByteStream, bytes], Awaitable[bool]]


@dataclass
class Server:
    """Answers each request with a handler; remembers requests, and counts connections and their ends."""

    port: int
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    hung_up: anyio.Event = field(default_factory=anyio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server on plain sockets; ``handler`` returns whether the connection stays open for another request."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server = Server(listener.extra(SocketAttribute.local_port))

    async def connection(stream: ByteStream) -> None:
        server.connections += 1
        async with stream:
            while (request := await _request(stream)) is not None:
                server.requests.append(request)
                if not await handler(stream, request):
                    return
        server.hung_up.set()

    async with anyio.create_task_group() as group:
        over: Any = listener if tls is None else TLSListener(listener, tls, standard_compatible=False)
        group.start_soon(over.serve, connection)
        yield server
        group.cancel_scope.cancel()
    await listener.aclose()


async def _request(stream: ByteStream) -> bytes | None:
    data = b""
    while True:
        head, found, body = data.partition(b"\r\n\r\n")
        if found and len(body) >= _length(head):
            return data
        try:
            data += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return None


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


def chunked(*pieces: bytes, headers: bytes = b"content-type: text/event-stream\r\n", end: bool = True) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return (
        b"HTTP/1.1 200 OK\r\n" + headers + b"transfer-encoding: chunked\r\n\r\n" + body + (b"0\r\n\r\n" if end else b"")
    )


def sending(data: bytes, *, keep: bool = True) -> Handler:
    async def handler(stream: ByteStream, _: bytes) -> bool:
        await stream.send(data)
        return keep

    return handler


@asynccontextmanager
async def model_of(url: str, **changes: Any) -> AsyncIterator[GenerativeModel]:
    one = GenerativeModel(config(base_url=url, **changes))
    try:
        yield one
    finally:
        await one.aclose()
        await one.aclose()


async def once(handler: Handler) -> Said:
    async with serving(handler) as server, model_of(server.url) as one:
        return await ask(one)


REPLY = (text("Hel"), text("lo"), STOP, usage(), DONE)


async def test_a_reply_and_the_connection_used_again() -> None:
    async with serving(sending(chunked(*REPLY))) as server, model_of(server.url, api_key="k") as one:
        first, second = await ask(one), await ask(one)
    assert (first.texts(), second.texts()) == (["Hello"], ["Hello"])
    assert server.connections == 1
    head = server.requests[0].lower()
    assert head.startswith(b"post /v1/chat/completions http/1.1\r\n")
    assert b"authorization: bearer k\r\n" in head
    assert b"user-agent: penguin-harness/" in head


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compressed_stream_nobody_asked_for(encoding: str) -> None:
    body = b"".join(REPLY)
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
    headers = f"content-type: text/event-stream\r\ncontent-encoding: {encoding}\r\n".encode()
    said = await once(sending(chunked(*(packed[i : i + 7] for i in range(0, len(packed), 7)), headers=headers)))
    assert said.texts() == ["Hello"]
    assert said.outcome.status == "completed"


async def test_a_body_that_is_not_what_it_says() -> None:
    headers = b"content-encoding: gzip\r\n"
    said = await once(sending(chunked(b"plain", headers=headers)))
    assert said.outcome.status == "malformed"


async def test_D10_the_connection_breaks_in_the_middle() -> None:
    said = await once(sending(chunked(text("Half"), end=False), keep=False))
    assert (said.outcome.status, said.texts(), said.stop_reasons()) == ("malformed", ["Half"], ["malformed"])


async def test_L4_after_the_finish_a_broken_connection_is_nothing() -> None:
    said = await once(sending(chunked(text("Whole"), STOP, end=False), keep=False))
    assert (said.outcome.status, said.texts()) == ("completed", ["Whole"])


async def test_a_connection_closed_without_an_answer_is_a_timeout() -> None:
    said = await once(sending(b"", keep=False))
    assert said.outcome.error is not None
    assert (said.outcome.status, said.outcome.error.kind) == ("timeout", "network")


async def test_nobody_listens() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        async with model_of(f"http://127.0.0.1:{reserved.getsockname()[1]}/v1") as one:
            said = await ask(one)
    assert said.outcome.error is not None
    assert (said.outcome.status, said.outcome.error.kind) == ("timeout", "network")
    assert "127.0.0.1" in said.outcome.error.message


async def test_not_http_at_all() -> None:
    said = await once(sending(b"SSH-2.0-OpenSSH_9.6\r\n", keep=False))
    assert said.outcome.status == "timeout"


async def test_cancelling_really_closes_the_connection() -> None:
    async def stall(stream: ByteStream, _: bytes) -> bool:
        await stream.send(chunked(text("Half"), end=False))
        return True

    async with serving(stall) as server, model_of(server.url) as one:
        with anyio.CancelScope() as scope:
            await one.stream_generate(GenerateRequest([user_text("go")]), lambda _: scope.cancel())
        with anyio.fail_after(5):
            await server.hung_up.wait()


async def test_a_timeout_really_closes_the_connection() -> None:
    async def stall(stream: ByteStream, _: bytes) -> bool:
        await stream.send(chunked(text("Half"), end=False))
        return True

    async with serving(stall) as server, model_of(server.url, request_timeout_ms=50) as one:
        said = await ask(one)
        with anyio.fail_after(5):
            await server.hung_up.wait()
    assert said.outcome.status == "timeout"


async def test_errors_do_not_use_up_connections() -> None:
    refusal = b"HTTP/1.1 429 Too Many\r\nretry-after: 3\r\ncontent-length: 2\r\n\r\n{}"
    async with serving(sending(refusal)) as server, model_of(server.url) as one:
        outcomes = [(await ask(one)).outcome for _ in range(3)]
    assert {outcome.error.retry_after for outcome in outcomes if outcome.error} == {3.0}
    assert server.connections == 1


# --- proxies and certificates (L19) -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_L19_a_proxy_is_used(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    async with serving(sending(chunked(*REPLY))) as proxy:
        monkeypatch.setenv(name, f"http://user:secret-word@127.0.0.1:{proxy.port}")
        async with model_of("http://provider.example/v1") as one:
            said = await ask(one)
    assert said.texts() == ["Hello"]
    assert proxy.requests[0].startswith(b"POST http://provider.example/v1/chat/completions HTTP/1.1")


async def test_L19_https_goes_through_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(sending(b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret-word@127.0.0.1:{proxy.port}")
        async with model_of("https://provider.example/v1") as one:
            said = await ask(one)
    assert proxy.requests[0].startswith(b"CONNECT provider.example:443 HTTP/1.1")
    assert said.outcome.status == "timeout"
    assert "secret-word" not in repr(said.outcome)


async def test_L19_loopback_is_never_proxied(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(sending(b"", keep=False)) as proxy, serving(sending(chunked(*REPLY))) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        for host in ("127.0.0.1", "localhost"):
            async with model_of(f"http://{host}:{server.port}/v1") as one:
                assert (await ask(one)).texts() == ["Hello"]
    assert proxy.connections == 0


async def test_L19_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "is_loopback", lambda _: False)
    async with serving(sending(b"", keep=False)) as proxy, serving(sending(chunked(*REPLY))) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "example.org,127.0.0.1")
        async with model_of(server.url) as one:
            assert (await ask(one)).texts() == ["Hello"]
    assert proxy.connections == 0


async def test_an_unusable_proxy_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "gopher://127.0.0.1:1")
    async with model_of("https://provider.example/v1") as one:
        said = await ask(one)
    assert said.outcome.status == "timeout"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate with")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1", "-nodes"]
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", *subject]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


async def test_L19_ssl_cert_file(certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch) -> None:
    cert, context = certificate
    async with serving(sending(chunked(*REPLY)), context) as server:
        url = server.url.replace("http:", "https:")
        async with model_of(url) as one:
            assert (await ask(one)).outcome.status == "timeout"
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        async with model_of(url) as one:
            assert (await ask(one)).texts() == ["Hello"]


async def test_L19_a_certificate_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/at-all.pem")
    async with model_of("https://127.0.0.1:9/v1") as one:
        assert (await ask(one)).outcome.status == "timeout"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("model.localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", True),
        ("localhost.example.org", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_L19_what_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


async def test_a_closed_transport_opens_again() -> None:
    async with serving(sending(chunked(*REPLY))) as server:
        shared = HttpTransport()
        one = GenerativeModel(config(base_url=server.url), transport=shared)
        await ask(one)
        await shared.aclose()
        assert (await ask(one)).texts() == ["Hello"]
        await shared.aclose()
    assert server.connections == 2
