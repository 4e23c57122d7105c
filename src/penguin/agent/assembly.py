"""The one place that builds models, environments and traces and joins them to a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penguin.agent.checkpoint_places import checkpoint_config
from penguin.agent.command_guard import LazyCommandPolicy
from penguin.agent.configured_tools import configured_tools
from penguin.agent.confinement import chosen_settings, prompt_with, session_sandbox
from penguin.agent.contexts import Contexts
from penguin.agent.models import ModelChoice, choose_model, described, is_nowhere, model_config
from penguin.agent.services import Lent
from penguin.agent.spawn import ChildWish, Spawner
from penguin.engine.budget import Limits, Prices
from penguin.engine.compaction import CompactionPolicy
from penguin.engine.engine import EngineSettings
from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.function_tool import installed_tools
from penguin.environment.tools.describe_image import VisionDescriber
from penguin.llm import catalog
from penguin.llm.model import create_model
from penguin.protocol.builders import session_meta
from penguin.protocol.call_ids import ToolCallIdAllocator
from penguin.protocol.errors import ConfigError, ResumeError
from penguin.protocol.interfaces import (
    EnvironmentInterface,
    LLMInterface,
    ModelConfig,
    ModelFactory,
    SupportsHistory,
)
from penguin.protocol.messages import THINKING_LEVELS, Message, SessionMeta, ThinkingLevel
from penguin.session.resume import Recovered
from penguin.session.session import Session
from penguin.state.agent_files import AgentConfig, read_agent_config
from penguin.state.paths import AgentPaths
from penguin.state.project import ModelRef, ProjectConfig, ProjectConfigFile
from penguin.state.prompt import assemble_prompt, gather_values
from penguin.state.vault import VaultFile
from penguin.state.workspace_env import read_workspace_keys
from penguin.trace.lock import SessionLock
from penguin.trace.names import day_directory, index_of, lock_path, new_session_id
from penguin.trace.reader import read_trace
from penguin.trace.writer import TraceWriter

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from penguin.environment.checkpoints.limits import CheckpointConfig
    from penguin.environment.sandbox.settings import SandboxMode, SandboxSettings

Identity = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a caller chose for one session; ``None`` leaves it to the configuration, or to the trace."""

    workspace: Path
    provider: str | None = None
    model_id: str | None = None
    model: LLMInterface | ModelFactory | None = None
    environment: EnvironmentInterface | None = None
    thinking_level: ThinkingLevel | None = None
    max_turns: int | None = None
    tools: tuple[Any, ...] = ()
    limits: Limits | None = None
    trace: bool = True
    is_child: bool = False
    sandbox: SandboxMode | SandboxSettings | None = None


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
        blueprint, prices = self._blueprint(parts)
        parts = replace(parts, sandbox=chosen_settings(parts.sandbox, self.project.sandbox) or "off")
        lent = self._lent(parts, session_id, blueprint)
        environment = parts.environment or self._environment(parts, session_id, blueprint, lent)
        config = replace(
            blueprint,
            tools=await environment.list_tools(),
            system_prompt=self._system_prompt(parts, session_id, blueprint),
            tool_call_ids=ToolCallIdAllocator(),
        )
        trace, lock = self._trace(parts, session_id)
        contexts = Contexts(config, self._factory(parts), self._meta(parts, session_id), environment, prices)
        session = self._session(session_id, parts, environment, contexts, lent, trace=trace, lock=lock)
        session.open_context(contexts.make_meta(config))
        return session

    async def resumed_session(self, session_id: str, recovered: Recovered, parts: Parts, lock: SessionLock) -> Session:
        """The session a trace tells of, with its model, system prompt, tools and workspace (T7).

        Raises:
            ResumeError: the model cannot take over a history, or is no longer known.
        """
        meta = recovered.meta
        blueprint, prices = self._resumed_blueprint(meta, parts)
        settings = chosen_settings(parts.sandbox, self.project.sandbox, meta.system_prompt)
        parts = replace(parts, sandbox=settings or "off")
        lent = self._lent(parts, session_id, blueprint)
        environment = parts.environment or self._environment(parts, session_id, blueprint, lent)
        config = replace(
            blueprint,
            tools=meta.tools if meta.tools is not None else await environment.list_tools(),
            system_prompt=meta.system_prompt,
            tool_call_ids=_allocator(recovered.ledger.call_ids),
        )
        trace = TraceWriter(
            day_directory(self.paths.traces, session_id),
            session_id,
            continue_file=recovered.file,
            first_index=index_of(recovered.file) or 1,
        )
        for repair in recovered.repairs:
            trace.append(repair)
        if isinstance(environment, Environment):
            environment.connect()
        contexts = Contexts(config, self._factory(parts), self._meta(parts, session_id), environment, prices)
        session = self._session(
            session_id, parts, environment, contexts, lent, trace=trace, lock=lock, recovered=recovered
        )
        if recovered.ledger.history:
            _take_over(contexts.model, recovered.ledger.history)
        return session

    def _session(
        self,
        session_id: str,
        parts: Parts,
        environment: EnvironmentInterface,
        contexts: Contexts,
        lent: Lent,
        *,
        trace: TraceWriter | None,
        lock: SessionLock | None,
        recovered: Recovered | None = None,
    ) -> Session:
        releases: list[Callable[[], Awaitable[Any] | None]] = [lent.commands.aclose, contexts.aclose]
        releases += [trace.close] if trace else []
        releases += [lock.release] if lock else []
        contexts.model = parts.model if _is_model(parts.model) else contexts.new_model()
        session = Session(
            session_id,
            contexts.model,
            environment,
            workspace_dir=parts.workspace,
            trace=trace,
            ledger=recovered.ledger if recovered else None,
            settings=self._settings(parts, contexts),
            source=None if _is_model(parts.model) else contexts,
            outlet=lent.outlet,
            on_close=releases,
        )
        if lent.spawner is not None:
            lent.spawner.budgets = lambda: session.engine.budgets
        return session

    # --- what a trace stands for -----------------------------------------------------------------------

    def recorded_config(self, meta: SessionMeta) -> ModelConfig:
        """The model configuration behind a configuration record; keys are not needed to build a request."""
        choice = described(self.project, ModelRef(meta.provider, meta.model_id))
        config = model_config(choice, self.config, self.environ, {}, key_needed=False)
        return replace(
            config,
            tools=meta.tools or [],
            system_prompt=meta.system_prompt,
            thinking_level=_thinking_level(meta.thinking_level) or config.thinking_level,
            base_url=config.base_url or "http://127.0.0.1/v1",
        )

    def identity(self, provider: str | None, model_id: str | None) -> Identity | None:
        """Whose fidelity a model understands: provider, model and protocol; ``None`` when none is named."""
        if provider is None and model_id is None:
            return None
        choice = choose_model(self.project, provider, model_id)
        return choice.ref.provider, choice.ref.model_id, choice.client_type

    def recorded_identity(self, file: Path) -> Identity:
        """The same for the model of a trace file."""
        first = next(iter(read_trace(file))).payload
        meta = first if isinstance(first, SessionMeta) else None
        ref = ModelRef(meta.provider, meta.model_id) if meta else ModelRef("", "")
        return ref.provider, ref.model_id, described(self.project, ref).client_type

    # --- the parts ------------------------------------------------------------------------------------

    def _blueprint(self, parts: Parts) -> tuple[ModelConfig, Prices | None]:
        """The model's settings and prices; a model that was handed over needs neither entry nor key."""
        if parts.model is not None and parts.provider is None:
            level = parts.thinking_level or self.config.model.thinking_level
            return ModelConfig("custom", _name_of(parts.model), thinking_level=level), None
        if parts.provider is None:
            self._refuse_unknown_default()
        choice = choose_model(self.project, parts.provider, parts.model_id)
        keys = read_workspace_keys(parts.workspace, catalog.key_variables())
        config = self._model_config(choice, keys, base_url_needed=parts.model is None)
        return replace(config, thinking_level=parts.thinking_level or config.thinking_level), choice.prices

    def _model_config(
        self, choice: ModelChoice, keys: Mapping[str, str], *, base_url_needed: bool = True
    ) -> ModelConfig:
        """The model's settings; what its entry lacks is said with the place in the file (S2)."""
        if base_url_needed and is_nowhere(choice.entry):
            raise self._project_file.error_about_model(
                choice.ref,
                "base_url",
                f"is missing; {choice.entry.provider} is no provider of the catalogue, so an address that begins with"
                " http:// or https:// must say where it is",
            )
        return model_config(choice, self.config, self.environ, keys, config_file=self.paths.project.config)

    def _refuse_unknown_default(self) -> None:
        ref = self.project.default_model
        if ref is None or self.project.model(ref) is not None or catalog.provider(ref.provider) is not None:
            return
        known = ", ".join(str(entry.ref) for entry in self.project.models) or "none"
        raise self._project_file.error_about(
            ("default_model",),
            f"found {ref}, expected one of the configured models ({known}), or a model of a provider of the catalogue",
        )

    @property
    def _project_file(self) -> ProjectConfigFile:
        return ProjectConfigFile(self.paths.project.config)

    def _resumed_blueprint(self, meta: SessionMeta, parts: Parts) -> tuple[ModelConfig, Prices | None]:
        level = parts.thinking_level or _thinking_level(meta.thinking_level)
        if parts.model is not None:
            window = meta.model_context_window if isinstance(meta.model_context_window, int) else None
            return ModelConfig(meta.provider, meta.model_id, thinking_level=level, context_window=window), None
        try:
            config, prices = self._blueprint(replace(parts, provider=meta.provider, model_id=meta.model_id))
        except ConfigError as error:
            raise ResumeError(
                f"the session's model ({meta.provider}, {meta.model_id}) cannot be used any more: {error}."
                " Configure it again, or go on with another model in a fork"
            ) from error
        return replace(config, thinking_level=level or config.thinking_level), prices

    def _lent(self, parts: Parts, session_id: str, model: ModelConfig) -> Lent:
        async def open_child(wish: ChildWish) -> Session:
            return await self._child(parts, model, wish)

        spawner = None if parts.is_child or _is_model(parts.model) else Spawner(open_child)
        vault = VaultFile(self.paths.vault).read() if self.config.vault.enabled else {}
        sandbox = session_sandbox(self._sandbox_settings(parts), self.paths, session_id, parts.workspace)
        return Lent.for_session(vault, self.paths.project.root.custody, spawner, self._describer(parts), sandbox)

    def _sandbox_settings(self, parts: Parts) -> SandboxSettings | None:
        return chosen_settings(parts.sandbox, self.project.sandbox)

    def _describer(self, parts: Parts) -> VisionDescriber:
        """The project's vision model, for ``describe_image``; made for one question without tools or prompt."""
        ref = self.project.vision_model
        if ref is None:
            return VisionDescriber(None)

        def make() -> LLMInterface:
            choice = choose_model(self.project, ref.provider, ref.model_id)
            keys = read_workspace_keys(parts.workspace, catalog.key_variables())
            return create_model(self._model_config(choice, keys))

        return VisionDescriber(ref.model_id, make)

    async def _child(self, parent: Parts, model: ModelConfig, wish: ChildWish) -> Session:
        """A session in the same workspace; what the wish leaves open is the parent's (N18)."""
        parts = replace(
            parent,
            provider=wish.provider or (model.provider if parent.model is None else parent.provider),
            model_id=wish.model_id or (model.model_id if parent.model is None else parent.model_id),
            thinking_level=wish.thinking_level or model.thinking_level,
            environment=None,
            limits=Limits(),
            is_child=True,
        )
        return await self._of_agent(wish.agent_id).new_session(parts)

    def _of_agent(self, agent_id: str | None) -> Assembly:
        if agent_id is None or agent_id == self.paths.id:
            return self
        paths = self.paths.project.agent(agent_id)
        if not paths.path.is_dir():
            known = ", ".join(self.paths.project.agent_ids()) or "none"
            raise ConfigError(f"there is no agent {agent_id!r} in this project; there are: {known}")
        return replace(self, paths=paths, config=read_agent_config(paths.system_config))

    def _factory(self, parts: Parts) -> ModelFactory:
        if parts.model is None:
            return create_model
        if _is_model(parts.model):
            only = parts.model
            return lambda _config: only
        return parts.model

    def _trace(self, parts: Parts, session_id: str) -> tuple[TraceWriter | None, SessionLock | None]:
        if not parts.trace:
            return None, None
        lock = SessionLock(lock_path(self.paths.traces, session_id))
        lock.acquire()
        return TraceWriter(day_directory(self.paths.traces, session_id), session_id), lock

    def _environment(self, parts: Parts, session_id: str, model: ModelConfig, lent: Lent) -> Environment:
        return Environment(
            EnvironmentConfig(
                workspace_dir=parts.workspace,
                tool_config=ToolConfig(
                    builtin=configured_tools(self.config, self.paths.system_config),
                    custom_tools=(*parts.tools, *installed_tools()),
                    mcp_servers=[{"name": each.name, "config": each.config} for each in self.config.tools.mcp_servers],
                ),
                custody_dir=self.paths.project.root.custody,
                command_guard=LazyCommandPolicy(self.project.command_policy.rules),
                services=lent.as_services(),
                vault=lent.vault,
                scratchpad_dir=self.paths.scratchpad(session_id),
                session_id=session_id,
                vision=model.vision,
                confinement=lent.sandbox,
                checkpoints=self._checkpoints(parts),
            )
        )

    def _checkpoints(self, parts: Parts) -> CheckpointConfig | None:
        """A subagent works inside a task of its parent, whose checkpoint covers what it does."""
        return checkpoint_config(self.paths) if parts.trace and not parts.is_child else None

    def _system_prompt(self, parts: Parts, session_id: str, model: ModelConfig) -> str:
        values = gather_values(
            self.paths,
            workspace_dir=parts.workspace,
            provider=model.provider,
            model_id=model.model_id,
            session_id=session_id,
            vault_keys=VaultFile(self.paths.vault).names() if self.config.vault.enabled else (),
        )
        prompt = assemble_prompt(self.config.system_prompt, values, self.config.sections)
        return prompt_with(self._sandbox_settings(parts), prompt)

    def _settings(self, parts: Parts, contexts: Contexts) -> EngineSettings:
        limit = self.config.max_turns if parts.max_turns is None else parts.max_turns
        compaction = self.config.compaction
        policy = CompactionPolicy(
            prompt=compaction.prompt,
            mode=compaction.mode,
            max_context_length=compaction.max_context_length,
            max_session_turns=compaction.max_session_turns if compaction.max_session_turns > 0 else None,
            window=contexts.config.context_window,
        )
        budgets = self.project.budgets
        limits = parts.limits or Limits(budgets.turns, budgets.tokens, budgets.usd, budgets.seconds)
        return EngineSettings(
            max_turns=limit if limit > 0 else None, limits=limits, prices=contexts.prices, compaction=policy
        )

    def _meta(self, parts: Parts, session_id: str) -> Callable[[ModelConfig], Message]:
        def make(config: ModelConfig) -> Message:
            return session_meta(
                session_id=session_id,
                provider=config.provider,
                model_id=config.model_id,
                model_context_window=config.context_window,
                system_prompt=config.system_prompt or "",
                tools=config.tools,
                thinking_level=config.thinking_level or "default",
                agent_state=str(self.paths.agent_state),
                workspace=str(parts.workspace),
            )

        return make


def _is_model(model: LLMInterface | ModelFactory | None) -> TypeIs[LLMInterface]:
    """Whether this is a model, not a factory of models."""
    return hasattr(model, "stream_generate")


def _name_of(model: LLMInterface | ModelFactory) -> str:
    return getattr(model, "__name__", type(model).__name__)


def _thinking_level(recorded: str | None) -> ThinkingLevel | None:
    return next((level for level in THINKING_LEVELS if level == recorded), None)


def _allocator(taken: set[str]) -> ToolCallIdAllocator:
    ids = ToolCallIdAllocator()
    for call_id in taken:
        ids.observe(call_id)
    return ids


def _take_over(model: LLMInterface, history: list[Message]) -> None:
    if not isinstance(model, SupportsHistory):
        raise ResumeError(
            f"{type(model).__name__} cannot take over a history (it has no set_history): the session cannot be resumed"
        )
    model.set_history(history)


__all__ = ["Assembly", "Parts"]
