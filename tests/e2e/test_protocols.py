"""C1: the demo's task over each wire protocol, from the command line to the bytes and back."""

from __future__ import annotations

import pytest
from tests.support.command_line import Place

from penguin.cli.commands.config_model import CLIENT_TYPES
from penguin.cli.commands.demo import PROTOCOLS
from penguin.llm.model import ADAPTERS, ALIASES
from penguin.testing import serve_in_thread
from penguin.testing.demo_script import DEMO_PROMPT, demo_turns, demo_workspace_files
from penguin.testing.provider_server import WIRES
from penguin.trace.check import check_trace

AT_THE_HOST = {"anthropic-messages", "gemini"}
"""Where the official client libraries want an address without a path."""


def test_C1_every_protocol_can_be_chosen_and_is_spoken_by_the_scripted_provider() -> None:
    assert sorted(ADAPTERS) == sorted(PROTOCOLS) == sorted(wire.name for wire in WIRES)
    assert set(ADAPTERS) == set(CLIENT_TYPES) - set(ALIASES)


@pytest.mark.parametrize("client_type", sorted(ADAPTERS))
def test_C1_run_completes_the_demos_task(place: Place, client_type: str) -> None:
    for name, content in demo_workspace_files().items():
        (place.workspace / name).write_text(content)
    (wire,) = [wire for wire in WIRES if wire.name == client_type]
    with serve_in_thread(demo_turns(delta_delay=0)) as provider:
        base_url = provider.host_url if client_type in AT_THE_HOST else provider.base_url
        added = place.run(
            *("config", "model", "add", "--provider", "custom", "--model-id", "m", "--client-type", client_type),
            *("--base-url", base_url, "--api-key", "sk-not-to-be-seen-1234", "--set-default"),
        )
        assert added.returncode == 0, added.stderr
        done = place.run("run", "-m", DEMO_PROMPT)
        provider.assert_exhausted()
        assert all(wire.answers(request.path.partition("?")[0]) for request in provider.requests)
    assert done.returncode == 0, done.stderr
    assert "divmod" in (place.workspace / "colony.py").read_text()
    assert "● edit_file  colony.py" in done.stderr
    (trace,) = place.traces()
    report = check_trace(trace)
    assert (report.ending, report.damaged) == ("complete", False)
    assert "sk-not" not in trace.read_text() + done.stdout + done.stderr
    replayed = place.run("trace", "replay")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_the_demo_speaks_another_protocol(place: Place) -> None:
    done = place.run("demo", "--fast", "--client-type", "gemini")
    assert done.returncode == 0, done.stderr
    assert "divmod" in next(place.home.rglob("workspaces/*/colony.py")).read_text()
