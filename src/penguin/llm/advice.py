"""Which setting to change after a refusal, as data: a person reads it behind the provider's own words (L4).

:data:`ADVICE` is read from top to bottom, the first row that fits is said. The words are looked for in what the
provider said, in small letters.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from penguin.protocol.events import ErrorKind


class Advice(Struct, frozen=True):
    """One row: fits when kind, status and words do, each where it is given.

    ``{entry}``, ``{base_url}``, ``{provider}`` and ``{or_variable}`` in ``text`` are filled in by the place.
    """

    text: str
    kinds: frozenset[ErrorKind] | None = None
    statuses: frozenset[int] | None = None
    words: str | None = None

    def fits(self, kind: ErrorKind, status: int | None, words: str) -> bool:
        """Whether this is what to say."""
        if self.kinds is not None and kind not in self.kinds:
            return False
        if self.statuses is not None and status not in self.statuses:
            return False
        return self.words is None or re.search(self.words, words.lower()) is not None


_WRONG: Final = frozenset[ErrorKind]({"bad_request"})
# Servers on one's own machine also call it their own fault (500) that a model has no eyes or tools.
_UNFIT: Final = frozenset[ErrorKind]({"bad_request", "unknown", "overloaded"})

ADVICE: tuple[Advice, ...] = (
    Advice("Change `api_key` in {entry}{or_variable}.", frozenset({"auth"})),
    Advice(
        "Top up the account at {provider}, or change `api_key` in {entry}{or_variable}.",
        frozenset({"quota"}),
    ),
    Advice(
        "The server speaks plain HTTP: begin `base_url` ({base_url}) in {entry} with http:// instead of https://.",
        words=r"wrong[_ ]version[_ ]number|record[_ ]layer[_ ]failure|http request was sent to https",
    ),
    Advice(
        "`base_url` ({base_url}) in {entry} has to end in /v1.",
        words=r"unexpected endpoint or method",
    ),
    Advice(
        'Set `client_type = "openai-responses"` in {entry}.',
        _UNFIT,
        words=r"tools with reasoning[_ ]effort (are|is) not supported|use /v1/responses|only supported in v1/responses",
    ),
    Advice(
        'If it has no tools of its own, set `tool_calls = "text"` in {entry} (over openai-chat).',
        _UNFIT,
        words=r"(not|n't) support (tools|tool (use|call)|function[ _]?call)|support tool use"
        r"|(tools?( use| calling| choice)?|function calling) (is|are) not supported|tool choice requires",
    ),
    Advice(
        "If it cannot see, set `vision = false` in {entry}.",
        _UNFIT,
        words=r"(images?|image_url|vision|multimodal)( inputs?| contents?| urls?)? (is|are) (not|un)[ ]?supported"
        r"|(not|n't) support (the )?(images?|vision|multimodal)|support image input|not a multimodal model",
    ),
    Advice(
        "Set `thinking_levels` in {entry} to those that it accepts ([] when it does not think), or `thinking_control`.",
        _UNFIT,
        words=r"(reasoning|thinking|adaptive|effort)\b.*((not|n't) support|unsupported|invalid|not allowed|not a valid)"
        r"|((not|n't) support|unsupported|invalid)\b.*(reasoning|thinking|effort)\b",
    ),
    Advice(
        "Set `max_output` in {entry} to what it can write at most.",
        _UNFIT,
        words=r"max_?(completion_?|output_?)?tokens\b.*(maximum|at most|too (large|big|high)|less than|exceed|range)"
        r"|(maximum|at most)\b.*(output|completion) tokens",
    ),
    Advice(
        "Check `model_id` in {entry}.",
        _UNFIT,
        words=r"not a valid model|(unknown|invalid|no such|incorrect) model|model[_ ](not[_ ](exist|found)|unknown)"
        r"|models?\b.{0,120}(does not exist|doesn't exist|not found|not exist)|\bmodel: \S+$|no endpoints found",
    ),
    Advice(
        "Check `extra_body` and `client_type` in {entry}: which members there are depends on the protocol.",
        _WRONG,
        words=r"(unknown|unrecognized|unexpected|unsupported) (request )?(parameter|argument|field|name|keyword)"
        r"|extra inputs are not permitted",
    ),
    Advice(
        "Check `model_id`, `base_url` ({base_url}) and `client_type` in {entry}.",
        _WRONG,
        frozenset({404, 405}),
    ),
    Advice(
        "The server redirects; change `base_url` ({base_url}) in {entry}.",
        _WRONG,
        frozenset(range(300, 400)),
    ),
)


def advice_about(kind: ErrorKind | None, status: int | None, words: str) -> str:
    """The text of the first row of :data:`ADVICE` that fits; empty when none does.

    Example::

        advice_about("bad_request", 400, "Model Not Exist")  # "Check `model_id` in {entry}."
    """
    return next((row.text for row in ADVICE if row.fits(kind or "unknown", status, words)), "")
