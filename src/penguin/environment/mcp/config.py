"""An entry of ``tools.mcpServers``: what may stand in it, and what it means."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from penguin.protocol.errors import ConfigError, ConfigProblem
from penguin.protocol.interfaces import Permission

Transport: TypeAlias = Literal["stdio", "http", "sse"]

_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
_STDIO_ONLY = ("command", "args", "env", "cwd")
_WEB_ONLY = ("url", "headers")
_log = logging.getLogger("penguin.environment.mcp")

Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


class _Written(msgspec.Struct, kw_only=True):
    """What ``config`` may hold, with the spellings of other programs' files."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str | int | float | bool] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str | int | float | bool] = {}
    type: str | None = None
    transport: str | None = None
    timeout: Seconds = 10.0
    tool_timeout: Seconds | None = None
    permission: Permission | None = None
    enabled: bool = True
    disabled: bool = False
    tools: list[str] | None = None


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """One server. ``repr`` hides what may hold keys.

    ``timeout`` (seconds) is how long a session waits for it to connect, ``tool_timeout`` (seconds) limits one call and
    is the framework's default when ``None``. ``permission`` overrides what the server says of its tools; ``tools``
    names those that are offered, as the server calls them, ``None`` is all. ``cwd`` may be relative to the workspace.
    """

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 10.0
    tool_timeout: float | None = None
    permission: Permission | None = None
    enabled: bool = True
    tools: frozenset[str] | None = None


def read_servers(entries: Iterable[Mapping[str, Any]]) -> list[McpServerConfig]:
    """The servers of ``tools.mcpServers``, disabled ones included.

    Raises:
        ConfigError: An entry is wrong; the text names the server, the field and what is allowed.

    Example::

        read_servers([{"name": "files", "config": {"command": "mcp-files", "args": ["."]}}])
    """
    servers: list[McpServerConfig] = []
    for number, entry in enumerate(entries):
        server = _read_entry(number, entry)
        if any(server.name == other.name for other in servers):
            raise _wrong(server.name, "name", "another server has the same name")
        servers.append(server)
    return servers


def _read_entry(number: int, entry: Mapping[str, Any]) -> McpServerConfig:
    name, settings = entry.get("name"), entry.get("config")
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(ConfigProblem(None, "every server needs a name", field=f"tools.mcpServers[{number}].name"))
    if not isinstance(settings, Mapping):
        raise _wrong(name, None, "there must be a mapping with a command (stdio) or a url (HTTP)")
    _warn_of_unknown(name, settings)
    try:
        written = msgspec.convert(dict(settings), _Written)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at ")
        raise _wrong(name, place.strip("`").removeprefix("$.").removeprefix("$") or None, message) from None
    return _resolved(name, written)


def _resolved(name: str, written: _Written) -> McpServerConfig:
    transport = _transport(name, written)
    _check_fields(name, written, transport)
    return McpServerConfig(
        name=name,
        transport=transport,
        command=written.command or "",
        args=tuple(written.args),
        env={key: _text(value) for key, value in written.env.items()},
        cwd=Path(written.cwd).expanduser() if written.cwd else None,
        url=written.url or "",
        headers={key: _text(value) for key, value in written.headers.items()},
        timeout=written.timeout,
        tool_timeout=written.tool_timeout,
        permission=written.permission,
        enabled=written.enabled and not written.disabled,
        tools=None if written.tools is None else frozenset(written.tools),
    )


def _transport(name: str, written: _Written) -> Transport:
    """What the entry says, or what follows from its fields."""
    if written.type and written.transport and _TRANSPORTS.get(written.type) != _TRANSPORTS.get(written.transport):
        raise _wrong(name, "transport", f"it contradicts type {written.type!r}; write one of them")
    if said := written.type or written.transport:
        if said not in _TRANSPORTS:
            raise _wrong(name, "type" if written.type else "transport", f"{said!r} is none of {', '.join(_TRANSPORTS)}")
        return _TRANSPORTS[said]
    if written.command and written.url:
        raise _wrong(name, "url", "a server has a command or a url, not both")
    if written.command:
        return "stdio"
    if written.url:
        # Servers of the older protocol answer at /sse by custom, and nothing else does.
        return "sse" if urlsplit(written.url).path.rstrip("/").endswith("/sse") else "http"
    raise _wrong(name, "command", "missing: a server needs a command (stdio) or a url (HTTP)")


def _check_fields(name: str, written: _Written, transport: Transport) -> None:
    needed, foreign = ("command", _WEB_ONLY) if transport == "stdio" else ("url", _STDIO_ONLY)
    if not getattr(written, needed):
        raise _wrong(name, needed, f"missing: a server of type {transport} needs it")
    for each in foreign:
        if getattr(written, each):
            raise _wrong(name, each, f"a server of type {transport} does not have it")
    if transport != "stdio" and not _is_web_address(written.url or ""):
        raise _wrong(name, "url", "it must begin with http:// or https:// and name a host")
    for each in (written.command or "", *written.args, *written.env, *map(_text, written.env.values())):
        if "\0" in each:
            raise _wrong(name, needed, "a NUL character cannot be passed to a process")


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _warn_of_unknown(name: str, settings: Mapping[str, Any]) -> None:
    # Not an error: entries are copied between programs, and each has settings of its own.
    for key in settings:
        if key not in _Written.__struct_fields__:
            near = difflib.get_close_matches(str(key), _Written.__struct_fields__, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            _log.warning("MCP server %s: the setting %s means nothing here%s", name, key, hint)


def _text(value: str | float) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def _wrong(name: str, field_name: str | None, message: str) -> ConfigError:
    place = f"tools.mcpServers.{name}.config" + (f".{field_name}" if field_name else "")
    return ConfigError(ConfigProblem(None, message, field=place.replace(".config.name", ".name")))
