"""The user's images on their way in: fitted once, before the trace, so that what is stored is what is sent (L14)."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from penguin.protocol.builders import image_url, user_text
from penguin.protocol.messages import ImageUrl, Message


async def fitted(messages: Sequence[Message]) -> list[Message]:
    """The same messages with every embedded image within the providers' limits; see :func:`fit`.

    Not interrupted by a cancellation, which would lose the prompt; a large image takes up to a second.
    """
    if not any(_embedded(message) for message in messages):
        return list(messages)
    with anyio.CancelScope(shield=True):
        messages = await anyio.to_thread.run_sync(fit, messages)
    return list(messages)


def fit(messages: Sequence[Message]) -> list[Message]:
    """The same messages with every embedded image within the providers' limits.

    A scaled image is followed by a line that says so; one that no model could read becomes such a line.
    Images at web addresses stay as they are: the provider fetches them.
    """
    result: list[Message] = []
    for message in messages:
        url = _embedded(message)
        result += [message] if url is None else _fit(message, url)
    return result


def _embedded(message: Message) -> str | None:
    match message.payload:
        case ImageUrl(image_url=url) if url.startswith("data:"):
            return url
        case _:
            return None


def _fit(message: Message, url: str) -> list[Message]:
    from penguin.environment.images import UnusableImage, prepare_encoded  # noqa: PLC0415 - only who sends images pays

    try:
        image = prepare_encoded(url.partition(",")[2])
    except UnusableImage as error:
        return [user_text(f"[an image was left out: {error}]")]
    fitting = str(image.data_url)
    if not image.is_scaled:
        return [message if fitting == url else image_url(fitting)]
    return [image_url(fitting), user_text(f"[the image was scaled: {image.note}]")]
