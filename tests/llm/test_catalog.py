from __future__ import annotations

import datetime as dt
import subprocess
import sys

import pytest

from penguin.llm import catalog
from penguin.llm.credentials import missing_key, resolve_api_key
from penguin.protocol.errors import ConfigError, CredentialError


def test_L15_a_model_is_a_pair() -> None:
    known = catalog.lookup("openai", "gpt-5")
    assert known is not None
    assert known.context_window == 400_000
    assert catalog.lookup("openrouter", "gpt-5") is None
    assert catalog.lookup("openai", "gpt-5 ") is None


def test_L7_models_of_openai_that_reason_speak_responses() -> None:
    ours = [entry for entry in catalog.models() if entry.provider == "openai"]
    assert len(ours) > 5
    assert all((entry.client_type == "openai-responses") is bool(entry.thinking_levels) for entry in ours)


@pytest.mark.parametrize("entry", catalog.models(), ids=lambda entry: f"{entry.provider}/{entry.model_id}")
def test_L15_every_model_is_plausible_and_dated(entry: catalog.ModelEntry) -> None:
    assert catalog.provider(entry.provider) is not None
    assert dt.date(2026, 1, 1) <= entry.checked <= dt.date.today()  # noqa: DTZ011 - a day is enough
    assert entry.context_window is None or entry.context_window >= 4_096
    assert entry.max_output is None or entry.max_output <= (entry.context_window or entry.max_output)
    if entry.pricing is not None:
        assert 0 < entry.pricing.cache_read <= entry.pricing.cache_write <= entry.pricing.output


def test_L15_no_pair_twice() -> None:
    pairs = [(entry.provider, entry.model_id) for entry in catalog.models()]
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize("name", catalog.providers())
def test_L15_every_provider_has_an_address(name: str) -> None:
    entry = catalog.providers()[name]
    assert entry.base_url.startswith("http://localhost:" if entry.local else "https://")
    assert entry.needs_key != entry.local
    assert not entry.base_url.endswith("/")


def test_key_variables() -> None:
    assert {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY"} <= catalog.key_variables()


def test_the_catalogue_is_read_late() -> None:
    code = "import sys, penguin.llm.model; sys.exit(bool({'tomllib', 'httpx2', 'hashlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("entry", "environ", "expected"),
    [
        ("  mine ", {"GEMINI_API_KEY": "a"}, "mine"),
        (None, {"GEMINI_API_KEY": "a", "GOOGLE_API_KEY": "b"}, "a"),
        ("", {"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": "b"}, "b"),
        (None, {"OPENAI_API_KEY": "c"}, None),
    ],
)
def test_L17_which_key(entry: str | None, environ: dict[str, str], expected: str | None) -> None:
    assert resolve_api_key("google", entry, environ) == expected


def test_L17_an_unknown_provider_has_only_its_entry() -> None:
    assert resolve_api_key("custom", None, {"OPENAI_API_KEY": "c"}) is None
    assert resolve_api_key("custom", "k", {}) == "k"


def test_L17_the_error_names_both_places() -> None:
    error = missing_key("openai", "gpt-5")
    assert isinstance(error, CredentialError)
    assert isinstance(error, ConfigError)
    for part in ("OPENAI_API_KEY", "openai/gpt-5", "api_key", ".project_config.toml"):
        assert part in str(error)
