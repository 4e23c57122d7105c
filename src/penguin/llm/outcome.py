"""How an attempt ended, as data: which trouble is worth a retry and what a person reads about it (L4).

:data:`RULES` is read from top to bottom, the first row that fits decides. A row looks at the HTTP
status, at the provider's words (code, type and message together), or at both. A rejection inside a
200 stream has no status of its own unless its body names one.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from msgspec import Struct

from penguin.llm.advice import advice_about
from penguin.llm.transport import TransportError, UndecodableBody
from penguin.protocol.events import ErrorKind, StopReason
from penguin.protocol.interfaces import LLMOutcome, ModelError
from penguin.protocol.messages import scrub

_LONGEST_MESSAGE = 2_000


class Rejection(Struct, frozen=True):
    """A provider's refusal in its own words; ``status`` is ``None`` inside a stream that began with 200.

    ``stands_for`` is the status that such a refusal has outside a stream, where its type says so: the rules go
    by it, and nobody is told of a status that was never received.
    """

    message: str
    status: int | None = None
    code: str = ""
    kind: str = ""
    retry_after: float | None = None
    stands_for: int | None = None

    @property
    def judged_status(self) -> int | None:
        """The status that the rules look at."""
        return self.stands_for if self.status is None else self.status

    @property
    def words(self) -> str:
        """What the rules look at: lower case, all parts together."""
        return f"{self.code} {self.kind} {self.message}".lower()


class Rule(Struct, frozen=True):
    """One row: fits when the status is one of ``statuses`` (if given) and ``words`` occur (if given)."""

    status: StopReason
    kind: ErrorKind
    statuses: frozenset[int] | None = None
    words: str | None = None

    def fits(self, rejection: Rejection) -> bool:
        """Whether this row decides about ``rejection``."""
        if self.statuses is not None and rejection.judged_status not in self.statuses:
            return False
        return self.words is None or re.search(self.words, rejection.words) is not None


def _words(*alternatives: str) -> str:
    # Compiled by the first rejection, which most sessions never see: ten milliseconds of each start.
    return "|".join(alternatives)


OVERFLOW = _words(
    r"context[ _](length|window|size)[ _]?exceed",
    r"exceeds? (the |this |your )?(model'?s? )?(available |maximum |max )?context",
    r"exceeded (the )?(model|max(imum)?) (token|context)",
    r"maximum context length",
    r"max(imum)?[_ ](prompt|input|model)[_ ](length|tokens|len)\b.*\b(exceed|but|requested|is \d)",
    r"prompt is too long",
    r"(input|prompt)( text| token| tokens| length)? (is |was )?too long",
    r"request (is|was) too long",
    r"too many (input |prompt )?tokens in (the )?(prompt|request|input)",
    r"input (token count|tokens)\b.*\bexceed",
    r"input length\b.*\bexceed",
    r"range of input length should be",
    r"(greater|larger|longer) than the (maximum )?context",
    r"context (length|window|size)\b.*\b(too small|not enough|exceeded|overflow)",
    r"when (the )?context (the )?overflows",
    r"(prompt|input) exceeds (the )?(limit|max)",
    r"reduce the length of (the|your) (messages|prompt|input)",
    r"request too large\b.*\btokens per min",
    r"model_context_window_exceeded",
    r"n_keep\b.*\bn_ctx",
    r"input token length too long",
    r"total message token length exceed",
)
QUOTA = _words(
    r"insufficient[_ ](quota|balance|credit|funds?)",
    r"exceeded[_ ]current[_ ]quota",
    r"exceeded your current quota",
    r"credit balance",
    r"(billing|payment)[_ ](hard[_ ]limit|not[_ ]active|required)",
    # A refusal may add that no credits were charged for it.
    r"(out of|not enough|no|insufficient) (credits?|balance|funds)\b(?! (was|were|have|has|charged|deducted|change)\b)",
    r"credits? (is|are|was|were|has been|have been) (depleted|exhausted|used up)",
    r"arrear(s|age)\b",
    r"please (recharge|top up)",
    r"freetieronly",
    r"usage limit (reached|exceeded)",
    "余额不足",
)
REFUSED = _words(
    r"content[_ ](filter|policy|moderation|management policy|exists risk)",
    r"data[_ ]?inspection[_ ]?failed",
    r"responsible ai",
    r"(flagged|blocked|rejected) (by|for|as)\b.*\b(safety|moderation|policy|usage polic)",
    r"safety (system|filter|polic)",
    r"sensitive content",
    r"requires moderation",
    r"(input|prompt|content|message)s? (was|were|has been|have been) flagged",
    r"cyber_policy",
)
BUSY = _words(
    r"overloaded",
    r"rate[_ ]limit",
    r"too[_ ]many[_ ]requests",
    r"throttl",
    r"(service|server|model|engine|upstream)\b.*\b(unavailable|busy|capacity|overload)",
    r"(server|internal|api|upstream)[_ ]error",
    r"internal server",
    r"temporar(y|ily)",
    r"try again (later|in)",
    r"timed? ?out",
    r"bad gateway",
    r"at capacity",
    r"loading model",
    r"insufficient_system_resource",
    r"network_error",
)
# Google calls both the day's quota and the minute's exhausted; only the name of the limit tells.
# Anthropic says of tokens by the minute that their number has exceeded the limit, as others do of a prompt.
BY_THE_MINUTE = _words(r"(?s)^(?!.*(per[- ]?day|request too large)).*per[- ]?(minute|second)")
RATE_LIMITED = _words(r"rate[_ ]limit", r"too[_ ]many[_ ]requests", r"throttl", r"tokens per min", r"requests per min")
KEY_TROUBLE = _words(
    r"invalid[_ ]api[_ ]key",
    r"incorrect api key",
    r"api[_ ]key[_ ](not valid|invalid)",
    r"invalid[_ ]authentication",
    r"unauthori[sz]ed",
    r"no auth",
    r"login fail",
    r"api secret key",
)
WRONG_REQUEST = _words(
    r"invalid[_ ]request",
    r"invalid[_ ]param",
    r"not[_ ]found",
    r"unsupported",
    r"bad[_ ]request",
    r"unexpected endpoint",
)

# With a status, gateways say so of requests they cannot read; in a stream that began it is OpenAI's word for a
# prompt against its policy.
FLAGGED_IN_THE_STREAM = _words(r"\binvalid_prompt\b")

_PERMANENT = frozenset({400, 404, 422})
_SERVER = frozenset(range(500, 600))

RULES: tuple[Rule, ...] = (
    Rule("failed", "context_overflow", frozenset({413})),
    Rule("timeout", "rate_limit", frozenset({429}), BY_THE_MINUTE),
    Rule("failed", "context_overflow", words=OVERFLOW),
    Rule("failed", "quota", frozenset({402})),
    # Gateways also answer 5xx for an account without credit; waiting does not fill it.
    Rule("failed", "quota", frozenset({400, 401, 403, 404, 422, 429}) | _SERVER, QUOTA),
    Rule("timeout", "rate_limit", frozenset({429})),
    Rule("timeout", "network", frozenset({408})),
    Rule("timeout", "overloaded", frozenset({409, 425}) | _SERVER),
    Rule("failed", "refused", frozenset({400, 403, 422, 451}), REFUSED),
    Rule("failed", "auth", frozenset({401, 403})),
    Rule("failed", "auth", _PERMANENT, KEY_TROUBLE),
    Rule("failed", "bad_request", _PERMANENT),
    Rule("failed", "bad_request", frozenset(range(300, 500))),
    # From here on without a status: an error inside a stream that began with 200.
    Rule("failed", "quota", words=QUOTA),
    Rule("failed", "refused", words=REFUSED),
    Rule("failed", "refused", words=FLAGGED_IN_THE_STREAM),
    Rule("timeout", "rate_limit", words=RATE_LIMITED),
    Rule("timeout", "overloaded", words=BUSY),
    Rule("failed", "auth", words=KEY_TROUBLE),
    Rule("failed", "bad_request", words=WRONG_REQUEST),
    Rule("failed", "unknown"),
)


def classify(rejection: Rejection) -> Rule:
    """The first row of :data:`RULES` that fits.

    Example::

        classify(Rejection("slow down", 429)).kind  # "rate_limit"
    """
    return next(rule for rule in RULES if rule.fits(rejection))


class Place(Struct, frozen=True):
    """Where a person changes what went wrong; built from the model's configuration, holds the key to hide it."""

    provider: str
    model_id: str
    base_url: str
    key_variable: str | None = None
    secrets: tuple[str, ...] = ()
    config_file: str = ".project_config.toml"

    def hidden(self, text: str) -> str:
        """``text`` without any secret."""
        for secret in self.secrets:
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "[key]")
        return _KEY_LIKE.sub("[key]", text)

    def advice(self, kind: ErrorKind, status: int | None, words: str = "") -> str:
        """Which setting to change, or nothing; see :data:`penguin.llm.advice.ADVICE`."""
        return advice_about(kind, status, words).format(
            entry=f"the [[models]] entry of {self.provider}/{self.model_id} in {self.config_file}",
            base_url=self.base_url,
            provider=self.provider,
            or_variable=f" or the environment variable {self.key_variable}" if self.key_variable else "",
        )


# A provider that echoes a key usually masks its middle; what is left must not reach a trace either.
_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk)[-_][A-Za-z0-9*_.-]{6,}|\bAIza[A-Za-z0-9*_.-]{6,}|\bBearer\s+[^\s\"']{6,}"
)

# Local servers are given keys like "x": hiding those would only garble the text.
_SHORTEST_SECRET = 6


def rejected(rejection: Rejection, place: Place) -> LLMOutcome:
    """The outcome of an attempt the provider turned down."""
    rule = classify(rejection)
    advice = place.advice(rule.kind, rejection.judged_status, rejection.words)
    message = place.hidden(_with_advice(_sentence(rejection), advice))
    retry_after = rejection.retry_after if rule.status == "timeout" else None
    return LLMOutcome(rule.status, ModelError(rule.kind, message, rejection.status, retry_after))


def _sentence(rejection: Rejection) -> str:
    words = scrub(rejection.message.strip()) or "no reason given"
    # Without a status the type of the error is all that names it.
    code = rejection.code or (rejection.kind if rejection.status is None else "")
    label = "" if code == str(rejection.status) or code.lower() in words.lower() else code
    head = " ".join(part for part in (f"HTTP {rejection.status}" if rejection.status else "", label) if part)
    if len(words) > _LONGEST_MESSAGE:
        words = words[:_LONGEST_MESSAGE] + "…"
    return f"{head}: {words}" if head else words


def _with_advice(words: str, advice: str) -> str:
    """The provider's words as a sentence, since most end theirs without a full stop, and the advice."""
    if not advice:
        return words
    return f"{words} {advice}" if words.endswith((".", "!", "?", "…", "。")) else f"{words}. {advice}"


def disconnected(error: TransportError, place: Place, *, answering: bool) -> LLMOutcome:
    """The outcome of a connection that failed, before (``timeout``) or after (``malformed``) the answer began."""
    said = str(error)
    message = place.hidden(_with_advice(said, place.advice("network", None, said)))
    if isinstance(error, UndecodableBody):
        return LLMOutcome("malformed", ModelError("malformed", message))
    return LLMOutcome("malformed" if answering else "timeout", ModelError("network", message))


def ended_early(what: str) -> LLMOutcome:
    """The stream stopped without its terminal event; ``what`` says how far it had come."""
    return LLMOutcome("malformed", ModelError("network", f"the stream ended without its last event{what}"))


def unreadable(message: str) -> LLMOutcome:
    """The provider sent something that cannot be parsed."""
    return LLMOutcome("malformed", ModelError("malformed", message))


def silent(seconds: float, *, first: bool) -> LLMOutcome:
    """A clock of L5 ran out."""
    what = "did not begin to answer" if first else "sent nothing more"
    return LLMOutcome("timeout", ModelError("idle_timeout", f"the model {what} for {seconds:.0f} s"))


# --- reading what the provider said -----------------------------------------------------------------


def read_rejection(body: bytes, status: int | None, headers: Mapping[str, str]) -> Rejection:
    """The error inside a response body, whatever its shape: JSON of several dialects, HTML or plain text.

    Example::

        read_rejection(b'{"error":{"message":"no","code":"x"}}', 400, {}).code  # "x"
    """
    wait = retry_after(headers)
    try:
        return rejection_from(msgspec.json.decode(body), status, wait)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Rejection(_plain_text(body), status, retry_after=wait)


def rejection_from(document: Any, status: int | None = None, wait: float | None = None) -> Rejection:
    """The same from decoded JSON: an ``error`` object or string, a bare message, a ``detail``, a list of one."""
    match document:
        case [first, *_]:
            return rejection_from(first, status, wait)
        case {"error": {"error": dict() as inner}}:
            return rejection_from({"error": inner}, status, wait)
        case {"error": dict() as error}:
            return _rejection_fields(error, status, wait)
        case {"error": str(message)} if message:
            return _rejection_fields({**document, "message": document.get("message") or message}, status, wait)
        case {"errors": [dict() as error, *_]}:
            return _rejection_fields(error, status, wait)
        case {"base_resp": {"status_code": code, "status_msg": message}}:
            return Rejection(str(message), status, str(code), retry_after=wait)
        case {"message": str()} | {"code": _}:
            return _rejection_fields(document, status, wait)
        case {"detail": str(message)}:
            return Rejection(message, status, retry_after=wait)
        case str(message):
            return Rejection(message, status, retry_after=wait)
        case _:
            return Rejection(msgspec.json.encode(document).decode()[:_LONGEST_MESSAGE], status, retry_after=wait)


def _rejection_fields(error: dict[str, Any], status: int | None, wait: float | None) -> Rejection:
    message, kind, code = error.get("message"), error.get("type"), error.get("code")
    metadata = error.get("metadata")
    text = message if isinstance(message, str) and message else msgspec.json.encode(error).decode()
    match metadata:
        case {"raw": str(raw)} if raw and raw not in text:  # OpenRouter: what the provider behind it said
            text = f"{text}: {raw}"
        case _:
            pass
    if status is None:
        status = _status_inside(code) or _status_inside(error.get("status"))
    match code, error.get("status"):
        case int(), str(word):  # Google's code repeats the status; its status is the code
            code = word
        case _:
            pass
    named, delay = _google_details(error.get("details"))
    kind = kind if isinstance(kind, str) else named
    return Rejection(text, status, "" if code is None else str(code), kind, wait if wait is not None else delay)


def _google_details(details: Any) -> tuple[str, float | None]:
    """What Google's errors say beside the message: reasons and the limits that were hit, and how long to wait."""
    named: list[str] = []
    delay = None
    for detail in details if isinstance(details, list) else ():
        match detail:
            case {"retryDelay": str(seconds)} if _SECONDS.fullmatch(seconds.removesuffix("s")):
                delay = float(seconds.removesuffix("s")) or None
            case {"reason": str(reason)}:
                named.append(reason)
            case {"violations": list(violations)}:
                named += [str(each["quotaId"]) for each in violations if isinstance(each, dict) and "quotaId" in each]
            case _:
                pass
    return " ".join(named), delay


def _status_inside(code: Any) -> int | None:
    match code:
        case bool():
            return None
        case int() if 400 <= code < 600:  # noqa: PLR2004 - the range of HTTP errors
            return code
        case str() if re.fullmatch(r"[45]\d\d", code):
            return int(code)
        case _:
            return None


def _plain_text(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    if "<html" in text[:1000].lower() or text.lstrip().lower().startswith("<!doctype"):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return f"a web page instead of an answer ({title[1].strip()})" if title else "a web page instead of an answer"
    return text.strip()[:_LONGEST_MESSAGE]


_SECONDS = re.compile(r"\d{1,9}(\.\d+)?")


def retry_after(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds to wait from ``Retry-After`` (seconds or HTTP date); ``None`` when it says nothing useful.

    Zero, dates in the past, words and ``retry-after-ms`` mean: wait as usual. ``now`` is seconds
    since the epoch; by default the server's own ``Date``, so that a wrong clock here does no harm.
    """
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        seconds = float(value)
    elif (then := _http_date(value)) is not None:
        here = now if now is not None else _http_date(headers.get("date", ""))
        seconds = then - (time.time() if here is None else here)
    else:
        return None
    return seconds if seconds > 0 and math.isfinite(seconds) else None


def _http_date(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
