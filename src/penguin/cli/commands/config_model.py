"""``penguin config model``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from penguin.cli.completing import complete_model, complete_provider
from penguin.cli.lazy_group import Entry, LazyGroup
from penguin.cli.options import Command, data_root, project_options
from penguin.cli.pricing import Pricing
from penguin.cli.redaction import without_login
from penguin.cli.thinking_levels import ThinkingLevels

if TYPE_CHECKING:
    from penguin.state.project import ModelEntry, ModelRef, ProjectConfig, ProjectConfigFile

model = LazyGroup(
    name="model",
    help="Add, list, choose, try out and remove models.",
    entries={
        "add": Entry("penguin.cli.commands.config_model:add", "Connect a model, or change how it is connected."),
        "list": Entry("penguin.cli.commands.config_model:list_models", "List the connected models."),
        "default": Entry("penguin.cli.commands.config_model:default", "Choose the model for new sessions."),
        "vision": Entry(
            "penguin.cli.commands.config_model:vision", "Choose the model that sees for those that cannot."
        ),
        "remove": Entry("penguin.cli.commands.config_model:remove", "Forget a model and its key."),
        "detect": Entry("penguin.cli.commands.config_model_probe:detect", "Find out which protocol an address speaks."),
        "test": Entry(
            "penguin.cli.commands.config_model_probe:try_model", "Send a small request, see what comes back."
        ),
    },
)

CLIENT_TYPES = ["openai-chat", "openai", "openai-responses", "anthropic-messages", "ant-messages", "gemini"]
CONTROLS = ["effort", "openrouter", "type", "type-and-effort", "enable", "budget"]
CONTROLS += ["adaptive", "adaptive-on", "adaptive-between-tools", "level"]
OWN_SERVER = "custom"


def model_pair(command: Command) -> Command:
    """A model's two halves, as arguments or in the words of ``add``."""
    for decorate in (
        click.argument("named_model", metavar="[MODEL_ID]", required=False, shell_complete=complete_model),
        click.argument("named_provider", metavar="[PROVIDER]", required=False, shell_complete=complete_provider),
        click.option("--provider", metavar="NAME", shell_complete=complete_provider, help="The provider."),
        click.option("--model-id", metavar="ID", shell_complete=complete_model, help="The model."),
    ):
        command = decorate(command)
    return command


@click.command()
@click.option("--provider", required=True, metavar="NAME", help="A known provider, or `custom` for your own server.")
@click.option("--model-id", required=True, metavar="ID", help="The model's name at that provider.")
@click.option("--client-type", type=click.Choice(CLIENT_TYPES), help="The protocol it speaks.")
@click.option("--base-url", metavar="URL", help="Where it is, for example http://127.0.0.1:8080/v1.")
@click.option("--api-key", metavar="KEY", help="Kept in the project's configuration (readable by you alone).")
@click.option("--api-key-stdin", is_flag=True, help="Read the key from standard input instead.")
@click.option("--context-window", type=click.IntRange(min=1), metavar="TOKENS", help="How much it can read.")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="TOKENS", help="How long a reply may be.")
@click.option(
    "--max-output", type=click.IntRange(min=1), metavar="TOKENS", help="How long the model can make a reply at most."
)
@click.option(
    "--thinking-levels",
    type=ThinkingLevels(),
    metavar="LEVEL,…",
    help="What it accepts of none, low, medium, high, xhigh, max; '' when it does not think.",
)
@click.option("--thinking-control", type=click.Choice(CONTROLS), help="How its protocol tells it how much to think.")
@click.option("--vision/--no-vision", default=None, help="Whether it takes images.")
@click.option(
    "--pricing",
    type=Pricing(),
    metavar="CACHED,IN,OUT",
    help="US dollars per million tokens: input from the cache, other input, output. For --budget-usd.",
)
@click.option("--display-name", metavar="TEXT", help="A name for people.")
@click.option(
    "--tool-calls",
    type=click.Choice(["native", "text", "auto"]),
    help="How it writes its calls; text for small models.",
)
@click.option("--set-default", is_flag=True, help="Use it for new sessions.")
@project_options
def add(
    *,
    provider: str,
    model_id: str,
    base_url: str | None,
    api_key: str | None,
    api_key_stdin: bool,
    set_default: bool,
    root: Path | None,
    project_id: str,
    **settings: Any,
) -> None:
    """Connect a model, or change how it is connected. Without a key the provider's variable is used.

    An entry that exists keeps what you do not name. A provider that the catalogue does not know is where its other
    entries say, unless you name another --base-url. What is still left out is filled in from the catalogue,
    whenever the model is used; what that is, is printed.
    """
    from msgspec.structs import replace  # noqa: PLC0415 - keeps `--help` cheap

    from penguin.agent.model_report import problem_with  # noqa: PLC0415 - this command only
    from penguin.cli.known_model import what_is_known  # noqa: PLC0415
    from penguin.cli.secrets import read_secret  # noqa: PLC0415
    from penguin.state.project import ModelEntry  # noqa: PLC0415

    if api_key is not None and not api_key.strip():
        raise click.UsageError("the key of --api-key is empty; leave the option out to use the provider's variable")
    if api_key is not None and api_key_stdin:
        raise click.UsageError("give the key with --api-key or with --api-key-stdin, not both")
    given = {
        "base_url": checked_url(base_url),
        "api_key": read_secret("the API key") if api_key_stdin else api_key,
        **settings,
    }
    file = project_file(root, project_id)
    wanted = ModelEntry(provider=provider, model_id=model_id)
    known = next((entry for entry in file.list_models() if entry.ref == wanted.ref), wanted)
    named = replace(known, **{name: value for name, value in given.items() if value is not None})
    entry = _at_the_same_place(named, file.list_models())
    if problem := problem_with(entry):
        raise click.UsageError(problem)
    only_one = set_default or not file.list_models()
    file.add_model(entry, default=set_default)
    print(f"{entry.ref} is kept in {file.path}")
    if entry.base_url and not named.base_url:
        print(f"As with your other models of {provider}, it is at {without_login(entry.base_url)}")
    for line in what_is_known(file.read(), entry):
        print(line)
    if set_default:
        print("It is the model for new sessions: penguin run -m TEXT")
    elif not only_one and file.read().default_model != entry.ref:
        print(f"To use it for new sessions: penguin config model default {provider} {model_id}")


def _at_the_same_place(entry: ModelEntry, others: Sequence[ModelEntry]) -> ModelEntry:
    """The entry with address and protocol of its provider's others, where nobody knows its address and they agree.

    The two go together: what an address has to contain is for the protocol to say, so only an entry that is spoken
    to in the same way counts. A key is never taken over, nor an address that holds a password.

    Raises:
        click.UsageError: there is an address to take over, or several, but not one that can be.
    """
    from msgspec.structs import replace  # noqa: PLC0415 - keeps `--help` cheap

    from penguin.agent.models import is_nowhere  # noqa: PLC0415 - this command only

    if not is_nowhere(entry):
        return entry
    family = entry.client_type and _family(entry.client_type)
    alike = [each for each in others if each.provider == entry.provider and each.base_url]
    alike = [each for each in alike if family in {None, _family(each.client_type)}]
    places = {((each.base_url or "").rstrip("/"), _family(each.client_type)) for each in alike}
    if not places:
        return entry
    if len(places) > 1:
        named = " and ".join(sorted(f"{without_login(url)} ({protocol})" for url, protocol in places))
        raise click.UsageError(
            f"your other models of {entry.provider} are at {named}: say with --base-url and --client-type which it is"
        )
    base_url = alike[0].base_url or ""
    if without_login(base_url) != base_url:
        raise click.UsageError(
            f"the address of your other models of {entry.provider} holds a password, which is not taken over: say"
            " where it is with --base-url"
        )
    protocols = {each.client_type for each in alike}
    return replace(
        entry,
        base_url=base_url,
        client_type=entry.client_type or (protocols.pop() if len(protocols) == 1 else None),
    )


def _family(client_type: str | None) -> str:
    """Protocols that share their addresses: both of OpenAI want the same ``/v1``."""
    return {"anthropic-messages": "Anthropic", "ant-messages": "Anthropic", "gemini": "Gemini"}.get(
        client_type or "", "OpenAI"
    )


@click.command(name="list")
@project_options
def list_models(root: Path | None, project_id: str) -> None:
    """List the connected models; of a key only the ends are shown. A star marks the default, v the one for images."""
    from penguin.cli.render.table import table  # noqa: PLC0415 - this command only

    file = project_file(root, project_id)
    config = file.read()
    if not config.models:
        print(f"No model is configured in {file.path}. `penguin config model add --help` says how.")
        return
    rows = [_row(config, entry) for entry in config.models]
    for line in table(("", "provider", "model id", "protocol", "base url", "key"), rows):
        print(line)


@click.command()
@model_pair
@project_options
def default(root: Path | None, project_id: str, **pair: str | None) -> None:
    """Choose the model for new sessions: PROVIDER MODEL_ID, PROVIDER/MODEL_ID, or the two options."""
    ref, file = model_ref(**pair), project_file(root, project_id)
    file.set_default(ref)
    print(f"{ref} is the model for new sessions ({file.path})")


@click.command()
@model_pair
@click.option("--none", "nobody", is_flag=True, help="None: images are left out for a model that cannot see.")
@project_options
def vision(*, nobody: bool, root: Path | None, project_id: str, **pair: str | None) -> None:
    """Choose the model that describes images to models without eyes: PROVIDER MODEL_ID, or the two options."""
    file = project_file(root, project_id)
    if nobody:
        file.set_vision_model(None)
        print(f"No model looks at images for others ({file.path})")
        return
    ref = model_ref(**pair)
    file.set_vision_model(ref)
    print(f"{ref} looks at images for models that cannot ({file.path})")


@click.command()
@model_pair
@project_options
def remove(root: Path | None, project_id: str, **pair: str | None) -> None:
    """Forget a model and its key: PROVIDER MODEL_ID, PROVIDER/MODEL_ID, or the two options."""
    ref, file = model_ref(**pair), project_file(root, project_id)
    file.remove_model(ref)
    print(f"{ref} is gone from {file.path}")


def model_ref(
    named_provider: str | None, named_model: str | None, provider: str | None, model_id: str | None
) -> ModelRef:
    """The model that is named by two words, by two options, or as ``provider/model_id``.

    Raises:
        click.UsageError: half of it is missing.
    """
    from penguin.state.project import ModelRef  # noqa: PLC0415 - keeps `--help` cheap

    if named_provider and named_model is None and provider is None and model_id is None:
        # As it is printed: everything after the first slash is the model's, which may hold more of them.
        named_provider, _, named_model = named_provider.partition("/")
    chosen, model = provider or named_provider, model_id or named_model or None
    if chosen is None or model is None:
        raise click.UsageError("name the model by provider and model id; `penguin config model list` shows both")
    return ModelRef(chosen, model)


def project_file(root: Path | None, project_id: str) -> ProjectConfigFile:
    """The project's configuration."""
    from penguin.state.project import ProjectConfigFile  # noqa: PLC0415 - keeps `--help` cheap

    return ProjectConfigFile(data_root(root).project(project_id).config)


def checked_url(url: str | None) -> str | None:
    """The address, if it is one.

    Raises:
        click.UsageError: it is none.
    """
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise click.UsageError(f"{without_login(url)} is no address; one looks like http://127.0.0.1:8080/v1")
    return url


def _row(config: ProjectConfig, entry: ModelEntry) -> tuple[str, ...]:
    from penguin.agent.models import described  # noqa: PLC0415 - this command only
    from penguin.cli.redaction import masked  # noqa: PLC0415

    choice = described(config, entry.ref)
    marks = ("*" if entry.ref == config.default_model else "") + ("v" if entry.ref == config.vision_model else "")
    return (
        marks,
        entry.provider,
        entry.model_id,
        choice.client_type or "openai-chat",
        without_login(entry.base_url or (choice.provider.base_url if choice.provider else "-")),
        masked(entry.api_key),
    )
