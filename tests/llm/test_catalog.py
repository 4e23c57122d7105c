from __future__ import annotations

import datetime as dt
import subprocess
import sys

import pytest

from penguin.agent.models import choose_model
from penguin.llm import catalog
from penguin.llm.credentials import missing_key, resolve_api_key
from penguin.llm.providers.openai_chat import chat_settings
from penguin.protocol.errors import ConfigError, CredentialError
from penguin.protocol.interfaces import ModelConfig
from penguin.state.project import ProjectConfig


def test_L15_a_model_is_a_pair() -> None:
    known = catalog.lookup("openai", "gpt-5")
    assert known is not None
    assert known.context_window == 400_000
    assert catalog.lookup("openrouter", "gpt-5") is None
    assert catalog.lookup("openai", "gpt-5 ") is None


@pytest.mark.parametrize(
    ("provider", "dated", "plain"),
    [
        ("openai", "gpt-5-2025-08-07", "gpt-5"),
        ("openai", "gpt-4.1-2025-04-14", "gpt-4.1"),
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
    ],
)
def test_L15_a_dated_name_is_the_model_it_dates(provider: str, dated: str, plain: str) -> None:
    known, own = catalog.lookup(provider, dated), catalog.lookup(provider, plain)
    assert known is not None
    assert own is not None
    assert known.model_id == dated
    assert (known.context_window, known.client_type, known.pricing) == (
        own.context_window,
        own.client_type,
        own.pricing,
    )


@pytest.mark.parametrize(
    "model_id", ["gpt-5-2025", "gpt-5-2025-0807", "gpt-6-2025-08-07", "-2025-08-07", "gpt-5-99999999"]
)
def test_L15_what_is_no_date_is_another_model(model_id: str) -> None:
    assert catalog.lookup("openai", model_id) is None


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


# ---------------------------------------------------------------- models of others


@pytest.mark.parametrize(
    ("passed_on", "provider", "own"),
    [
        ("anthropic/claude-sonnet-5", "anthropic", "claude-sonnet-5"),
        ("anthropic/claude-sonnet-4.6", "anthropic", "claude-sonnet-4-6"),
        ("openai/gpt-5.6", "openai", "gpt-5.6"),
        ("google/gemini-3.5-flash", "google", "gemini-3.5-flash"),
        ("deepseek/deepseek-v4-pro", "deepseek", "deepseek-v4-pro"),
        ("qwen/qwen3-max", "qwen", "qwen3-max"),
        ("z-ai/glm-4.7", "zai", "glm-4.7"),
        ("moonshotai/kimi-k2.6", "moonshot", "kimi-k2.6"),
        ("minimax/minimax-m2.5", "minimax", "MiniMax-M2.5"),
    ],
)
def test_L15_openrouter_has_what_is_known_of_the_vendors_model(passed_on: str, provider: str, own: str) -> None:
    known, vendors = catalog.lookup("openrouter", passed_on), catalog.lookup(provider, own)
    assert known is not None
    assert vendors is not None
    assert (known.provider, known.model_id, known.checked) == ("openrouter", passed_on, vendors.checked)
    assert (known.context_window, known.max_output) == (vendors.context_window, vendors.max_output)
    assert (known.vision, known.pricing) == (vendors.vision, vendors.pricing)
    # Protocol and control are OpenRouter's own.
    assert (known.client_type, known.thinking_control, known.chat_thinks_with_tools) == (None, None, True)


def test_L16_through_openrouter_a_model_that_must_think_is_not_told_not_to() -> None:
    must, may, never = (
        chat_settings(ModelConfig("openrouter", name)).thinking_levels
        for name in ("openai/gpt-5", "anthropic/claude-opus-5", "openai/gpt-4.1")
    )
    assert must == ("low", "medium", "high")
    assert may == ("none", "low", "medium", "high", "xhigh")
    assert never == ()


def test_L15_a_variant_at_openrouter_has_a_window_and_a_price_nobody_knows() -> None:
    known = catalog.lookup("openrouter", "moonshotai/kimi-k2.6:free")
    assert known is not None
    assert known.vision
    assert (known.context_window, known.max_output, known.pricing) == (None, None, None)


@pytest.mark.parametrize("model_id", ["claude-sonnet-5", "nobody/claude-sonnet-5", "openai/claude-sonnet-5", "openai/"])
def test_L15_the_vendor_belongs_to_the_name_at_openrouter(model_id: str) -> None:
    assert catalog.lookup("openrouter", model_id) is None
    assert catalog.lookup("custom", "anthropic/claude-sonnet-5") is None


@pytest.mark.parametrize(
    ("provider", "model_id", "vision"),
    [
        ("ollama", "qwen3:8b", False),
        ("ollama", "qwen3-coder:30b", False),
        ("lmstudio", "qwen/qwen3-30b-a3b-2507", False),
        ("vllm", "Qwen/Qwen3-VL-8B-Instruct", True),
        ("ollama", "llama3.1:8b", False),
        ("ollama", "llama3.2-vision:11b", True),
        ("vllm", "meta-llama/Llama-3.3-70B-Instruct", False),
        ("lmstudio", "openai/gpt-oss-20b", False),
        ("llamacpp", "gpt-oss-20b-mxfp4.gguf", False),
        ("ollama", "gemma3", True),
        ("ollama", "gemma3:1b", False),
        ("vllm", "google/gemma-3-12b-it", True),
        ("ollama", "mistral-small3.2:24b", True),
        ("ollama", "mistral-small:24b", False),
        ("vllm", "mistralai/Mistral-Small-3.2-24B-Instruct-2506", True),
        ("ollama", "deepseek-r1:8b", False),
        ("lmstudio", "deepseek/deepseek-r1-0528-qwen3-8b", False),
    ],
)
def test_L15_common_open_models_are_known_on_servers_of_ones_own(provider: str, model_id: str, vision: bool) -> None:
    known = catalog.lookup(provider, model_id)
    assert known is not None
    assert (known.provider, known.model_id, known.vision) == (provider, model_id, vision)
    assert known.context_window == 32_768, "what is loaded, not what the model could read"
    assert known.pricing == catalog.Pricing(0, 0, 0)
    assert known.checked <= dt.date.today()  # noqa: DTZ011 - a day is enough
    assert known.thinking_levels == (("low", "medium", "high") if "gpt-oss" in model_id else ())
    assert known.tool_calls == ("text" if "gemma" in model_id or "deepseek-r1" in model_id else None)
    assert catalog.lookup("custom", model_id) is None, "only where nothing else can be behind the address"


@pytest.mark.parametrize(
    "model_id",
    [
        *(
            "llava-llama3:8b",
            "llama3-llava-next-8b",
            "llava-hf/llama3-llava-next-8b-hf",
            "openbmb/MiniCPM-Llama3-V-2_5",
        ),
        *("Qwen3-30B-VL", "nvidia/Llama-3.1-Nemotron-Nano-VL-8B-V1", "OpenGVLab/InternVL3_5-GPT-OSS-20B-A4B-Preview"),
        *("llama-3-vision-alpha", "Qwen/Qwen3-Omni-30B-A3B-Instruct", "Hermes-3-Llama-3.1-8B"),
        *("meta-llama/Llama-3.2-11B-Instruct", "llama3.2:90b"),
        *("gpt-oss:120b-cloud", "qwen3-coder:480b-cloud", "qwen3-vl:235b-cloud"),
    ],
)
def test_L14_eyes_and_clouds_are_not_taken_for_what_their_names_contain(model_id: str) -> None:
    for server in ("ollama", "lmstudio", "llamacpp", "vllm"):
        assert catalog.lookup(server, model_id) is None


@pytest.mark.parametrize("model_id", ["qwen3_vl:8b", "qwen3vl-8b-instruct", "hf.co/unsloth/Qwen3-VL-8B-GGUF:Q4_K_M"])
def test_L14_eyes_are_seen_however_they_are_written(model_id: str) -> None:
    known = catalog.lookup("ollama", model_id)
    assert known is not None
    assert known.vision


@pytest.mark.parametrize(
    "model_id",
    [
        *(
            "hf.co/bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M",
            "qwen3-30b-a3b-thinking-2507-mlx-4bit",
            "gpt-oss-20b",
        ),
        *(
            "/models/Qwen3-0.6B-UD-IQ2_XXS.gguf",
            r"C:\models\Qwen3-8B-Q4_K_M.gguf",
            "DeepSeek-R1-Distill-Qwen-7B-AWQ",
            "qwen3-coder:30b",
            "llama3.3:latest",
        ),
        *("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "lmstudio-community/Qwen3-8B-MLX-bf16"),
    ],
)
def test_L14_usual_builds_of_a_model_without_eyes_have_none(model_id: str) -> None:
    known = catalog.lookup("vllm", model_id)
    assert known is not None
    assert known.vision is False


@pytest.mark.parametrize("model_id", ["Llama-3-8B-V", "qwen3-8b-somebodys-own", "llama3-gradient:8b"])
def test_L14_whether_a_derived_model_sees_nobody_knows(model_id: str) -> None:
    known = catalog.lookup("ollama", model_id)
    assert known is not None
    assert known.vision is None
    assert known.context_window == 32_768
    choice = choose_model(ProjectConfig(), "ollama", model_id)
    assert choice.vision, "as for a model that is not listed"


@pytest.mark.parametrize(
    "model_id", ["small", "qwen3.5:9b", "qwen3-embedding:8b", "gemma3n:e4b", "medgemma-3-4b", "llama4:scout", "qwen2"]
)
def test_L15_what_only_resembles_an_open_model_is_not_known(model_id: str) -> None:
    assert catalog.lookup("ollama", model_id) is None
