"""Which protocol an address speaks and which models it has, found out without a single generation.

Only ``GET`` is sent: for the lists of models, which every protocol words in its own way, and to the
addresses that take a ``POST``, where a server that knows them refuses in another way than where it
knows nothing. A key goes along only when one is given, in the header of the protocol that is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import anyio
from msgspec import Struct

from penguin.llm import model_lists as lists
from penguin.llm.model_lists import REFUSED, Answer
from penguin.llm.transport import HttpRequest, HttpTransport, Transport, TransportError

Certainty: TypeAlias = Literal["sure", "likely", "possible"]

_RANK: Mapping[Certainty, int] = {"sure": 0, "likely": 1, "possible": 2}
_VERSIONED = re.compile(r"/v\d+(alpha|beta)?$")
_ENDPOINTS = ("/chat/completions", "/responses", "/messages", "/models")
_LARGEST_LIST = 8 * 1024 * 1024
_NOBODY = "/penguin-asks-what-is-not-there"
_OK, _UNSUITED, _NOT_FOUND = 200, 405, 404


class Candidate(Struct, frozen=True):
    """A protocol an address may speak: ``base_url`` is what that protocol's clients want to be told."""

    client_type: str
    base_url: str
    certainty: Certainty
    evidence: str
    models: tuple[str, ...] = ()


class Detection(Struct, frozen=True):
    """What was found: the likeliest first. ``notes`` are remarks for a person, such as a key that is missing."""

    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()


class LocalServer(Struct, frozen=True):
    """A server on this machine at the usual place of ``provider``; one that ``wants_key`` lists no models without."""

    provider: str
    base_url: str
    models: tuple[str, ...]
    wants_key: bool = False


async def detect(
    url: str, *, api_key: str | None = None, seconds: float = 10.0, transport: Transport | None = None
) -> Detection:
    """Ask what is served at ``url``, which may name the host, the base, or an endpoint.

    Args:
        url: begins with ``http://`` or ``https://``.
        api_key: sent along, where the lists of models want one.
        seconds: for each of some eight requests, which go out side by side.
        transport: another than the usual one.

    Raises:
        TransportError: nobody answers there.

    Example::

        found = await detect("http://127.0.0.1:8080")
        found.candidates[0].client_type, found.candidates[0].base_url  # "openai-chat", "http://127.0.0.1:8080/v1"
    """
    asking = _Asking(transport or HttpTransport(), seconds)
    try:
        answers = await asking.all(_questions(url, api_key))
    finally:
        await asking.aclose()
    return _judged(url, answers)


async def find_local_servers(places: Mapping[str, str], *, seconds: float = 0.5) -> list[LocalServer]:
    """Those of the given servers (provider to base URL) that are running, asked side by side.

    ``seconds`` bounds each of the two steps: a connection, then the list of models.
    """
    transport = HttpTransport()
    asking = _Asking(transport, seconds)
    found: dict[str, LocalServer] = {}

    async def look(provider: str, base_url: str) -> None:
        # A refused connection answers at once, and costs no import of an HTTP library.
        if not await _listens(base_url, seconds):
            return
        answer = await asking.get(f"{base_url}/models", {})
        if not isinstance(answer, Answer):
            return
        if (models := lists.openai_models(answer)) is not None:
            found[provider] = LocalServer(provider, base_url, models)
        elif lists.wants_key(answer):
            found[provider] = LocalServer(provider, base_url, (), wants_key=True)

    try:
        async with anyio.create_task_group() as tasks:
            for provider, base_url in places.items():
                tasks.start_soon(look, provider, base_url)
    finally:
        await transport.aclose()
    return [found[provider] for provider in places if provider in found]


async def _listens(base_url: str, seconds: float) -> bool:
    parts = urlsplit(base_url)
    try:
        with anyio.move_on_after(seconds):
            async with await anyio.connect_tcp(parts.hostname or "", parts.port or 80):
                return True
    except OSError:
        pass
    return False


# ---------------------------------------------------------------- asking


_Reply: TypeAlias = "Answer | str"
"""An answer, or in words why there is none."""

_Question: TypeAlias = tuple[str, str, Mapping[str, str]]
"""What it is about, the URL, the headers."""


class _Asking:
    def __init__(self, transport: Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds

    async def all(self, questions: Sequence[_Question]) -> dict[str, _Reply]:
        """The replies by what they are about.

        Raises:
            TransportError: there is no answer at all.
        """
        replies: dict[str, _Reply] = {}

        async def ask(about: str, url: str, headers: Mapping[str, str]) -> None:
            replies[about] = await self.get(url, headers)

        async with anyio.create_task_group() as tasks:
            for question in questions:
                tasks.start_soon(ask, *question)
        if not any(isinstance(reply, Answer) for reply in replies.values()):
            raise TransportError(next(str(reply) for reply in replies.values()))
        return replies

    async def get(self, url: str, headers: Mapping[str, str]) -> _Reply:
        try:
            with anyio.fail_after(self._seconds):
                request = HttpRequest("GET", url, {"accept": "application/json", **headers}, b"")
                async with self._transport.stream(request) as response:
                    body = b""
                    async for chunk in response.chunks:
                        body += chunk
                        if len(body) > _LARGEST_LIST:
                            break
                    return Answer(response.status, response.headers.get("location", ""), body)
        except TransportError as error:
            return str(error)
        except TimeoutError:
            return f"{urlsplit(url).netloc}: no answer within {self._seconds:g} s"

    async def aclose(self) -> None:
        await self._transport.aclose()


def _questions(url: str, api_key: str | None) -> list[_Question]:
    bearer = {"authorization": f"Bearer {api_key}"} if api_key else {}
    anthropic = {"anthropic-version": "2023-06-01", **({"x-api-key": api_key} if api_key else {})}
    google = {"x-goog-api-key": api_key} if api_key else {}
    host = _host_of(url)
    return [
        *((f"openai list {base}", f"{base}/models", bearer) for base in _openai_bases(url)),
        *((f"chat {base}", f"{base}/chat/completions", bearer) for base in _openai_bases(url)),
        *((f"responses {base}", f"{base}/responses", bearer) for base in _openai_bases(url)),
        *((f"nothing {base}", f"{base}{_NOBODY}", bearer) for base in _openai_bases(url)),
        ("anthropic list", f"{host}/v1/models", anthropic),
        ("messages", f"{host}/v1/messages", anthropic),
        ("nothing", f"{host}/v1{_NOBODY}", anthropic),
        ("gemini list", f"{host}/v1beta/models", google),
    ]


def _host_of(url: str) -> str:
    """The address without endpoint and version: what Anthropic's and Google's clients call the base URL."""
    base = _base_of(url)
    return base[: -len(found[0])] if (found := _VERSIONED.search(base)) else base


def _openai_bases(url: str) -> list[str]:
    """With its version as it stands; without one, the usual one first, since most servers want it."""
    base = _base_of(url)
    return [base] if _VERSIONED.search(base) else [f"{base}/v1", base]


def _base_of(url: str) -> str:
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        path = path.removesuffix(endpoint)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


# ---------------------------------------------------------------- judging


def _judged(url: str, replies: Mapping[str, _Reply]) -> Detection:
    answers = {about: reply for about, reply in replies.items() if isinstance(reply, Answer)}
    found: list[Candidate] = []
    for base in _openai_bases(url):
        found += _openai(base, answers)
        if found:
            break
    found += _anthropic(_host_of(url), answers)
    found += _gemini(_host_of(url), answers)
    found.sort(key=lambda candidate: _RANK[candidate.certainty])
    return Detection(tuple(found), tuple(_notes(answers.values())))


def _openai(base: str, answers: Mapping[str, Answer]) -> list[Candidate]:
    listed = lists.models_in(answers.get(f"openai list {base}"), lists.openai_models)
    refused = lists.is_refusal(answers.get(f"openai list {base}"), lists.openai_refuses)
    control = answers.get(f"nothing {base}")
    chat, responses = (_is_there(answers.get(f"{name} {base}"), control) for name in ("chat", "responses"))
    if listed is None and not refused and not (chat or responses):
        return []
    what = "its list of models" if listed is not None else "its refusal" if refused else "its endpoints"
    certainty: Certainty = "possible" if listed is None and not refused else "sure" if chat else "likely"
    models = listed or ()
    found = (
        [Candidate("openai-chat", base, certainty, f"{what} is worded like OpenAI's", models)]
        if chat or not responses
        else []
    )
    if responses:
        found.append(
            Candidate(
                "openai-responses",
                base,
                "likely" if listed is not None else "possible",
                f"{base}/responses is there",
                models,
            )
        )
    return found


def _anthropic(host: str, answers: Mapping[str, Answer]) -> list[Candidate]:
    listed = lists.models_in(answers.get("anthropic list"), lists.anthropic_models)
    if listed is not None:
        return [Candidate("anthropic-messages", host, "sure", "its list of models is worded like Anthropic's", listed)]
    if any(lists.is_refusal(answers.get(about), lists.anthropic_refuses) for about in ("anthropic list", "messages")):
        return [Candidate("anthropic-messages", host, "likely", "it refuses in Anthropic's words")]
    if _is_there(answers.get("messages"), answers.get("nothing")):
        return [Candidate("anthropic-messages", host, "possible", f"{host}/v1/messages is there")]
    return []


def _gemini(host: str, answers: Mapping[str, Answer]) -> list[Candidate]:
    listed = lists.models_in(answers.get("gemini list"), lists.gemini_models)
    if listed is not None:
        return [Candidate("gemini", host, "sure", "its list of models is worded like Google's", listed)]
    if lists.is_refusal(answers.get("gemini list"), lists.gemini_refuses):
        return [Candidate("gemini", host, "likely", "it refuses in Google's words")]
    return []


def _is_there(answer: Answer | None, control: Answer | None) -> bool:
    """Whether a server knows an address that takes no ``GET``: it says so, or asks for a key only there."""
    if answer is None or control is None or answer.status == control.status:
        return False
    return answer.status == _UNSUITED or (answer.status in {*REFUSED, _OK} and control.status == _NOT_FOUND)


def _notes(given: Iterable[Answer]) -> list[str]:
    answers = list(given)
    statuses = {answer.status for answer in answers}
    moved = {answer.location for answer in answers if answer.location and 300 <= answer.status < 400}  # noqa: PLR2004
    notes = [f"it redirects to {location}, and redirects are not followed" for location in sorted(moved)]
    if statuses & {401, 403}:
        notes.append("it wants a key to say more")
    return notes
