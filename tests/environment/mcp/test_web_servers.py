"""N20 and N21 over HTTP, against the SDK's own server and against addresses where there is none."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import Context, Image, MCPServer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import uvicorn

from tests.environment.mcp.bench import Bench

pytestmark = pytest.mark.anyio
Connect = Callable[..., Bench]
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==")


class Site:
    """An ASGI application on a port of its own, and what it was asked."""

    def __init__(self, app: Any) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.app = app
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(
            self._noted, interface="asgi3", log_config=None, lifespan="on", timeout_graceful_shutdown=1
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]})
        self.thread.start()

    async def _noted(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {key.decode(): value.decode() for key, value in scope["headers"]}
            self.requests.append((scope["method"], headers))
        await self.app(scope, receive, send)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Any], Site]]:
    """Serve an application until the end of the test, after the environments are closed."""
    sites: list[Site] = []

    def start(app: Any) -> Site:
        sites.append(Site(app))
        return sites[-1]

    yield start
    for site in sites:
        site.stop()


@pytest.fixture
def connect(serve: object, connect: Connect) -> Connect:
    """As everywhere; asks for ``serve`` first, so that servers outlive their clients."""
    return connect


def sdk_server() -> MCPServer:
    server = MCPServer("sdk")

    @server.tool(structured_output=False)
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def facts() -> dict[str, int]:
        return {"answer": 42}

    @server.tool(structured_output=False)
    def picture() -> Image:
        return Image(data=PNG, format="png")

    @server.tool(structured_output=False)
    async def slowly(ctx: Context[Any, Any]) -> str:
        for step in range(3):
            await ctx.report_progress(step + 1, 3, f"step {step + 1}")
        return "ready"

    @server.tool(structured_output=False)
    def fail() -> str:
        raise ValueError("no luck")

    return server


def growing_server() -> MCPServer:
    server = MCPServer("growing")

    @server.tool(structured_output=False)
    async def grow(ctx: Context[Any, Any]) -> str:
        server.add_tool(lambda: "new", name="grown")
        await ctx.notify_tools_changed()  # to those of the newest protocol, who asked for it
        await ctx.session.send_tool_list_changed()  # to the others
        return "larger"

    return server


def http(site: Site, **config: Any) -> dict[str, Any]:
    return {"name": "web", "config": {"url": f"{site.address}/mcp", **config}}


async def sort_of_everything(bench: Bench) -> None:
    names = {"add", "facts", "picture", "slowly", "fail"}
    assert set(await bench.names()) == {f"mcp__web__{each}" for each in names}
    assert (await bench.call("mcp__web__add", a=1, b=2)).output == "3"
    assert '"answer": 42' in (await bench.call("mcp__web__facts")).output
    picture = await bench.call("mcp__web__picture")
    assert picture.images == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"]
    _, deltas = await bench.call_and_watch("mcp__web__slowly")
    assert deltas == ["[1/3] step 1\n", "[2/3] step 2\n", "[3/3] step 3\n", "ready"]
    failed = await bench.call("mcp__web__fail")
    assert failed.stop_reason == "failed"
    assert failed.output == "[tool error] Error executing tool fail"
    assert bench.reports == []


async def test_N20_streamable_http(connect: Connect, serve: Callable[[Any], Site]) -> None:
    site = serve(sdk_server().streamable_http_app())
    bench = connect(http(site, headers={"Authorization": "Bearer t0ken"}))
    await sort_of_everything(bench)
    await bench.environment.aclose()
    assert {headers.get("authorization") for _, headers in site.requests} == {"Bearer t0ken"}
    assert site.requests[-1][0] == "DELETE", "the session ends at the server too"


async def test_N20_streamable_http_with_plain_json_answers(connect: Connect, serve: Callable[[Any], Site]) -> None:
    site = serve(sdk_server().streamable_http_app(json_response=True, stateless_http=True))
    bench = connect(http(site))
    await bench.names()
    assert (await bench.call("mcp__web__add", a=1, b=2)).output == "3"


async def test_N20_the_older_protocol_over_events(connect: Connect, serve: Callable[[Any], Site]) -> None:
    site = serve(sdk_server().sse_app())
    bench = connect({"name": "web", "config": {"url": f"{site.address}/sse"}})
    await sort_of_everything(bench)
    await bench.environment.aclose()


@pytest.mark.parametrize("newest", [False, True])
async def test_D33_a_web_server_s_tools_are_read_again_after_a_change(
    connect: Connect, serve: Callable[[Any], Site], *, newest: bool
) -> None:
    app = growing_server().streamable_http_app()
    site = serve(_NewestOnly(app) if newest else app)
    bench = connect(http(site))
    assert await bench.names() == ["mcp__web__grow"]
    assert (await bench.call("mcp__web__grow")).output == "larger"
    with anyio.fail_after(10):
        while "mcp__web__grown" not in await bench.names():  # noqa: ASYNC110 - the server's thread tells nobody else
            await anyio.sleep(0.02)
    assert (await bench.call("mcp__web__grown")).stop_reason is None
    versions = {headers.get("mcp-protocol-version") for _, headers in site.requests} - {None}
    assert ("2026-07-28" in versions) is newest


class _NewestOnly:
    """Refuses the handshake of the older protocols."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        first = await receive()
        if b'"initialize"' in first.get("body", b""):
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        left = [first]

        async def replay() -> Any:
            return left.pop() if left else await receive()

        await self._app(scope, replay, send)


async def test_N21_a_web_server_that_was_restarted_is_found_again(
    connect: Connect, serve: Callable[[Any], Site]
) -> None:
    first, second = sdk_server().streamable_http_app(), sdk_server().streamable_http_app()
    site = serve(_Both(first, second))
    bench = connect(http(site))
    await bench.names()
    site.app.current = second  # which knows nothing of our session
    lost = await bench.call("mcp__web__add", a=1, b=2)
    assert lost.stop_reason == "failed"
    assert "answered with HTTP status 404" in lost.output
    assert (await bench.call("mcp__web__add", a=1, b=2)).output == "3"
    assert [each.state for each in bench.reports] == ["failed", "connected"]


class _Both:
    """Two applications, both started, one of which answers."""

    def __init__(self, first: Any, second: Any) -> None:
        self.current = first
        self._apps = (first, second)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self.current(scope, receive, send)
            return
        async with contextlib.AsyncExitStack() as stack:
            for app in self._apps:
                await stack.enter_async_context(app.router.lifespan_context(app))
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def answers_with(status: int) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for stage in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{stage}.complete"})
            return
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    return app


@pytest.mark.parametrize("status", [401, 404, 500])
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_N20_what_the_address_answered_is_in_the_reason(
    connect: Connect, serve: Callable[[Any], Site], status: int, kind: str
) -> None:
    site = serve(answers_with(status))
    bench = connect({"name": "web", "config": {"url": f"{site.address}/secret-path", "type": kind}})
    assert await bench.names() == []
    reason = bench.reports[0].reason
    assert reason == f"{site.address.removeprefix('http://')} answered with HTTP status {status}"


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_N20_an_address_where_nobody_listens(connect: Connect, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    bench = connect({"name": "web", "config": {"url": f"http://127.0.0.1:{port}/mcp", "type": kind}})
    assert await bench.names() == []
    assert (bench.reports[0].reason or "").startswith(f"127.0.0.1:{port} cannot be reached")


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_D31_a_web_server_that_never_answers(connect: Connect, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        bench = connect({"name": "web", "config": {"url": address, "type": kind, "timeout": 0.2}})
        assert await bench.names() == []
        assert bench.reports[0].state == "slow"
        await bench.environment.aclose()
