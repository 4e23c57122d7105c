"""How each protocol words its list of models, and its refusals: enough to tell them apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

OK = 200
REFUSED = frozenset({400, 401, 403, 415, 422})
"""What a server says that knows an address and does not like the request."""


_OTHER_TRADES = re.compile(
    r"embed|rerank|whisper|minilm|(?:^|[^a-z])(?:bge|gte|e5|tts|stt|asr|speech|ocr|clip|siglip)(?:$|[^a-z])"
)
"""What models are called that turn text into vectors, orders, sound, or the other way round."""


class Answer(Struct, frozen=True):
    """A whole response; ``location`` is where a redirect leads."""

    status: int
    location: str
    body: bytes

    @property
    def document(self) -> Any:
        """The JSON in it, or ``None``."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def models_in(answer: Answer | None, read: Callable[[Answer], tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """The ids of a list that was given, or ``None``."""
    return None if answer is None or answer.status != OK else read(answer)


def openai_models(answer: Answer) -> tuple[str, ...] | None:
    """The ids, when this is a list in OpenAI's words."""
    match answer.document:
        case {"data": [{"type": "model"}, *_]} | {"data": list(), "has_more": _}:
            return None
        case {"data": [{"id": _}, *_] as entries} | {"object": "list", "data": list(entries)}:
            return _ids(entries)
        case {"object": "list", "data": None}:  # Ollama without a model
            return ()
        case _:
            return None


def anthropic_models(answer: Answer) -> tuple[str, ...] | None:
    """The ids, when this is a list in Anthropic's words."""
    match answer.document:
        case {"data": [{"type": "model", "id": _}, *_] as entries} | {"data": list(entries), "has_more": _}:
            return _ids(entries)
        case _:
            return None


def _ids(entries: list[Any]) -> tuple[str, ...]:
    """Only what is a name: ``null`` turned into text would be offered as a model called None."""
    ids = (entry.get("id") for entry in entries if isinstance(entry, dict))
    return tuple(name for name in ids if isinstance(name, str) and name)


def holds_conversations(model_id: str) -> bool:
    """Whether a model is one to talk to, as far as its name says; lists do not tell embeddings and speech apart.

    Example::

        holds_conversations("text-embedding-nomic-embed-text-v1.5")  # False
    """
    return _OTHER_TRADES.search(model_id.lower()) is None


def gemini_models(answer: Answer) -> tuple[str, ...] | None:
    """The names without their prefix, when this is a list in Google's words; only models that write."""
    match answer.document:
        case {"models": [{"name": str()}, *_] as entries}:
            return tuple(
                str(entry["name"]).removeprefix("models/")
                for entry in entries
                if isinstance(entry, dict)
                and "generateContent" in entry.get("supportedGenerationMethods", ["generateContent"])
            )
        case _:
            return None


def wants_key(answer: Answer) -> bool:
    """Whether it is the refusal of a model server that was started with a key: JSON with an ``error``.

    Nothing more is asked of it, since vLLM says only ``{"error": "Unauthorized"}``; nothing less, since all kinds
    of web pages on the usual ports ask for a password.
    """
    return answer.status in {401, 403} and isinstance(answer.document, dict) and "error" in answer.document


def is_refusal(answer: Answer | None, worded_so: Callable[[Any], bool]) -> bool:
    """Whether a server refuses, and in which protocol's words."""
    return answer is not None and answer.status in REFUSED and worded_so(answer.document)


def openai_refuses(document: Any) -> bool:
    """An ``error`` object with a message and a type or code, and nothing of the others'."""
    match document:
        case {"type": "error"} | {"error": {"status": str()}}:
            return False
        case {"error": {"message": str(), "type": _} | {"message": str(), "code": _}}:
            return True
        case _:
            return False


def anthropic_refuses(document: Any) -> bool:
    """``type`` is ``error`` outside, and the kind stands inside."""
    match document:
        case {"type": "error", "error": {"type": str(), "message": str()}}:
            return True
        case _:
            return False


def gemini_refuses(document: Any) -> bool:
    """A number as code and a ``status`` in capitals."""
    match document:
        case {"error": {"code": int(), "status": str()}}:
            return True
        case _:
            return False
