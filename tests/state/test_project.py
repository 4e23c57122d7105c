from __future__ import annotations

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penguin.protocol.errors import ConfigError
from penguin.state.project import ModelEntry, ModelRef, Pricing, ProjectConfig, ProjectConfigFile

WRITTEN_BY_HAND = """\
# what this project uses
name = "garden"   # shown in the list
mystery = 1

[default_model]   # the cheap one
provider = "openai"
model_id = "small"

[[models]]
provider = "openai"
model_id = "small"
api_key = "sk-secret-1"
odd = "kept"  # somebody's note

[models.pricing]
unit = "usd_per_mtok"
output = 4.0  # checked in spring

[[models]]
provider = "custom"
model_id = "big"

[budgets]
usd = 3
"""


@pytest.fixture
def config(tmp_path: Path) -> ProjectConfigFile:
    return ProjectConfigFile(tmp_path / "default_project" / ".project_config.toml")


def put(config: ProjectConfigFile, text: str) -> None:
    config.path.parent.mkdir(exist_ok=True)
    config.path.write_bytes(text.encode())


def entry(provider: str = "custom", model_id: str = "m", **values: Any) -> ModelEntry:
    return ModelEntry(provider=provider, model_id=model_id, **values)


# ---------------------------------------------------------------- reading


def test_S3_no_file_is_an_empty_configuration_and_makes_nothing(config: ProjectConfigFile) -> None:
    assert config.read() == ProjectConfig()
    assert config.list_models() == ()
    assert not config.path.parent.exists()


def test_S3_everything_the_file_can_say(config: ProjectConfigFile) -> None:
    put(
        config,
        """
name = "p"
vision_model = { provider = "a", model_id = "b" }
[default_model]
provider = "a"
model_id = "b"
[[models]]
provider = "a"
model_id = "b"
client_type = "ant-messages"
context_window = 200000
max_tokens = 8000
max_output = 64000
vision = true
display_name = "B"
pricing = { unit = "usd_per_mtok", cache_read = 0.3, cache_write = 3, output = 15 }
api_key = "k"
base_url = "http://127.0.0.1:1"
created_at = 2026-01-02T03:04:05Z
tool_calls = "text"
thinking_level = "low"
thinking_levels = ["none", "low"]
thinking_control = "budget"
extra_body = { top_k = 1 }
request_timeout_ms = 600000
[[command_policy.rules]]
name = "no"
pattern = "^rm "
enabled = false
[approvals]
mode = "read-only"
[sandbox]
mode = "workspace-write"
network = false
[commands]
allowed_variables = ["OPENAI_API_KEY", "MY_*"]
[budgets]
turns = 5
usd = 0.5
[fetch]
allowed_hosts = ["wiki.local", "localhost", "10.0.0.1", "192.168.0.0/16", "fd00::/8", "::1"]
""",
    )
    read = config.read()
    assert read.default_model == read.vision_model == ModelRef("a", "b")
    model = read.model(ModelRef("a", "b"))
    assert model is not None
    assert (model.client_type, model.context_window, model.max_tokens) == ("ant-messages", 200_000, 8_000)
    assert model.pricing == Pricing(cache_read=0.3, cache_write=3, output=15)
    assert (model.tool_calls, model.thinking_level, model.extra_body) == ("text", "low", {"top_k": 1})
    assert (model.max_output, model.thinking_levels, model.thinking_control) == (64_000, ("none", "low"), "budget")
    assert model.created_at.year == 2026
    assert read.command_policy.rules is not None
    assert not read.command_policy.rules[0].enabled
    assert (read.approvals.mode, read.sandbox.mode, read.sandbox.network) == ("read-only", "workspace-write", False)
    assert read.commands.allowed_variables == ("OPENAI_API_KEY", "MY_*")
    assert (read.budgets.turns, read.budgets.usd, read.budgets.seconds) == (5, 0.5, None)
    assert read.fetch.allowed_hosts == ("wiki.local", "localhost", "10.0.0.1", "192.168.0.0/16", "fd00::/8", "::1")
    assert config.unknown_keys() == []


def test_N12_an_absent_rule_list_differs_from_an_empty_one(config: ProjectConfigFile) -> None:
    put(config, "[command_policy]\n")
    assert config.read().command_policy.rules is None
    put(config, "[command_policy]\nrules = []\n")
    assert config.read().command_policy.rules == ()


def test_L17_the_repr_of_an_entry_hides_the_key() -> None:
    shown = repr(ProjectConfig(models=(entry(api_key="sk-secret-1"),)))
    assert "sk-secret-1" not in shown
    assert "api_key='(hidden)'" in shown


MODEL = '[[models]]\nprovider = "a"\nmodel_id = "b"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            MODEL + 'context_window = "eighty"\n',
            "4:1: models[0].context_window: found 'eighty' (text), expected a whole",
        ),
        (
            MODEL + "max_tokens = 0\n",
            "4:1: models[0].max_tokens: found 0 (a number), expected a whole number of at leas",
        ),
        (
            MODEL + 'thinking_levels = ["low", "much"]\n',
            "4:1: models[0].thinking_levels[1]: found 'much' (text), expected one of high, low, max",
        ),
        (
            MODEL + 'thinking_control = "willpower"\n',
            "4:1: models[0].thinking_control: found 'willpower' (text), expected one of adaptive, adaptive-between",
        ),
        (MODEL + "vision = 1\n", "4:1: models[0].vision: found 1 (a number), expected true or false"),
        (
            MODEL + 'client_type = "x"\n',
            "4:1: models[0].client_type: found 'x' (text), expected one of ant-messages, an",
        ),
        (MODEL + "api_key = 7654321\n", "4:1: models[0].api_key: found a number (not shown), expected text"),
        (
            MODEL + 'pricing.unit = "eur"\n',
            "4:9: models[0].pricing.unit: found 'eur' (text), expected one of usd_per_mtok",
        ),
        (
            MODEL + "\n[[models]]\nprovider = 'a'\n",
            "5:3: models[1].model_id: is missing; expected text that is not empty",
        ),
        (MODEL + MODEL, "4:3: models[1]: a/b is given twice; allowed is one entry per model"),
        (
            "[[models]]\nprovider = ''\nmodel_id = 'b'\n",
            "2:1: models[0].provider: found '' (text), expected text that is",
        ),
        ("models = 3\n", "1:1: models: found 3 (a number), expected a list"),
        ("\ndefault_model = 'a/b'\n", "2:1: default_model: found 'a/b' (text), expected a section with keys"),
        ("[sandbox]\nmode = true\n", "2:1: sandbox.mode: found true (a truth value), expected one of off, read-only"),
        (
            "[commands]\nallowed_variables = ['A-B']\n",
            "2:1: commands.allowed_variables[0]: found 'A-B', expected the name of a variable",
        ),
        (
            "[[command_policy.rules]]\nname = 'x'\npattern = '('\n",
            "3:1: command_policy.rules[0].pattern: found '(', expected a regular expression: missing )",
        ),
        *(
            (
                f"[fetch]\nallowed_hosts = ['ok.local', '{host}']\n",
                f"2:1: fetch.allowed_hosts[1]: found '{host}', expected the name of a host, an address, or a network",
            )
            for host in (
                "http://wiki.local",
                "wiki.local:80",
                "*.local",
                "",
                "10.0.0.0/33",
                "10.0.0.300",
                "a b",
                "a..b",
            )
        ),
        ("[fetch]\nallowed_hosts = 'wiki'\n", "2:1: fetch.allowed_hosts: found 'wiki' (text), expected a list"),
    ],
)
def test_D56_a_wrong_value_is_named_with_line_field_found_and_allowed(
    config: ProjectConfigFile, text: str, said: str
) -> None:
    put(config, text)
    with pytest.raises(ConfigError) as caught:
        config.read()
    assert str(caught.value).removeprefix(f"{config.path}:").startswith(said)
    assert "7654321" not in str(caught.value)
    with pytest.raises(ConfigError):
        config.add_model(entry())
    assert config.path.read_text() == text


def test_D56_the_config_is_a_directory(config: ProjectConfigFile) -> None:
    config.path.mkdir(parents=True)
    for attempt in (config.read, lambda: config.add_model(entry())):
        with pytest.raises(ConfigError, match="is a directory"):
            attempt()


def test_S2_misspelt_keys_can_be_listed(config: ProjectConfigFile) -> None:
    put(config, MODEL + "contxt_window = 1\n[sandbax]\nmode = 'off'\n")
    config.read()
    assert [str(problem).removeprefix(f"{config.path}:") for problem in config.unknown_keys()] == [
        "4:1: models[0].contxt_window: is not a known key and has no effect; did you mean context_window?",
        "5:2: sandbax: is not a known key and has no effect; did you mean sandbox?",
    ]


# ---------------------------------------------------------------- writing


def test_S3_the_first_model_makes_a_private_file(config: ProjectConfigFile) -> None:
    config.add_model(entry(base_url="http://127.0.0.1:1/v1", api_key="k", pricing=Pricing(output=2)), default=True)
    read = config.read()
    assert read.default_model == ModelRef("custom", "m")
    assert read.models[0].base_url == "http://127.0.0.1:1/v1"
    assert read.models[0].pricing == Pricing(output=2)
    assert read.models[0].created_at
    assert stat.S_IMODE(config.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.path.parent.stat().st_mode) == 0o700


def test_S2_an_edit_keeps_comments_order_and_unknown_keys(config: ProjectConfigFile) -> None:
    put(config, WRITTEN_BY_HAND)
    config.path.chmod(0o644)
    config.set_default(ModelRef("custom", "big"))
    expected = WRITTEN_BY_HAND.replace(
        'provider = "openai"\nmodel_id = "small"', 'provider = "custom"\nmodel_id = "big"', 1
    )
    assert config.path.read_text() == expected
    assert stat.S_IMODE(config.path.stat().st_mode) == 0o600

    config.add_model(entry("openai", "small", api_key="sk-2", context_window=9, pricing=Pricing(output=5)))
    expected = (
        expected.replace('"sk-secret-1"', '"sk-2"')
        .replace("somebody's note\n", "somebody's note\ncontext_window = 9\n")
        .replace("output = 4.0 ", "output = 5 ")
    )
    assert config.path.read_text() == expected


def test_S2_an_edit_keeps_bom_and_line_ends(config: ProjectConfigFile) -> None:
    put(config, "\ufeff" + WRITTEN_BY_HAND.replace("\n", "\r\n"))
    config.remove_model(ModelRef("custom", "big"))
    kept = config.path.read_bytes().decode()
    assert kept.startswith("\ufeff# what this project uses\r\n")
    assert kept.count("\n") == kept.count("\r\n")
    assert [model.model_id for model in config.list_models()] == ["small"]


def test_S3_replacing_an_entry_keeps_its_age_and_drops_what_is_no_longer_given(config: ProjectConfigFile) -> None:
    config.add_model(entry(created_at="2020", max_tokens=5, extra_body={"a": 1, "b": 2}))
    config.add_model(entry(extra_body={"a": 3}))
    assert config.list_models() == (entry(created_at="2020", extra_body={"a": 3}),)


def test_S3_removing_a_model_removes_the_choices_that_point_to_it(config: ProjectConfigFile) -> None:
    put(config, WRITTEN_BY_HAND)
    config.set_vision_model(ModelRef("openai", "small"))
    assert config.read().vision_model == ModelRef("openai", "small")
    config.remove_model(ModelRef("openai", "small"))
    read = config.read()
    assert (read.default_model, read.vision_model, [model.model_id for model in read.models]) == (None, None, ["big"])
    config.remove_model(ModelRef("custom", "big"))
    assert config.list_models() == ()
    assert config.read().budgets.usd == 3


def test_S3_the_vision_model_can_be_unset(config: ProjectConfigFile) -> None:
    config.add_model(entry())
    config.set_vision_model(ModelRef("custom", "m"))
    config.set_vision_model(None)
    config.set_vision_model(None)
    assert config.read().vision_model is None


def test_S3_a_model_that_is_not_there_is_refused_with_those_that_are(config: ProjectConfigFile) -> None:
    with pytest.raises(ConfigError, match="there is no model a/x; configured: none"):
        config.remove_model(ModelRef("a", "x"))
    put(config, WRITTEN_BY_HAND)
    for attempt in (config.remove_model, config.set_default, config.set_vision_model):
        with pytest.raises(ConfigError, match="configured: openai/small, custom/big"):
            attempt(ModelRef("a", "x"))
    assert config.path.read_text() == WRITTEN_BY_HAND


@pytest.mark.parametrize("written", ["models = [{provider='a', model_id='b'}]\n", "models = []\n", MODEL, ""])
def test_S2_each_way_of_writing_the_list_can_be_extended(config: ProjectConfigFile, written: str) -> None:
    put(config, written)
    before = config.list_models()
    config.add_model(entry(pricing=Pricing(output=1)))
    config.add_model(entry(model_id="n"), default=True)
    after = config.list_models()
    assert after[: len(before)] == before
    assert [model.model_id for model in after[len(before) :]] == ["m", "n"]
    config.remove_model(ModelRef("custom", "m"))
    assert len(config.list_models()) == len(before) + 1


@pytest.mark.parametrize("values", [{"client_type": "nope"}, {"max_tokens": 0}, {"extra_body": {"a": None}}])
def test_S2_an_entry_that_the_file_could_not_hold_is_refused(config: ProjectConfigFile, values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        config.add_model(entry(**values))
    assert not config.path.exists()


def test_S2_an_edit_that_would_change_something_else_is_refused(
    config: ProjectConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(config, WRITTEN_BY_HAND)
    import tomlkit  # noqa: PLC0415 - patched below

    monkeypatch.setattr(tomlkit, "dumps", lambda document: "name = 'lost'\n")
    with pytest.raises(ConfigError, match="edit it by hand"):
        config.set_default(ModelRef("custom", "big"))
    assert config.path.read_text() == WRITTEN_BY_HAND


def test_S2_writers_at_the_same_time_lose_nothing(config: ProjectConfigFile) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: config.add_model(entry(model_id=f"m{number}")), range(16)))
    assert {model.model_id for model in config.list_models()} == {f"m{number}" for number in range(16)}
    assert not list(config.path.parent.glob("*.tmp"))


def test_S2_writers_in_two_processes_lose_nothing(config: ProjectConfigFile) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from penguin.state.project import ModelEntry, ProjectConfigFile\n"
        "for n in range(8): ProjectConfigFile(Path(sys.argv[1])).add_model(\n"
        "    ModelEntry(provider=sys.argv[2], model_id=f'm{n}'))\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(config.path), name]) for name in ("a", "b")]
    assert [writer.wait(30) for writer in writers] == [0, 0]
    assert len(config.list_models()) == 16


def test_K11_reading_does_not_load_the_round_trip_parser(config: ProjectConfigFile) -> None:
    put(config, WRITTEN_BY_HAND)
    script = (
        "import sys; from pathlib import Path\n"
        "from penguin.state.project import ProjectConfigFile\n"
        "assert ProjectConfigFile(Path(sys.argv[1])).read().name == 'garden'\n"
        "print(*sorted({'tomlkit', 'ruamel', 'ruamel.yaml', 'dotenv'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(config.path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
