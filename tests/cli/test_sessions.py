"""``penguin sessions`` (K8)."""

from __future__ import annotations

import json
import tarfile
import time
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from tests.cli.conftest import Penguin
from tests.support.session_files import CHILD, EVENING, MORNING, OLD, scratch, spoken, with_child, written

from penguin.cli.app import app
from penguin.protocol.builders import token_usage, tool_call, user_text
from penguin.protocol.events import TokenCounts
from penguin.state.paths import AgentPaths, ProjectPaths
from penguin.trace.lock import SessionLock
from penguin.trace.names import files_of, lock_path


@pytest.fixture
def paths(project: ProjectPaths) -> AgentPaths:
    return project.agent()


def test_the_list_shows_what_a_person_recognises_and_hides_subagents(penguin: Penguin, paths: AgentPaths) -> None:
    with_child(paths)
    written(paths, MORNING, *spoken("Fix the\ntests \x1b[31mnow"), workspace="/home/me/project")
    written(paths, OLD).write_text("garbage\n")
    said = penguin("sessions", "list")
    header, *rows = said.out.splitlines()
    assert header.split() == ["id", "last", "active", "model", "workspace", "title"]
    assert [row.split()[0] for row in rows] == ["000000bb", "0000000b", "0000000a"]
    assert "custom/m  project" in rows[1]
    assert "Fix the tests ␛[31mnow" in rows[1]
    assert "unreadable" in rows[2]
    assert "subagent" in penguin("sessions", "list", "--subagents").out


def test_the_list_as_json_is_one_object_a_line(penguin: Penguin, paths: AgentPaths) -> None:
    with_child(paths, at=100)
    with SessionLock(lock_path(paths.traces, EVENING)):
        lines = penguin("sessions", "list", "--json", "--subagents").out.splitlines()
    child, parent = map(json.loads, lines)
    assert (child["session_id"], child["parent"]) == (CHILD, EVENING)
    assert (parent["title"], parent["provider"], parent["model_id"]) == ("delegate", "custom", "m")
    assert parent["open_in_process"] is not None
    assert parent["modified"].startswith("1970-01-01T")


def test_the_list_says_when_there_are_more(penguin: Penguin, paths: AgentPaths) -> None:
    for session_id in (OLD, MORNING, EVENING):
        written(paths, session_id)
    said = penguin("sessions", "list", "-n", "2")
    assert len(said.out.splitlines()) == 3
    assert "-n 0 lists all" in said.err
    assert penguin("sessions", "list", "-n", "3").err == ""
    assert len(penguin("sessions", "list", "-n", "0").out.splitlines()) == 4
    assert penguin("sessions", "list", "--root", "/nowhere").out.startswith("No session yet")


def test_show_says_what_a_session_used(penguin: Penguin, paths: AgentPaths) -> None:
    counts = TokenCounts(cache_read=300, cache_write=100, output=50, total=450)
    calls = [tool_call("read_file", "{}", "c1"), tool_call("read_file", "{}", "c2")]
    written(paths, MORNING, *spoken("Fix it"), *calls, token_usage(request=counts, session=counts))
    scratch(paths, MORNING)
    said = penguin("sessions", "show", "0000000b")
    assert said.status == 0, said.err
    shown = {line.split("  ")[0]: line for line in said.out.splitlines()}
    assert MORNING in shown["id"]
    assert "/w  (gone)" in shown["workspace"]
    assert "400 (75% from the cache)" in shown["tokens in"]
    assert "2: read_file 2" in shown["tool calls"]
    assert "cost" not in shown
    found = json.loads(penguin("sessions", "show", "latest", "--json").out)
    assert (found["session_id"], found["used"]["tokens"]["output"]) == (MORNING, 50)


def test_show_of_an_unreadable_session_says_why(penguin: Penguin, paths: AgentPaths) -> None:
    written(paths, MORNING).write_text("garbage\n")
    said = penguin("sessions", "show", MORNING)
    assert said.status == 0
    assert "not a trace" in said.out


@pytest.mark.parametrize("command", ["show", "fork", "export", "delete", "resume"])
def test_K12_an_unknown_session_is_one_message(penguin: Penguin, paths: AgentPaths, command: str) -> None:
    written(paths, MORNING)
    more = ["-m", "x"] if command == "resume" else []
    said = penguin("sessions", command, "ffffffff", *more)
    assert said.status == 2
    assert said.err.startswith("penguin: there is no session ffffffff in ")
    assert len(said.err.splitlines()) == 1


# ---------------------------------------------------------------- fork and export


def test_fork_prints_the_new_id_and_leaves_the_old_session_alone(penguin: Penguin, paths: AgentPaths) -> None:
    old = written(paths, MORNING, *spoken("one"), *spoken("two"))
    before = old.read_bytes()
    said = penguin("sessions", "fork", "0000000b", "--at-request", "1")
    assert said.status == 0, said.err
    made = said.out.strip()
    (copy,) = files_of(paths.traces, made)
    assert copy.read_bytes().count(b"request_end") == 1
    assert old.read_bytes() == before
    assert f"--resume {made[-8:]}" in said.err
    assert "cannot be forked at 9" in penguin("sessions", "fork", MORNING, "--at-request", "9").err
    half = penguin("sessions", "fork", MORNING, "--provider", "openai")
    assert (half.status, "--model-id" in half.err) == (2, True)


def test_export_writes_one_private_file_and_never_over_another(
    penguin: Penguin, paths: AgentPaths, tmp_path: Path
) -> None:
    trace = written(paths, MORNING, *spoken("one"))
    scratch(paths, MORNING)
    assert penguin("sessions", "export", "latest").status == 0
    made = tmp_path / f"{MORNING}.tar.gz"
    assert made.stat().st_mode & 0o077 == 0
    with tarfile.open(made) as archive:
        assert archive.getnames() == [
            f"traces/2026-03-01/{MORNING}_001.jsonl",
            f"scratchpad/{MORNING}/images/output.txt",
        ]
    again = penguin("sessions", "export", "latest")
    assert (again.status, "--force replaces it" in again.err) == (2, True)
    assert penguin("sessions", "export", "latest", "--force").status == 0
    assert penguin("sessions", "export", "latest", "-o", "records.jsonl").status == 0
    assert (tmp_path / "records.jsonl").read_bytes() == trace.read_bytes()
    assert penguin("sessions", "export", "latest", "-o", "-", "--format", "jsonl").out == trace.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "records.jsonl", made.name]


def test_an_export_that_fails_leaves_nothing_behind(penguin: Penguin, paths: AgentPaths, tmp_path: Path) -> None:
    written(paths, MORNING).write_text("garbage\n")
    assert penguin("sessions", "export", "latest", "-o", "records.jsonl").status == 1
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


# ---------------------------------------------------------------- delete and prune


def test_delete_asks_nobody_who_is_not_there(penguin: Penguin, paths: AgentPaths) -> None:
    file = written(paths, MORNING)
    said = penguin("sessions", "delete", MORNING)
    assert said.status == 2
    assert "--yes" in said.err
    assert file.exists()


def test_delete_takes_all_or_says_what_stays(penguin: Penguin, paths: AgentPaths) -> None:
    with_child(paths)
    kept = written(paths, MORNING)
    with SessionLock(lock_path(paths.traces, MORNING)):
        said = penguin("sessions", "delete", "--yes", "000000bb", "0000000b", MORNING)
    assert said.status == 1
    assert f"{EVENING} is gone, and 1 of its subagents" in said.out
    assert said.err.startswith(f"penguin: {MORNING} was not deleted: The session is in use by process")
    assert len(said.err.splitlines()) == 1
    assert kept.exists()
    assert penguin("sessions", "delete", "-y", "latest").status == 0
    assert penguin("sessions", "list").out.startswith("No session yet")


def test_prune_deletes_what_is_old_and_shows_it_first(penguin: Penguin, paths: AgentPaths) -> None:
    written(paths, OLD, user_text("long ago"), at=time.time() - 31 * 86_400)
    young = written(paths, MORNING, at=time.time() - 29 * 86_400)
    dry = penguin("sessions", "prune", "--older-than", "30d", "--dry-run")
    assert (dry.status, "long ago" in dry.out) == (0, True)
    assert penguin("sessions", "prune", "--older-than", "30d").status == 2
    assert len(penguin("sessions", "list", "--json").out.splitlines()) == 2
    said = penguin("sessions", "prune", "--older-than", "30d", "--yes")
    assert (said.status, said.out) == (0, f"{OLD} is gone\n")
    assert young.exists()
    assert penguin("sessions", "prune", "--older-than", "4w", "--yes").out == f"{MORNING} is gone\n"
    assert penguin("sessions", "prune", "--older-than", "1m", "--yes").out == "Nothing is that old.\n"


@pytest.mark.parametrize("span", ["30", "d", "-3d", "30 years", "1.5d", ""])
def test_a_span_that_is_none_is_refused_with_what_one_looks_like(penguin: Penguin, span: str) -> None:
    said = penguin("sessions", "prune", "--older-than", span)
    assert said.status == 2
    assert "30d" in said.err


# ---------------------------------------------------------------- completion


def completions(words: str) -> list[str]:
    """What the shell would be offered for the last of these words."""
    *given, incomplete = words.split(" ")
    complete = BashComplete(app, {}, "penguin", "_PENGUIN_COMPLETE")
    return [item.value for item in complete.get_completions(given, incomplete)]


def test_the_shell_completes_sessions_and_models(penguin: Penguin, paths: AgentPaths) -> None:
    written(paths, MORNING)
    written(paths, EVENING)
    penguin("config", "model", "add", "--provider", "custom", "--model-id", "mine", "--base-url", "http://127.0.0.1:9")
    assert completions("sessions show ") == ["000000bb", "0000000b"]
    assert completions("run --resume 0000000") == ["0000000b"]
    assert completions("sessions delete session-2026-03-01-2") == [EVENING]
    assert completions("run --provider cus") == ["custom"]
    assert completions("run --provider custom --model-id ") == ["mine"]
    assert "gpt-5" in completions("run --provider openai --model-id gpt-5")
    paths.project.config.write_text("[broken\n")
    assert completions("run --provider cus") == []
