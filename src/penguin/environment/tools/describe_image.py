"""``describe_image``: have another model look at an image, for one that cannot see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penguin.environment.image_source import load_image
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolError, ToolResult, ToolSetup
from penguin.protocol.builders import image_url, user_text
from penguin.protocol.interfaces import GenerateRequest, LLMInterface
from penguin.protocol.messages import Message, PartialText

_DEFAULT_PROMPT = (
    "Describe this image for somebody who cannot see it: first what it is, then everything that may matter."
    " Copy all text in it word for word."
)


@dataclass(frozen=True, slots=True)
class VisionDescriber:
    """The project's vision model: ``create_llm`` makes it for one question, without tools or system prompt.

    ``model_id`` is ``None`` when the project has none.
    """

    model_id: str | None
    create_llm: Callable[[], LLMInterface] | None = None


class DescribeImage:
    """Asks the vision model and streams its answer."""

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._setup = setup

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Load ``source`` and ask about it.

        Raises:
            ToolError: no vision model is set, the image cannot be had, or the model did not answer.
        """
        describer = self._setup.services.vision_describer
        if not isinstance(describer, VisionDescriber) or describer.create_llm is None:
            raise ToolError(
                "No vision model is set for this project, so nobody can look at the image. The user can set one with"
                " `penguin config model vision PROVIDER MODEL_ID`."
            )
        image = await load_image(args["source"], self._setup)
        question: list[Message] = [user_text(args.get("prompt") or _DEFAULT_PROMPT), image_url(str(image.data_url))]
        await _answer(describer.create_llm(), question, ctx)
        return ToolResult(note=f"[{image.note}, described by {describer.model_id}]")


async def _answer(model: LLMInterface, question: list[Message], ctx: ToolContext) -> None:
    def hear(message: Message) -> None:
        match message.payload:
            case PartialText(event_type="delta", text=text):
                ctx.write(text)
            case _:
                pass

    try:
        outcome = await model.stream_generate(GenerateRequest(question), hear)
    finally:
        close = getattr(model, "aclose", None)
        if close is not None:
            await close()
    if outcome.status != "completed":
        reason = outcome.error.message if outcome.error else outcome.status
        raise ToolError(f"The vision model did not answer: {reason}")
