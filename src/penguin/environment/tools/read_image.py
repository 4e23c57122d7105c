"""``read_image``: show an image to a model that can see."""

from __future__ import annotations

from typing import Any

from penguin.environment.image_source import load_image
from penguin.environment.tool import ToolContext, ToolDefinitionConfig, ToolResult, ToolSetup


class ReadImage:
    """Loads one image and attaches it to the output."""

    def __init__(self, definition: ToolDefinitionConfig, setup: ToolSetup) -> None:
        self.definition = definition
        self._setup = setup

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Load ``source``.

        Raises:
            ToolError: it cannot be had or is no image.
        """
        image = await load_image(args["source"], self._setup)
        ctx.write(image.note)
        return ToolResult(images=[image.data_url])
