"""An HTTP server that answers from a table, as the servers of other makers do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Table:
    """``routes`` maps a path to a status and what is said; everything else gets ``otherwise``."""

    routes: Mapping[str, tuple[int, Any]]
    otherwise: tuple[int, Any] = (404, {"detail": "Not Found"})
    wants: tuple[str, str] | None = None
    """A header and its value, without which ``denied`` is the answer to everything."""
    denied: tuple[int, Any] = (401, {"detail": "Unauthorized"})
    port: int = 0
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
        if self.wants is not None and headers.get(self.wants[0]) != self.wants[1]:
            return self.denied
        return self.routes.get(path, self.otherwise)


@contextmanager
def serving_table(table: Table) -> Iterator[Table]:
    """Serve until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            table.requests.append((self.command, self.path, headers))
            status, said = table.answer(self.path, headers)
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            if 300 <= status < 400:
                self.send_header("location", "https://elsewhere.example/v1")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_OPTIONS = do_HEAD = _answer  # noqa: N815 - the library's names

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # with the usual 5 a burst of connections waits for a second

    server = Server(("127.0.0.1", table.port), Handler)
    table.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield table
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
