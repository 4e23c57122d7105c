"""``penguin config model`` beyond adding and removing, ``config edit``, and what ``doctor`` finds running (K8)."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path
from typing import get_args

import pytest
from tests.cli.conftest import Penguin
from tests.support.http_table import Table, serving_table

from penguin.agent import probing
from penguin.cli.commands.config_model import CONTROLS
from penguin.protocol.interfaces import ThinkingControl
from penguin.state.paths import ProjectPaths
from penguin.state.project import ModelRef, Pricing, ProjectConfigFile
from penguin.testing import call, refuse, serve_in_thread

ADD = ("config", "model", "add", "--provider", "custom", "--model-id", "M")
KEY = "sk-0123456789abcdef"
LIST = {"object": "list", "data": [{"id": "small"}, {"id": "big one"}]}


def add(penguin: Penguin, base_url: str = "http://127.0.0.1:9/v1", *more: str) -> str:
    said = penguin(*ADD, "--base-url", base_url, *more)
    assert said.status == 0, said.err
    return said.out


# ---------------------------------------------------------------- add, list, vision


def test_add_says_what_the_catalogue_fills_in(penguin: Penguin) -> None:
    said = penguin("config", "model", "add", "--provider", "openai", "--model-id", "gpt-5", "--context-window", "9000")
    (filled,) = [line for line in said.out.splitlines() if line.startswith("From the catalogue")]
    for part in ("(checked 20", "at https://api.openai.com/v1", "takes images", "for output"):
        assert part in filled
    assert "reads" not in filled, "the entry says how much"
    assert "Nobody knows" not in said.out


def test_L15_add_knows_models_at_openrouter_and_on_this_machine(penguin: Penguin) -> None:
    passed_on = penguin(
        *("config", "model", "add", "--provider", "openrouter", "--model-id", "anthropic/claude-sonnet-5")
    )
    for part in ("openai-chat, at https://openrouter.ai/api/v1, reads 1,000,000 tokens", "takes images", "for output"):
        assert part in passed_on.out
    assert "Nobody knows" not in passed_on.out
    local = penguin("config", "model", "add", "--provider", "ollama", "--model-id", "gemma3:12b")
    for part in ("reads 32,768 tokens", "takes images", "writes its calls as text", "costs nothing"):
        assert part in local.out
    assert "for it to choose when it loads the model" in local.out
    assert "Nobody knows" not in local.out


def test_add_says_what_nobody_knows_and_how_to_say_it(penguin: Penguin, project: ProjectPaths) -> None:
    said = add(penguin)
    for part in ("--context-window", "--no-vision", "--pricing"):
        assert part in said
    told = add(penguin, "http://127.0.0.1:9/v1", "--context-window", "9000", "--vision", "--pricing", "0.5,5,25")
    assert "Nobody knows" not in told
    (entry,) = ProjectConfigFile(project.config).list_models()
    assert entry.pricing == Pricing(cache_read=0.5, cache_write=5.0, output=25.0)


def test_L15_add_overrides_what_the_catalogue_knows_of_thinking_and_output(
    penguin: Penguin, project: ProjectPaths
) -> None:
    named = ("config", "model", "add", "--provider", "google", "--model-id", "gemini-2.5-pro")
    own = ("--max-output", "9000", "--thinking-levels", "high,low", "--thinking-control", "level")
    said = penguin(*named, *own)
    assert said.status == 0, said.err
    assert "writes up to" not in said.out
    assert "thinks on" not in said.out
    (entry,) = ProjectConfigFile(project.config).list_models()
    assert (entry.max_output, entry.thinking_levels, entry.thinking_control) == (9_000, ("low", "high"), "level")
    rows = {row.split()[0]: row.split()[1:] for row in penguin("config", "show").out.splitlines()}
    assert rows["models.google/gemini-2.5-pro.max_output"] == ["9000", str(project.config)]
    assert rows["models.google/gemini-2.5-pro.thinking_levels"] == ['["low","high"]', str(project.config)]
    assert rows["models.google/gemini-2.5-pro.thinking_control"] == ["level", str(project.config)]
    before = project.config.read_text()
    assert penguin(*named, "--thinking-levels", "low,high").status == 0
    assert project.config.read_text() == before
    assert penguin(*named, "--thinking-levels", "").status == 0
    assert ProjectConfigFile(project.config).list_models()[0].thinking_levels == ()
    refused = penguin(*named, "--thinking-levels", "low,much")
    assert refused.status == 2
    assert "much is no level; the levels are none, low" in refused.err
    unfit = penguin(*named, "--thinking-control", "effort")
    assert unfit.status == 2
    assert "not known to gemini; allowed: budget, level" in unfit.err


def test_L16_show_names_the_levels_that_a_control_stands_for(penguin: Penguin) -> None:
    add(penguin, "http://127.0.0.1:9/v1", "--thinking-control", "enable")
    rows = {row.split()[0]: row.split()[1:] for row in penguin("config", "show").out.splitlines()}
    assert rows["models.custom/M.thinking_levels"] == ['["none","high"]', "default"]
    add(penguin, "http://127.0.0.1:9/v1", "--thinking-levels", "")
    rows = {row.split()[0]: row.split()[1:] for row in penguin("config", "show").out.splitlines()}
    assert rows["models.custom/M.thinking_levels"][0] == "[]"


def test_L15_every_control_can_be_named() -> None:
    assert set(CONTROLS) == set(get_args(ThinkingControl))


OWN = ("config", "model", "add", "--provider", "lab", "--model-id")
PLACE = "http://127.0.0.1:9/v1"


def test_add_takes_the_address_over_from_the_providers_other_entry_and_says_so(
    penguin: Penguin, project: ProjectPaths
) -> None:
    assert penguin(*OWN, "one", "--base-url", PLACE, "--client-type", "openai-responses", "--api-key", KEY).status == 0
    said = penguin(*OWN, "two")
    assert said.status == 0, said.err
    assert f"As with your other models of lab, it is at {PLACE}" in said.out
    _, second = ProjectConfigFile(project.config).list_models()
    assert (second.base_url, second.client_type, second.api_key) == (PLACE, "openai-responses", None)
    assert "As with" not in penguin(*OWN, "two", "--no-vision").out


def test_add_takes_one_address_for_one_whatever_is_spoken_there(penguin: Penguin, project: ProjectPaths) -> None:
    for name, place, protocol in (("one", PLACE, "openai-chat"), ("two", f"{PLACE}/", "openai-responses")):
        assert penguin(*OWN, name, "--base-url", place, "--client-type", protocol).status == 0
    assert penguin(*OWN, "three", "--client-type", "openai-responses").status == 0
    assert penguin(*OWN, "four").status == 0
    entries = ProjectConfigFile(project.config).list_models()[2:]
    assert [(each.base_url, each.client_type) for each in entries] == [(PLACE, "openai-responses"), (PLACE, None)]


@pytest.mark.parametrize("protocol", ["gemini", "anthropic-messages"])
def test_L7_an_address_with_v1_is_not_handed_to_a_protocol_that_wants_the_host(penguin: Penguin, protocol: str) -> None:
    assert penguin(*OWN, "one", "--base-url", PLACE).status == 0
    refused = penguin(*OWN, "two", "--client-type", protocol)
    assert refused.status == 2
    assert "--base-url" in refused.err


def test_add_names_the_addresses_that_do_not_agree(penguin: Penguin) -> None:
    assert penguin(*OWN, "one", "--base-url", PLACE).status == 0
    assert penguin(*OWN, "two", "--base-url", "http://me:hushhush@127.0.0.1:10/v1").status == 0
    refused = penguin(*OWN, "three")
    assert refused.status == 2
    for part in (PLACE, "http://127.0.0.1:10/v1", "--base-url"):
        assert part in refused.err
    assert "hushhush" not in refused.err


def test_L17_an_address_with_a_password_is_not_taken_over(penguin: Penguin) -> None:
    assert penguin(*OWN, "one", "--base-url", "http://me:hushhush@127.0.0.1:9/v1").status == 0
    refused = penguin(*OWN, "two")
    assert refused.status == 2
    assert "password, which is not taken over" in refused.err
    assert "hushhush" not in refused.err


def test_add_does_not_tell_how_to_make_the_default_the_default(penguin: Penguin) -> None:
    add(penguin, PLACE, "--set-default")
    assert "To use it for new sessions" not in add(penguin, PLACE, "--no-vision")
    assert "To use it for new sessions" in penguin(*OWN, "one", "--base-url", PLACE).out


def test_add_changes_what_is_named_and_nothing_else(penguin: Penguin, project: ProjectPaths) -> None:
    add(penguin, "http://127.0.0.1:9/v1", "--api-key", KEY, "--pricing", "0.5,5,25")
    said = penguin(*ADD, "--max-tokens", "5000")
    assert said.status == 0, said.err
    (entry,) = ProjectConfigFile(project.config).list_models()
    assert (entry.api_key, entry.max_tokens, entry.base_url) == (KEY, 5000, "http://127.0.0.1:9/v1")
    assert entry.pricing == Pricing(cache_read=0.5, cache_write=5.0, output=25.0)


def test_L17_a_password_in_an_address_is_not_shown(penguin: Penguin) -> None:
    add(penguin, "http://somebody:hushhush@127.0.0.1:9/v1")
    for command in (("config", "model", "list"), ("config", "show")):
        said = penguin(*command)
        assert "hushhush" not in said.out
        assert "http://127.0.0.1:9/v1" in said.out
    refused = penguin(*ADD, "--base-url", "ftp://somebody:hushhush@host/")
    assert refused.status == 2
    assert "hushhush" not in refused.err


@pytest.mark.parametrize("pricing", ["5", "1,2", "1,2,3,4", "a,b,c", "-1,2,3", "nan,1,1", "inf,1,1", ""])
def test_a_pricing_that_is_none_is_refused(penguin: Penguin, pricing: str) -> None:
    said = penguin(*ADD, "--base-url", "http://127.0.0.1:9", "--pricing", pricing)
    assert said.status == 2
    assert "0.3,3.75,15" in said.err


def test_list_shows_what_holds_and_vision_chooses_the_eyes(penguin: Penguin, project: ProjectPaths) -> None:
    add(penguin, "http://127.0.0.1:9/v1", "--set-default")
    penguin("config", "model", "add", "--provider", "anthropic", "--model-id", "claude-x")
    assert penguin("config", "model", "vision", "anthropic", "claude-x").status == 0
    rows = [row.split() for row in penguin("config", "model", "list").out.splitlines()[1:]]
    assert rows[0][:4] == ["*", "custom", "M", "openai-chat"]
    assert rows[1][:5] == ["v", "anthropic", "claude-x", "anthropic-messages", "https://api.anthropic.com"]
    assert penguin("config", "model", "vision", "nobody", "none").status == 2
    assert ProjectConfigFile(project.config).read().vision_model == ModelRef("anthropic", "claude-x")
    assert penguin("config", "model", "vision", "--none").status == 0
    assert ProjectConfigFile(project.config).read().vision_model is None


# ---------------------------------------------------------------- detect and test


def test_detect_names_protocol_models_and_the_command_to_connect(penguin: Penguin) -> None:
    with serving_table(Table({"/v1/models": (200, LIST), "/v1/chat/completions": (405, {})})) as server:
        said = penguin("config", "model", "detect", server.url)
        without_scheme = penguin("config", "model", "detect", server.url.removeprefix("http://"))
    assert said.status == 0, said.err
    assert f"sure: openai-chat at {server.url}/v1" in said.out
    assert "models: small, big one" in said.out
    assert f"--model-id small --client-type openai-chat --base-url {server.url}/v1 --api-key KEY" in said.out
    assert without_scheme.out == said.out


def test_L17_detect_and_test_hide_the_password_of_the_address(penguin: Penguin) -> None:
    with serving_table(Table({"/v1/models": (200, LIST), "/v1/chat/completions": (405, {})})) as server:
        address = server.url.replace("://", "://me:hushhush@")
        found = penguin("config", "model", "detect", address)
        add(penguin, f"{address}/v1")
        tried = penguin("config", "model", "test", "custom", "M")
    nobody = penguin("config", "model", "detect", "http://me:hushhush@127.0.0.1:9")
    for said in (found, tried, nobody):
        assert "hushhush" not in said.out + said.err
    assert found.status == 0, found.err
    assert "put them into it again" in found.out
    assert nobody.status == 1


@pytest.mark.parametrize("evil", ["m; touch PWNED #", "$(touch PWNED)", "it's `here`"])
def test_L7_the_command_that_is_offered_is_safe_whatever_a_server_calls_its_models(
    penguin: Penguin, monkeypatch: pytest.MonkeyPatch, evil: str
) -> None:
    listed = {"object": "list", "data": [{"id": evil}]}
    with serving_table(Table({"/v1/models": (200, listed)})) as server:
        monkeypatch.setattr(probing, "local_places", lambda: {"vllm": f"{server.url}/v1"})
        for said in (penguin("config", "model", "detect", server.url), penguin("doctor")):
            (command,) = [
                line
                for line in said.out.splitlines()
                if "config model add" in line and "--model-id" in line and "MODEL" not in line
            ]
            words = shlex.split(command)
            assert words[words.index("--model-id") + 1] == evil


@pytest.mark.parametrize("evil", ["a\x1b[2Jb", "a\nb", "a\x9bb", "a\u202eb"])
def test_L7_a_name_with_control_characters_is_not_offered_and_it_is_said_why(
    penguin: Penguin, monkeypatch: pytest.MonkeyPatch, evil: str
) -> None:
    only, another = ({"object": "list", "data": [{"id": name} for name in names]} for names in ([evil], [evil, "good"]))
    for listed, offered in ((only, "--model-id MODEL"), (another, "--model-id good")):
        with serving_table(Table({"/v1/models": (200, listed)})) as server:
            monkeypatch.setattr(probing, "local_places", lambda place=f"{server.url}/v1": {"vllm": place})
            for said in (penguin("config", "model", "detect", server.url), penguin("doctor")):
                assert offered in said.out
                assert "the name of 1 model cannot be printed" in said.out
                assert evil not in said.out


def test_detect_of_nothing_is_one_message(penguin: Penguin) -> None:
    with serving_table(Table({})) as server:
        unknown = penguin("config", "model", "detect", server.url)
    gone = penguin("config", "model", "detect", server.url)
    assert (unknown.status, gone.status) == (1, 1)
    assert "speaks no protocol that is known here" in unknown.out
    assert gone.err.startswith(f"penguin: nobody answers at {server.url}: ")
    assert len(gone.err.splitlines()) == 1
    assert penguin("config", "model", "detect", "ftp://x").status == 2


def test_test_sends_one_request_and_with_options_one_more_each(penguin: Penguin) -> None:
    with serve_in_thread(["pong", "pong", call("report_number", {"number": 7}), "Red."]) as provider:
        add(penguin, provider.base_url, "--api-key", KEY)
        short = penguin("config", "model", "test")
        assert len(provider.requests) == 1
        whole = penguin("config", "model", "test", "custom", "M", "--tools", "--vision")
        provider.assert_exhausted()
    assert (short.status, whole.status) == (0, 0), short.out + whole.out
    assert "answers: pong" in short.out
    assert "calls tools: report_number(" in whole.out
    assert "sees pictures: Red." in whole.out
    assert KEY not in short.out + whole.out


def test_test_says_what_failed_in_the_providers_words_and_asks_no_further(penguin: Penguin) -> None:
    with serve_in_thread([refuse(401, f"bad key {KEY}")]) as provider:
        add(penguin, provider.base_url)
        said = penguin("config", "model", "test", "--tools", "--vision")
        assert len(provider.requests) == 1
    assert said.status == 1
    assert "gave no answer: " in said.out
    assert KEY not in said.out
    assert "Traceback" not in said.err


def test_test_keeps_what_it_found_out_only_when_it_did(penguin: Penguin, project: ProjectPaths) -> None:
    file = ProjectConfigFile(project.config)
    with serve_in_thread(["pong", refuse(400, "no images"), "pong", refuse(401, "key ran out")]) as provider:
        add(penguin, provider.base_url)
        assert penguin("config", "model", "test", "--vision", "--save").status == 1
        assert file.list_models()[0].vision is False
        said = penguin("config", "model", "test", "--vision", "--save")
        assert "Nothing was kept" in said.out
    assert penguin("config", "model", "test", "--save").status == 2


# ---------------------------------------------------------------- edit


def editor(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An editor that does what a person might; ``$1`` is the file, after an option of the editor."""
    file = directory / "editor.sh"
    file.write_text(f"#!/bin/sh\nshift\n{script}\n")
    file.chmod(0o755)
    monkeypatch.setenv("VISUAL", f"{file} --wait")


def drafts(project: ProjectPaths) -> list[Path]:
    return list(project.path.glob("*edited*"))


def test_edit_changes_the_file_and_keeps_the_rest_of_it(
    penguin: Penguin, project: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.path.mkdir(parents=True)
    project.config.write_bytes(b"# mine\r\nname = 'a'\r\nodd = 1\r\n")
    editor(tmp_path, monkeypatch, "sed -i \"s/'a'/'b'/\" \"$1\"")
    said = penguin("config", "edit")
    assert (said.status, said.out) == (0, f"{project.config} is changed.\n"), said.err
    assert f"without effect: {project.config}:3" in said.err
    assert project.config.read_bytes() == b"# mine\r\nname = 'b'\r\nodd = 1\r\n"
    assert stat.S_IMODE(project.config.stat().st_mode) == 0o600
    editor(tmp_path, monkeypatch, "true")
    assert penguin("config", "edit").out == "Nothing was changed.\n"
    assert drafts(project) == []


def test_edit_makes_a_file_that_was_not_there(
    penguin: Penguin, project: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, monkeypatch, 'case "$1" in *.yaml) echo "max_turns: 7" > "$1";; esac')
    assert penguin("config", "edit").out == "Nothing was changed.\n"
    assert not project.config.exists()
    assert penguin("config", "edit", "--agent").status == 0
    assert project.agent().system_config.read_text() == "max_turns: 7\n"


def test_S2_a_broken_edit_is_not_taken_and_not_lost(
    penguin: Penguin, project: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(penguin)
    before = project.config.read_bytes()
    editor(tmp_path, monkeypatch, "sed -i '1i default_model = 80' \"$1\"")
    said = penguin("config", "edit")
    assert said.status == 1
    (draft,) = drafts(project)
    assert f"{draft}:" in said.err
    assert f"What you wrote is in {draft}" in said.err
    assert draft.read_bytes() == b"default_model = 80\n" + before
    assert project.config.read_bytes() == before


def test_S2_a_change_of_somebody_else_meanwhile_is_not_lost_and_neither_is_the_edit(
    penguin: Penguin, project: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(penguin)
    editor(tmp_path, monkeypatch, f"echo '# theirs' >> '{project.config}'; echo '# mine' >> \"$1\"")
    said = penguin("config", "edit")
    assert said.status == 1
    assert "was changed meanwhile" in said.err
    assert "# theirs" in project.config.read_text()
    assert "# mine" in drafts(project)[0].read_text()


def test_an_editor_that_fails_changes_nothing(
    penguin: Penguin, project: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, monkeypatch, "exit 3")
    failed = penguin("config", "edit")
    monkeypatch.setenv("VISUAL", str(tmp_path / "no-such-editor"))
    missing = penguin("config", "edit")
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    nobody = penguin("config", "edit")
    assert (failed.status, missing.status, nobody.status) == (1, 2, 2)
    assert "ended with status 3" in failed.err
    assert "set EDITOR" in missing.err
    assert "set EDITOR" in nobody.err
    assert drafts(project) == []


# ---------------------------------------------------------------- doctor


def test_doctor_finds_a_server_that_runs_and_says_how_to_use_it(
    penguin: Penguin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_table(Table({"/v1/models": (200, LIST)})) as server:
        monkeypatch.setattr(probing, "local_places", lambda: {"lmstudio": f"{server.url}/v1"})
        said = penguin("doctor")
        assert f"lmstudio runs at {server.url}/v1 with small, big one" in said.out
        command = "penguin config model add --provider lmstudio --model-id small --set-default"
        assert command in said.out
        assert penguin(*command.split()[1:]).status == 0
        after = penguin("doctor")
    assert after.status == 0, after.out
    assert "lmstudio runs at" in after.out
    assert command not in after.out


def test_doctor_offers_no_model_for_embeddings_or_speech(penguin: Penguin, monkeypatch: pytest.MonkeyPatch) -> None:
    useless = ["text-embedding-nomic-embed-text-v1.5", "bge-reranker-v2-m3", "whisper-large-v3", "kokoro-tts"]
    for names, offered in (([*useless, "qwen3-8b"], "--model-id qwen3-8b"), (useless, "--model-id MODEL")):
        listed = {"object": "list", "data": [{"id": name} for name in names]}
        with serving_table(Table({"/v1/models": (200, listed)})) as server:
            monkeypatch.setattr(probing, "local_places", lambda place=f"{server.url}/v1": {"lmstudio": place})
            said = penguin("doctor")
        assert f"--provider lmstudio {offered} --set-default" in said.out
        assert ("not for conversations" in said.out) is (names is useless)


def test_doctor_tells_of_a_server_that_wants_a_key_and_where_the_key_goes(
    penguin: Penguin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_table(Table({}, (401, {"error": "Unauthorized"}))) as server:
        monkeypatch.setattr(probing, "local_places", lambda: {"vllm": f"{server.url}/v1"})
        said = penguin("doctor")
    assert f"at {server.url}/v1, where vllm usually is, wants a key" in said.out
    assert "--provider vllm --model-id MODEL --api-key KEY --set-default" in said.out
    assert f"penguin config model detect {server.url}/v1 --api-key KEY" in said.out
