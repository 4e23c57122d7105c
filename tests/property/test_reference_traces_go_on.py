"""Every trace of the original product resumes, goes on for one more task on each protocol, and forks (D3, T14)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from tests.support.world import MINDS, Plan, World, call, say, turn

from penguin.testing.legality import SignatureWatch

pytestmark = pytest.mark.golden

SCENES = [
    *("abort_mid_text", "abort_mid_tool", "compact_auto_midtask", "compact_discard", "compact_manual"),
    *("disconnect_retry", "duplicate_call_ids", "malformed_retry", "max_turns", "no_approve", "plain_text"),
    *("read_image", "resume_kill_mid_tool", "steering_mid_tool", "subagent", "thinking_text_ant"),
    *("thinking_text_chat", "tool_denied", "tool_one", "tools_parallel", "truncation"),
]
_OWN_PROTOCOL = {"thinking_text_ant": "anthropic-messages"}


def sessions_of(scene: Path) -> Iterator[tuple[str, list[Path]]]:
    """The sessions of a scene; one with a subagent has two."""
    found: dict[str, list[Path]] = {}
    for file in sorted(scene.glob("trace-*.jsonl")):
        found.setdefault(file.name.removeprefix("trace-").rsplit("_", 1)[0], []).append(file)
    yield from found.items()


def one_more_task(world: World) -> None:
    world.imported = len(world.records())
    world.replies.append(Plan(turn(say("tok-say-1"), call("echo", {"text": "tok-out-1"}, id="new-1"))))
    result = world.run("Do tok-user-1", ["tok-user-1"])
    assert result is not None
    assert result.stop_reason == "completed", result
    assert result.text == "Finished."
    world.check()


@pytest.fixture
def scene(request: pytest.FixtureRequest, golden_dir: Path) -> Path:
    return golden_dir / str(request.param)


def test_no_scene_is_left_out(golden_dir: Path) -> None:
    assert sorted(SCENES) == sorted(path.name for path in golden_dir.iterdir() if path.is_dir())


@pytest.mark.parametrize("scene", SCENES, indirect=True)
def test_D3_T14_it_resumes_and_goes_on_with_its_own_protocol(scene: Path, tmp_path: Path) -> None:
    """Nothing is dropped, so what the provider signed then goes back now; this provider takes its word for it."""
    for session_id, files in sessions_of(scene):
        world = World(tmp_path / session_id, _OWN_PROTOCOL.get(scene.name, "openai-chat"))
        try:
            world.put_down(files, session_id)
            with mock.patch.object(SignatureWatch, "check", return_value=[]):
                world.resume(session_id)
                one_more_task(world)
                world.restart()
                one_more_task(world)
        finally:
            world.close()


@pytest.mark.parametrize("mind", MINDS)
@pytest.mark.parametrize("scene", SCENES, indirect=True)
def test_D3_T13_it_forks_and_goes_on_with_every_protocol(scene: Path, mind: str, tmp_path: Path) -> None:
    for session_id, files in sessions_of(scene):
        world = World(tmp_path / session_id, mind)
        try:
            world.take_in(files, session_id, mind)
            one_more_task(world)
            world.fork(1, None)
            one_more_task(world)
        finally:
            world.close()
