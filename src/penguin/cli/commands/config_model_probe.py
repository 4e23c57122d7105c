"""``penguin config model detect`` and ``test``: the two that ask a provider something."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penguin.cli.commands.config_model import checked_url, model_pair, model_ref, project_file
from penguin.cli.options import agent_paths, place_options
from penguin.cli.redaction import without_login

if TYPE_CHECKING:
    from penguin.agent.probing import Ability, ModelUnderTest, Trial
    from penguin.llm.probing import Candidate, Detection

SHOWN = 8


@click.command()
@click.argument("url")
@click.option("--api-key", metavar="KEY", help="Sent along in the headers of each protocol; never kept.")
@click.option("--api-key-stdin", is_flag=True, help="Read the key from standard input instead.")
def detect(url: str, api_key: str | None, *, api_key_stdin: bool) -> int:
    """Find out which protocol the address URL speaks, and which models are there.

    Costs nothing: it asks for the lists of models, and whether the addresses of the protocols are there. Exit
    status 1 when nothing was recognised.
    """
    import anyio  # noqa: PLC0415 - not needed to complain about options

    from penguin.cli.secrets import read_secret  # noqa: PLC0415
    from penguin.llm.probing import detect as ask  # noqa: PLC0415
    from penguin.llm.transport import TransportError  # noqa: PLC0415

    address = checked_url(url if "://" in url else f"http://{url}") or url
    if api_key is not None and api_key_stdin:
        raise click.UsageError("give the key with --api-key or with --api-key-stdin, not both")
    key = read_secret("the API key") if api_key_stdin else api_key

    async def look() -> Detection:
        return await ask(address, api_key=key)

    try:
        found = anyio.run(look)
    except TransportError as error:
        shown = without_login(address)
        raise click.ClickException(f"nobody answers at {shown}: {str(error).replace(address, shown)}") from None
    return _tell(address, found)


def _tell(address: str, found: Detection) -> int:
    for candidate in found.candidates:
        print("\n".join(_lines(candidate)))
    for note in found.notes:
        print(f"Note: {note}.")
    if not found.candidates:
        print(f"{without_login(address)} answers, but speaks no protocol that is known here.")
        return 1
    _tell_how_to_connect(found.candidates[0])
    return 0


def _tell_how_to_connect(best: Candidate) -> None:
    from penguin.cli.connecting import command_to_connect, model_to_offer  # noqa: PLC0415 - this command only

    model, remark = model_to_offer(best.models)
    if remark:
        print(f"Note: {remark}.")
    base_url = without_login(best.base_url)
    if base_url != best.base_url:
        print("Note: name and password of the address are not shown; put them into it again.")
    command = command_to_connect("custom", model, client_type=best.client_type, base_url=base_url, api_key=True)
    print(f"To connect it:\n  {command}")


def _lines(candidate: Candidate) -> list[str]:
    from penguin.cli.render.text import one_line  # noqa: PLC0415 - this command only

    place = f"{candidate.client_type} at {without_login(candidate.base_url)}"
    lines = [f"{candidate.certainty}: {place} ({one_line(candidate.evidence)})"]
    if candidate.models:
        more = len(candidate.models) - SHOWN
        named = ", ".join(one_line(name) for name in candidate.models[:SHOWN])
        lines.append(f"  models: {named}" + (f", and {more} more" if more > 0 else ""))
    return lines


@click.command(name="test")
@model_pair
@click.option("--tools", is_flag=True, help="Also whether it calls a tool: one more request.")
@click.option("--vision", is_flag=True, help="Also whether it sees what is in a picture: one more request.")
@click.option("--save", is_flag=True, help="Keep in its entry whether it takes images.")
@place_options
def try_model(
    *,
    tools: bool,
    vision: bool,
    save: bool,
    root: Path | None,
    project_id: str,
    agent_id: str,
    **pair: str | None,
) -> int:
    """Send a small request to a model, the default one or PROVIDER MODEL_ID, and see what comes back.

    Costs a few tokens. Exit status 1 when it could not do what was asked.
    """
    if save and not vision:
        raise click.UsageError("--save keeps what --vision finds out: give both")
    import anyio  # noqa: PLC0415 - not needed to complain about options

    from penguin.agent.probing import model_under_test, try_out  # noqa: PLC0415
    from penguin.state.agent_files import read_agent_config  # noqa: PLC0415

    ref = model_ref(**pair) if any(pair.values()) else None
    file = project_file(root, project_id)
    config = read_agent_config(agent_paths(root, project_id, agent_id).system_config)
    model = model_under_test(file.read(), config, os.environ, ref)
    place = without_login(model.config.base_url or "")
    print(f"{model.ref}, {model.config.client_type or 'openai-chat'} at {place}", flush=True)

    async def run() -> list[Trial]:
        trials = []
        for ability in _abilities(tools=tools, vision=vision):
            trials.append(await try_out(model, ability))
            _show(trials[-1])
            if not trials[0].able:
                break  # the others would fail for the same reason, and cost the same
        return trials

    trials = anyio.run(run)
    if save:
        _keep(model, trials, root, project_id)
    return 0 if all(trial.able for trial in trials) else 1


def _abilities(*, tools: bool, vision: bool) -> list[Ability]:
    wanted: list[tuple[Ability, bool]] = [("answers", True), ("tools", tools), ("vision", vision)]
    return [ability for ability, asked in wanted if asked]


_WORDS = {
    "answers": ("answers", "gave no answer"),
    "tools": ("calls tools", "called no tool"),
    "vision": ("sees pictures", "did not see the picture"),
}


def _show(trial: Trial) -> None:
    from penguin.cli.redaction import redacted  # noqa: PLC0415 - this command only
    from penguin.cli.render.look import Look  # noqa: PLC0415
    from penguin.cli.render.text import one_line  # noqa: PLC0415

    look = Look.of(sys.stdout)
    mark = look.good(look.symbol("✓", "ok")) if trial.able else look.bad(look.symbol("✗", "!!"))
    print(
        f"{mark} {_WORDS[trial.ability][not trial.able]}: {one_line(redacted(trial.words))}{_cost(trial)}", flush=True
    )


def _cost(trial: Trial) -> str:
    if trial.first_seconds is None:
        return ""
    counts = f"{trial.tokens_in:,} tokens in, {trial.tokens_out:,} out"
    return f"  (first words after {trial.first_seconds:.1f} s, {trial.seconds:.1f} s in all, {counts})"


def _keep(model: ModelUnderTest, trials: list[Trial], root: Path | None, project_id: str) -> None:
    from msgspec.structs import replace  # noqa: PLC0415 - this command only

    seen = next((trial.able for trial in trials if trial.ability == "vision" and trial.certain), None)
    file = project_file(root, project_id)
    entry = file.read().model(model.ref)
    if seen is None or entry is None:
        print("Nothing was kept: " + ("it has no entry" if entry is None else "what it can see was not found out"))
        return
    file.add_model(replace(entry, vision=seen))
    print(f"vision = {str(seen).lower()} is kept in {file.path}")
