"""What the adapters share about the address they speak to and the headers they send."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit, urlunsplit

from penguin.llm import catalog
from penguin.protocol.interfaces import ModelConfig

STREAM_HEADERS: Final = {
    "content-type": "application/json",
    "accept": "text/event-stream",
    # Compression would only delay the deltas.
    "accept-encoding": "identity",
}


def openai_url(base_url: str, path: str) -> str:
    """``base_url`` with the path of the protocol; a query (``?api-version=…``) stays at the end.

    Example::

        openai_url("https://host/v1?api-version=1", "/responses")  # "https://host/v1/responses?api-version=1"
    """
    parts = urlsplit(base_url)
    given = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=given if given.endswith(path) else given + path))


def bearer_headers(api_key: str | None) -> dict[str, str]:
    """The headers of a streaming request, with a bearer token where there is a key."""
    return STREAM_HEADERS | ({"authorization": f"Bearer {api_key}"} if api_key else {})


def is_custom_endpoint(config: ModelConfig) -> bool:
    """Whether requests go to the user's own server (or one on this machine) and not to a provider's usual address."""
    entry = catalog.provider(config.provider)
    return entry is None or entry.local or not catalog.is_usual_address(config.provider, config.base_url)
