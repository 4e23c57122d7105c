"""An agent: where sessions come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from penguin.agent.assembly import Assembly
from penguin.agent.blueprints import Blueprints
from penguin.agent.parts import Parts
from penguin.engine.budget import Limits
from penguin.protocol.errors import ConfigError, ResumeError, SessionBusy
from penguin.protocol.interfaces import EnvironmentInterface, LLMInterface, ModelFactory
from penguin.protocol.messages import ThinkingLevel
from penguin.session.resume import recover
from penguin.session.session import Session
from penguin.state.agent_files import AgentConfig, read_agent_config
from penguin.state.paths import DEFAULT_AGENT, DEFAULT_PROJECT, AgentPaths, DataRoot
from penguin.state.project import ProjectConfig, ProjectConfigFile
from penguin.trace.lock import SessionLock
from penguin.trace.names import files_of, lock_path, new_session_id

if TYPE_CHECKING:
    from penguin.agent.approvals import ProjectRules
    from penguin.agent.replay import ReplayReport
    from penguin.agent.undo import Checkpoint, FileChange, Undo, UndoReport
    from penguin.environment.sandbox.settings import SandboxMode, SandboxSettings


@dataclass(frozen=True, slots=True)
class Agent:
    """Configuration and files that make sessions; get one from :func:`create_agent`.

    Attributes:
        paths: where the agent's files are.
        project: the project's models, credentials and policies.
        config: the agent's own settings.
        tools: functions of the embedding program that every session offers to the model.
    """

    paths: AgentPaths
    project: ProjectConfig
    config: AgentConfig
    tools: tuple[Any, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    async def create_session(
        self,
        *,
        workspace_dir: str | Path | None = None,
        provider: str | None = None,
        model_id: str | None = None,
        model: LLMInterface | ModelFactory | None = None,
        environment: EnvironmentInterface | None = None,
        thinking_level: ThinkingLevel | None = None,
        max_turns: int | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        limits: Limits | None = None,
        trace: bool = True,
        sandbox: SandboxMode | SandboxSettings | None = None,
    ) -> Session:
        """Open a new conversation.

        Args:
            workspace_dir: where the tools work; without one a temporary workspace is made.
            provider: with ``model_id``, the model; without both the project's default.
            model_id: see ``provider``.
            model: a model or a factory of models instead of a configured one (``ScriptedModel`` in tests).
            environment: an environment instead of the built-in one.
            thinking_level: for the whole session; the configuration's otherwise.
            max_turns: model requests one task may commit; the configuration's otherwise.
            tools: more functions to offer to the model, for this session only.
            limits: what one task may use of tokens, money, requests and time; the project's otherwise.
            trace: whether the conversation is written to disk.
            sandbox: confines commands and file tools: ``"off"``, ``"read-only"``, ``"workspace-write"``, or settings
                with more to choose; the project's otherwise. It does not reach ``tools`` and MCP servers.

        Raises:
            ConfigError: no such workspace or model, or a broken setting.
            CredentialError: the provider needs a key and there is none.

        Example::

            session = await agent.create_session(workspace_dir=".")
        """
        parts = Parts(
            workspace=self._workspace(workspace_dir),
            provider=provider,
            model_id=model_id,
            model=model,
            environment=environment,
            thinking_level=thinking_level,
            max_turns=max_turns,
            tools=(*self.tools, *tools),
            limits=limits,
            trace=trace,
            sandbox=sandbox,
        )
        return await self._assembly().new_session(parts)

    async def resume_session(
        self,
        session_id: str | None = None,
        *,
        workspace_dir: str | Path | None = None,
        model: LLMInterface | ModelFactory | None = None,
        environment: EnvironmentInterface | None = None,
        thinking_level: ThinkingLevel | None = None,
        max_turns: int | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        sandbox: SandboxMode | SandboxSettings | None = None,
    ) -> Session:
        """Go on with a conversation from its trace.

        Model, system prompt, tools and workspace are those of the trace. Nothing is run again by itself:
        the model is told of each call whose outcome is unknown.

        Args:
            session_id: which one; the one written to last without it.
            workspace_dir: where the workspace is now, if it was moved (or the trace comes from elsewhere).
            model: a model or factory instead of the configured one.
            environment: an environment instead of the built-in one.
            thinking_level: instead of the session's own.
            max_turns: as for a new session.
            tools: the functions that were offered to the model before, if any.
            sandbox: instead of the one the session had, as for a new session.

        Raises:
            ResumeError: no such session, an unreadable trace, or its workspace or model is gone.
            SessionLocked: another process has it open.

        Example::

            session = await agent.resume_session()
            print(await session.ask("Go on", approve=allow_all))
        """
        session_id = self._existing(session_id)
        lock = SessionLock(lock_path(self.paths.traces, session_id))
        lock.acquire()
        try:
            recovered = recover(files_of(self.paths.traces, session_id))
            parts = Parts(
                workspace=_resumed_workspace(recovered.meta.workspace, workspace_dir),
                model=model,
                environment=environment,
                thinking_level=thinking_level,
                max_turns=max_turns,
                tools=(*self.tools, *tools),
                sandbox=sandbox,
            )
            return await self._assembly().resumed_session(session_id, recovered, parts, lock)
        except BaseException:
            lock.release()
            raise

    def fork(
        self,
        session_id: str | None = None,
        *,
        at_request: int | None = None,
        provider: str | None = None,
        model_id: str | None = None,
        workspace_dir: str | Path | None = None,
    ) -> str:
        """Copy a conversation under a new id and return it; resume that to go on. The source is untouched.

        Args:
            session_id: which one; the one written to last without it. It must be idle.
            at_request: go back to this committed request of its present context (from 1); its end otherwise.
            provider: with ``model_id``, another model for the copy; what only the old provider understands is
                dropped then.
            model_id: see ``provider``.
            workspace_dir: another workspace for the copy.

        Raises:
            ResumeError: no such session or request.
            ConfigError: half a model name, or an unknown model.

        Example::

            session = await agent.resume_session(agent.fork(at_request=3))
        """
        source = self._existing(session_id)
        files = files_of(self.paths.traces, source)
        copy = new_session_id()
        other = self._blueprints().identity(provider, model_id)
        from penguin.trace.fork import ForkPlan, fork_trace  # noqa: PLC0415 - few processes fork a session

        plan = ForkPlan(
            copy,
            self.paths.traces,
            at_request=at_request,
            provider=provider,
            model_id=model_id,
            workspace=None if workspace_dir is None else str(self._workspace(workspace_dir)),
            scratchpads=(self.paths.scratchpad(source), self.paths.scratchpad(copy)),
            drop_fidelity=other is not None and other != self._blueprints().recorded_identity(files[-1]),
        )
        fork_trace(files, plan)
        return copy

    def checkpoints(self, session_id: str | None = None) -> list[Checkpoint]:
        """The tasks of a session one can go back before, oldest first; the session written to last without an id.

        Raises:
            ResumeError: no such session.
        """
        return self._undo().checkpoints(self._existing(session_id))

    async def diff(self, session: str | Session | None = None, *, to: int | None = None) -> list[FileChange]:
        """What a session's tasks changed in its workspace, seen from now.

        Args:
            session: which one; the one written to last without it.
            to: the first task that counts; the last one otherwise.

        Raises:
            ResumeError: no such session.
            UndoError: no such task, or its files are no longer kept.
        """
        session_id = self._existing(session.id if isinstance(session, Session) else session)
        return await anyio.to_thread.run_sync(self._undo().diff, session_id, to)

    async def undo(
        self,
        session: str | Session | None = None,
        *,
        to: int | None = None,
        files: bool = True,
        conversation: bool = True,
        force: bool = False,
        dry_run: bool = False,
    ) -> UndoReport:
        """Go back to before a task: restore the files it changed, and copy the conversation as it was then.

        What the files are now is kept first, for :meth:`redo`. Git's own files are left alone. Once restoring has
        begun it goes on to its end, also when this call is cancelled.

        Args:
            session: a session that no process has open, or an open and idle one of this process; the one written
                to last without it.
            to: go back to before this task; otherwise the last one that is not undone.
            files: whether to restore files.
            conversation: whether to copy the conversation; ``report.conversation`` is then the session to go on with.
            force: restore also what others changed since.
            dry_run: change nothing and only report.

        Raises:
            ResumeError: no such session.
            SessionBusy, SessionLocked: a task runs, or another process has the session open.
            UndoError: nothing to undo, or its files are no longer kept.
            UndoConflict: others changed since what would be restored; look at ``report.conflicts`` of a dry run.

        Example::

            preview = await agent.undo(dry_run=True)
            report = await agent.undo()
            session = await agent.resume_session(report.conversation)
        """
        from penguin.agent.undo import UndoWish  # noqa: PLC0415 - few processes undo anything

        wish = UndoWish(to, files, conversation, force, dry_run)
        with self._idle(session) as session_id:
            return await anyio.to_thread.run_sync(self._undo().undo, session_id, wish)

    async def redo(
        self, session: str | Session | None = None, *, force: bool = False, dry_run: bool = False
    ) -> UndoReport:
        """Take the last undo back that made this session or was done in it, unless a task ran since.

        Args:
            session: as for :meth:`undo`: for an undo of the conversation that is the copy it made;
                ``report.conversation`` is then the session it came from.
            force: restore also what others changed since.
            dry_run: change nothing and only report.

        Raises:
            ResumeError, SessionBusy, SessionLocked, UndoError, UndoConflict: as for :meth:`undo`.
        """
        with self._idle(session) as session_id:
            call = partial(self._undo().redo, session_id, force=force, dry_run=dry_run)
            return await anyio.to_thread.run_sync(call)

    def _undo(self) -> Undo:
        from penguin.agent.undo import Undo  # noqa: PLC0415 - few processes undo anything

        return Undo(self.paths, self._fork_before)

    def _fork_before(self, source: str, place: tuple[int, int]) -> str:
        from penguin.trace.fork import ForkPlan, fork_trace  # noqa: PLC0415 - as above

        copy = new_session_id()
        scratchpads = (self.paths.scratchpad(source), self.paths.scratchpad(copy))
        plan = ForkPlan(copy, self.paths.traces, before=place, scratchpads=scratchpads)
        fork_trace(files_of(self.paths.traces, source), plan)
        return copy

    @contextmanager
    def _idle(self, session: str | Session | None) -> Iterator[str]:
        """The id of a session in which no task runs, and none will begin elsewhere."""
        if isinstance(session, Session):
            if session.busy:
                raise SessionBusy("a task is running in this session; wait for its end or interrupt it first")
            yield session.id
            return
        session_id = self._existing(session)
        with SessionLock(lock_path(self.paths.traces, session_id)):
            yield session_id

    def approval_rules(self) -> ProjectRules:
        """The project's learnt approval rules, to hand to an :class:`Approval` or to list and remove."""
        from penguin.agent.approvals import ProjectRules  # noqa: PLC0415 - the shell parser's rules take time to load

        return ProjectRules(ProjectConfigFile(self.paths.project.config))

    def replay(self, session: str | Path | None = None) -> ReplayReport:
        """Build every request of a session again from its trace and compare it with what was sent (T12).

        Args:
            session: a session id, a trace file, or the session written to last.

        Raises:
            ResumeError: no such session.
            TraceError: a file cannot be read.
        """
        from penguin.agent.replay import replay  # noqa: PLC0415 - few processes replay a trace

        files = [session] if isinstance(session, Path) else files_of(self.paths.traces, self._existing(session))
        return replay(files, self._blueprints().recorded_config)

    def _assembly(self) -> Assembly:
        return Assembly(self.paths, self.project, self.config, self.environ)

    def _blueprints(self) -> Blueprints:
        return Blueprints(self.paths, self.project, self.config, self.environ)

    def _existing(self, session_id: str | None) -> str:
        """The session that is meant: by its id, the end of one, or the latest that is no subagent's."""
        from penguin.agent.sessions import LATEST, find_session  # noqa: PLC0415 - new sessions have nothing to look up

        return find_session(self.paths, LATEST if session_id is None else session_id)

    def _workspace(self, wanted: str | Path | None) -> Path:
        if wanted is None:
            return self.paths.new_temporary_workspace()
        workspace = Path(wanted).expanduser().absolute()
        if not workspace.is_dir():
            raise ConfigError(f"the workspace {workspace} is no directory: create it or name another one")
        return workspace


def _data_root(named: str | Path | None, environ: Mapping[str, str]) -> DataRoot:
    return DataRoot.from_environment(environ) if named is None else DataRoot(Path(named).expanduser().absolute())


def _resumed_workspace(recorded: str, wanted: str | Path | None) -> Path:
    workspace = Path(wanted or recorded).expanduser().absolute()
    if not workspace.is_dir():
        raise ResumeError(
            f"the session's workspace {workspace} is gone: restore it, or go on in another one with a fork"
        )
    return workspace


async def create_agent(
    *,
    project_id: str | None = None,
    agent_id: str | None = None,
    root: str | Path | None = None,
    tools: Sequence[Callable[..., Any]] = (),
    environ: Mapping[str, str] | None = None,
) -> Agent:
    """Load an agent from the data root.

    Args:
        project_id: the project; ``default_project`` without one.
        agent_id: the agent of that project; ``default_agent`` without one. It needs no files.
        root: the data root; ``PENGUIN_HOME`` or ``~/.penguin/data`` without one.
        tools: typed functions the model may call, see :func:`penguin.tool`.
        environ: the environment keys are looked up in; ``os.environ`` without one.

    Raises:
        ConfigError: a configuration file is broken; the text names file, line and field.

    Example::

        agent = await create_agent()
    """
    variables = os.environ if environ is None else environ
    paths = _data_root(root, variables).project(project_id or DEFAULT_PROJECT).agent(agent_id or DEFAULT_AGENT)
    return Agent(
        paths=paths,
        project=ProjectConfigFile(paths.project.config).read(),
        config=read_agent_config(paths.system_config),
        tools=tuple(tools),
        environ=variables,
    )
