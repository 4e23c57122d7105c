"""Which model a session speaks to, and with which settings: as configured, or as a trace tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penguin.agent.models import ModelChoice, choose_model, described, is_nowhere, model_config
from penguin.agent.parts import Parts
from penguin.engine.budget import Prices
from penguin.environment.tools.describe_image import VisionDescriber
from penguin.llm import catalog
from penguin.llm.model import create_model, unfit_setting_of
from penguin.protocol.errors import ConfigError, ResumeError
from penguin.protocol.interfaces import LLMInterface, ModelConfig, ModelFactory
from penguin.protocol.messages import THINKING_LEVELS, SessionMeta, ThinkingLevel
from penguin.state.agent_files import AgentConfig
from penguin.state.paths import AgentPaths
from penguin.state.project import ModelRef, ProjectConfig, ProjectConfigFile
from penguin.state.workspace_env import read_workspace_keys
from penguin.trace.reader import read_trace

Identity = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class Blueprints:
    """The models of one agent's sessions, before any is built."""

    paths: AgentPaths
    project: ProjectConfig
    config: AgentConfig
    environ: Mapping[str, str]

    def of(self, parts: Parts) -> tuple[ModelConfig, Prices | None]:
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

    def resumed(self, meta: SessionMeta, parts: Parts) -> tuple[ModelConfig, Prices | None]:
        """The same for a session that goes on.

        Raises:
            ResumeError: its model cannot be used any more.
        """
        level = parts.thinking_level or _thinking_level(meta.thinking_level)
        if parts.model is not None:
            window = meta.model_context_window if isinstance(meta.model_context_window, int) else None
            return ModelConfig(meta.provider, meta.model_id, thinking_level=level, context_window=window), None
        try:
            config, prices = self.of(replace(parts, provider=meta.provider, model_id=meta.model_id))
        except ConfigError as error:
            raise ResumeError(
                f"the session's model ({meta.provider}, {meta.model_id}) cannot be used any more: {error}."
                " Configure it again, or go on with another model in a fork"
            ) from error
        return replace(config, thinking_level=level or config.thinking_level), prices

    def describer(self, parts: Parts) -> VisionDescriber:
        """The project's vision model, for ``describe_image``; made for one question without tools or prompt."""
        ref = self.project.vision_model
        if ref is None:
            return VisionDescriber(None)

        def make() -> LLMInterface:
            choice = choose_model(self.project, ref.provider, ref.model_id)
            keys = read_workspace_keys(parts.workspace, catalog.key_variables())
            return create_model(self._model_config(choice, keys))

        return VisionDescriber(ref.model_id, make)

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

    # --- from an entry to settings ---------------------------------------------------------------------

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
        config = model_config(choice, self.config, self.environ, keys, config_file=self.paths.project.config)
        if base_url_needed and (unfit := unfit_setting_of(config)):
            raise self._project_file.error_about_model(choice.ref, unfit.setting, unfit.why)
        return config

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


def _name_of(model: LLMInterface | ModelFactory) -> str:
    return getattr(model, "__name__", type(model).__name__)


def _thinking_level(recorded: str | None) -> ThinkingLevel | None:
    return next((level for level in THINKING_LEVELS if level == recorded), None)
