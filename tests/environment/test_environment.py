"""N1-N4 with tools of every kind of bad manners."""

# ruff: noqa: ASYNC240 - a test may look at a file while nothing else runs

from __future__ import annotations

import logging
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from penguin.environment.arguments import ArgumentCheck, parse_arguments
from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolError, ToolResult
from penguin.environment.tools.builtin import BUILTIN_TOOL_DEFINITIONS
from penguin.protocol.builders import assistant_text, tool_call, with_origin
from penguin.protocol.events import StopReason
from penguin.protocol.interfaces import EnvironmentInterface, SupportsContextNotes, ToolExecutionRequest
from penguin.protocol.messages import Message, ToolCallOutput
from penguin.testing.framing import assert_well_framed


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """What holds around a tool holds on both: cancellation works differently in each."""
    backend: str = request.param
    return backend


PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


class Scripted:
    """A tool whose body is a function of the test."""

    def __init__(self, body: Callable[[dict[str, Any], ToolContext], Any], **settings: Any) -> None:
        self._body = body
        self.definition = ToolDefinitionConfig(name=settings.pop("name", "scripted"), **settings)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult | None:
        result: ToolResult | None = await self._body(args, ctx)
        return result


def says(text: str, result: Any = None, **settings: Any) -> Scripted:
    async def body(_args: dict[str, Any], ctx: ToolContext) -> Any:
        ctx.write(text)
        return result

    return Scripted(body, **settings)


def raises(error: BaseException, text: str = "", **settings: Any) -> Scripted:
    async def body(_args: dict[str, Any], ctx: ToolContext) -> Any:
        ctx.write(text)
        raise error

    return Scripted(body, **settings)


class Evil(BaseException):
    pass


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def test_an_environment_satisfies_the_interfaces(workspace: Path) -> None:
    environment: EnvironmentInterface = Environment(EnvironmentConfig(workspace, ToolConfig(builtin=())))
    assert isinstance(environment, SupportsContextNotes)


@pytest.mark.anyio
async def test_N1_text_and_note_make_one_framed_output(make_desk: Any) -> None:
    desk = make_desk(says("hello\n", ToolResult(note="[exit code 0]")))
    answer = await desk.call("scripted")
    assert answer.output == "hello\n[exit code 0]"
    assert answer.stop_reason is None
    assert [type(message.payload).__name__ for message in desk.messages] == [
        "PartialToolCallOutput",
        "PartialToolCallOutput",
        "PartialToolCallOutput",
        "PartialToolCallOutput",
        "ToolCallOutput",
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("result", [None, ToolResult()])
@pytest.mark.parametrize("text", ["", " \n"])
async def test_N2_output_is_never_empty(make_desk: Any, result: Any, text: str) -> None:
    answer = await make_desk(says(text, result)).call("scripted")
    assert answer.output.strip() == "[no output]"


@pytest.mark.anyio
async def test_N2_a_note_alone_is_output_enough(make_desk: Any) -> None:
    answer = await make_desk(says("", ToolResult(note="[exit code 1]", stop_reason="failed"))).call("scripted")
    assert (answer.output, answer.stop_reason) == ("[exit code 1]", "failed")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("No table users."), "[tool error] No table users."),
        (KeyError("key"), "[tool error] KeyError: 'key'"),
        (ValueError(), "[tool error] ValueError"),
        (Evil("boo"), "[tool error] Evil: boo"),
        (SystemExit(3), "[tool error] SystemExit: 3"),
        (GeneratorExit(), "[tool error] GeneratorExit"),
        (Mute(), "[tool error] Mute: (its message cannot be read)"),
        (ToolError("half \ud800"), "[tool error] half \ufffd"),
        (ExceptionGroup("g", [OSError("a"), ToolError("b")]), "[tool error] OSError: a; b"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_N2_an_exception_becomes_words(make_desk: Any, error: BaseException, words: str) -> None:
    answer = await make_desk(raises(error, "before")).call("scripted")
    assert answer.output == f"before\n{words}"
    assert answer.stop_reason == "failed"


@pytest.mark.anyio
async def test_N2_the_traceback_is_logged_and_not_told(make_desk: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penguin"):
        answer = await make_desk(raises(ZeroDivisionError("by zero"))).call("scripted")
    assert "Traceback" not in answer.output
    assert caplog.records[0].exc_info is not None


@pytest.mark.anyio
@pytest.mark.parametrize(
    "garbage",
    [
        "text",
        42,
        {"note": "x"},
        ToolResult,
        ToolResult("done"),  # type: ignore[arg-type]
        ToolResult(note=3),  # type: ignore[arg-type]
        ToolResult(images=[b"x"]),  # type: ignore[list-item]
        ToolResult(images=PNG),  # type: ignore[arg-type]
        ToolResult(images=None),  # type: ignore[arg-type]
    ],
    ids=repr,
)
async def test_N1_garbage_returned_is_a_failed_output(make_desk: Any, garbage: Any) -> None:
    answer = await make_desk(says("kept", garbage)).call("scripted")
    assert answer.output.startswith("kept\n[tool error] TypeError: the tool returned")
    assert answer.stop_reason == "failed"
    assert answer.images is None


@pytest.mark.anyio
@pytest.mark.parametrize("garbage", [b"bytes", None, 7])
async def test_N1_garbage_written_is_a_failed_output(make_desk: Any, garbage: Any) -> None:
    answer = await make_desk(says(garbage)).call("scripted")
    assert "[tool error] TypeError: the output of a tool is text" in answer.output


@pytest.mark.anyio
async def test_P12_lone_surrogates_are_replaced(make_desk: Any) -> None:
    desk = make_desk(says("a\ud800b", ToolResult(note="\udfff")))
    answer = await desk.call("scripted")
    assert answer.output == "a\ufffdb\n\ufffd"
    for message in desk.messages:
        message.line.decode()


@pytest.mark.anyio
async def test_N1_what_is_written_after_the_end_is_discarded(make_desk: Any) -> None:
    kept: list[ToolContext] = []

    async def body(_args: dict[str, Any], ctx: ToolContext) -> None:
        kept.append(ctx)
        ctx.write("in time")

    desk = make_desk(Scripted(body))
    await desk.call("scripted")
    before = list(desk.messages)
    kept[0].write("too late")
    kept[0].add_note("too late")
    kept[0].forward(with_origin(assistant_text("too late"), "child"))
    assert desk.messages == before


@pytest.mark.anyio
async def test_messages_of_a_child_session_pass_unchanged_and_others_do_not(make_desk: Any) -> None:
    child = with_origin(assistant_text("from the child"), "child-1")

    async def body(_args: dict[str, Any], ctx: ToolContext) -> None:
        ctx.forward(child)
        ctx.forward(assistant_text("forged"))

    desk = make_desk(Scripted(body))
    answer = await desk.call("scripted")
    assert desk.messages[1] is child
    assert "[tool error] ValueError" in answer.output


@pytest.mark.anyio
async def test_P10_images_come_whole_and_survive_the_cut(make_desk: Any) -> None:
    desk = make_desk(says("x" * 100, ToolResult(note="the note", images=[PNG, PNG]), max_output_length=10))
    answer = await desk.call("scripted")
    assert answer.images == [PNG, PNG]
    assert answer.output.startswith("x" * 10 + "\n[output cut: 10 of 100 characters shown; full text in ")
    assert answer.output.endswith("]\nthe note")


# --- time and interruption -------------------------------------------------------------------------


def sleeps(text: str = "so far", **settings: Any) -> Scripted:
    async def body(_args: dict[str, Any], ctx: ToolContext) -> None:
        ctx.write(text)
        await anyio.sleep_forever()

    return Scripted(body, **settings)


@pytest.mark.anyio
async def test_N2_a_timeout_keeps_the_text_so_far(make_desk: Any) -> None:
    answer = await make_desk(sleeps(timeout_ms=20)).call("scripted")
    assert answer.output == "so far\n[interrupted: tool timed out after 0.02 s]"
    assert answer.stop_reason == "timeout"


@pytest.mark.anyio
async def test_N2_timeout_beats_the_exception_it_provokes(make_desk: Any) -> None:
    async def body(_args: dict[str, Any], _ctx: ToolContext) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise RuntimeError("while cleaning up")

    answer = await make_desk(Scripted(body, timeout_ms=20)).call("scripted")
    assert (answer.output, answer.stop_reason) == ("[interrupted: tool timed out after 0.02 s]", "timeout")


async def interrupted_call(tool: Scripted, workspace: Path, when: anyio.Event) -> list[Message]:
    environment = Environment(EnvironmentConfig(workspace, ToolConfig((), [tool])))
    messages: list[Message] = []
    returned = False
    async with anyio.create_task_group() as group:

        async def run() -> None:
            nonlocal returned
            await environment.execute_tool(ToolExecutionRequest(tool_call("scripted", "{}", "c1")), messages.append)
            returned = True

        group.start_soon(run)
        await when.wait()
        group.cancel_scope.cancel()
    assert not returned, "the cancellation was swallowed"
    assert_well_framed(messages)
    return messages


def last_output(messages: list[Message]) -> tuple[str, StopReason | None]:
    payload = messages[-1].payload
    assert isinstance(payload, ToolCallOutput)
    return payload.output, payload.stop_reason


@pytest.mark.anyio
async def test_E12_an_interruption_keeps_text_and_last_words(workspace: Path) -> None:
    started = anyio.Event()

    async def body(_args: dict[str, Any], ctx: ToolContext) -> None:
        ctx.write("so far")
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            assert ctx.cancelled
            ctx.write(", and the held line")
            ctx.add_note("[killed by SIGTERM]")

    messages = await interrupted_call(Scripted(body), workspace, started)
    assert last_output(messages) == (
        "so far, and the held line\n[killed by SIGTERM]\n[interrupted: tool aborted by user]",
        "aborted",
    )


@pytest.mark.anyio
@pytest.mark.parametrize("error", [RuntimeError("no!"), Evil("no!")])
async def test_N2_interrupt_beats_exceptions(workspace: Path, error: BaseException) -> None:
    started = anyio.Event()

    async def body(_args: dict[str, Any], _ctx: ToolContext) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise error

    messages = await interrupted_call(Scripted(body), workspace, started)
    assert last_output(messages) == ("[interrupted: tool aborted by user]", "aborted")


@pytest.mark.anyio
async def test_N1_a_tool_that_swallows_its_cancellation_is_aborted_all_the_same(workspace: Path) -> None:
    started = anyio.Event()

    async def body(_args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        started.set()
        try:
            await anyio.sleep_forever()
        except BaseException:  # noqa: BLE001
            ctx.write("I go on")
        return ToolResult(note="all well")

    messages = await interrupted_call(Scripted(body), workspace, started)
    assert last_output(messages) == ("I go on\nall well\n[interrupted: tool aborted by user]", "aborted")


@pytest.mark.anyio
async def test_N1_a_tool_that_ignores_cancellation_cannot_keep_its_segment_open(
    make_desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penguin.environment.tool_run.STOP_GRACE_S", 0.02)
    answered = anyio.Event()
    messages: list[Message] = []

    async def body(_args: dict[str, Any], ctx: ToolContext) -> None:
        with anyio.CancelScope(shield=True):
            await answered.wait()
            ctx.write("too late")

    def emit(message: Message) -> None:
        messages.append(message)
        if isinstance(message.payload, ToolCallOutput):
            answered.set()

    environment = make_desk(Scripted(body, timeout_ms=20)).environment
    await environment.execute_tool(ToolExecutionRequest(tool_call("scripted", "{}", "c1")), emit)
    assert_well_framed(messages)
    assert last_output(messages)[1] == "timeout"


@pytest.mark.anyio
async def test_a_tool_that_cancels_itself_has_failed(make_desk: Any, anyio_backend: str) -> None:
    if anyio_backend == "trio":
        pytest.skip("trio lets nobody make a cancellation")
    answer = await make_desk(raises(anyio.get_cancelled_exc_class()())).call("scripted")
    assert answer.output == "[tool error] The tool was cancelled from within, not by the user."
    assert answer.stop_reason == "failed"


@pytest.mark.anyio
async def test_an_interruption_inside_a_task_group_of_the_tool(workspace: Path) -> None:
    started = anyio.Event()

    async def fails_when_stopped() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise OSError("lost")

    async def body(_args: dict[str, Any], _ctx: ToolContext) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(fails_when_stopped)
            await anyio.lowlevel.checkpoint()
            started.set()
            await anyio.sleep_forever()

    messages = await interrupted_call(Scripted(body), workspace, started)
    assert last_output(messages)[1] == "aborted"


# --- size --------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_N3_the_head_is_kept_and_the_rest_is_on_disk(make_desk: Any, scratchpad: Path) -> None:
    lines = [f"line {number} äöü\n" for number in range(5000)]

    async def body(_args: dict[str, Any], ctx: ToolContext) -> None:
        for line in lines:
            ctx.write(line)

    desk = make_desk(Scripted(body))
    answer = await desk.call("scripted")
    whole = "".join(lines)
    (archived,) = (scratchpad / "truncated-tool-output").iterdir()
    assert answer.output.startswith(whole[:16_000])
    assert f"16,000 of {len(whole):,} characters shown; full text in {archived}" in answer.output
    assert archived.read_text() == whole
    assert archived.stat().st_mode & 0o777 == 0o600
    assert archived.parent.stat().st_mode & 0o777 == 0o700
    assert scratchpad.stat().st_mode & 0o777 == 0o700


@pytest.mark.anyio
async def test_N3_huge_output_costs_bounded_memory_messages_and_disk(make_desk: Any, scratchpad: Path) -> None:
    piece = "é" * 500_000
    pieces = 120

    async def body(_args: dict[str, Any], ctx: ToolContext) -> None:
        ctx.write("first\n")
        for _ in range(pieces):
            ctx.write(piece)
        for character in "the very end":
            ctx.write(character)

    desk = make_desk(Scripted(body))
    tracemalloc.start()
    try:
        answer = await desk.call("scripted")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (archived,) = (scratchpad / "truncated-tool-output").iterdir()
    stored = archived.read_text()
    assert archived.stat().st_size <= 8 * 1024 * 1024
    assert stored.startswith("first\né")
    assert stored.endswith("éthe very end")
    left_out = pieces * len(piece.encode()) + len("first\nthe very end") - 2 * (4 * 1024 * 1024)
    gap = stored.partition("\n[… ")[2].partition(" bytes left out …]\n")[0]
    assert 0 <= int(gap.replace(",", "")) - left_out < 1024
    assert "first and last 4 MiB in" in answer.output
    assert len(desk.messages) < 10
    assert peak < 64_000_000


@pytest.mark.anyio
async def test_N3_without_a_limit_memory_is_still_bounded(make_desk: Any) -> None:
    async def body(_args: dict[str, Any], ctx: ToolContext) -> None:
        for _ in range(50):
            ctx.write("x" * 100_000)

    answer = await make_desk(Scripted(body, max_output_length=0)).call("scripted")
    assert "4,000,000 of 5,000,000 characters shown" in answer.output


@pytest.mark.anyio
async def test_N3_ids_of_calls_make_harmless_file_names_and_never_overwrite(workspace: Path, scratchpad: Path) -> None:
    tool = says("x" * 100, max_output_length=1)
    environment = Environment(EnvironmentConfig(workspace, ToolConfig((), [tool]), scratchpad_dir=scratchpad))
    for call_id in ("../../evil/\u202e", "../../evil/\u202e", "", "a" * 500):
        messages: list[Message] = []
        await environment.execute_tool(ToolExecutionRequest(tool_call("scripted", "{}", call_id)), messages.append)
    kept = list((scratchpad / "truncated-tool-output").iterdir())
    assert len(kept) == 4
    assert [path for path in workspace.parent.rglob("*evil*") if path.parent.name != "truncated-tool-output"] == []


@pytest.mark.anyio
async def test_N3_a_disk_that_refuses_is_said(make_desk: Any, scratchpad: Path) -> None:
    scratchpad.parent.mkdir(parents=True)
    scratchpad.write_text("a file where the directory should be")
    answer = await make_desk(says("x" * 100, max_output_length=10)).call("scripted")
    assert "the full text could not be kept: " in answer.output
    assert answer.stop_reason is None


HUGE = "A" * 600_000


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_image", {"source": f"data:image/png;base64,{HUGE}"}),
        ("read_image", {"source": f"http://127.0.0.1/{HUGE}"}),
        ("read_image", {"source": HUGE}),
        ("read_file", {"file_path": HUGE}),
        ("write_file", {"file_path": HUGE, "content": ""}),
        ("edit_file", {"file_path": HUGE, "old_string": "a", "new_string": "b"}),
        ("read_file", {"file_path": [HUGE]}),
        ("read_file", {HUGE: 1}),
        (HUGE, {}),
    ],
)
async def test_N3_an_error_that_repeats_a_huge_argument_is_cut(
    make_desk: Any, name: str, arguments: dict[str, Any]
) -> None:
    answer = await make_desk().call_with_text(name, msgspec.json.encode(arguments).decode())
    assert answer.stop_reason == "failed"
    assert answer.output.count("[tool error]") == 1
    assert len(answer.output) < 16_500


@pytest.mark.anyio
@pytest.mark.parametrize("result", [ValueError(HUGE), ToolError(HUGE), ExceptionGroup("two", [ValueError(HUGE)] * 2)])
async def test_N3_the_whole_of_a_long_error_is_kept_on_disk(
    make_desk: Any, scratchpad: Path, result: Exception
) -> None:
    answer = await make_desk(raises(result, "before")).call("scripted")
    (archived,) = (scratchpad / "truncated-tool-output").iterdir()
    whole = archived.read_text()
    assert whole.startswith("before\n[tool error] ")
    assert HUGE in whole
    assert f"characters shown; full text in {archived}]\n[tool error] " in answer.output
    assert len(answer.output) < 16_500


@pytest.mark.anyio
async def test_N2_an_error_survives_the_cut_of_what_was_written_before(make_desk: Any) -> None:
    answer = await make_desk(raises(ValueError(f"why {HUGE}"), HUGE)).call("scripted")
    assert "[tool error] ValueError: why AAA" in answer.output
    assert len(answer.output) < 18_500


@pytest.mark.anyio
async def test_N3_a_long_note_is_cut_too_and_what_is_secret_stays_so(make_desk: Any, scratchpad: Path) -> None:
    note = "n" * 15_995 + "the-secret-value" + HUGE
    desk = make_desk(says("", ToolResult(note=note)), vault={"KEY": "the-secret-value"})
    answer = await desk.call("scripted")
    assert "n[vaul" in answer.output
    assert len(answer.output) < 16_500
    (archived,) = (scratchpad / "truncated-tool-output").iterdir()
    assert "[vault:KEY]AAA" in archived.read_text()
    assert "the-secret" not in archived.read_text() + answer.output


# --- arguments ---------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "What to read"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        "mode": {"enum": ["fast", "slow"]},
        "rows": {"type": "array", "items": {"type": "object", "required": ["id"]}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def echoes(**settings: Any) -> Scripted:
    async def body(args: dict[str, Any], ctx: ToolContext) -> None:
        ctx.write(f"ran with {args}")

    return Scripted(body, parameters=SCHEMA, **settings)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{}", "path is missing; expected string (What to read)"),
        ("", "path is missing"),
        ('{"path": 3}', "path: expected string, got number 3"),
        ('{"path": null}', "path: expected string, got null"),
        ('{"path": "a", "limit": "5"}', 'limit: expected integer, got string "5"'),
        ('{"path": "a", "limit": 0}', "limit: 0 is less than the minimum of 1"),
        ('{"path": "a", "limit": 1.5}', "limit: expected integer, got number 1.5"),
        ('{"path": "a", "limit": 1' + "0" * 400 + "}", "000 is greater than the maximum of 100"),
        ('{"path": "a", "mode": "warp"}', 'mode: "warp" is not one of "fast" or "slow"'),
        ('{"path": "a", "file": "b"}', "file is not known; scripted takes path, limit, mode, rows"),
        ('{"path": "a", "rows": [{"id": 1}, {}]}', "rows[1].id is missing"),
        ('["a"]', "must be a JSON object, not array"),
        ('{"path": ', "not valid JSON"),
        ('{"path": NaN}', "not valid JSON"),
        ('{"path":' + "[" * 600 + "]" * 600 + "}", ""),
    ],
)
async def test_N4_the_model_is_told_which_argument_is_wrong(make_desk: Any, arguments: str, words: str) -> None:
    answer = await make_desk(echoes()).call_with_text("scripted", arguments)
    assert answer.output.startswith("[tool error] ")
    assert words in answer.output
    assert "ran with" not in answer.output
    assert answer.stop_reason == "failed"


@pytest.mark.anyio
async def test_N4_null_for_an_optional_argument_counts_as_left_out(make_desk: Any) -> None:
    answer = await make_desk(echoes()).call("scripted", path="a", limit=None)
    assert answer.output == "ran with {'path': 'a'}"


@pytest.mark.anyio
async def test_N4_a_whole_number_may_be_written_with_a_point(make_desk: Any) -> None:
    answer = await make_desk(echoes()).call_with_text("scripted", '{"path": "a", "limit": 2.0}')
    assert answer.output == "ran with {'path': 'a', 'limit': 2}"


@pytest.mark.anyio
@pytest.mark.parametrize("number", ["1" + "0" * 18, "1" + "0" * 400, "1e300"])
@pytest.mark.parametrize(
    ("tool", "name", "most", "others"),
    [
        ("exec_command", "yield_time_ms", 86_400_000, {"cmd": "true", "description": "test"}),
        ("input_command", "yield_time_ms", 86_400_000, {"process_id": "p1"}),
        ("run_subagent", "yield_time_ms", 86_400_000, {"prompt": "x", "description": "test"}),
        ("input_subagent", "yield_time_ms", 86_400_000, {"subagent_id": "s1"}),
        ("read_file", "offset", 1_000_000_000, {"file_path": "x"}),
        ("read_file", "limit", 1_000_000_000, {"file_path": "x"}),
    ],
)
def test_N4_a_number_too_large_to_count_with_is_a_wrong_argument(
    tool: str, name: str, most: int, others: dict[str, str], number: str
) -> None:
    check = ArgumentCheck(BUILTIN_TOOL_DEFINITIONS[tool])
    with pytest.raises(ToolError, match=f"was not run:\n- {name}: .* is greater than the maximum of {most}$"):
        check.check(others | parse_arguments(f'{{"{name}": {number}}}'))
    assert check.check(others | {name: most}) == others | {name: most}


@pytest.mark.anyio
async def test_N4_escaped_lone_surrogates_in_arguments_are_replaced(make_desk: Any) -> None:
    answer = await make_desk(echoes()).call_with_text("scripted", r'{"path": "a\ud800"}')
    assert answer.output == "ran with {'path': 'a\ufffd'}"


@pytest.mark.anyio
async def test_N4_an_unknown_tool_gets_the_names_that_exist(make_desk: Any) -> None:
    answer = await make_desk(echoes(), says("", name="other")).call("scriptd")
    assert answer.output == (
        "[tool error] There is no tool called 'scriptd'. Did you mean scripted? Tools: scripted, other."
    )
    assert answer.stop_reason == "failed"


@pytest.mark.anyio
@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"$ref": "http://127.0.0.1:9/schema"}])
async def test_a_schema_that_cannot_be_used_does_not_block_the_tool_and_is_never_fetched(
    make_desk: Any, schema: dict[str, Any]
) -> None:
    answer = await make_desk(says("ran", parameters=schema)).call("scripted", anything=1)
    assert answer.output == "ran"


# --- the set of tools --------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_N1_tools_are_chosen_by_what_the_model_can_see(make_desk: Any) -> None:
    tools = [says("", name=name, for_model=name) for name in ("any", "vision", "text-only")]
    for vision, expected in ((True, ["any", "vision"]), (False, ["any", "text-only"])):
        desk = make_desk(*tools, vision=vision)
        assert [tool.name for tool in await desk.environment.list_tools()] == expected


def test_permissions_are_known_by_name(make_desk: Any) -> None:
    environment = make_desk(says("", permission="r"), says("", name="writes")).environment
    assert [environment.tool_permission(name) for name in ("scripted", "writes", "nowhere")] == ["r", "rw", None]


@pytest.mark.parametrize("names", [["twice", "twice"], ["with space"], [""], ["a" * 65], ["dotted.name"]])
def test_names_that_cannot_be_offered_are_refused_at_once(make_desk: Any, names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"called|tool name"):
        make_desk(*(says("", name=name) for name in names))


@pytest.mark.anyio
async def test_aclose_closes_tools_and_shared_parts_once_one_fails(workspace: Path) -> None:
    closed: list[str] = []

    class Part:
        def __init__(self, name: str, error: Exception | None = None) -> None:
            self.name = name
            self.error = error

        async def aclose(self) -> None:
            closed.append(self.name)
            if self.error:
                raise self.error

    environment = Environment(EnvironmentConfig(workspace, ToolConfig(())))
    assert environment.setup.once("a", lambda _setup: Part("a", OSError())) is environment.setup.once("a", object)  # type: ignore[arg-type]
    environment.setup.once("b", lambda _setup: Part("b"))
    await environment.aclose()
    await environment.aclose()
    assert closed == ["a", "b", "a", "b"]


def test_the_checker_of_schemas_is_not_imported_before_the_first_call(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from penguin.environment.environment import *;"
        f"Environment(EnvironmentConfig(pathlib.Path({str(tmp_path)!r})));"
        "print([name for name in ('jsonschema_rs', 'difflib') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
