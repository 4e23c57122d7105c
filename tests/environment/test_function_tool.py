"""N5: typed functions as tools."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest

from penguin.environment.function_schema import read_docstring
from penguin.environment.function_tool import MAY_STILL_RUN, as_tool, installed_tools, tool
from penguin.environment.tool import ToolContext, ToolError, ToolResult


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    deep: bool


class Row(msgspec.Struct):
    name: str
    at: Point


class Tree(msgspec.Struct):
    value: int
    children: list[Tree] = []


@tool(permission="r", timeout_ms=5_000)
def look_up(  # noqa: D417 - not every argument is described, on purpose
    key: str,
    points: list[Point],
    mode: Literal["fast", "slow"] = "fast",
    limit: int | None = None,
    options: Options | None = None,
    ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5,
    anything: Any = None,
) -> str:
    """Look something up.

    Works on all tables.

    Args:
        key: What to find,
            case matters: a lot.
        points (list): Where to look.
        limit: How many.

    Returns:
        Nothing of interest.

    Raises:
        KeyError: never.
    """
    return f"{key} {points!r} {mode} {limit} {options} {ratio} {anything}"


def test_N5_the_schema_comes_from_annotations_and_docstring() -> None:
    definition = look_up.definition
    assert definition.name == "look_up"
    assert definition.description == "Look something up.\n\nWorks on all tables."
    assert (definition.permission, definition.timeout_ms) == ("r", 5_000)
    properties = definition.parameters["properties"]
    assert definition.parameters["required"] == ["key", "points"]
    assert definition.parameters["additionalProperties"] is False
    assert properties["key"] == {"type": "string", "description": "What to find, case matters: a lot."}
    assert properties["points"]["items"]["properties"] == {
        "x": {"type": "integer"},
        "y": {"type": "integer", "default": 0},
    }
    assert properties["points"]["description"] == "Where to look."
    assert properties["mode"] == {"enum": ["fast", "slow"], "default": "fast"}
    assert properties["limit"] == {"type": "integer", "description": "How many."}
    assert properties["options"]["properties"] == {"deep": {"type": "boolean"}}
    assert properties["ratio"] == {"type": "number", "minimum": 0.0, "maximum": 1.0, "default": 0.5}
    assert "$ref" not in str(definition.parameters)


def test_D35_only_recursive_types_keep_their_reference() -> None:
    def walk(tree: Tree, row: Row) -> str:
        return ""

    parameters = tool(walk).definition.parameters
    assert parameters["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert list(parameters["$defs"]) == ["Tree"]
    assert parameters["properties"]["row"]["properties"]["at"]["properties"]["x"] == {"type": "integer"}


@pytest.mark.anyio
async def test_N5_arguments_arrive_as_the_annotated_types(make_desk: Any) -> None:
    answer = await make_desk(look_up).call("look_up", key="k", points=[{"x": 1}], options={"deep": True}, limit=None)
    assert answer.output == "k [Point(x=1, y=0)] fast None {'deep': True} 0.5 None"


@pytest.mark.anyio
async def test_N5_recursive_values_are_checked_and_converted(make_desk: Any) -> None:
    def total(tree: Tree) -> int:
        return tree.value + sum(each.value for each in tree.children)

    desk = make_desk(total)
    assert (await desk.call("total", tree={"value": 1, "children": [{"value": 2}]})).output == "3"
    wrong = await desk.call("total", tree={"value": 1, "children": [{"value": "2"}]})
    assert "tree.children[0].value: expected integer" in wrong.output


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("text", "text"),
        (None, "[no output]"),
        ("", "[no output]"),
        ({"a": [1, 2.5, None]}, '{"a":[1,2.5,null]}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        (0, "0"),
        (ToolResult(note="the note"), "the note"),
        (object(), "[tool error] give returned object, which is neither text nor JSON"),
        ("\ud800", "\ufffd"),
        (["\ud800"], "[tool error] give returned list, which is neither text nor JSON"),
    ],
    ids=lambda value: type(value).__name__,  # not repr: it holds an address, and parallel workers want equal names
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_N5_what_a_function_returns_is_its_output(
    make_desk: Any, value: Any, output: str, is_async: bool
) -> None:
    def give() -> Any:
        return value

    async def give_async() -> Any:
        return value

    chosen = tool(name="give")(give_async) if is_async else tool(give)
    answer = await make_desk(chosen).call("give")
    assert answer.output.startswith(output)


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [False, True])
async def test_N5_the_context_is_given_and_hidden_from_the_model(make_desk: Any, is_async: bool) -> None:
    def sync_one(text: str, ctx: ToolContext) -> str:
        ctx.write(f"{text} from {ctx.tool_call_id}, ")
        return "done"

    async def async_one(text: str, context: ToolContext) -> str:
        return sync_one(text, context)

    chosen = tool(name="one")(async_one if is_async else sync_one)
    assert list(chosen.definition.parameters["properties"]) == ["text"]
    answer = await make_desk(chosen).call("one", text="hi")
    assert answer.output == "hi from call_1, done"


@pytest.mark.anyio
async def test_N5_an_unannotated_ctx_is_the_context(make_desk: Any) -> None:
    def one(ctx) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
        return str(ctx.tool_call_id)

    assert (await make_desk(one).call("one")).output == "call_1"


@pytest.mark.anyio
@pytest.mark.parametrize("error", [ToolError("as it is"), SystemExit(1), StopIteration("x")], ids=repr)
async def test_N5_exceptions_of_a_thread_become_words(make_desk: Any, error: BaseException) -> None:
    def fails() -> None:
        raise error

    answer = await make_desk(fails).call("fails")
    assert answer.output.startswith("[tool error] ")
    assert answer.stop_reason == "failed"


@pytest.mark.anyio
async def test_N5_a_sync_function_does_not_block_the_loop(make_desk: Any) -> None:
    released = threading.Event()

    def waits() -> str:
        assert released.wait(30)
        return "released"

    async with anyio.create_task_group() as group:
        desk = make_desk(waits)
        group.start_soon(desk.call, "waits")
        await anyio.lowlevel.checkpoint()
        released.set()
    assert desk.answer().output == "released"


@pytest.mark.anyio
async def test_N5_an_abandoned_thread_is_told_of_and_its_later_writes_are_discarded(make_desk: Any) -> None:
    released, wrote = threading.Event(), threading.Event()

    @tool(timeout_ms=50, max_output_length=5)
    def stubborn(ctx: ToolContext) -> None:
        ctx.write("before the cut")
        assert ctx.stopped.wait(30)
        released.wait(30)
        ctx.write("too late")
        wrote.set()

    desk = make_desk(stubborn)
    answer = await desk.call("stubborn")
    assert answer.output.startswith("befor\n[output cut")
    assert answer.output.endswith(f"{MAY_STILL_RUN}\n[interrupted: tool timed out after 0.05 s]")
    assert answer.stop_reason == "timeout"
    before = list(desk.messages)
    released.set()
    assert await anyio.to_thread.run_sync(wrote.wait, 30)
    assert desk.messages == before


def test_N5_exit_does_not_wait_for_an_abandoned_thread(tmp_path: Any) -> None:
    code = f"""
import anyio, pathlib, time
from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.function_tool import tool
from penguin.protocol.builders import tool_call
from penguin.protocol.interfaces import ToolExecutionRequest
@tool(timeout_ms=50)
def sleeps(ctx):
    while True:
        time.sleep(0.01)
        ctx.write("still here")
async def main():
    environment = Environment(EnvironmentConfig(pathlib.Path({str(tmp_path)!r}), ToolConfig((), [sleeps])))
    await environment.execute_tool(ToolExecutionRequest(tool_call("sleeps", "{{}}", "c")), lambda message: None)
    print("answered")
anyio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert (done.stdout, done.stderr) == ("answered\n", "")


@pytest.mark.anyio
async def test_N5_threads_of_parallel_calls_run_together(make_desk: Any) -> None:
    barrier = threading.Barrier(8)

    def meets() -> str:
        barrier.wait(20)
        return "met"

    desks = [make_desk(meets) for _ in range(8)]
    async with anyio.create_task_group() as group:
        for desk in desks:
            group.start_soon(desk.call, "meets")
    assert {desk.answer().output for desk in desks} == {"met"}


def test_N5_a_decorated_function_can_still_be_called() -> None:
    assert look_up("k", []) == "k [] fast None None 0.5 None"
    assert look_up.__name__ == "look_up"  # type: ignore[attr-defined]


def test_N5_functions_that_cannot_be_called_by_name_are_refused() -> None:
    def starred(*names: str) -> None: ...
    def keywords(**names: str) -> None: ...
    def positional(a: int, /) -> None: ...
    def unusable(lock: threading.Thread) -> None: ...
    def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821
    def generates() -> Any:
        yield 1

    for function in (starred, keywords, positional, unusable, unknown, generates):
        with pytest.raises(TypeError, match=function.__name__):
            tool(function)


def test_as_tool_takes_tools_and_functions_and_nothing_else() -> None:
    assert as_tool(look_up) is look_up
    assert as_tool(_plain).definition.name == "_plain"
    for wrong in (42, "name", Point):
        with pytest.raises(TypeError, match="neither"):
            as_tool(wrong)  # type: ignore[arg-type]


def _plain(a: int) -> int:
    """Plain."""
    return a


def test_N5_installed_packages_register_tools_and_a_broken_one_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        dist = None

        def __init__(self, name: str, found: Any) -> None:
            self.name = name
            self._found = found

        def load(self) -> Any:
            if isinstance(self._found, Exception):
                raise self._found
            return self._found

    entries = [Entry("one", look_up), Entry("broken", ImportError("gone")), Entry("several", [_plain])]

    def entry_points(group: str) -> list[Entry]:
        assert group == "penguin.tools"
        return entries

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr("sys.path", [*sys.path, "/somewhere/else"])
    assert [each.definition.name for each in installed_tools()] == ["look_up", "_plain"]


def test_docstrings_without_sections_and_with_odd_ones() -> None:
    assert read_docstring("") == ("", {})
    assert read_docstring("Just this: words.") == ("Just this: words.", {})
    text = "Do.\n\nArgs:\n    a: One.\n\n        More: of it.\n    *b (int): Two.\nReturns:\n    c: no."
    assert read_docstring(text) == ("Do.", {"a": "One. More: of it.", "b": "Two."})
