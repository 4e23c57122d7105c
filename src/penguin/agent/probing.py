"""What a configured model can do, asked of the model itself: each trial is one small request."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

import anyio
from msgspec import Struct

from penguin.agent.models import choose_model, model_config
from penguin.llm import catalog
from penguin.llm.model import create_model
from penguin.llm.probing import LocalServer, find_local_servers
from penguin.protocol.builders import image_url, user_text
from penguin.protocol.interfaces import GenerateRequest, LLMOutcome, ModelConfig
from penguin.protocol.messages import Message, Text, TokenUsage, ToolCall, ToolDefinition
from penguin.state.agent_files import AgentConfig
from penguin.state.project import ModelRef, ProjectConfig

Ability: TypeAlias = Literal["answers", "tools", "vision"]

_ENOUGH = 1_024
_ASSUMED_WINDOW = 32_768
_NUMBER = 7
_COLOUR = "red"
_ABOUT_THE_MODEL = frozenset({"bad_request", "refused"})
_TOOL = ToolDefinition(
    name="report_number",
    description="Report a number to the user.",
    parameters={
        "type": "object",
        "properties": {"number": {"type": "integer", "description": "The number."}},
        "required": ["number"],
    },
)


class Trial(Struct, frozen=True):
    """How one request went.

    ``able`` is the verdict, ``words`` what the model said or why it did not; ``certain`` says that the verdict
    is about the model, and not about a network or a limit. ``first_seconds`` passed until its first words.
    ``tokens_in`` and ``tokens_out`` are what the provider counted, or estimates.
    """

    ability: Ability
    able: bool
    words: str
    seconds: float
    first_seconds: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    certain: bool = True


class ModelUnderTest(Struct, frozen=True):
    """A model as a session would use it."""

    ref: ModelRef
    config: ModelConfig


def model_under_test(
    project: ProjectConfig,
    agent: AgentConfig,
    environ: Mapping[str, str],
    ref: ModelRef | None = None,
) -> ModelUnderTest:
    """The named model, or the project's default.

    Raises:
        ConfigError: there is no such model, or its key is missing.
    """
    choice = choose_model(project, ref.provider, ref.model_id) if ref else choose_model(project)
    config = model_config(choice, agent, environ, {})
    return ModelUnderTest(choice.ref, config)


async def try_out(model: ModelUnderTest, ability: Ability) -> Trial:
    """Send one small request and judge the reply; trouble of any kind is a verdict, not an exception.

    Raises:
        ConfigError: the protocol is unknown, or nobody knows where the provider is.

    Example::

        (await try_out(model_under_test(project, AgentConfig(), os.environ), "answers")).able
    """
    match ability:
        case "answers":
            return await _ask(model.config, ability, [user_text("Reply with the one word: pong")], _said_anything)
        case "tools":
            config = replace(model.config, tools=[_TOOL])
            words = f"Call the tool report_number with the number {_NUMBER}. Do not say anything else."
            return await _ask(config, ability, [user_text(words)], _called_it)
        case "vision":
            config = replace(model.config, vision=True)
            prompt: list[Message] = [
                image_url(_picture()),
                user_text("Which colour fills this picture? Reply with one word."),
            ]
            return await _ask(config, ability, prompt, _saw_it)


def local_places() -> dict[str, str]:
    """Where the servers of the catalogue listen that run on one's own machine: provider to base URL."""
    return {name: entry.base_url for name, entry in catalog.providers().items() if entry.local}


def running_servers() -> list[LocalServer]:
    """Those of them that are running; looks at the loopback only, and takes half a second at most when none is."""
    return anyio.run(find_local_servers, local_places())


# ---------------------------------------------------------------- one request


Judge: TypeAlias = Callable[["_Heard"], bool]


class _Heard:
    """Everything a model said to one request."""

    def __init__(self) -> None:
        self._began = anyio.current_time()
        self.first: float | None = None
        self.text = ""
        self.calls: list[ToolCall] = []
        self.usage: TokenUsage | None = None

    def take(self, message: Message) -> None:
        if self.first is None:
            self.first = self.seconds
        match message.payload:
            case Text(role="assistant", text=text):
                self.text += text
            case ToolCall() as call:
                self.calls.append(call)
            case TokenUsage() as usage:
                self.usage = usage
            case _:
                pass

    @property
    def seconds(self) -> float:
        return anyio.current_time() - self._began

    @property
    def words(self) -> str:
        """What to show of it: the text, or the calls."""
        said = " ".join(self.text.split()) or ", ".join(f"{call.name}({call.arguments})" for call in self.calls)
        return said[:200] or "nothing"


async def _ask(config: ModelConfig, ability: Ability, prompt: list[Message], judge: Judge) -> Trial:
    # Of a model with an unknown window no limit would be sent (L11), and a trial must stay small.
    window, limit = config.context_window or _ASSUMED_WINDOW, min(config.max_tokens or _ENOUGH, _ENOUGH)
    model = create_model(replace(config, context_window=window, max_tokens=limit))
    heard = _Heard()
    try:
        outcome = await model.stream_generate(GenerateRequest(prompt, thinking_level="none"), heard.take)
    finally:
        close = getattr(model, "aclose", None)
        if close is not None:
            await close()
    return _trial(ability, heard, outcome, judge)


def _trial(ability: Ability, heard: _Heard, outcome: LLMOutcome, judge: Judge) -> Trial:
    seconds, usage = heard.seconds, heard.usage
    if outcome.status != "completed":
        why = outcome.error.message if outcome.error else outcome.status
        certain = outcome.error is not None and outcome.error.kind in _ABOUT_THE_MODEL
        return Trial(ability, able=False, words=why, seconds=seconds, certain=certain)
    counts = usage.request if usage is not None else None
    return Trial(
        ability,
        able=judge(heard),
        words=heard.words,
        seconds=seconds,
        first_seconds=heard.first,
        tokens_in=counts.cache_read + counts.cache_write if counts else 0,
        tokens_out=counts.output if counts else 0,
    )


def _said_anything(heard: _Heard) -> bool:
    return bool(heard.text.strip())


def _called_it(heard: _Heard) -> bool:
    return any(call.name == _TOOL.name and str(_NUMBER) in call.arguments for call in heard.calls)


def _saw_it(heard: _Heard) -> bool:
    return _COLOUR in heard.text.lower()


def _picture() -> str:
    """A red square as a data URL: a model that takes images and throws them away cannot guess its colour."""
    import base64  # noqa: PLC0415 - this trial only

    from PIL import Image  # noqa: PLC0415 - this trial only

    out = io.BytesIO()
    Image.new("RGB", (64, 64), (220, 20, 20)).save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
