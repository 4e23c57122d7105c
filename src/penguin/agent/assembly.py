"""The one place that builds models, environments and traces and joins them to a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from penguin.agent.models import choose_model, model_config
from penguin.engine.engine import EngineSettings
from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.tools.builtin import builtin_definition
from penguin.llm import catalog
from penguin.llm.model import create_model
from penguin.protocol.builders import session_meta
from penguin.protocol.call_ids import ToolCallIdAllocator
from penguin.protocol.interfaces import EnvironmentInterface, LLMInterface, ModelConfig, ModelFactory
from penguin.protocol.messages import Message, ThinkingLevel, ToolDefinition
from penguin.session.session import Session
from penguin.state.agent_files import AgentConfig, ToolSettings
from penguin.state.paths import AgentPaths
from penguin.state.project import ProjectConfig
from penguin.state.prompt import assemble_prompt, gather_values
from penguin.state.workspace_env import read_workspace_keys
from penguin.trace.names import day_directory, new_session_id
from penguin.trace.writer import TraceWriter


@dataclass(frozen=True, slots=True)
class Parts:
    """What a caller chose for one session; ``None`` leaves it to the configuration."""

    workspace: Path
    provider: str | None = None
    model_id: str | None = None
    model: LLMInterface | ModelFactory | None = None
    environment: EnvironmentInterface | None = None
    thinking_level: ThinkingLevel | None = None
    max_turns: int | None = None
    tools: tuple[Any, ...] = ()
    trace: bool = True


@dataclass(frozen=True, slots=True)
class Assembly:
    """Builds sessions of one agent."""

    paths: AgentPaths
    project: ProjectConfig
    config: AgentConfig
    environ: Mapping[str, str]

    async def new_session(self, parts: Parts) -> Session:
        """A session with an empty context."""
        session_id = new_session_id()
        blueprint = self._model_blueprint(parts)
        environment = parts.environment or self._environment(parts, session_id, blueprint)
        tools = await environment.list_tools()
        config = replace(
            blueprint,
            tools=tools,
            system_prompt=self._system_prompt(parts, session_id, blueprint),
            tool_call_ids=ToolCallIdAllocator(),
        )
        model = self._model(parts, config)
        trace = TraceWriter(day_directory(self.paths.traces, session_id), session_id) if parts.trace else None
        session = Session(
            session_id,
            model,
            environment,
            workspace_dir=parts.workspace,
            trace=trace,
            settings=self._settings(parts),
            on_close=[*_closers(model), *([trace.close] if trace else [])],
        )
        session.open_context(self._meta(parts, session_id, config, tools))
        return session

    def _model_blueprint(self, parts: Parts) -> ModelConfig:
        """The model's settings; a model that was handed over needs neither entry nor key."""
        if parts.model is not None and parts.provider is None:
            return ModelConfig("custom", type(parts.model).__name__, thinking_level=self._thinking_level(parts))
        choice = choose_model(self.project, parts.provider, parts.model_id)
        config = model_config(choice, self.config, self.environ, self._workspace_keys(parts))
        return replace(config, thinking_level=parts.thinking_level or config.thinking_level)

    def _workspace_keys(self, parts: Parts) -> Mapping[str, str]:
        """From a workspace's ``.env`` only the catalogue's key names are read (K9)."""
        return read_workspace_keys(parts.workspace, catalog.key_variables())

    def _thinking_level(self, parts: Parts) -> ThinkingLevel:
        return parts.thinking_level or self.config.model.thinking_level

    def _model(self, parts: Parts, config: ModelConfig) -> LLMInterface:
        if parts.model is None:
            return create_model(config)
        if callable(parts.model):
            return parts.model(config)
        return parts.model

    def _environment(self, parts: Parts, session_id: str, model: ModelConfig) -> Environment:
        builtin = self.config.tools.builtin
        definitions = None if builtin is None else [builtin_definition(_written(entry)) for entry in builtin]
        return Environment(
            EnvironmentConfig(
                workspace_dir=parts.workspace,
                tool_config=ToolConfig(builtin=definitions, custom_tools=parts.tools),
                scratchpad_dir=self.paths.scratchpad(session_id),
                session_id=session_id,
                vision=model.vision,
            )
        )

    def _system_prompt(self, parts: Parts, session_id: str, model: ModelConfig) -> str:
        values = gather_values(
            self.paths,
            workspace_dir=parts.workspace,
            provider=model.provider,
            model_id=model.model_id,
            session_id=session_id,
        )
        return assemble_prompt(self.config.system_prompt, values, self.config.sections)

    def _settings(self, parts: Parts) -> EngineSettings:
        limit = self.config.max_turns if parts.max_turns is None else parts.max_turns
        return EngineSettings(max_turns=limit if limit > 0 else None)

    def _meta(self, parts: Parts, session_id: str, config: ModelConfig, tools: list[ToolDefinition]) -> Message:
        return session_meta(
            session_id=session_id,
            provider=config.provider,
            model_id=config.model_id,
            model_context_window=config.context_window,
            system_prompt=config.system_prompt or "",
            tools=tools,
            thinking_level=config.thinking_level or "default",
            agent_state=str(self.paths.agent_state),
            workspace=str(parts.workspace),
        )


def _written(entry: ToolSettings) -> dict[str, Any]:
    """What the file says about a tool; what it leaves out keeps the tool's own definition."""
    return {name: value for name, value in msgspec.structs.asdict(entry).items() if value is not None}


def _closers(model: LLMInterface) -> list[Callable[[], Awaitable[Any] | None]]:
    close = getattr(model, "aclose", None)
    return [close] if close is not None else []


__all__ = ["Assembly", "Parts"]
