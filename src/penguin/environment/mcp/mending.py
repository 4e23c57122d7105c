"""Answers that are nearly right, put right before the SDK refuses them as a whole (D34).

The SDK checks every answer against the protocol's schema: one tool without ``inputSchema`` costs all tools of a server,
one result without ``content`` looks like a failed call. Both are common. A transport is wrapped, and the answers to
two kinds of request are corrected on their way in; everything else passes untouched.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    ResourceLink,
    TextContent,
    Tool,
)
from pydantic import BaseModel, ValidationError

_BLOCKS: dict[str, type[BaseModel]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource": EmbeddedResource,
    "resource_link": ResourceLink,
}
_log = logging.getLogger("penguin.environment.mcp")


def mended_tools(result: dict[str, Any], server: str) -> dict[str, Any]:
    """A page of ``tools/list`` without the tools that cannot be understood, which are logged."""
    listed = result.get("tools")
    tools = [_mended_tool(each, server) for each in listed] if isinstance(listed, list) else []
    mended = result | {"tools": [each for each in tools if each]}
    if not isinstance(mended.get("nextCursor"), str):
        mended.pop("nextCursor", None)
    return mended


def _mended_tool(tool: Any, server: str) -> dict[str, Any] | None:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        _log.warning("MCP server %s lists something that is no tool: %.200r", server, tool)
        return None
    # Without its output schema: the SDK would throw away a result that does not match it, and the model with it.
    mended = {key: value for key, value in tool.items() if key not in {"outputSchema", "icons", "execution"}}
    mended["inputSchema"] = _mended_schema(tool.get("inputSchema"))
    if not _is_valid(Tool, mended):
        about = {"description": tool["description"]} if isinstance(tool.get("description"), str) else {}
        mended = {"name": tool["name"], "inputSchema": mended["inputSchema"], **about}
    return mended


def _mended_schema(schema: Any) -> dict[str, Any]:
    """The protocol looks at four words of a schema; what is wrong under one of them is left out."""
    mended = dict(schema) if isinstance(schema, dict) else {}
    mended["type"] = "object"
    match mended.pop("properties", None):
        case dict() as properties:
            mended["properties"] = {key: each for key, each in properties.items() if isinstance(each, dict | bool)}
        case _:
            pass
    match mended.pop("required", None):
        case list() as required:
            mended["required"] = [each for each in required if isinstance(each, str)]
        case _:
            pass
    if not isinstance(mended.get("$schema", ""), str):
        del mended["$schema"]
    return mended


def mended_result(result: dict[str, Any]) -> dict[str, Any]:
    """A result of ``tools/call`` with a list of known blocks as ``content``, and structured data as an object."""
    if result.get("resultType") not in {None, "complete"}:  # the server asks back instead of answering
        return result
    mended = {key: value for key, value in result.items() if key in {"_meta", "resultType"} and value is not None}
    mended["content"] = [_mended_block(each) for each in _blocks(result.get("content"))]
    mended["isError"] = bool(result.get("isError"))
    match result.get("structuredContent"):
        case None:
            pass
        case dict() as structured:
            mended["structuredContent"] = structured
        case other:
            # Only the newest protocol knows data that is no object; as text it survives in each.
            mended["content"] = mended["content"] or [_text_block(other)]
    return mended


def _blocks(content: Any) -> list[Any]:
    match content:
        case None:
            return []
        case list():
            return content
        case _:
            return [content]


def _mended_block(block: Any) -> dict[str, Any]:
    kind = _BLOCKS.get(str(block.get("type"))) if isinstance(block, dict) else None
    if kind is None or not _is_valid(kind, block):
        return _text_block(block)
    return dict(block)


def _text_block(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


def _is_valid(model: type[BaseModel], value: Any) -> bool:
    try:
        model.model_validate(value, by_name=False)
    except ValidationError:
        return False
    return True


@asynccontextmanager
async def mended(transport: AbstractAsyncContextManager[Any], server: str) -> AsyncGenerator[Any]:
    """``transport`` with the answers put right."""
    async with transport as (reading, writing):
        asked: dict[RequestId, str] = {}
        yield _MendedReading(reading, asked, server), _NotingWriting(writing, asked)


class _Wrapped:
    def __init__(self, inner: Any, asked: dict[RequestId, str]) -> None:
        self._inner = inner
        self._asked = asked

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.aclose()


class _NotingWriting(_Wrapped):
    """Remembers what was asked: an answer carries only the number of its request."""

    async def send(self, item: SessionMessage) -> None:
        match item.message:
            case JSONRPCRequest(id=number, method="tools/call" | "tools/list" as method):
                self._asked[number] = method
            case _:
                pass
        await self._inner.send(item)


class _MendedReading(_Wrapped):
    def __init__(self, inner: Any, asked: dict[RequestId, str], server: str) -> None:
        super().__init__(inner, asked)
        self._server = server

    @property
    def last_context(self) -> Any:
        """The sender's context variables, where the transport carries them."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._mended(await self._inner.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._mended(await self._inner.__anext__())

    def _mended(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        match item:
            case SessionMessage(message=JSONRPCResponse(id=number, result=result) as answer):
                match self._asked.pop(_as_number(number), None):
                    case "tools/call":
                        answer.result = mended_result(result)
                    case "tools/list":
                        answer.result = mended_tools(result, self._server)
                    case _:
                        pass
            case _:
                pass
        return item


def _as_number(number: RequestId) -> RequestId:
    """Some servers answer request 7 as "7"; ours are numbers."""
    return int(number) if isinstance(number, str) and number.isdecimal() else number
