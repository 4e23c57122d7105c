"""A model behind HTTP: it owns the history of one context and runs one attempt at a time (L1).

What a provider speaks is the adapter's business, what a connection is the transport's. Here they
meet, with the clocks, the ids, the digest and the rule that an attempt never raises.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import anyio
from msgspec import Raw
from msgspec.structs import replace

from penguin._version import VERSION
from penguin.llm import catalog
from penguin.llm.adapter import Adapter, AdapterFactory, Conclusion, StreamFold, SupportsRemark
from penguin.llm.clocks import Clocks
from penguin.llm.credentials import key_variables_of
from penguin.llm.isolation import View
from penguin.llm.known import Unfit, known_of, unfit_setting
from penguin.llm.limits import (
    CHARACTERS_PER_TOKEN,
    TokenEstimator,
    characters,
    fixed_characters,
    output_cap,
    output_tokens,
)
from penguin.llm.outcome import (
    Place,
    Rejection,
    disconnected,
    ended_early,
    read_rejection,
    rejected,
    silent,
    unreadable,
)
from penguin.llm.providers.encoded_history import side_of
from penguin.llm.segments import Segments
from penguin.llm.sse import EventSplitter, EventTooLarge, StreamEvent
from penguin.llm.transport import HttpRequest, HttpResponse, HttpTransport, Transport, TransportError
from penguin.protocol import builders
from penguin.protocol.call_ids import ToolCallIdAllocator, legal_call_id
from penguin.protocol.errors import ConfigError
from penguin.protocol.events import TokenCounts
from penguin.protocol.interfaces import Emit, GenerateRequest, LLMInterface, LLMOutcome, ModelConfig, ModelError
from penguin.protocol.messages import UNSET, Message, ThinkingLevel, ToolCall

_logger = logging.getLogger("penguin.llm")


def _openai_chat() -> AdapterFactory:
    from penguin.llm.providers.openai_chat import OpenAIChat  # noqa: PLC0415 - a session speaks one protocol of several

    return OpenAIChat


def _openai_responses() -> AdapterFactory:
    from penguin.llm.providers.openai_responses import OpenAIResponses  # noqa: PLC0415 - as above

    return OpenAIResponses


def _anthropic_messages() -> AdapterFactory:
    from penguin.llm.providers.anthropic_messages import AnthropicMessages  # noqa: PLC0415 - as above

    return AnthropicMessages


def _gemini() -> AdapterFactory:
    from penguin.llm.providers.gemini import Gemini  # noqa: PLC0415 - as above

    return Gemini


ADAPTERS: Mapping[str, Callable[[], AdapterFactory]] = {
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "anthropic-messages": _anthropic_messages,
    "gemini": _gemini,
}
"""Wire protocols by client type; each is imported with the first model that speaks it."""

ALIASES: Mapping[str, str] = {"openai": "openai-chat", "ant-messages": "anthropic-messages"}
"""Other names a client type goes by."""

_LARGEST_ERROR_BODY = 256 * 1024
_LARGEST_DOCUMENT = 64 * 1024 * 1024
_LARGEST_PREAMBLE = 64 * 1024
_ERROR_BODY_SECONDS = 10.0
_MORE_ROOM = "raise `max_tokens`, or let it think less"
_DRAIN_FOR_USAGE = 2.0
_DRAIN_AFTER_END = 0.2


def create_model(config: ModelConfig) -> LLMInterface:
    """The model factory of the product: picks the wire protocol and builds a model with an empty context.

    Raises:
        ConfigError: the client type is unknown, nobody knows where the provider is, or ``thinking_control`` is
            none of the protocol's.

    Example::

        model = create_model(ModelConfig("custom", "my-model", base_url="http://127.0.0.1:8080/v1"))
    """
    return GenerativeModel(config)


def refuse_unusable(config: ModelConfig) -> None:
    """Everything a model is refused for before its first request.

    Raises:
        ConfigError: as :func:`create_model`.
    """
    _base_url(config)
    _adapter_factory(config)


def unfit_setting_of(config: ModelConfig) -> Unfit | None:
    """A setting that the model's protocol cannot use, for whoever knows the place in the file.

    Raises:
        ConfigError: the client type is unknown.
    """
    return unfit_setting(config, _client_type(config))


class GenerativeModel:
    """Implements ``LLMInterface`` and ``SupportsHistory``; close it with :meth:`aclose`.

    The ``session`` counts of the ``token_usage`` it emits repeat those of the request: it knows one
    context only, and the engine, which knows the session, puts the sum there.

    Raises:
        ConfigError: as :func:`create_model`.
    """

    def __init__(self, config: ModelConfig, *, transport: Transport | None = None) -> None:
        self._config = config
        base_url = _base_url(config)
        self._new_adapter: Callable[[], Adapter] = lambda: _adapter_factory(config)(config, base_url)
        self._adapter = self._new_adapter()
        self._view = View()
        self._place = _place(config, base_url)
        self._transport = transport or HttpTransport()
        self._ids = config.tool_call_ids or ToolCallIdAllocator()
        self._history: list[Message] = []
        self._history_characters = 0
        self._remarked = False
        self._estimator = TokenEstimator(fixed_characters(config.system_prompt, config.tools))

    @property
    def history(self) -> tuple[Message, ...]:
        """The committed messages of this context, oldest first."""
        return tuple(self._history)

    def set_history(self, messages: list[Message]) -> None:
        """Take over the committed messages of an earlier process; anything but complete model messages is skipped."""
        self._history = [message for message in messages if side_of(message) is not None]
        self._history_characters = characters(self._history)
        for message in self._history:
            match message.payload:
                case ToolCall(tool_call_id=call_id):
                    self._ids.observe(call_id)
                    self._ids.observe(legal_call_id(call_id))
                case _:
                    pass

    async def stream_generate(self, request: GenerateRequest, emit: Emit) -> LLMOutcome:
        """Run one attempt; see ``LLMInterface``."""
        problem = self._problem_with(request)
        if problem is not None:
            return problem
        spoken = self._history_characters + characters(request.new_messages)
        try:
            body = self._body_of(request, spoken)
        except Exception as error:  # noqa: BLE001 - an attempt never raises (L1)
            return self._bug(error)
        attempt = _Attempt(self._adapter, self._transport, self._place, Segments(emit, self._ids))
        try:
            outcome = await attempt.run(body, self._config.request_timeout_ms / 1000)
        except Exception as error:  # noqa: BLE001 - an attempt never raises (L1)
            attempt.segments.close("failed")
            outcome = self._bug(error)
        except BaseException:
            attempt.segments.close("aborted")
            raise
        self._report_usage(attempt, outcome, spoken, emit)
        if outcome.status == "completed":
            self._commit(request.new_messages, attempt.segments.complete)
            outcome = self._with_remark(outcome, request)
        _note_outcome(self._config, outcome)
        return _with_digest(outcome, body)

    async def aclose(self) -> None:
        """Close idle connections; may be called more than once."""
        await self._transport.aclose()

    def _problem_with(self, request: GenerateRequest) -> LLMOutcome | None:
        key = self._config.api_key
        if key is not None and not (key.isascii() and key.isprintable()):
            message = f"the API key contains characters that cannot be sent. {self._place.advice('auth', None)}"
            return LLMOutcome("failed", ModelError("auth", message))
        if any(side_of(message) == "assistant" for message in request.new_messages):
            return LLMOutcome("failed", ModelError("bad_request", "new messages must be of the user's side only"))
        if not request.new_messages and not self._history:
            return LLMOutcome("failed", ModelError("bad_request", "there is nothing to send"))
        return None

    def _body_of(self, request: GenerateRequest, spoken: int) -> bytes:
        known = known_of(self._config)
        config = self._config
        cap = output_cap(
            config.max_tokens,
            known.context_window,
            self._expected_input(request, spoken),
            model_max_output=known.max_output,
            named=config.max_output or (config.max_tokens if config.max_tokens_named else None),
        )
        shown = self._view.of([*self._history, *request.new_messages])
        return self._adapter.body(shown, max_tokens=cap, thinking_level=self._level_of(request))

    def _expected_input(self, request: GenerateRequest, spoken: int) -> int:
        """Tokens the request will need: what the context held, and what is new.

        Held to the plain estimate within bounds, since a proxy may report only what is new.
        """
        plain = self._estimator.plain(spoken)
        if not request.context_tokens:
            return plain
        new = characters(request.new_messages) // CHARACTERS_PER_TOKEN
        return min(max(request.context_tokens + new, plain // 2), 4 * plain)

    def isolate(self, error: ModelError, new_messages: list[Message]) -> str | None:
        """After a permanent refusal: hide the item it is about; see ``SupportsIsolation``."""
        left_out = self._view.isolate(error, self._history, new_messages)
        if left_out is not None:
            # The adapter remembers encoded messages by their place; what is behind a place has changed.
            self._adapter = self._new_adapter()
        return left_out

    def rehearse(self, request: GenerateRequest) -> bytes:
        """The body this request would be sent as; nothing is sent. For replay (T12)."""
        return self._body_of(request, self._history_characters + characters(request.new_messages))

    def adopt(self, new_messages: list[Message], reply: list[Message]) -> None:
        """Commit a recorded turn as if it had just completed. For replay (T12)."""
        self._commit(new_messages, reply)

    def _with_remark(self, outcome: LLMOutcome, request: GenerateRequest) -> LLMOutcome:
        """What the user should know of how requests go out; the first completed one says it, unless it has a note."""
        adapter = self._adapter
        if self._remarked or outcome.note is not None or not isinstance(adapter, SupportsRemark):
            return outcome
        remark = adapter.remark(self._level_of(request))
        self._remarked = remark is not None
        return LLMOutcome(outcome.status, outcome.error, outcome.request_digest, outcome.cut_off, remark)

    def _level_of(self, request: GenerateRequest) -> ThinkingLevel | None:
        return request.thinking_level or self._config.thinking_level

    def _report_usage(self, attempt: _Attempt, outcome: LLMOutcome, spoken: int, emit: Emit) -> None:
        """Emit ``token_usage``, last of the attempt; a failed one reports only what the provider did (L12)."""
        raw = attempt.usage
        counts = self._adapter.usage(raw)
        if counts is not None:
            self._estimator.learn(spoken, counts)
        elif outcome.status != "completed":
            return
        said = output_tokens(attempt.segments.characters)
        estimated = counts is None or (counts.output == 0 and said > 0)
        if counts is None:
            guessed = self._estimator.estimate(spoken)
            counts = TokenCounts(0, guessed, said, guessed + said)
        elif estimated:
            counts = TokenCounts(counts.cache_read, counts.cache_write, said, counts.total + said)
        emit(builders.token_usage(counts, counts, estimated=estimated, provider=UNSET if raw is None else raw))

    def _commit(self, new_messages: list[Message], reply: list[Message]) -> None:
        self._history += new_messages
        self._history += reply
        self._history_characters += characters(new_messages) + characters(reply)

    def _bug(self, error: Exception) -> LLMOutcome:
        _logger.error("the model side failed", exc_info=error)
        message = self._place.hidden(f"internal error in the model side: {type(error).__name__}: {error}")
        return LLMOutcome("failed", ModelError("unknown", message))


class _Attempt:
    """One request and its stream, from the first byte sent to the outcome."""

    def __init__(self, adapter: Adapter, transport: Transport, place: Place, segments: Segments) -> None:
        self.segments = segments
        self._adapter = adapter
        self._transport = transport
        self._place = place
        self._fold: StreamFold = adapter.open_fold(segments)
        self._conclusion = Conclusion()
        self._rejection: Rejection | None = None
        self._unreadable = ""
        self._disconnected: TransportError | None = None
        self._answering = False

    @property
    def usage(self) -> Raw | None:
        """The provider's own numbers, once the attempt has run."""
        return self._conclusion.usage

    async def run(self, body: bytes, seconds: float) -> LLMOutcome:
        """Send, fold, settle; closes every segment whatever happens."""
        clocks = Clocks(seconds)
        with clocks.scope:
            clocks.start()
            try:
                await self._exchange(body, clocks)
            except TransportError as error:
                self._disconnected = error
            except EventTooLarge as error:
                self._unreadable = str(error)
        outcome = self._outcome(clocks)
        self.segments.close(outcome.status)
        return outcome

    async def _exchange(self, body: bytes, clocks: Clocks) -> None:
        request = HttpRequest("POST", self._adapter.url(), _headers(self._adapter), body)
        async with self._transport.stream(request) as response:
            try:
                await self._take(response, clocks)
            except anyio.get_cancelled_exc_class():
                # Closing the connection awaits, and every await raises now: the segments come first.
                if not clocks.expired():
                    self.segments.close("aborted")
                raise

    async def _take(self, response: HttpResponse, clocks: Clocks) -> None:
        if not 200 <= response.status < 300:  # noqa: PLR2004 - success
            await self._take_refusal(response, clocks)
            return
        self._answering = True
        if "json" in response.headers.get("content-type", "").lower():
            body = bytearray()
            await _read(response, body, _LARGEST_DOCUMENT, clocks)
            self._take_document(bytes(body))
        else:
            await self._take_events(response, clocks)

    async def _take_refusal(self, response: HttpResponse, clocks: Clocks) -> None:
        """A status that says no: its body is only the reason, so what has come of it in ten seconds is enough."""
        body = bytearray()
        try:
            with anyio.move_on_after(_ERROR_BODY_SECONDS):
                await _read(response, body, _LARGEST_ERROR_BODY, clocks)
        finally:
            # Also when a clock runs out or the connection breaks: the status has said what it is.
            self._rejection = read_rejection(bytes(body), response.status, response.headers)

    async def _take_events(self, response: HttpResponse, clocks: Clocks) -> None:
        fold, splitter = self._fold, EventSplitter()
        preamble = b""
        async for chunk in response.chunks:
            events = splitter.feed(chunk)
            output = False
            for event in events:
                output |= fold.fold(event)
            clocks.tick(len(events), output=output)
            if not clocks.events and len(preamble) < _LARGEST_PREAMBLE:
                preamble += chunk
            if fold.delivered():
                clocks.drain(_DRAIN_AFTER_END if fold.over() else _DRAIN_FOR_USAGE)
            elif fold.over():
                return
            else:
                clocks.go_on()
        rest = splitter.finish()
        for event in rest:
            fold.fold(event)
        if not clocks.events and not rest:
            self._take_document(preamble)

    def _take_document(self, content: bytes) -> None:
        """A 200 that is no event stream: an error or a whole reply as JSON, a web page, or nothing."""
        text = content.strip()
        if text.startswith((b"{", b"[")):
            self._fold.fold(StreamEvent(text))
        elif text and not text.startswith(b":"):
            self._unreadable = f"the server sent no event stream but: {read_rejection(text, None, {}).message}"

    def _outcome(self, clocks: Clocks) -> LLMOutcome:
        self._conclusion = conclusion = self._fold.conclude()
        if self._rejection is not None or conclusion.rejection is not None:
            return rejected(self._rejection or conclusion.rejection or Rejection(""), self._place)
        if conclusion.delivered:
            return _delivered(conclusion, self.segments)
        if self._unreadable or conclusion.unreadable:
            return unreadable(self._place.hidden(self._unreadable or conclusion.unreadable))
        if clocks.expired():
            return silent(clocks.silence(), first=not clocks.heard)
        if self._disconnected is not None:
            return disconnected(self._disconnected, self._place, answering=self._answering)
        return ended_early("" if clocks.events else " and without any other")


def _note_outcome(config: ModelConfig, outcome: LLMOutcome) -> None:
    """One line for the log; keys are hidden in the words already."""
    error = outcome.error
    why = "" if error is None else f", {error.kind}: {error.message}"
    level = logging.INFO if outcome.status == "completed" else logging.WARNING
    _logger.log(level, "%s/%s: the request ended as %s%s", config.provider, config.model_id, outcome.status, why)


def _delivered(conclusion: Conclusion, segments: Segments) -> LLMOutcome:
    if conclusion.cut_off:
        return LLMOutcome("malformed", _cut(segments, filtered=conclusion.filtered), cut_off=True)
    if conclusion.refusal:
        return LLMOutcome("failed", ModelError("refused", conclusion.refusal))
    if conclusion.unreadable:
        return unreadable(conclusion.unreadable)
    note = conclusion.note if segments.spoke() else _silence(conclusion, segments)
    return LLMOutcome("completed", note=note, unfinished=conclusion.at_limit or conclusion.filtered)


def _cut(segments: Segments, *, filtered: bool) -> ModelError:
    if filtered:
        return ModelError("refused", "the provider's content filter stopped the reply inside a tool call")
    if segments.spoke():
        return ModelError("malformed", "the output limit cut the reply inside a tool call")
    what = "nothing but thinking" if segments.thought_at_all() else "nothing"
    return ModelError("malformed", f"{what} came before the output limit: {_MORE_ROOM}")


def _silence(conclusion: Conclusion, segments: Segments) -> str:
    """What a completed reply without words or calls is, told to the user."""
    when = "before it answered" if segments.thought_at_all() else "without a word"
    if conclusion.note is None:
        return f"The model ended its reply {when}."
    # More room helps only where it was the limit that ended the reply.
    return f"{conclusion.note} That was {when}: {_MORE_ROOM}." if conclusion.at_limit else conclusion.note


async def _read(response: HttpResponse, body: bytearray, limit: int, clocks: Clocks) -> None:
    """Append what comes, up to ``limit`` bytes; servers keep a connection alive with white space between them."""
    async for chunk in response.chunks:
        output = bool(chunk) and not chunk.isspace()
        clocks.tick(int(output), output=output)
        body += chunk[: limit - len(body)]
        if len(body) >= limit:
            break


def _headers(adapter: Adapter) -> Mapping[str, str]:
    return {"user-agent": f"penguin-harness/{VERSION}", **adapter.headers()}


def _with_digest(outcome: LLMOutcome, body: bytes) -> LLMOutcome:
    import hashlib  # noqa: PLC0415 - loads OpenSSL, which nothing before the first request needs

    digest = hashlib.sha256(body).hexdigest()
    return LLMOutcome(outcome.status, outcome.error, digest, outcome.cut_off, outcome.note)


def _client_type(config: ModelConfig) -> str:
    named = config.client_type or catalog.usual_client_type(config.provider, config.model_id, config.base_url)
    client_type = ALIASES.get(named or "", named or "openai-chat")
    if client_type not in ADAPTERS:
        allowed = ", ".join(sorted({*ADAPTERS, *(alias for alias, target in ALIASES.items() if target in ADAPTERS)}))
        raise ConfigError(
            f"client_type {named!r} of {config.provider}/{config.model_id} is not available; allowed: {allowed}"
        )
    return client_type


def _adapter_factory(config: ModelConfig) -> AdapterFactory:
    client_type = _client_type(config)
    if unfit := unfit_setting(config, client_type):
        raise ConfigError(f"{unfit.setting} of {config.provider}/{config.model_id}: {unfit.why}")
    return ADAPTERS[client_type]()


def _base_url(config: ModelConfig) -> str:
    provider = catalog.provider(config.provider)
    url = config.base_url or (provider.base_url if provider else None)
    if url is None:
        raise ConfigError(
            f"no base_url for {config.provider}/{config.model_id}: the catalogue does not know {config.provider!r},"
            " so put `base_url` into its [[models]] entry"
        )
    if urlsplit(url).scheme not in {"http", "https"}:
        shown = url.rpartition("@")[2]  # a password may stand before it (L17)
        raise ConfigError(
            f"base_url of {config.provider}/{config.model_id} must begin with http:// or https://: {shown}"
        )
    return url


def _place(config: ModelConfig, base_url: str) -> Place:
    parts = urlsplit(base_url)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
    secrets = tuple(secret for secret in (config.api_key, parts.password) if secret)
    variables = key_variables_of(config.provider)
    place = Place(config.provider, config.model_id, bare, variables[0] if variables else None, secrets)
    return replace(place, config_file=config.config_file) if config.config_file else place
