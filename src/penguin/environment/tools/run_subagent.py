"""``run_subagent``: hand a task to a child session."""

from __future__ import annotations

from typing import Any

from penguin.environment.subagents import RunningSubagent, SubagentReport, ending_words, subagents
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolResult, ToolSetup
from penguin.protocol.builders import subagent

DEFAULT_YIELD_MS = 300_000


class RunSubagent:
    """Spawns a child and waits for its answer, or leaves it working in the background."""

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._children = subagents(setup)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Spawn, record the pointer to the child's session, run.

        Raises:
            ToolError: there are too many subagents.
            PenguinError: the child could not be made; the text says why.
        """
        child = await self._children.spawn(
            args["description"],
            agent_id=args.get("agent_id"),
            provider=args.get("provider"),
            model_id=args.get("model_id"),
            thinking_level=args.get("thinking_level"),
        )
        ctx.forward(subagent(child.handle.session_id))
        child.start(args["prompt"], ctx.approve)
        if args.get("run_in_background"):
            return ToolResult(note=f"[subagent {child.id} works in the background; its end will be reported]")
        return await answer_of(child, args.get("yield_time_ms", DEFAULT_YIELD_MS) / 1000, ctx)


async def answer_of(child: RunningSubagent, seconds: float, ctx: ToolContext, *, in_front: bool = True) -> ToolResult:
    """Wait for a child and tell its answer; running out of time leaves it working in the background.

    Interrupting the call stops a child that works in the foreground, not one that was only listened to.
    """
    try:
        ended = await child.wait(seconds, ctx.forward)
    except BaseException:
        if in_front:
            await child.stopped()
            ctx.add_note(f"[subagent {child.id} was stopped; it can be given another task]")
        ctx.write(child.so_far())
        raise
    if not ended or child.report is None:
        ctx.write(child.so_far())
        return ToolResult(note=f"[subagent {child.id} still works after {seconds:g} s, now in the background]")
    child.so_far()
    ctx.write(child.report.text)
    return ToolResult(child.report.stop_reason, _note(child, child.report))


def _note(child: RunningSubagent, report: SubagentReport) -> str:
    usage = report.usage
    return f"[subagent {child.id} {ending_words(report)}; {usage.total} tokens ({usage.output} written)]"
