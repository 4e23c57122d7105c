"""Which protocol an address speaks, told from servers that answer as the real ones do."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from tests.support.http_table import Table, serving_table

from penguin.llm.probing import detect, find_local_servers
from penguin.llm.transport import TransportError
from penguin.testing import serve_in_thread

pytestmark = pytest.mark.anyio

OPENAI_LIST = {"object": "list", "data": [{"id": "small", "object": "model"}, {"id": "large", "object": "model"}]}
ANTHROPIC_LIST = {"data": [{"type": "model", "id": "claude-x", "display_name": "X"}], "has_more": False}
GEMINI_LIST = {
    "models": [
        {"name": "models/gemini-x", "supportedGenerationMethods": ["generateContent", "countTokens"]},
        {"name": "models/embedding-x", "supportedGenerationMethods": ["embedContent"]},
    ]
}
OPENAI_REFUSAL = {"error": {"message": "Missing bearer", "type": "invalid_request_error", "code": None, "param": None}}
ANTHROPIC_REFUSAL = {"type": "error", "error": {"type": "authentication_error", "message": "x-api-key is required"}}
GEMINI_REFUSAL = {"error": {"code": 403, "message": "no identity", "status": "PERMISSION_DENIED"}}
NOT_ALLOWED = (405, {"detail": "Method Not Allowed"})

VLLM = Table({"/v1/models": (200, OPENAI_LIST), "/v1/chat/completions": NOT_ALLOWED, "/v1/responses": NOT_ALLOWED})
LLAMACPP = Table({"/v1/models": (200, OPENAI_LIST), "/models": (200, OPENAI_LIST)}, (404, {"error": {"code": 404}}))
EMPTY_OLLAMA = Table({"/v1/models": (200, {"object": "list", "data": None})}, (404, b"404 page not found"))
LMSTUDIO = Table({"/v1/models": (200, OPENAI_LIST)}, (200, {"error": "Unexpected endpoint or method."}))
WITHOUT_VERSION = Table({"/models": (200, OPENAI_LIST)})
ANTHROPIC = Table({"/v1/models": (200, ANTHROPIC_LIST), "/v1/messages": NOT_ALLOWED})
GOOGLE = Table({"/v1beta/models": (200, GEMINI_LIST)})
LOCKED_OPENAI = Table({}, (401, OPENAI_REFUSAL))
LOCKED_ANTHROPIC = Table({}, (401, ANTHROPIC_REFUSAL))
LOCKED_GOOGLE = Table({"/v1beta/models": (403, GEMINI_REFUSAL)})
ONLY_ENDPOINTS = Table({"/v1/chat/completions": NOT_ALLOWED})


def fresh(table: Table, **more: Any) -> Table:
    return Table(table.routes, table.otherwise, **more)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (VLLM, [("openai-chat", "/v1", "sure"), ("openai-responses", "/v1", "likely")]),
        (LLAMACPP, [("openai-chat", "/v1", "likely")]),
        (EMPTY_OLLAMA, [("openai-chat", "/v1", "likely")]),
        (LMSTUDIO, [("openai-chat", "/v1", "likely")]),
        (WITHOUT_VERSION, [("openai-chat", "", "likely")]),
        (ANTHROPIC, [("anthropic-messages", "", "sure")]),
        (GOOGLE, [("gemini", "", "sure")]),
        (LOCKED_OPENAI, [("openai-chat", "/v1", "likely")]),
        (LOCKED_ANTHROPIC, [("anthropic-messages", "", "likely")]),
        (LOCKED_GOOGLE, [("gemini", "", "likely")]),
        (ONLY_ENDPOINTS, [("openai-chat", "/v1", "possible")]),
        (Table({}), []),
        (Table({}, (200, b"<html>Welcome to nginx</html>")), []),
        (Table({}, (200, b"[" * 100_000)), []),
        (Table({}, (200, {"data": []})), []),
        (Table({}, (401, b"go away")), []),
        (Table({}, (500, {"error": "broken"})), []),
    ],
    ids=lambda value: "" if isinstance(value, list) else None,
)
async def test_L7_a_protocol_is_told_from_lists_and_refusals(
    table: Table, expected: list[tuple[str, str, str]]
) -> None:
    with serving_table(fresh(table)) as server:
        found = await detect(server.url)
        assert [(each.client_type, each.base_url, each.certainty) for each in found.candidates] == [
            (client_type, f"{server.url}{path}", certainty) for client_type, path, certainty in expected
        ]


async def test_L7_detection_only_ever_gets(anyio_backend: str) -> None:
    with serving_table(fresh(VLLM)) as server:
        await detect(server.url, api_key="k")
        assert {method for method, _, _ in server.requests} == {"GET"}
        assert len(server.requests) <= 12


async def test_L7_no_reply_of_a_script_is_used_up() -> None:
    with serve_in_thread(["never asked for"]) as provider:
        found = await detect(provider.base_url)
        assert found.candidates[0].client_type == "openai-chat"
        assert found.candidates[0].models == ("scripted",)
        assert all(request.method == "GET" for request in provider.requests)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions", "/v1/models"])
async def test_an_address_may_be_the_host_the_base_or_an_endpoint(path: str) -> None:
    with serving_table(fresh(VLLM)) as server:
        found = await detect(f"{server.url}{path}")
        assert found.candidates[0].base_url == f"{server.url}/v1"


async def test_a_base_with_another_version_stays_as_it_is() -> None:
    with serving_table(Table({"/api/paas/v4/models": (200, OPENAI_LIST)})) as server:
        found = await detect(f"{server.url}/api/paas/v4/chat/completions")
        assert [each.base_url for each in found.candidates] == [f"{server.url}/api/paas/v4"]


async def test_models_are_listed_without_those_that_do_not_write() -> None:
    for table, models in (
        (VLLM, ("small", "large")),
        (ANTHROPIC, ("claude-x",)),
        (GOOGLE, ("gemini-x",)),
        (EMPTY_OLLAMA, ()),
    ):
        with serving_table(fresh(table)) as server:
            assert (await detect(server.url)).candidates[0].models == models


@pytest.mark.parametrize(
    ("table", "header", "value"),
    [
        (VLLM, "authorization", "Bearer k"),
        (ANTHROPIC, "x-api-key", "k"),
        (GOOGLE, "x-goog-api-key", "k"),
    ],
    ids=["openai", "anthropic", "gemini"],
)
async def test_L17_a_key_goes_into_the_header_of_each_protocol_and_into_no_url(
    table: Table, header: str, value: str
) -> None:
    with serving_table(fresh(table, wants=(header, value))) as server:
        without, with_key = await detect(server.url), await detect(server.url, api_key="k")
        assert [each.certainty for each in with_key.candidates][:1] == ["sure"]
        assert "it wants a key to say more" in without.notes
        assert all("k" not in path.rpartition("?")[2] or "?" not in path for _, path, _ in server.requests)


async def test_a_redirect_is_said_and_not_followed() -> None:
    with serving_table(Table({}, (302, b""))) as server:
        found = await detect(server.url)
    assert found.candidates == ()
    assert "redirects to https://elsewhere.example/v1" in found.notes[0]


async def test_nobody_there_is_an_error_and_a_silent_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(TransportError, match="no answer within"):
            await detect(f"http://127.0.0.1:{port}", seconds=0.2)
    with pytest.raises(TransportError):
        await detect(f"http://127.0.0.1:{port}")


async def test_local_servers_are_found_side_by_side_and_other_services_are_not() -> None:
    with (
        serving_table(fresh(LLAMACPP)) as llama,
        serving_table(Table({}, (200, b"<html>"))) as web,
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.create_server(("127.0.0.1", 0)) as closed,
    ):
        gone = closed.getsockname()[1]
        closed.close()
        found = await find_local_servers(
            {
                "ollama": f"http://127.0.0.1:{gone}/v1",
                "lmstudio": f"{web.url}/v1",
                "llamacpp": f"{llama.url}/v1",
                "vllm": f"http://127.0.0.1:{silent.getsockname()[1]}/v1",
            },
            seconds=0.3,
        )
    assert [(each.provider, each.models) for each in found] == [("llamacpp", ("small", "large"))]


async def test_a_local_server_that_wants_a_key_is_found_and_a_web_page_with_a_password_is_not() -> None:
    with (
        serving_table(Table({}, (401, {"error": "Unauthorized"}))) as vllm,
        serving_table(Table({}, (401, {"error": {"message": "Invalid API Key", "code": 401}}))) as llama,
        serving_table(Table({}, (403, b"<html>log in</html>"))) as web,
        serving_table(Table({}, (500, {"error": "broken"}))) as broken,
    ):
        places = {"vllm": vllm, "llamacpp": llama, "ollama": web, "lmstudio": broken}
        found = await find_local_servers({name: f"{table.url}/v1" for name, table in places.items()})
    assert [(each.provider, each.models, each.wants_key) for each in found] == [
        ("vllm", (), True),
        ("llamacpp", (), True),
    ]


@pytest.mark.parametrize("strange", [None, 7, "", ["a"]])
async def test_what_is_no_name_does_not_become_the_name_of_a_model(strange: object) -> None:
    listed = {"object": "list", "data": [{"id": strange}, {"id": "small"}, "large", {}]}
    with serving_table(Table({"/v1/models": (200, listed)})) as server:
        (found,) = await find_local_servers({"ollama": f"{server.url}/v1"})
        assert found.models == ("small",)
        assert (await detect(server.url)).candidates[0].models == ("small",)
