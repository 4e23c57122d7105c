from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penguin.testing import Call, Turn
from penguin.testing.demo_script import demo_turns, demo_workspace_files
from penguin.testing.wire import content_of


def run_tests(workspace: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unittest"]
    return subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False)


def answered(output: str) -> dict[str, Any]:
    return {"messages": [{"role": "tool", "tool_call_id": "c", "content": output}]}


def turns(last_output: str = "") -> list[Turn]:
    said = [turn(answered(last_output)) if callable(turn) else turn for turn in demo_turns()]
    assert all(isinstance(turn, Turn) for turn in said)
    return [turn for turn in said if isinstance(turn, Turn)]


def calls(name: str) -> list[dict[str, Any]]:
    blocks = [block for turn in turns() for block in turn.blocks]
    return [json.loads(block.arguments) for block in blocks if isinstance(block, Call) and block.name == name]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name, content in demo_workspace_files().items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


def test_the_scripted_edit_really_mends_the_program(workspace: Path) -> None:
    before = run_tests(workspace)
    [edit] = calls("edit_file")
    file = workspace / edit["file_path"]
    program = file.read_text(encoding="utf-8")
    assert program.count(edit["old_string"]) == 1
    file.write_text(program.replace(edit["old_string"], edit["new_string"]), encoding="utf-8")
    after = run_tests(workspace)

    assert before.returncode != 0
    assert "AssertionError: 2 != 3" in before.stderr
    assert after.returncode == 0, after.stderr
    assert "Both tests pass" in content_of(turns(after.stderr)[-1].blocks[0])
    assert "did not pass" in content_of(turns(before.stderr)[-1].blocks[0])
    assert "did not pass" in content_of(turns("python3: not found")[-1].blocks[0])


def test_the_first_turn_reads_both_files_at_once(workspace: Path) -> None:
    reads = [block for block in turns()[0].blocks if isinstance(block, Call)]
    assert [json.loads(block.arguments)["file_path"] for block in reads] == sorted(p.name for p in workspace.iterdir())


def test_N6_N13_the_tools_are_called_as_they_are_defined() -> None:
    assert {frozenset(arguments) for arguments in calls("exec_command")} == {frozenset({"cmd", "description"})}
    assert len(calls("exec_command")) == 2
    assert [set(arguments) for arguments in calls("edit_file")] == [{"file_path", "old_string", "new_string"}]


def test_the_words_stream_visibly_and_take_less_than_ten_seconds() -> None:
    seconds = 0.0
    for turn in turns("Ran 2 tests OK"):
        assert turn.delta_delay > 0
        deltas = sum(-(-len(content_of(block)) // turn.delta_size) for block in turn.blocks)
        seconds += deltas * turn.delta_delay
    assert 2 < seconds < 8
