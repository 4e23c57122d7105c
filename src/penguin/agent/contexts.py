"""The contexts of one session: each has its own model, and a configuration record that begins it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from penguin.engine.budget import Prices
from penguin.protocol.interfaces import EnvironmentInterface, LLMInterface, ModelConfig, ModelFactory
from penguin.protocol.messages import Message


@dataclass(slots=True)
class Contexts:
    """Makes the contexts of one session; keeps the models to close them at the end."""

    config: ModelConfig
    factory: ModelFactory
    make_meta: Callable[[ModelConfig], Message]
    environment: EnvironmentInterface
    prices: Prices | None = None
    model: Any = None
    _made: list[LLMInterface] = field(default_factory=list)

    def new_model(self) -> LLMInterface:
        """The model of the next context, empty."""
        model = self.factory(self.config)
        self._made.append(model)
        return model

    async def next_meta(self) -> Message:
        """The next context has the tools there are now: a server that came late joins here (T7)."""
        self.config = replace(self.config, tools=await self.environment.list_tools())
        return self.make_meta(self.config)

    async def aclose(self) -> None:
        """Close every model that was made."""
        for model in self._made:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()
