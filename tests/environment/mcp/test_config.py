"""What may stand in an entry of `tools.mcpServers`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from penguin.environment.mcp.config import read_servers
from penguin.protocol.errors import ConfigError


def read_one(**config: Any) -> Any:
    (server,) = read_servers([{"name": "s", "config": config}])
    return server


@pytest.mark.parametrize(
    ("config", "transport"),
    [
        ({"command": "x"}, "stdio"),
        ({"command": "x", "type": "stdio"}, "stdio"),
        ({"url": "http://127.0.0.1/mcp"}, "http"),
        ({"url": "http://127.0.0.1/mcp", "type": "http"}, "http"),
        ({"url": "http://127.0.0.1/mcp", "type": "streamable-http"}, "http"),
        ({"url": "http://127.0.0.1/mcp", "transport": "streamable-http"}, "http"),
        ({"url": "http://127.0.0.1/mcp", "type": "sse"}, "sse"),
        ({"url": "http://127.0.0.1/sse"}, "sse"),
        ({"url": "http://127.0.0.1/sse", "type": "http"}, "http"),
    ],
)
def test_N20_the_transport_follows_from_the_fields(config: dict[str, Any], transport: str) -> None:
    assert read_one(**config).transport == transport


def test_N20_everything_an_entry_may_say() -> None:
    server = read_one(
        command="npx",
        args=["-y", "pkg"],
        env={"LEVEL": 3, "ON": True, "NAME": "x"},
        cwd="sub",
        timeout=2,
        tool_timeout=0.5,
        permission="r",
        enabled=False,
        tools=["a"],
    )
    assert (server.command, server.args, server.cwd) == ("npx", ("-y", "pkg"), Path("sub"))
    assert server.env == {"LEVEL": "3", "ON": "true", "NAME": "x"}
    assert (server.timeout, server.tool_timeout, server.permission) == (2, 0.5, "r")
    assert (server.enabled, server.tools) == (False, {"a"})


def test_N20_defaults() -> None:
    server = read_one(command="x")
    assert (server.timeout, server.tool_timeout, server.permission, server.enabled) == (10, None, None, True)
    assert server.tools is None
    assert not read_one(command="x", disabled=True).enabled


@pytest.mark.parametrize(
    ("config", "field", "words"),
    [
        ({}, "s.config.command", "a command (stdio) or a url (HTTP)"),
        ({"command": 3}, "s.config.command", "Expected `str"),
        ({"command": "x", "args": "a b"}, "s.config.args", "Expected `array`"),
        ({"command": "x", "args": ["a", 1]}, "s.config.args[1]", "Expected `str`"),
        ({"command": "x", "env": {"A": None}}, "s.config.env", "got `null`"),
        ({"command": "x", "timeout": 0}, "s.config.timeout", "> 0"),
        ({"command": "x", "permission": "rwx"}, "s.config.permission", "rwx"),
        ({"command": "x", "url": "http://h"}, "s.config.url", "not both"),
        ({"command": "x", "type": "sse"}, "s.config.url", "missing"),
        ({"url": "http://h", "type": "http", "env": {"A": "b"}}, "s.config.env", "does not have it"),
        ({"url": "h/mcp"}, "s.config.url", "http://"),
        ({"url": "http://h:port/"}, "s.config.url", "http://"),
        ({"url": "http://h", "type": "websocket"}, "s.config.type", "streamable-http"),
        ({"url": "http://h", "type": "http", "transport": "sse"}, "s.config.transport", "contradicts"),
        ({"command": "x", "args": ["a\0b"]}, "s.config.command", "NUL"),
        ({"command": "x", "tools": "all"}, "s.config.tools", "Expected `array"),
    ],
)
def test_N20_a_wrong_entry_names_server_and_field(config: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_one(**config)
    assert (caught.value.problem.field or "").startswith(f"tools.mcpServers.{field}")
    assert words in str(caught.value)


def test_N20_names_are_needed_and_differ() -> None:
    with pytest.raises(ConfigError, match=r"tools\.mcpServers\[0\]\.name"):
        read_servers([{"config": {"command": "x"}}])
    with pytest.raises(ConfigError, match=r"tools\.mcpServers\.s\.config"):
        read_servers([{"name": "s"}])
    with pytest.raises(ConfigError, match=r"tools\.mcpServers\.s\.name: another server"):
        read_servers([{"name": "s", "config": {"command": "x"}}] * 2)


def test_an_unknown_setting_is_no_error_but_does_not_pass_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        read_one(command="x", autoApprove=[], tiemout=3)
    assert "autoApprove" in caplog.text
    assert "did you mean timeout?" in caplog.text


def test_keys_do_not_show_in_a_repr() -> None:
    servers = read_servers(
        [
            {"name": "a", "config": {"command": "x", "env": {"TOKEN": "s3cret"}, "args": ["--key", "s3cret"]}},
            {"name": "b", "config": {"url": "http://h/s3cret", "headers": {"Authorization": "s3cret"}}},
        ]
    )
    assert "s3cret" not in repr(servers)
