"""One run of one tool: it ends by itself, by its time limit or by an interruption, and its segment is closed."""

from __future__ import annotations

import logging
from typing import Any, TypedDict

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from penguin.environment.output_segment import Ending, OutputSegment
from penguin.environment.tool import Tool, ToolContext, ToolError, ToolResult
from penguin.protocol.blocks import ABORTED_BY_USER, interrupted, tool_error
from penguin.protocol.events import StopReason
from penguin.protocol.messages import scrub

STOP_GRACE_S = 3.0
"""How long a stopped tool may clean up (a process group gets TERM, then KILL after 2 s) before it is answered for."""

_log = logging.getLogger("penguin.environment")


class _Checked(TypedDict):
    """What a result must look like: its author's annotations bind nobody while the program runs."""

    stop_reason: StopReason
    note: str | None
    images: list[str]


class ToolRun:
    """Runs a tool in a task of its own, so that one which ignores cancellation cannot keep its segment open."""

    def __init__(self, tool: Tool, args: dict[str, Any], ctx: ToolContext, segment: OutputSegment) -> None:
        self._tool = tool
        self._args = args
        self._ctx = ctx
        self._segment = segment
        self._own_ending = Ending()
        self._ended = anyio.Event()
        # Shielded: the tool is cancelled by `_stop` alone, after `ctx.cancelled` is set, however we are stopped.
        self._scope = anyio.CancelScope(shield=True)

    async def complete(self) -> None:
        """Run the tool and close its segment, whatever happens; raises only a cancellation from outside."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._execute)
                self._segment.close(await self._ending())
        finally:
            self._segment.close(self._aborted())

    async def _ending(self) -> Ending:
        """The strongest reason to end: interrupt, then timeout, then what the tool itself says (N2)."""
        limit = self._tool.definition.timeout_seconds
        try:
            with anyio.move_on_after(limit) as timer:
                await self._ended.wait()
        except BaseException:
            await self._stop()
            self._segment.close(self._aborted())
            raise
        if not timer.cancelled_caught:
            return self._own_ending
        await self._stop()
        return replace(self._own_ending, stop_reason="timeout", marker=interrupted(f"tool timed out after {limit:g} s"))

    def _aborted(self) -> Ending:
        return replace(self._own_ending, stop_reason="aborted", marker=interrupted(ABORTED_BY_USER))

    async def _stop(self) -> None:
        """Cancel the tool and give it a moment; what it still writes belongs to its output."""
        self._ctx.stopped.set()
        self._scope.cancel()
        with anyio.move_on_after(STOP_GRACE_S, shield=True):
            await self._ended.wait()

    async def _execute(self) -> None:
        try:
            with self._scope:
                await self._run_tool()
        finally:
            self._ended.set()

    async def _run_tool(self) -> None:
        if self._ctx.cancelled:
            return
        try:
            ending = _ending_of(await self._tool.execute(self._args, self._ctx))
            self._own_ending = await _with_fitting_images(ending) if ending.images else ending
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a tool author cannot break the protocol, SystemExit included
            self._own_ending = self._failure(error)

    def _failure(self, error: BaseException) -> Ending:
        """Turn an exception of the tool into words; a cancellation that was asked for is raised again."""
        if self._ctx.cancelled and (cancellation := _cancellation_in(error)) is not None:
            raise cancellation
        if not isinstance(error, ToolError):
            _log.warning("tool %s raised", self._tool.definition.name, exc_info=error)
        return failed(describe_error(error))


def failed(message: str) -> Ending:
    """The ending of a call that went wrong; ``message`` is for the model."""
    return Ending("failed", tool_error(scrub(message)))


def _ending_of(result: object) -> Ending:
    match result:
        case None:
            return Ending()
        case ToolResult(stop_reason=reason, note=note, images=images):
            try:
                return Ending(**msgspec.convert({"stop_reason": reason, "note": note, "images": images}, _Checked))
            except msgspec.ValidationError as error:
                raise TypeError(f"the tool returned a wrong ToolResult: {error}") from None
        case _:
            raise TypeError(f"the tool returned {type(result).__name__}; it may return a ToolResult or None")


async def _with_fitting_images(ending: Ending) -> Ending:
    """Images pass the one entry step (L14), whichever tool they come from: later they would fail every request."""
    from penguin.environment.images import prepare_urls  # noqa: PLC0415 - few tools have images

    fitting, remarks = await anyio.to_thread.run_sync(prepare_urls, ending.images)
    note = "\n".join(filter(None, (ending.note, *remarks)))
    return replace(ending, images=fitting, note=note or None)


def _cancellation_in(error: BaseException) -> BaseException | None:
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, cancelled):
        return error
    # A tool with a task group of its own: its other errors are lost to the interruption, which comes first.
    return error.subgroup(cancelled) if isinstance(error, BaseExceptionGroup) else None


def describe_error(error: BaseException) -> str:
    """One paragraph for the model: the error's own words, without a traceback."""
    match error:
        case ToolError():
            return str(error)
        case BaseExceptionGroup(exceptions=inner):
            return "; ".join(describe_error(each) for each in inner)
        case _ if isinstance(error, anyio.get_cancelled_exc_class()):
            return "The tool was cancelled from within, not by the user."
        case _:
            return f"{type(error).__name__}: {_own_words(error)}".removesuffix(": ")


def _own_words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - even __str__ is the tool author's code
        return "(its message cannot be read)"
