"""What a caller chose for one session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penguin.engine.budget import Limits
from penguin.protocol.interfaces import EnvironmentInterface, LLMInterface, ModelFactory
from penguin.protocol.messages import ThinkingLevel

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from penguin.environment.sandbox.settings import SandboxMode, SandboxSettings


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

    @property
    def sandbox_settings(self) -> SandboxSettings | None:
        """The sandbox once it was decided on; a mode by itself is no more than a wish."""
        return None if self.sandbox is None or isinstance(self.sandbox, str) else self.sandbox


def is_model(model: LLMInterface | ModelFactory | None) -> TypeIs[LLMInterface]:
    """Whether this is a model, not a factory of models."""
    return hasattr(model, "stream_generate")
