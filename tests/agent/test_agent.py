"""The composition root: models, workspaces, prompts, tools, resume (K2 to K4, A4, L17, S5)."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.support.engine_kit import allow, text_of

from penguin import create_agent, run_sync, tool
from penguin.agent.agent import Agent
from penguin.protocol.blocks import read_blocks
from penguin.protocol.errors import ConfigError, CredentialError, NoModelError, ResumeError, SessionLocked
from penguin.protocol.messages import Message, SessionMeta, Text, ToolCall
from penguin.state.project import ModelEntry, ModelRef, ProjectConfigFile
from penguin.testing import ScriptedProvider
from penguin.testing.scripted import ScriptedModel
from penguin.testing.turns import call, hang, say, turn
from penguin.trace.reader import read_trace

pytestmark = pytest.mark.anyio

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="


@tool
def double(number: int) -> int:
    """Double a number.

    Args:
        number: the number.
    """
    return 2 * number


def traces_and_locks(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.suffix in {".jsonl", ".lock"}]


async def test_a_session_works_in_its_workspace_and_leaves_a_trace(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path / "data")
    script = ScriptedModel([turn(call("write_file", {"file_path": "hello.txt", "content": "hi\n"})), "Done."])
    workspace = tmp_path / "ws"
    workspace.mkdir()
    async with await agent.create_session(workspace_dir=workspace, model=script) as session:
        assert await session.ask("Create hello.txt", approve=allow) == "Done."
        assert session.trace_path is not None
        first, *_ = read_trace(session.trace_path)
    assert (workspace / "hello.txt").read_text() == "hi\n"
    assert isinstance(first.payload, SessionMeta)
    assert first.payload.workspace == str(workspace)
    assert first.payload.tools is not None
    script.assert_exhausted()


async def test_T1_a_session_that_was_never_used_leaves_no_file(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    async with await agent.create_session(model=ScriptedModel([])):
        pass
    assert not traces_and_locks(tmp_path)


async def test_N5_functions_of_the_program_are_tools(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path, tools=[double])
    script = ScriptedModel([turn(call("double", {"number": 21})), "42"])
    async with await agent.create_session(model=script) as session:
        await session.ask("double 21", approve=allow)
    assert [text_of(message) for message in script.requests[1].new_messages] == ["42"]


async def test_S5_the_prompt_and_the_schemas_are_fixed_and_small(tmp_path: Path) -> None:
    """Prompt and tool schemas together stay under 2,500 tokens (characters / 4)."""
    agent = await create_agent(root=tmp_path)
    factory = ScriptedModel(["ok"])
    async with await agent.create_session(model=factory.factory()) as session:
        await session.ask("hi")
    (config,) = factory.configs
    assert config.system_prompt is not None
    assert str(session.workspace_dir) in config.system_prompt
    assert "{{" not in config.system_prompt
    size = len(config.system_prompt) + len(msgspec.json.encode(config.tools))
    assert size / 4 < 2_500, f"{size / 4} tokens"


async def test_A4_no_model_and_no_key_are_typed_errors_before_anything_is_sent(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path, environ={})
    with pytest.raises(NoModelError):
        await agent.create_session()
    with pytest.raises(CredentialError, match="OPENAI_API_KEY"):
        await agent.create_session(provider="openai", model_id="gpt-5")
    with pytest.raises(ConfigError, match="both or neither"):
        await agent.create_session(provider="openai")
    with pytest.raises(ConfigError, match="no directory"):
        await agent.create_session(workspace_dir=tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="nobody"):
        await agent.create_session(provider="nobody", model_id="x")


async def test_K9_a_key_in_the_workspace_env_file_is_read_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-from-file\nOPENAI_BASE_URL=http://127.0.0.1:1/evil\n")
    agent = await create_agent(root=tmp_path / "data", environ={})
    async with await agent.create_session(workspace_dir=tmp_path, provider="openai", model_id="gpt-5") as session:
        model: Any = session.engine._contexts.model
    assert model._config.api_key == "sk-from-file"
    assert "127.0.0.1" not in repr(model._config)
    assert "sk-from-file" not in repr(model._config)
    assert "OPENAI_API_KEY" not in os.environ


async def _interrupted_session(root: Path, workspace: Path) -> str:
    agent = await create_agent(root=root)
    session = await agent.create_session(workspace_dir=workspace, model=ScriptedModel([turn(say("half"), hang())]))

    def stop(message: Message) -> None:
        if isinstance(message.payload, Text) or "half" in text_of(message):
            session.interrupt()

    session.observe(stop)
    async with session:
        await session.ask("first question")
    return session.id


async def test_T7_resume_goes_on_with_what_was_kept(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    session_id = await _interrupted_session(tmp_path / "data", workspace)
    agent = await create_agent(root=tmp_path / "data")
    script = ScriptedModel(["Continued."])
    async with await agent.resume_session(model=script.factory()) as session:
        assert session.id == session_id
        assert session.workspace_dir == workspace
        assert await session.ask("go on") == "Continued."
    block, prompt = [text_of(message) for message in script.requests[0].new_messages]
    assert read_blocks("user_input", block) == ["first question"]
    assert prompt == "go on"
    async with await agent.resume_session(session_id, model=ScriptedModel(["Again."])) as session:
        assert len(session.engine.ledger.history) == 3
        assert await session.ask("more") == "Again."


async def test_E17_a_resumed_session_hears_that_its_background_work_is_gone_and_reuses_no_id(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path / "data")
    wait = {"cmd": "sleep 61.83", "description": "wait", "run_in_background": True}
    script = ScriptedModel([turn(call("exec_command", wait, id="a")), "Started."])
    async with await agent.create_session(model=script.factory(), workspace_dir=tmp_path) as session:
        await session.ask("hi", approve=allow)
    again = ScriptedModel([turn(call("exec_command", wait, id="b")), "Started again."])
    async with await agent.resume_session(model=again.factory()) as session:
        await session.ask("go on", approve=allow)
    notice, prompt = [text_of(message) for message in again.requests[0].new_messages]
    assert read_blocks("background_task_done", notice) == [
        "Process p1 (`sleep 61.83`): it ended with the program that had started it"
    ]
    assert prompt == "go on"
    (output,) = [text_of(message) for message in again.requests[1].new_messages]
    assert "p2" in output


async def test_E17_what_ended_while_the_session_was_idle_is_heard_once_after_a_resume(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path / "data")
    work = {"cmd": "sleep 0.2; echo RESULT", "description": "work", "run_in_background": True}
    script = ScriptedModel([turn(call("exec_command", work, id="a")), "Started."])
    async with await agent.create_session(model=script.factory(), workspace_dir=tmp_path) as session:
        told = anyio.Event()

        def hear(_notice: Message) -> bool:
            told.set()
            return False

        session.on_notice = hear
        await session.ask("hi", approve=allow)
        with anyio.fail_after(10):
            await told.wait()
    heard = [await _first_words_after_a_resume(agent) for _ in range(2)]
    assert "RESULT" in heard[0][0]
    assert [words[-1] for words in heard] == ["go on", "go on"]
    assert [len(words) for words in heard] == [2, 1]


async def _first_words_after_a_resume(agent: Agent) -> list[str]:
    script = ScriptedModel(["Fine."])
    async with await agent.resume_session(model=script.factory()) as session:
        await session.ask("go on")
    return [text_of(message) for message in script.requests[0].new_messages]


async def test_T7_a_workspace_or_a_model_that_is_gone_is_named(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    session_id = await _interrupted_session(tmp_path / "data", workspace)
    agent = await create_agent(root=tmp_path / "data", environ={})
    with pytest.raises(ResumeError, match="custom"):
        await agent.resume_session(session_id)
    workspace.rmdir()
    with pytest.raises(ResumeError, match="workspace"):
        await agent.resume_session(session_id, model=ScriptedModel([]))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with await agent.resume_session(session_id, model=ScriptedModel([]), workspace_dir=elsewhere) as session:
        assert session.workspace_dir == elsewhere
    with pytest.raises(ResumeError, match="no session"):
        await agent.resume_session("session-2020-01-01-00-00-00-00000000")


async def test_T6_D39_a_session_that_is_open_cannot_be_opened_again(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    async with await agent.create_session(model=ScriptedModel(["ok"])) as session:
        await session.ask("hi")
        with pytest.raises(SessionLocked, match=str(os.getpid())):
            await agent.resume_session(session.id, model=ScriptedModel([]))
    async with await agent.resume_session(session.id, model=ScriptedModel([])):
        pass


async def test_L9_ids_of_the_trace_are_taken_after_a_resume(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    script = ScriptedModel([turn(call("double", {"number": 1}, id="call_0")), "ok"])
    async with await agent.create_session(model=script.factory(), tools=[double]) as session:
        await session.ask("hi", approve=allow)
    again = ScriptedModel([turn(call("double", {"number": 2}, id="call_0")), "ok"])
    async with await agent.resume_session(model=again.factory(), tools=[double]) as session:
        await session.ask("hi", approve=allow)
        history = session.engine.ledger.history
        calls = [m.payload.tool_call_id for m in history if isinstance(m.payload, ToolCall)]
    assert calls == ["call_0", "call_0_2"]


async def test_the_default_model_of_the_project_is_used(tmp_path: Path) -> None:
    paths = tmp_path / "default_project" / ".project_config.toml"
    file = ProjectConfigFile(paths)
    file.add_model(ModelEntry(provider="custom", model_id="a", base_url="http://127.0.0.1:9/v1"))
    file.add_model(ModelEntry(provider="custom", model_id="b", base_url="http://127.0.0.1:9/v1"))
    agent = await create_agent(root=tmp_path, environ={})
    with pytest.raises(ConfigError, match="none is the default"):
        await agent.create_session()
    file.set_default(ModelRef("custom", "b"))
    agent = await create_agent(root=tmp_path, environ={})
    async with await agent.create_session() as session:
        meta = session.engine.ledger.meta
    assert meta is not None
    assert (meta.provider, meta.model_id) == ("custom", "b")


def test_K2_run_sync_works_with_and_without_a_running_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENGUIN_HOME", str(tmp_path))
    seen: list[Message] = []
    result = run_sync("hi", model=ScriptedModel(["Hello."]), on_message=seen.append)
    assert result.text == "Hello."
    assert seen

    async def inside() -> str:
        return run_sync("hi", model=ScriptedModel(["Hello."])).text

    assert anyio.run(inside) == "Hello."


async def test_N17_the_projects_vision_model_describes_images_to_one_that_cannot_see(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(base64.b64decode(PIXEL))
    async with ScriptedProvider(
        [turn(call("describe_image", {"source": "a.png"})), "A single pixel.", "It is a pixel."]
    ) as provider:
        file = ProjectConfigFile(tmp_path / "data" / "default_project" / ".project_config.toml")
        for name, sees in (("blind", False), ("seer", True)):
            entry = ModelEntry(provider="custom", model_id=name, vision=sees, base_url=provider.base_url)
            file.add_model(entry, default=not sees)
        file.set_vision_model(ModelRef("custom", "seer"))
        agent = await create_agent(root=tmp_path / "data", environ={})
        async with await agent.create_session(workspace_dir=tmp_path) as session:
            assert await session.ask("What is a.png?", approve=allow) == "It is a pixel."
        bodies = [request.body for request in provider.requests]
    assert [body["model"] for body in bodies] == ["blind", "seer", "blind"]
    assert "image_url" in str(bodies[1])
    assert "image_url" not in str(bodies[2])
    assert "A single pixel." in str(bodies[2])
