"""A call to an MCP server over stdio, from ``execute_tool`` to the output, against the bare exchange of two lines."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from _measure import Report, cpu_seconds, median

from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.protocol.builders import tool_call
from penguin.protocol.interfaces import ToolExecutionRequest
from penguin.protocol.messages import Message, ToolCallOutput

CALLS = 300
ROUNDS = 5
SERVER = """
import json, sys
tools = [{"name": "echo", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}]
for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "echo", "version": "1"}}
        case "tools/list":
            result = {"tools": tools}
        case "tools/call":
            result = {"content": [{"type": "text", "text": str(message["params"]["arguments"]["n"])}]}
        case _:
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def bare() -> float:
    """Seconds of one exchange with nothing between us and the server."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        spent = []
        for number in range(CALLS):
            params = {"name": "echo", "arguments": {"n": number}}
            line = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}) + "\n"
            before = time.perf_counter()
            server.stdin.write(line.encode())
            server.stdin.flush()
            server.stdout.readline()
            spent.append(time.perf_counter() - before)
        server.stdin.close()
    return median(spent)


async def called(environment: Environment) -> float:
    """Seconds of one call as an engine makes it."""
    spent = []
    for number in range(CALLS):
        messages: list[Message] = []
        request = ToolExecutionRequest(tool_call("mcp__echo__echo", f'{{"n": {number}}}', "call_1"))
        before = time.perf_counter()
        await environment.execute_tool(request, messages.append)
        spent.append(time.perf_counter() - before)
        answer = messages[-1].payload
        assert isinstance(answer, ToolCallOutput)
        assert answer.output == str(number)
    return median(spent)


async def main() -> int:
    report = Report()
    entry: dict[str, Any] = {"name": "echo", "config": {"command": sys.executable, "args": ["-c", SERVER]}}
    with tempfile.TemporaryDirectory() as workspace:
        config = EnvironmentConfig(Path(workspace), ToolConfig(builtin=(), mcp_servers=[entry]))
        environment = Environment(config)
        before = cpu_seconds()
        await environment.list_tools()
        report.figure("MCP: load the SDK, connect and list, CPU", cpu_seconds() - before, "s")
        over = [await called(environment) - bare() for _ in range(ROUNDS)]
        report.figure("MCP: a call, over the server's own time", median(over) * 1000, "ms", 3.0)
        before = time.perf_counter()
        await environment.aclose()
        report.figure("MCP: end a server", (time.perf_counter() - before) * 1000, "ms")
    return report.status


if __name__ == "__main__":
    sys.exit(anyio.run(main))
