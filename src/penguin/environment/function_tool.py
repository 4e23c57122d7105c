"""`@tool`: a typed Python function becomes a tool (N5)."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, overload

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec

from penguin.environment.function_schema import FunctionSchema, function_schema
from penguin.environment.tool import (
    DEFAULT_MAX_OUTPUT_LENGTH,
    DEFAULT_TIMEOUT_MS,
    ForModel,
    Tool,
    ToolContext,
    ToolDefinitionConfig,
    ToolError,
    ToolResult,
)
from penguin.protocol.interfaces import Permission

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "penguin.tools"
MAY_STILL_RUN = "[the function runs in a thread, which cannot be stopped: it may still run]"

T = TypeVar("T")
_log = logging.getLogger("penguin.environment")


class FunctionTool:
    """A function as a tool; calling it calls the function.

    A coroutine function runs on the event loop; any other runs in a daemon thread. What it returns is its output:
    text as it is, a :class:`ToolResult` as it stands, ``None`` as nothing, anything else as JSON.
    """

    def __init__(self, function: Callable[..., Any], definition: ToolDefinitionConfig, schema: FunctionSchema) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._definition = definition
        self._schema = schema

    @property
    def definition(self) -> ToolDefinitionConfig:
        """What the model is told, made from the signature and the docstring."""
        return self._definition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it had not been decorated."""
        return self._function(*args, **kwargs)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult | None:
        """Call the function with ``args`` converted to its annotated types."""
        values = self._converted(args)
        if inspect.iscoroutinefunction(self._function):
            result = await self._function(**values, **self._with_context(ctx))
        else:
            result = await self._in_a_thread(values, ctx)
        return _result(self._definition.name, result, ctx)

    async def _in_a_thread(self, values: dict[str, Any], ctx: ToolContext) -> Any:
        call = functools.partial(self._function, **values, **self._with_context(_usable_from_a_thread(ctx)))
        try:
            result = await call_in_daemon_thread(call, f"penguin tool {self._definition.name}")
        except anyio.get_cancelled_exc_class():
            ctx.add_note(MAY_STILL_RUN)
            raise
        return await result if inspect.isawaitable(result) else result

    def _with_context(self, ctx: ToolContext) -> dict[str, ToolContext]:
        return {self._schema.ctx_name: ctx} if self._schema.ctx_name else {}

    def _converted(self, args: dict[str, Any]) -> dict[str, Any]:
        return {name: _convert(name, value, self._schema.types.get(name, Any)) for name, value in args.items()}


def _convert(name: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise ToolError(f"Wrong argument {name}: {error}") from None


def _result(name: str, result: Any, ctx: ToolContext) -> ToolResult | None:
    match result:
        case None | ToolResult():
            return result
        case str():
            ctx.write(result)
        case _:
            ctx.write(_as_json(name, result))
    return None


def _as_json(name: str, result: Any) -> str:
    try:
        return msgspec.json.encode(result).decode()
    except (TypeError, ValueError) as error:
        raise ToolError(f"{name} returned {type(result).__name__}, which is neither text nor JSON: {error}") from error


def _usable_from_a_thread(ctx: ToolContext) -> ToolContext:
    """The same context, whose output is handed over to the loop; a thread that outlives the loop writes nowhere."""
    token = anyio.lowlevel.current_token()

    def on_the_loop(action: Callable[[T], None]) -> Callable[[T], None]:
        def act(value: T) -> None:
            with contextlib.suppress(anyio.RunFinishedError):
                anyio.from_thread.run_sync(action, value, token=token)

        return act

    return replace(
        ctx, write=on_the_loop(ctx.write), add_note=on_the_loop(ctx.add_note), forward=on_the_loop(ctx.forward)
    )


async def call_in_daemon_thread(call: Callable[[], T], name: str) -> T:
    """Run ``call`` in a thread of its own and return what it returns, or raise what it raises.

    anyio's worker threads are no daemons under asyncio: the interpreter waits for an abandoned one when it exits.
    """
    token = anyio.lowlevel.current_token()
    done = anyio.Event()
    outcome: list[tuple[T | None, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is awaited
            outcome.append((None, error))
        with contextlib.suppress(anyio.RunFinishedError):  # nobody waits any more
            anyio.from_thread.run_sync(done.set, token=token)

    threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
    await done.wait()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    permission: Permission = "rw",
    for_model: ForModel = "any",
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    max_output_length: int = DEFAULT_MAX_OUTPUT_LENGTH,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    permission: Permission = "rw",
    for_model: ForModel = "any",
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    max_output_length: int = DEFAULT_MAX_OUTPUT_LENGTH,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    r"""Make a tool of a typed function, sync or async.

    The schema comes from the annotations, descriptions from the docstring (Google style). An argument called
    ``ctx``, or annotated :class:`ToolContext`, receives the context and is not shown to the model.

    Args:
        function: The function; absent when the decorator has arguments of its own.
        name: What the model calls the tool; the function's own name by default.
        description: Instead of the docstring's.
        permission: ``"r"`` when the function only looks, so that read-only approval lets it run.
        for_model: Which models are offered the tool.
        timeout_ms: Time limit in milliseconds; ``<= 0`` means none.
        max_output_length: Characters of output given to the model; ``<= 0`` means 4,000,000.

    Raises:
        TypeError: An argument cannot be given as JSON by name.

    Example::

        @tool(permission="r")
        def weather(city: str, days: int = 1) -> str:
            "Tell the weather in a city for some days."
            return forecast(city, days)
    """

    def make(function: Callable[..., Any]) -> FunctionTool:
        _refuse_generators(function)
        schema = function_schema(function)
        definition = ToolDefinitionConfig(
            name=name or function.__name__,
            description=schema.description if description is None else description,
            parameters=schema.parameters,
            permission=permission,
            for_model=for_model,
            timeout_ms=timeout_ms,
            max_output_length=max_output_length,
        )
        return FunctionTool(function, definition, schema)

    return make if function is None else make(function)


def _refuse_generators(function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__}: a tool cannot be a generator; take `ctx` and call ctx.write(text)")


def as_tool(candidate: Tool | Callable[..., Any]) -> Tool:
    """The tool itself, or the tool made of a plain function.

    Raises:
        TypeError: It is neither.
    """
    if _is_tool(candidate):
        return candidate
    if callable(candidate) and not isinstance(candidate, type):
        return tool(candidate)
    raise TypeError(f"{candidate!r} is neither a tool (definition, execute) nor a function")


def _is_tool(candidate: Tool | Callable[..., Any]) -> TypeGuard[Tool]:
    return isinstance(getattr(candidate, "definition", None), ToolDefinitionConfig) and callable(
        getattr(candidate, "execute", None)
    )


def installed_tools() -> list[Tool]:
    """The tools that installed packages register in the entry point group ``penguin.tools``.

    An entry names a tool, a function, or a list of them. One that cannot be loaded is logged and left out, so that
    a broken package does not keep the session from starting. What is installed is looked up once for each
    ``sys.path``: a package that is installed into a running process is found by the next one.
    """
    found: list[Tool] = []
    for entry in _entries(*sys.path):
        try:
            loaded = entry.load()
            found += [as_tool(each) for each in (loaded if isinstance(loaded, list | tuple) else [loaded])]
        except Exception:  # noqa: BLE001 - any error of any package
            _log.exception("the tool %s of %s cannot be loaded", entry.name, entry.dist and entry.dist.name)
    return found


@functools.cache
def _entries(*_path: str) -> tuple[EntryPoint, ...]:
    # Reading the metadata of every installed package takes 10 ms and more, each time.
    from importlib.metadata import entry_points  # noqa: PLC0415 - a sixtieth of a second at start-up

    return tuple(entry_points(group=ENTRY_POINT_GROUP))
