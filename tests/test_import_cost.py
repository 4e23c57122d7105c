"""K1, K11: what an import brings along. How long it takes is measured by bench/startup.py."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    *("httpx", "httpx2", "httpcore2", "h11", "requests", "aiohttp"),
    *("openai", "anthropic", "google.genai", "mcp"),
    *("fastapi", "starlette", "uvicorn"),
    *("click", "rich", "prompt_toolkit"),
    *("sqlalchemy", "tree_sitter", "trio", "penguin.testing"),
}


def modules_after(code: str) -> set[str]:
    """Every module a fresh Python holds after ``code``, which must print nothing."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    loaded: list[str] = json.loads(done.stdout)
    return set(loaded)


def test_K1_importing_penguin_loads_nothing_of_it_but_the_package_itself() -> None:
    loaded = modules_after("import penguin")
    assert not loaded & {*HEAVY, "asyncio", "anyio", "msgspec", "ssl"}
    assert {name for name in loaded if name.startswith("penguin")} == {"penguin"}


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import penguin\nfor name in penguin.__all__: getattr(penguin, name)", id="every public name"),
        pytest.param("import penguin.cli.main", id="the command's entry"),
    ],
)
def test_K1_neither_a_http_client_nor_a_framework_comes_with(code: str) -> None:
    assert not modules_after(code) & HEAVY


def test_K11_the_version_is_told_without_the_command_line_library() -> None:
    loaded = modules_after(
        "import contextlib, io\nfrom penguin.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()) as said: assert main(['--version']) == 0\n"
        "assert said.getvalue().startswith('penguin ')"
    )
    assert not loaded & {*HEAVY, "asyncio", "anyio", "msgspec", "importlib.metadata"}


def test_K11_a_model_brings_only_the_protocol_it_speaks_and_no_client_before_its_first_request() -> None:
    loaded = modules_after(
        "from penguin.llm.model import create_model\n"
        "from penguin.protocol.interfaces import ModelConfig\n"
        "create_model(ModelConfig('custom', 'm', client_type='openai-chat', base_url='http://127.0.0.1:1/v1'))"
    )
    assert not loaded & HEAVY
    assert "penguin.llm.providers.openai_chat" in loaded
    assert not {name for name in loaded if name.startswith("penguin.llm.providers.") and "anthropic" in name}
    assert "penguin.llm.providers.openai_responses" not in loaded


def test_K5_the_fakes_load_no_http_client_either() -> None:
    assert not modules_after("import penguin.testing") & (HEAVY - {"penguin.testing"})
