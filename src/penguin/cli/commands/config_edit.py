"""``penguin config edit``."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penguin.cli.complaints import complain
from penguin.cli.options import agent_paths, place_options

if TYPE_CHECKING:
    from penguin.protocol.errors import ConfigError

Read = Callable[[Path], object]


@click.command()
@click.option("--agent", "of_agent", is_flag=True, help="The agent's file, not the project's.")
@place_options
def edit(*, of_agent: bool, root: Path | None, project_id: str, agent_id: str) -> int:
    """Edit the project's configuration, or with --agent the agent's, in the editor that VISUAL or EDITOR names.

    A copy is edited, and takes the file's place when it is valid. A broken one can be mended at once; otherwise it
    is left beside the file. Exit status 1 when the file was not changed although it should have been.
    """
    from penguin.state.agent_files import read_agent_config  # noqa: PLC0415 - this command only
    from penguin.state.files import PRIVATE, read_config_text  # noqa: PLC0415
    from penguin.state.project import ProjectConfigFile  # noqa: PLC0415

    paths = agent_paths(root, project_id, agent_id)
    file = paths.system_config if of_agent else paths.project.config
    read: Read = read_agent_config if of_agent else lambda path: ProjectConfigFile(path).read()
    editor = _editor()
    before = read_config_text(file) or ""
    draft = _draft_of(file, before)
    try:
        status = _edited(editor, draft, file, before, read, mode=None if of_agent else PRIVATE)
    finally:
        if draft.exists() and _text(draft) == before:
            draft.unlink()
    if status == 0:
        _name_unknown(file, of_agent=of_agent)
    return status


def _editor() -> list[str]:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named:
        return shlex.split(named)
    usual = next((name for name in ("nano", "vi") if shutil.which(name)), None)
    if usual is None or not sys.stdin.isatty():
        raise click.UsageError("no editor is named: set EDITOR, for example EDITOR=nano")
    return [usual]


def _draft_of(file: Path, text: str) -> Path:
    """A private copy beside the file, so that a rename can bring it in; its name keeps the ending for the editor."""
    from penguin.state.paths import make_private_directory  # noqa: PLC0415 - this command only

    make_private_directory(file.parent)
    draft = file.with_name(f"{file.stem.lstrip('.')}.edited-{os.getpid()}{file.suffix}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:  # noqa: PTH123
        out.write(text.encode())
    return draft


def _edited(editor: list[str], draft: Path, file: Path, before: str, read: Read, *, mode: int | None) -> int:
    from penguin.protocol.errors import ConfigError  # noqa: PLC0415 - this command only

    while True:
        if status := _run(editor, draft):
            complain(f"{editor[0]} ended with status {status}; {file} is as it was.{_where_it_is(draft, before)}")
            return 1
        if _text(draft) == before:
            print("Nothing was changed.")
            return 0
        try:
            read(draft)
        except ConfigError as error:
            if _wants_to_mend(error):
                continue
            complain(f"{file} is as it was.{_where_it_is(draft, before)}")
            return 1
        return _take(draft, file, before, mode)


def _run(editor: list[str], draft: Path) -> int:
    try:
        return subprocess.run([*editor, os.fspath(draft)], check=False).returncode  # noqa: S603 - the user's own editor
    except OSError as error:
        raise click.UsageError(f"{editor[0]} cannot be started: {error.strerror}; set EDITOR") from None


def _where_it_is(draft: Path, before: str) -> str:
    return "" if _text(draft) == before else f" What you wrote is in {draft}."


def _wants_to_mend(error: ConfigError) -> bool:
    from penguin.cli.asking import somebody_there  # noqa: PLC0415 - brings anyio

    complain(str(error))
    return somebody_there() and click.confirm("Edit it again?", default=True, err=True)


def _text(draft: Path) -> str:
    # Not read_text: it would turn the line ends of a file from elsewhere into changes.
    return draft.read_bytes().decode("utf-8", "replace")


def _take(draft: Path, file: Path, before: str, mode: int | None) -> int:
    """Let the draft be the file, unless somebody else has changed that meanwhile."""
    from penguin.state.files import exclusive, read_config_text, replace_file  # noqa: PLC0415 - this command only

    with exclusive(file):
        if (read_config_text(file) or "") != before:
            complain(f"{file} was changed meanwhile, and is as it was left then. What you wrote is in {draft}.")
            return 1
        replace_file(file, _text(draft), mode=mode)
    draft.unlink()
    print(f"{file} is changed.")
    return 0


def _name_unknown(file: Path, *, of_agent: bool) -> None:
    from penguin.state.agent_files import unknown_agent_keys  # noqa: PLC0415 - this command only
    from penguin.state.project import ProjectConfigFile  # noqa: PLC0415

    for problem in unknown_agent_keys(file) if of_agent else ProjectConfigFile(file).unknown_keys():
        complain(f"unknown, and without effect: {problem}")
