from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penguin.environment.sandbox import command_sandbox
from penguin.environment.sandbox.command_sandbox import CommandSandbox
from penguin.environment.sandbox.probe import probe
from penguin.environment.sandbox.settings import SandboxSettings
from penguin.environment.sandbox.sockets import listening_sockets


@pytest.fixture(scope="session", autouse=True)
def bubblewrap() -> None:
    """These tests need the real thing; `dev.py test` installs it where it may."""
    found = probe(network=False)
    if found.mechanism is None:
        pytest.skip(f"{found.problem}. {found.advice}")


@pytest.fixture(autouse=True)
def only_sockets_that_stay(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the sockets of other test processes, which come and go all the time, none is hidden.

    One that goes in the instant before the mount fails the sandbox, which is not what these tests are about.
    """
    ours = request.getfixturevalue("shared_stage").root if "shared_stage" in request.fixturenames else Path("/nowhere")
    monkeypatch.setattr(
        command_sandbox,
        "listening_sockets",
        lambda: {path for path in listening_sockets() if path.is_relative_to(ours)},
    )


MakeSandbox = Callable[..., CommandSandbox]


@pytest.fixture
def make_sandbox(workspace: Path, tmp_path: Path) -> Iterator[MakeSandbox]:
    """Sandboxes of one workspace, closed at the end; what is in ``data-root`` is hidden."""
    made: list[CommandSandbox] = []

    def make(mode: Any = "workspace-write", **fields: Any) -> CommandSandbox:
        place = {name: fields.pop(name) for name in ("private", "secret", "shown") if name in fields}
        place.setdefault("secret", (tmp_path / "data-root",))
        made.append(CommandSandbox(SandboxSettings(mode, **fields), workspace, **place))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.close()
