"""The one place that builds models, environments and traces and joins them to a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penguin.agent.blueprints import Blueprints
from penguin.agent.checkpoint_places import checkpoint_config
from penguin.agent.command_guard import LazyCommandPolicy
from penguin.agent.configured_tools import configured_tools
from penguin.agent.confinement import chosen_settings, prompt_with, session_sandbox
from penguin.agent.contexts import Contexts
from penguin.agent.parts import Parts, is_model
from penguin.agent.services import Lent
from penguin.agent.spawn import ChildWish, Spawner
from penguin.engine.budget import Limits
from penguin.engine.compaction import CompactionPolicy
from penguin.engine.engine import EngineSettings
from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.function_tool import installed_tools
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
from penguin.protocol.messages import Message
from penguin.session.resume import Recovered
from penguin.session.session import Session
from penguin.state.agent_files import AgentConfig, read_agent_config
from penguin.state.paths import AgentPaths
from penguin.state.project import ProjectConfig
from penguin.state.prompt import assemble_prompt, gather_values
from penguin.state.vault import VaultFile
from penguin.trace.lock import SessionLock
from penguin.trace.names import day_directory, index_of, lock_path, new_session_id
from penguin.trace.writer import TraceWriter

if TYPE_CHECKING:
    from penguin.environment.checkpoints.limits import CheckpointConfig


@dataclass(frozen=True, slots=True)
class Assembly:
    """Builds sessions of one agent."""

    paths: AgentPaths
    project: ProjectConfig
    config: AgentConfig
    environ: Mapping[str, str]

    @property
    def _blueprints(self) -> Blueprints:
        return Blueprints(self.paths, self.project, self.config, self.environ)

    async def new_session(self, parts: Parts) -> Session:
        """A session with an empty context."""
        session_id = new_session_id()
        blueprint, prices = self._blueprints.of(parts)
        parts, lent, environment = self._surroundings(parts, session_id, blueprint)
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
        blueprint, prices = self._blueprints.resumed(meta, parts)
        parts, lent, environment = self._surroundings(parts, session_id, blueprint, meta.system_prompt)
        config = replace(
            blueprint,
            tools=meta.tools if meta.tools is not None else await environment.list_tools(),
            system_prompt=meta.system_prompt,
            tool_call_ids=_allocator(recovered.ledger.call_ids),
        )
        trace = self._continued_trace(session_id, recovered)
        if isinstance(environment, Environment):
            environment.connect()
        contexts = Contexts(config, self._factory(parts), self._meta(parts, session_id), environment, prices)
        session = self._session(
            session_id, parts, environment, contexts, lent, trace=trace, lock=lock, recovered=recovered
        )
        lent.tell_what_ended()
        session.skipped = tuple(map(str, recovered.warnings))
        if recovered.ledger.history:
            _take_over(contexts.model, recovered.ledger.history)
        return session

    def _surroundings(
        self, parts: Parts, session_id: str, model: ModelConfig, recorded_prompt: str | None = None
    ) -> tuple[Parts, Lent, EnvironmentInterface]:
        """The parts with the sandbox that is in force, and what is built from it."""
        settings = chosen_settings(parts.sandbox, self.project.sandbox, recorded_prompt)
        parts = replace(parts, sandbox=settings or "off")
        lent = self._lent(parts, session_id, model)
        return parts, lent, parts.environment or self._environment(parts, session_id, model, lent)

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
        contexts.model = parts.model if is_model(parts.model) else contexts.new_model()
        session = Session(
            session_id,
            contexts.model,
            environment,
            workspace_dir=parts.workspace,
            trace=trace,
            ledger=recovered.ledger if recovered else None,
            settings=self._settings(parts, contexts),
            source=None if is_model(parts.model) else contexts,
            outlet=lent.outlet,
            on_close=releases,
        )
        if lent.spawner is not None:
            lent.spawner.budgets = lambda: session.engine.budgets
        return session

    def _lent(self, parts: Parts, session_id: str, model: ModelConfig) -> Lent:
        async def open_child(wish: ChildWish) -> Session:
            return await self._child(parts, model, wish)

        spawner = None if parts.is_child or is_model(parts.model) else Spawner(open_child)
        vault = VaultFile(self.paths.vault).read() if self.config.vault.enabled else {}
        sandbox = session_sandbox(parts.sandbox_settings, self.paths, session_id, parts.workspace)
        return Lent.for_session(
            vault,
            allowed=self.project.commands.allowed_variables,
            custody_dir=self.paths.project.root.custody,
            scratchpad_dir=self.paths.scratchpad(session_id),
            spawner=spawner,
            describer=self._blueprints.describer(parts),
            sandbox=sandbox,
        )

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
        if is_model(parts.model):
            only = parts.model
            return lambda _config: only
        return parts.model

    def _trace(self, parts: Parts, session_id: str) -> tuple[TraceWriter | None, SessionLock | None]:
        if not parts.trace:
            return None, None
        lock = SessionLock(lock_path(self.paths.traces, session_id))
        lock.acquire()
        return TraceWriter(day_directory(self.paths.traces, session_id), session_id), lock

    def _continued_trace(self, session_id: str, recovered: Recovered) -> TraceWriter:
        trace = TraceWriter(
            day_directory(self.paths.traces, session_id),
            session_id,
            continue_file=recovered.file,
            first_index=index_of(recovered.file) or 1,
        )
        for repair in recovered.repairs:
            trace.append(repair)
        return trace

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
                allowed_hosts=self.project.fetch.allowed_hosts,
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
        return prompt_with(parts.sandbox_settings, prompt)

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


__all__ = ["Assembly"]
