"""N20-N22 against scripted servers: well-behaved ones and the other kind (D30-D35)."""

# ruff: noqa: ASYNC240 - a test may look at a file while nothing else runs

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.environment.mcp.bench import Bench, tool

from penguin.environment.mcp import connection, life, stdio
from penguin.environment.mcp.report import McpReport

pytestmark = pytest.mark.anyio
Scripted = Callable[..., dict[str, Any]]
Connect = Callable[..., Bench]
MISSING = {"name": "missing", "config": {"command": "penguin-has-no-such-server"}}


def words(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


# ---------------------------------------------------------------- connecting


async def test_N20_a_server_s_tools_are_offered_and_called(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(tools=[tool("echo", description="Says it again")]))
    (definition,) = await bench.environment.list_tools()
    assert (definition.name, definition.description) == ("mcp__scripted__echo", "Says it again")
    output = await bench.call("mcp__scripted__echo", text="hi", n=[1, 2.5, None])
    assert json.loads(output.output) == {"text": "hi", "n": [1, 2.5, None]}
    assert output.stop_reason is None
    assert bench.reports == []
    assert [(each.state, each.tools) for each in bench.environment.mcp_status] == [("connected", 1)]


async def test_N20_servers_connect_side_by_side_and_one_that_fails_stops_nobody(
    connect: Connect, scripted: Scripted, tmp_path: Path
) -> None:
    # The second answers only when the third has been asked, and the third only when the second has.
    there, here = tmp_path / "there", tmp_path / "here"
    bench = connect(
        scripted("good", tools=[tool("a")]),
        scripted("b", tools=[tool("b")], hold=str(there), log=str(here)),
        scripted("c", tools=[tool("c")], hold=str(here), log=str(there)),
        MISSING,
        scripted("dies", die_before=True),
    )
    assert await bench.names() == ["mcp__good__a", "mcp__b__b", "mcp__c__c"]
    reasons = {each.server: each.reason for each in bench.reports}
    assert reasons == {
        "missing": "the command 'penguin-has-no-such-server' was not found",
        "dies": "it ended before it was connected (exit code: 3); it wrote: no token, no service",
    }
    assert {each.state for each in bench.reports} == {"failed"}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"cwd": "nowhere"}, "its directory {workspace}/nowhere cannot be used: No such file or directory"),
        ({"command": "{workspace}"}, "the command '{workspace}' may not be executed"),
        ({"command": "./plain"}, "the command './plain' may not be executed"),
        ({"command": "./broken"}, "the command './broken' cannot be started: Exec format error"),
    ],
)
async def test_N20_why_a_server_cannot_be_started(
    connect: Connect, scripted: Scripted, workspace: Path, config: dict[str, Any], reason: str
) -> None:
    (workspace / "plain").touch()
    (workspace / "broken").write_bytes(b"\x7fELF")
    (workspace / "broken").chmod(0o700)
    config = {key: value.format(workspace=workspace) for key, value in config.items()}
    bench = connect(scripted(config=config))
    assert await bench.names() == []
    assert [each.reason for each in bench.reports] == [reason.format(workspace=workspace)]


async def test_N20_a_failure_is_reported_once_and_retried_at_the_next_context(
    connect: Connect, scripted: Scripted, tmp_path: Path
) -> None:
    late = scripted("late", tools=[tool("a")])
    real = Path(late["config"]["command"])
    late["config"]["command"] = str(tmp_path / "not-there-yet")
    bench = connect(late)
    assert await bench.names() == []
    assert await bench.names() == []
    assert [each.state for each in bench.reports] == ["failed"]
    (tmp_path / "not-there-yet").symlink_to(real)
    assert await bench.names() == ["mcp__late__a"]
    assert [each.state for each in bench.reports] == ["failed", "connected"]
    assert [each.state for each in bench.environment.take_mcp_reports()] == ["failed", "connected"]
    assert bench.environment.take_mcp_reports() == []


async def test_D31_a_slow_server_is_not_waited_for_and_joins_the_next_context(
    connect: Connect, scripted: Scripted, tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    bench = connect(
        scripted("good", tools=[tool("a")]),
        scripted("slow", {"timeout": 0.2}, tools=[tool("b")], hold=str(hold)),
        scripted("silent", {"timeout": 0.2}, silent=True),
        MISSING,
    )
    assert await bench.names() == ["mcp__good__a"]
    assert {each.server: each.state for each in bench.reports} == {
        "slow": "slow",
        "silent": "slow",
        "missing": "failed",
    }
    assert "not connected within 0.2 s" in next(each.words for each in bench.reports if each.server == "slow")
    hold.touch()
    await bench.reported("connected")
    assert await bench.names() == ["mcp__good__a", "mcp__slow__b"]
    assert [each.server for each in bench.reports].count("silent") == 1


async def test_D31_a_server_that_never_connects_is_given_up(
    connect: Connect, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "LONGEST_START", 0.3)
    bench = connect(scripted("silent", {"timeout": 0.05}, silent=True))
    await bench.names()
    assert (await bench.reported("failed")).reason == "it did not finish connecting within 0.3 s"


async def test_E11_leaving_the_wait_for_servers_does_no_harm(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted("silent", silent=True), scripted("good", tools=[tool("a")]))
    with anyio.move_on_after(0.05):
        await bench.names()
    before = time.monotonic()
    await bench.environment.aclose()
    assert time.monotonic() - before < 10


async def test_N20_a_disabled_server_is_not_started(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted("off", {"enabled": False}, tools=[tool("a")]))
    assert await bench.names() == []
    assert bench.environment.mcp_status == []


async def test_N20_only_the_tools_on_the_list_are_offered(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(config={"tools": ["b", "nonsuch"]}, tools=[tool("a"), tool("b")]))
    assert await bench.names() == ["mcp__scripted__b"]
    assert "has no tool" in (await bench.call("mcp__scripted__a")).output


async def test_N20_a_server_that_speaks_only_the_newest_protocol(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(newest=True, tools=[tool("echo")]))
    assert await bench.names() == ["mcp__scripted__echo"]
    assert (await bench.call("mcp__scripted__echo", a=1)).output == '{"a": 1}'


async def test_N20_a_server_that_speaks_no_protocol_we_know(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(refuse_initialize=True))
    assert await bench.names() == []
    assert [each.reason for each in bench.reports] == ["it answered with an error: not this one"]


# ---------------------------------------------------------------- junk, names, pages, schemas


async def test_D30_junk_on_stdout_is_logged_and_skipped(
    connect: Connect, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        bench = connect(scripted("noisy", tools=[tool("echo")], junk=True, stderr=1_000_000))
        assert await bench.names() == ["mcp__noisy__echo"]
        for number in range(20):
            assert (await bench.call("mcp__noisy__echo", n=number)).output == f'{{"n": {number}}}'
    junk = [each.getMessage() for each in caplog.records if "noisy" in each.getMessage()]
    assert "Starting v1..." in junk[0]
    assert '{"not":"rpc"}' in junk[1]
    assert "not UTF-8" in junk[2]
    assert len(junk) == 5, "a chatty server must not fill the log"
    assert bench.reports == []


async def test_D30_a_character_cut_in_two_costs_one_character(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(tools=[tool("half_character")]))
    await bench.names()
    assert (await bench.call("mcp__scripted__half_character")).output == "a\ufffdb \ufffd c"


async def test_N3_a_line_without_an_end_ends_the_connection_not_the_memory(
    connect: Connect, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "LONGEST_MESSAGE", 1 << 20)
    monkeypatch.setattr(stdio, "GRACE", 0.3)
    bench = connect({"name": "endless", "config": {"command": "sh", "args": ["-c", "tr '\\0' x < /dev/zero"]}})
    assert await bench.names() == []
    report = await bench.reported("failed")
    assert report.reason == "it wrote a line of more than 1 MiB"


async def test_N21_a_server_that_answers_with_numbers_as_text(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(tools=[{"name": "echo"}], results={"echo": {"isError": False}}, string_ids=True))
    assert await bench.names() == ["mcp__scripted__echo"]
    assert (await bench.call("mcp__scripted__echo")).output == "[no output]"


async def test_D32_names_are_legal_map_back_and_show_their_origin(connect: Connect, scripted: Scripted) -> None:
    originals = ["catalog.get-entity", "admin/users", "naïve tool", "a.b", "a_b"]
    results = {each: words(f"I am {each}") for each in originals}
    servers = scripted("my shop", tools=[tool(each) for each in originals], results=results)
    bench, again = connect(servers), connect(servers)
    names = await bench.names()
    assert names == await again.names()
    assert len(set(names)) == 5
    for name in names:
        origin = bench.environment.mcp_origin(name)
        assert origin is not None
        assert origin.server == "my shop"
        assert (await bench.call(name)).output == f"I am {origin.tool}"
    assert bench.environment.mcp_origin("exec_command") is None


async def test_D33_all_pages_are_read_again_after_a_change(connect: Connect, scripted: Scripted) -> None:
    first = [tool(f"t{number:02}") for number in range(50)]
    second = [tool(f"u{number}") for number in range(3)] + [tool("grow")]
    bench = connect(scripted(pages=[first, second], grow_on="grow"))
    assert len(await bench.names()) == 54
    await bench.call("mcp__scripted__grow")
    names = await bench.names()
    assert len(names) == 55
    assert "mcp__scripted__grown" in names


async def test_D33_a_list_that_never_ends(connect: Connect, scripted: Scripted) -> None:
    script = scripted(tools=[tool("a")])
    path = Path(script["config"]["args"][1])
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"pages": [[tool("a")]] * 2}))
    bench = connect(script)
    assert await bench.names() == ["mcp__scripted__a"]


@pytest.mark.parametrize(
    ("result", "output", "reason"),
    [
        ({"content": [], "structuredContent": {"answer": 42}, "isError": False}, '{"answer": 42}', None),
        ({"content": [], "isError": True}, "[tool error] The tool reported an error without saying which.", "failed"),
        ({"content": [{"type": "text", "text": "boom"}], "isError": True}, "[tool error] boom", "failed"),
        ({}, "[no output]", None),
    ],
)
async def test_D34_results(
    connect: Connect, scripted: Scripted, result: dict[str, Any], output: str, reason: str | None
) -> None:
    bench = connect(scripted(tools=[tool("t")], results={"t": result}))
    await bench.names()
    told = await bench.call("mcp__scripted__t")
    assert (told.output, told.stop_reason) == (output, reason)


async def test_D34_a_long_error_is_cut_and_still_an_error(connect: Connect, scripted: Scripted) -> None:
    result = {"content": [{"type": "text", "text": "x" * 100_000}], "isError": True}
    bench = connect(scripted(tools=[tool("t")], results={"t": result}))
    await bench.names()
    told = await bench.call("mcp__scripted__t")
    assert told.stop_reason == "failed"
    assert len(told.output) < 20_000
    assert told.output.endswith("[tool error] The text above is the error that the tool reported.")


async def test_D35_references_are_resolved_for_the_model_and_arguments_pass_unchanged(
    connect: Connect, scripted: Scripted
) -> None:
    query = {"type": "object", "properties": {"limit": {"type": "integer"}, "below": {"$ref": "#/$defs/Q"}}}
    schema = {"type": "object", "$defs": {"Q": query}, "properties": {"q": {"$ref": "#/$defs/Q"}}, "required": ["q"]}
    bench = connect(scripted(tools=[{"name": "find", "inputSchema": schema}]))
    definition = await bench.definition("mcp__scripted__find")
    assert definition.parameters is not None
    assert definition.parameters["properties"]["q"]["properties"]["limit"] == {"type": "integer"}
    assert "$ref" not in json.dumps(definition.parameters)
    assert json.loads((await bench.call("mcp__scripted__find", q={"limit": 1})).output) == {"q": {"limit": 1}}
    deep = {"q": {"below": {"below": {"below": {"limit": 1}}}, "more": None}}
    assert json.loads((await bench.call("mcp__scripted__find", **deep)).output) == deep
    wrong = await bench.call("mcp__scripted__find", q=1)
    assert "q: expected object, got number 1" in wrong.output


# ---------------------------------------------------------------- calls


async def test_N21_errors_of_the_protocol_are_failures(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(tools=[tool("t")], errors={"t": {"code": -32602, "message": "no such thing"}}))
    await bench.names()
    told = await bench.call("mcp__scripted__t")
    assert (told.output, told.stop_reason) == ("[tool error] MCP server scripted: no such thing", "failed")
    assert bench.reports == []


async def test_N21_progress_is_streamed_before_the_answer(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(tools=[tool("t")], progress={"t": 3}, results={"t": words("ready")}))
    await bench.names()
    told, deltas = await bench.call_and_watch("mcp__scripted__t")
    assert deltas == ["[1/3] step 1\n", "[2/3] step 2\n", "[3/3] step 3\n", "ready"]
    assert told.output == "".join(deltas)


async def test_N21_progress_leaves_room_for_the_answer(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(tools=[tool("t")], progress={"t": 300}, results={"t": words("ready")}))
    await bench.names()
    told = await bench.call("mcp__scripted__t")
    assert told.output.endswith("ready")
    assert len(told.output) < connection.MOST_PROGRESS + 100


async def test_N21_a_call_has_a_time_limit_and_the_server_lives_on(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(config={"tool_timeout": 0.2}, tools=[tool("never"), tool("echo")]))
    await bench.names()
    told = await bench.call("mcp__scripted__never")
    assert told.stop_reason == "timeout"
    assert (await bench.call("mcp__scripted__echo", a=1)).output == '{"a": 1}'


async def test_N21_an_interrupted_call_is_cancelled_at_the_server(
    connect: Connect, scripted: Scripted, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    bench = connect(scripted(tools=[tool("never"), tool("echo")], log=str(log)))
    await bench.names()
    async with anyio.create_task_group() as group:
        group.start_soon(bench.call, "mcp__scripted__never")
        with anyio.fail_after(10):
            while '"never"' not in log.read_text():  # noqa: ASYNC110 - another process writes it
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    await bench.call("mcp__scripted__echo")
    assert "notifications/cancelled" in log.read_text()


async def test_N21_permission_is_the_server_s_hint_unless_the_entry_fixes_it(
    connect: Connect, scripted: Scripted
) -> None:
    tools = [
        tool("look", annotations={"readOnlyHint": True}),
        tool("act", annotations={"readOnlyHint": False, "destructiveHint": True}),
        tool("plain"),
    ]
    bench = connect(
        scripted("said", tools=tools),
        scripted("r", {"permission": "r"}, tools=tools),
        scripted("rw", {"permission": "rw"}, tools=tools),
        scripted("later", {"permission": "r"}, silent=True),
    )
    environment = bench.environment
    assert environment.tool_permission("mcp__later__x") == "r"
    assert environment.tool_permission("mcp__said__look") == "rw", "nobody has said anything yet"
    with anyio.move_on_after(0.01):
        await bench.names()
    for server in ("said", "r", "rw"):
        await bench.call(f"mcp__{server}__plain")
    late = [environment.tool_permission(f"mcp__said__{each}") for each in ("look", "act", "plain")]
    assert late == ["rw", "rw", "rw"]
    environment._mcp._servers.pop()  # type: ignore[union-attr] # the silent one: nobody waits for it here
    await bench.names()
    for server, expected in {"said": "r rw rw", "r": "r r r", "rw": "rw rw rw"}.items():
        permissions = [environment.tool_permission(f"mcp__{server}__{each}") for each in ("look", "act", "plain")]
        assert permissions == expected.split()
    assert environment.tool_permission("mcp__nobody__x") is None


async def test_N21_what_the_server_asks_of_us(
    connect: Connect, scripted: Scripted, tmp_path: Path, workspace: Path
) -> None:
    log = tmp_path / "log"
    sampling = {"messages": [], "maxTokens": 1}
    elicitation = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}
    asks = {
        "roots": {"method": "roots/list"},
        "sampling": {"method": "sampling/createMessage", "params": sampling},
        "elicitation": {"method": "elicitation/create", "params": elicitation},
        "ping": {"method": "ping"},
    }
    bench = connect(scripted(tools=[tool(each) for each in asks], asks=asks, log=str(log)))
    await bench.names()
    for each in asks:
        assert (await bench.call(f"mcp__scripted__{each}")).stop_reason is None
    messages = [json.loads(line) for line in log.read_text().splitlines()]
    roots, sampled, elicited, ping = [each for each in messages if each.get("id") == "asked"]
    assert [each["uri"] for each in roots["result"]["roots"]] == [workspace.as_uri()]
    assert "not supported" in sampled["error"]["message"]
    assert "not supported" in elicited["error"]["message"]
    assert ping["result"] == {}
    capabilities = messages[0]["params"]["capabilities"]
    assert "roots" in capabilities
    assert not {"sampling", "elicitation"} & capabilities.keys()


# ---------------------------------------------------------------- loss and return


async def test_N21_a_server_that_dies_fails_the_call_and_is_back_for_the_next(
    connect: Connect, scripted: Scripted, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    bench = connect(scripted(tools=[tool("die"), tool("echo")], die_on="die", log=str(log)))
    await bench.names()
    told = await bench.call("mcp__scripted__die")
    assert told.stop_reason == "failed"
    assert "it ended unexpectedly (exit code: 7)" in told.output
    outputs: list[str] = []

    async def echo(number: int) -> None:
        outputs.append((await bench.call("mcp__scripted__echo", n=number)).output)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(echo, number)
    assert sorted(outputs) == [f'{{"n": {number}}}' for number in range(5)]
    assert log.read_text().count('"initialize"') == 2, "the new start is shared by parallel calls"
    assert [each.state for each in bench.reports] == ["failed", "connected"]


async def test_N21_all_calls_in_flight_fail_when_the_server_dies(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(tools=[tool("never"), tool("die")], die_on="die"))
    await bench.names()
    outputs: list[str] = []

    async def call(name: str) -> None:
        outputs.append((await bench.call(f"mcp__scripted__{name}")).output)

    async with anyio.create_task_group() as group:
        for name in ("never", "never", "die"):
            group.start_soon(call, name)
    assert len(outputs) == 3
    assert all("was lost while" in each for each in outputs)


async def test_N21_a_server_that_cannot_come_back_fails_each_call(connect: Connect, scripted: Scripted) -> None:
    entry = scripted(tools=[tool("die")], die_on="die")
    bench = connect(entry)
    await bench.names()
    await bench.call("mcp__scripted__die")
    path = Path(entry["config"]["args"][1])
    path.write_text(json.dumps({"die_before": True}))
    told = await bench.call("mcp__scripted__die")
    assert told.stop_reason == "failed"
    assert "is not available: it ended before it was connected (exit code: 3)" in told.output


async def test_T7_a_resumed_session_calls_a_tool_before_it_was_listed(connect: Connect, scripted: Scripted) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    bench = connect(scripted(tools=[{"name": "echo", "inputSchema": schema}]), MISSING)
    bench.environment.connect()
    assert (await bench.call("mcp__scripted__echo", n=1)).output == '{"n": 1}'
    assert "n: expected integer" in (await bench.call("mcp__scripted__echo", n="x")).output
    gone = await bench.call("mcp__scripted__gone")
    assert gone.stop_reason == "failed"
    assert "has no tool mcp__scripted__gone; it has mcp__scripted__echo" in gone.output
    absent = await bench.call("mcp__missing__x")
    assert absent.stop_reason == "failed"
    assert "MCP server missing is not available: the command" in absent.output
    assert "There is no tool called" in (await bench.call("mcp__nobody__x")).output


async def test_a_call_after_the_end_is_refused(connect: Connect, scripted: Scripted) -> None:
    bench = connect(scripted(tools=[tool("echo")]))
    await bench.names()
    await bench.environment.aclose()
    await bench.environment.aclose()
    assert "The session is closed" in (await bench.call("mcp__scripted__echo")).output
    assert await bench.environment.list_tools() == []


async def test_a_listener_that_fails_harms_nobody(
    connect: Connect, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    bench = connect(MISSING, scripted(tools=[tool("a")]))
    assert bench.environment._mcp is not None

    def fail(_report: McpReport) -> None:
        raise ValueError("no")

    bench.environment._mcp.on_report = fail
    assert await bench.names() == ["mcp__scripted__a"]
    assert "a listener to MCP reports failed" in caplog.text


# ---------------------------------------------------------------- what a server sees, and how it ends


async def test_N22_a_server_gets_a_minimal_environment_and_its_own(
    connect: Connect, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PENGUIN_SOMETHING", "ours")
    monkeypatch.setenv("UNRELATED", "secret too")
    bench = connect(
        scripted(config={"env": {"MODE": "test", "TERM": "own"}}, tools=[tool("environment")]),
        vault={"DB_PASSWORD": "s3cret"},
    )
    await bench.names()
    seen = json.loads((await bench.call("mcp__scripted__environment")).output)
    assert (seen["MODE"], seen["TERM"]) == ("test", "own")
    assert seen["PENGUIN_CUSTODY"]
    assert not {"OPENAI_API_KEY", "PENGUIN_SOMETHING", "UNRELATED", "DB_PASSWORD"} & seen.keys()
    assert seen.keys() <= {*connection.INHERITED, "MODE", "PENGUIN_CUSTODY", "LC_CTYPE", "__CF_USER_TEXT_ENCODING"}


async def test_N22_servers_end_with_the_environment_and_so_do_their_children(
    connect: Connect,
    scripted: Scripted,
    tmp_path: Path,
    is_running: Callable[[int | str], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stdio, "GRACE", 0.3)
    children = [tmp_path / "child-1", tmp_path / "child-2", tmp_path / "child-3"]
    bench = connect(
        scripted("good", tools=[tool("a")], child=str(children[0])),
        scripted("stubborn", tools=[tool("a")], child=str(children[1]), stay=True),
        scripted("dead", tools=[tool("die")], child=str(children[2]), die_on="die"),
    )
    await bench.names()
    await bench.call("mcp__dead__die")
    pids = [int(each.read_text()) for each in children]
    assert is_running(pids[0])
    assert is_running(pids[1])
    await bench.environment.aclose()
    assert not any(is_running(pid) for pid in pids)
    assert not is_running(str(tmp_path / "script"))
    assert bench.environment.mcp_status[1].state in {"failed", "idle"}
