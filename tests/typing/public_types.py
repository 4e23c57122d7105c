"""Never run: the type checker reads it, so a change of a public type shows here."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from penguin import (
    Agent,
    LLMOutcome,
    Message,
    OmniMessage,
    Session,
    SteeringTicket,
    TaskResult,
    TaskStream,
    Text,
    TokenCounts,
    ToolCall,
    allow_all,
    create_agent,
    decode,
    encode,
    run_sync,
    tool,
    user_text,
)


@tool
def count_words(text: str) -> int:
    """Count the words.

    Args:
        text: what to count in.
    """
    return len(text.split())


async def decide(tool_call: OmniMessage[ToolCall]) -> str:
    assert_type(tool_call.payload.name, str)
    return "allow"


async def embed(path: Path) -> None:
    agent = await create_agent(tools=[count_words])
    assert_type(agent, Agent)
    session = await agent.create_session(workspace_dir=path)
    assert_type(session, Session)
    stream = session.run([user_text("hi")], approve=allow_all)
    assert_type(stream, TaskStream)
    async with stream:
        async for message in stream:
            assert_type(message, Message)
            match message.payload:
                case Text(text=text):
                    assert_type(text, str)
                case _:
                    pass
    assert_type(stream.result, TaskResult)
    assert_type(stream.result.usage, TokenCounts)
    assert_type(await session.ask("more", approve=allow_all), str)
    assert_type(session.steer("faster"), SteeringTicket | None)
    session.run("x", approve=decide)  # type: ignore[arg-type]  # a decision is "allow" or "deny", not any string


def convert(message: Message) -> None:
    assert_type(encode(message), bytes)
    assert_type(decode(b""), Message)
    assert_type(user_text("hi"), OmniMessage[Text])
    assert_type(run_sync("hi"), TaskResult)
    assert_type(LLMOutcome("completed").cut_off, bool)
