"""Forks of whole sessions, replay of requests, and the stability of their prefix (T12, T13, D4)."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_kit import allow, text_of

from penguin import create_agent
from penguin.agent.agent import Agent
from penguin.llm.prefix import changed_block
from penguin.state.project import ModelEntry, ProjectConfigFile
from penguin.testing import ScriptedProvider, call, say, think, turn
from penguin.testing.scripted import ScriptedModel

pytestmark = pytest.mark.anyio


async def agent_with(provider: ScriptedProvider, root: Path, **entry: Any) -> Agent:
    file = ProjectConfigFile(root / "default_project" / ".project_config.toml")
    file.add_model(
        ModelEntry(provider="custom", model_id="m", base_url=provider.base_url, api_key="k", **entry), default=True
    )
    return await create_agent(root=root)


def many_turns(count: int) -> list[Any]:
    return [
        turn(think("hm"), say(f"Step {number}."), call("read_file", {"file_path": f"{number % 7}.txt"}))
        for number in range(count)
    ] + [turn(say("Done."))]


async def test_D4_T12_a_200_turn_session_is_replayed_digest_by_digest(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    for number in range(7):
        (workspace / f"{number}.txt").write_text(f"content {number}\n")
    async with ScriptedProvider([*many_turns(199), "And more."]) as provider:
        agent = await agent_with(provider, tmp_path / "data", context_window=1_000_000)
        async with await agent.create_session(workspace_dir=workspace) as session:
            await session.ask("go", approve=allow)
        async with await agent.resume_session(session.id) as session:
            await session.ask("go on", approve=allow)
            path = session.trace_path
        sent = [hashlib.sha256(request.raw).hexdigest() for request in provider.requests]
    assert path is not None
    report = agent.replay(session.id)
    assert report.difference is None
    assert (report.compared, report.skipped) == (201, 0)
    assert all(digest.encode() in path.read_bytes() for digest in sent)

    changed = path.read_bytes().replace(b"You are Penguin,", b"You are Pinguin,", 1)
    other = path.with_name(path.name.replace("_001", "_changed"))
    other.write_bytes(changed)
    report = agent.replay(other)
    assert report.difference is not None
    assert report.difference.request == 1
    assert "_changed.jsonl:" in str(report.difference)


async def test_T12_L13_the_prefix_is_stable_over_thirty_turns_and_a_resume(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "0.txt").write_text("x\n")
    async with ScriptedProvider([*many_turns(29), "More.", "Still more."]) as provider:
        agent = await agent_with(provider, tmp_path / "data")
        async with await agent.create_session(workspace_dir=workspace) as session:
            await session.ask("go", approve=allow)
            await session.ask("again", approve=allow)
        async with await agent.resume_session(session.id) as session:
            await session.ask("go on", approve=allow)
        bodies = [request.raw for request in provider.requests]
    assert len(bodies) == 32
    assert [changed_block(one, two) for one, two in pairwise(bodies)] == [None] * 31


def test_T12_the_checker_names_the_block_that_changed() -> None:
    messages = b'[{"role":"system","content":"a"},{"role":"user","content":[{"text":"x"}]}]'
    before = b'{"model":"m","messages":' + messages + b',"tools":[]}'
    assert changed_block(before, before) is None
    assert changed_block(before, before.replace(b'"a"', b'"b"')) == "messages[0]"
    assert changed_block(before, before.replace(b'"tools":[]', b'"tools":[1]')) == "tools"
    assert changed_block(before, before.replace(b'"m"', b'"n"')) == "model"
    assert changed_block(before, before.replace(b'[{"text":"x"}]', b'[{"text":"x"},{"text":"y"}]')) is None
    assert changed_block(before, before.replace(b'"x"', b'"z"')) == "messages[1]"
    marked = before.replace(b'{"text":"x"}', b'{"text":"x","cache_control":{"type":"ephemeral"}}')
    assert changed_block(marked, before) is None


async def test_T13_a_fork_goes_on_by_itself_and_the_source_is_untouched(tmp_path: Path) -> None:
    agent = await create_agent(root=tmp_path)
    script = ScriptedModel(["One.", "Two.", "Three."])
    async with await agent.create_session(model=script.factory()) as session:
        for prompt in ("first", "second", "third"):
            await session.ask(prompt)
    source = session.trace_path
    assert source is not None
    before = source.read_bytes()
    copy = agent.fork(session.id, at_request=1)
    again = ScriptedModel(["Forked."])
    async with await agent.resume_session(copy, model=again.factory()) as forked:
        assert await forked.ask("another way") == "Forked."
        history = [text_of(message) for message in forked.engine.ledger.history]
    assert history == ["first", "One.", "another way", "Forked."]
    assert source.read_bytes() == before


async def test_T13_another_model_of_another_provider(tmp_path: Path) -> None:
    async with ScriptedProvider([turn(think("secret plan"), say("One.")), turn(say("Two."))]) as provider:
        agent = await agent_with(provider, tmp_path)
        async with await agent.create_session() as session:
            await session.ask("first")
        file = ProjectConfigFile(agent.paths.project.config)
        file.add_model(ModelEntry(provider="custom", model_id="other", base_url=provider.base_url, api_key="k"))
        agent = await create_agent(root=tmp_path)
        copy = agent.fork(session.id, provider="custom", model_id="other")
        async with await agent.resume_session(copy) as forked:
            assert await forked.ask("second") == "Two."
            meta = forked.engine.ledger.meta
        body = provider.requests[1].body
    assert meta is not None
    assert meta.model_id == "other"
    assert body["model"] == "other"
    assert "secret plan" not in str(body)
