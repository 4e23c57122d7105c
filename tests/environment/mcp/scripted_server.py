"""A stdio server of few lines that answers as a JSON file tells it, well or badly: ``scripted_server.py script.json``.

- ``tools`` (a list) or ``pages`` (lists of lists); ``results``, ``errors``, ``progress`` (steps) by name of the tool
- ``junk``, ``stderr`` (bytes), ``string_ids``: bad manners
- ``silent``: never answers; ``hold``: a file that must exist before initialize is answered
- ``refuse_initialize``, ``newest``: speaks only the newest protocol, or none
- ``die_before``, ``die_on`` (a tool); ``stay``: ignores TERM and the end of its input
- ``asks`` (by tool): a request the server makes first; ``grow_on`` (a tool): adds a tool and says so
- ``log``: a file that gets every message; ``child``: one that gets the number of a grandchild in its own session
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

script: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
pages: list[list[Any]] = script.get("pages") or [script.get("tools", [])]
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
out = sys.stdout.buffer


def put(data: bytes) -> None:
    out.write(data)
    out.flush()


def send(message: dict[str, Any]) -> None:
    put(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def note(message: Any) -> None:
    if "log" in script:
        with Path(script["log"]).open("a") as log:
            log.write(json.dumps(message) + "\n")


def answer(number: Any, result: Any) -> None:
    send({"id": str(number) if script.get("string_ids") else number, "result": result})
    if script.get("junk"):
        put(b"done\n")


def discover(message: dict[str, Any]) -> None:
    if not script.get("newest"):
        send({"id": message["id"], "error": {"code": -32601, "message": "nor this one"}})
        return
    answer(message["id"], {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}} | COMPLETE)


def initialize(message: dict[str, Any]) -> None:
    if script.get("die_before"):
        sys.stderr.write("no token, no service\n")
        sys.exit(3)
    if script.get("refuse_initialize") or script.get("newest"):
        send({"id": message["id"], "error": {"code": -32601, "message": "not this one"}})
        return
    while "hold" in script and not Path(script["hold"]).exists():
        time.sleep(0.01)
    answer(
        message["id"],
        {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "scripted", "version": "1"},
        },
    )


def listing(message: dict[str, Any]) -> None:
    index = int((message.get("params") or {}).get("cursor", "p0")[1:])
    result: dict[str, Any] = {"tools": pages[index], **(COMPLETE if script.get("newest") else {})}
    if index + 1 < len(pages):
        result["nextCursor"] = f"p{index + 1}"
    answer(message["id"], result)


def call(message: dict[str, Any]) -> None:
    name, number = message["params"]["name"], message["id"]
    if name == script.get("die_on"):
        os._exit(7)
    if name in script.get("asks", {}):
        send({"id": "asked", **script["asks"][name]})
        reply = json.loads(sys.stdin.readline())
        note(reply)
    for step in range(script.get("progress", {}).get(name, 0)):
        token = message["params"]["_meta"]["progressToken"]
        send(
            {
                "method": "notifications/progress",
                "params": {"progressToken": token, "progress": step + 1, "total": 3, "message": f"step {step + 1}"},
            }
        )
    if name == script.get("grow_on"):
        pages[-1].append({"name": "grown", "inputSchema": {"type": "object"}})
        send({"method": "notifications/tools/list_changed"})
    if name in script.get("errors", {}):
        send({"id": number, "error": script["errors"][name]})
    elif name in script.get("results", {}):
        answer(number, script["results"][name])
    elif name == "environment":
        answer(number, {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]})
    elif name == "half_character":
        put(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\xffb \\ud83d c"}]}}\n' % number)
    elif name != "never":
        text = json.dumps(message["params"].get("arguments"))
        answer(number, {"content": [{"type": "text", "text": text}], "resultType": "complete"})


def main() -> None:
    if "child" in script:
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        Path(script["child"]).write_text(str(child.pid))
    if script.get("stay"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if script.get("junk"):
        put(b'Starting v1...\n\n{"not":"rpc"}\n\xff\xfe\x80 not UTF-8\n')
    sys.stderr.write("e" * script.get("stderr", 0))
    sys.stderr.flush()
    steps = {"server/discover": discover, "initialize": initialize, "tools/list": listing, "tools/call": call}
    while line := sys.stdin.readline():
        message = json.loads(line)
        note(message)
        if message.get("method") in steps and not script.get("silent"):
            steps[message["method"]](message)
    while script.get("stay"):
        time.sleep(1)


main()
