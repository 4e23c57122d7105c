"""How each protocol words its list of models, and its refusals: enough to tell them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

OK = 200
REFUSED = frozenset({400, 401, 403, 415, 422})
"""What a server says that knows an address and does not like the request."""


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
            return tuple(str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry)
        case {"object": "list", "data": None}:  # Ollama without a model
            return ()
        case _:
            return None


def anthropic_models(answer: Answer) -> tuple[str, ...] | None:
    """The ids, when this is a list in Anthropic's words."""
    match answer.document:
        case {"data": [{"type": "model", "id": _}, *_] as entries} | {"data": list(entries), "has_more": _}:
            return tuple(str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry)
        case _:
            return None


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
