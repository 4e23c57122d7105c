"""``.project_config.toml``: the models of a project, their credentials, and its policies.

Example::

    file = ProjectConfigFile(DataRoot.from_environment(os.environ).project().config)
    file.add_model(ModelEntry(provider="custom", model_id="m", base_url="http://127.0.0.1:8000/v1"), default=True)
    file.read().default_model            # ModelRef(provider='custom', model_id='m')
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from penguin.protocol.errors import ConfigError, ConfigProblem
from penguin.protocol.interfaces import ThinkingControl, ToolCalls
from penguin.protocol.messages import ThinkingLevel
from penguin.state.checking import FieldPath, Source, checked, unknown_keys
from penguin.state.files import config_error
from penguin.state.toml_file import edit_toml, parse_toml

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import InlineTable, Table

Name: TypeAlias = Annotated[str, Meta(min_length=1, pattern=r"\A[^\x00-\x1f\x7f]*\Z")]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Price: TypeAlias = Annotated[float, Meta(ge=0)]

ClientType: TypeAlias = Literal[
    "openai-chat", "openai", "openai-responses", "anthropic-messages", "ant-messages", "gemini"
]
"""The protocol a model speaks; ``openai`` and ``ant-messages`` are the original product's names."""

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?!.*\.[0-9]+\.?\Z){_LABEL}(\.{_LABEL})*\.?")  # a last part of digits is a mistyped address

ApprovalMode: TypeAlias = Literal["allow-all", "deny-all", "read-only", "always-ask"]
"""``read-only`` allows tools that only look and asks for the rest."""


class ModelRef(Struct, frozen=True):
    """A model's identity: always the pair, neither half is inferred from the other."""

    provider: Name
    model_id: Name

    def __str__(self) -> str:
        return f"{self.provider}/{self.model_id}"


class Pricing(Struct, frozen=True):
    """US dollars per million tokens; ``None`` is unknown. ``cache_write`` prices all other input."""

    unit: Literal["usd_per_mtok"] = "usd_per_mtok"
    cache_read: Price | None = None
    cache_write: Price | None = None
    output: Price | None = None


class ModelEntry(Struct, frozen=True, kw_only=True):
    """One ``[[models]]`` entry; ``None`` leaves a value to the catalogue or the default.

    ``context_window`` and ``max_tokens`` are in tokens (a window of 0 is unknown);
    ``request_timeout_ms <= 0`` turns the clocks off; ``extra_body`` is merged into request bodies.
    ``max_tokens`` is how long a reply may be, ``max_output`` how long the model can make it at most;
    ``thinking_level`` is how much it shall think, ``thinking_levels`` what it accepts (empty: it does not
    think), ``thinking_control`` how it is told.
    ``repr`` hides the API key.
    """

    provider: Name
    model_id: Name
    client_type: ClientType | None = None
    context_window: Annotated[int, Meta(ge=0)] | None = None
    max_tokens: Positive | None = None
    max_output: Positive | None = None
    vision: bool | None = None
    display_name: str | None = None
    pricing: Pricing | None = None
    api_key: str | None = None
    base_url: str | None = None
    created_at: Any = None
    tool_calls: ToolCalls | None = None
    thinking_level: ThinkingLevel | None = None
    thinking_levels: tuple[ThinkingLevel, ...] | None = None
    thinking_control: ThinkingControl | None = None
    extra_body: dict[str, Any] | None = None
    request_timeout_ms: int | None = None

    @property
    def ref(self) -> ModelRef:
        """The pair that names this entry."""
        return ModelRef(self.provider, self.model_id)

    def __repr__(self) -> str:
        shown = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        if self.api_key:
            shown["api_key"] = "(hidden)"
        return f"ModelEntry({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class CommandRule(Struct, frozen=True):
    """Commands that are never run: ``pattern`` is a regular expression on one normalised simple command."""

    name: Name
    pattern: str
    description: str = ""
    enabled: bool = True


class CommandPolicy(Struct, frozen=True):
    """``rules`` is ``None`` when the list is absent, which means the factory set."""

    rules: tuple[CommandRule, ...] | None = None


class Approvals(Struct, frozen=True):
    """Who decides about tool calls; ``unanswered`` is the answer where nobody can be asked."""

    mode: ApprovalMode | None = None
    unanswered: Literal["deny", "allow"] = "deny"
    rules: tuple[dict[str, Any], ...] = ()


class Sandbox(Struct, frozen=True):
    """Confinement of commands and file tools; a list that is absent (``None``) means the factory set.

    ``hidden`` are paths that cannot be seen, ``protected`` names in the workspace that cannot be changed,
    ``writable`` places outside it that can. ``~`` stands for the home directory.
    """

    mode: Literal["off", "read-only", "workspace-write"] = "off"
    network: bool = True
    hidden: tuple[str, ...] | None = None
    protected: tuple[str, ...] | None = None
    writable: tuple[str, ...] | None = None


class Fetch(Struct, frozen=True):
    """What tools may fetch (``read_image`` of an address).

    Public addresses always; ``allowed_hosts`` are the user's own hosts that may be fetched from too: names
    (``wiki.local``), addresses and networks (``10.0.0.0/8``).

    Example::

        [fetch]
        allowed_hosts = ["wiki.local", "192.168.0.0/16"]
    """

    allowed_hosts: tuple[str, ...] = ()


class Commands(Struct, frozen=True):
    """What commands get: ``allowed_variables`` pass to them although they look like keys of the harness.

    Each is a name, or a pattern in which ``*`` stands for any characters and ``?`` for one.

    Example: ``allowed_variables = ["OPENAI_API_KEY", "MY_*_API_KEY"]``.
    """

    allowed_variables: tuple[Name, ...] = ()


class Budgets(Struct, frozen=True):
    """Limits of one task; ``None`` is unlimited. ``seconds`` is wall time, ``usd`` US dollars."""

    turns: Positive | None = None
    tokens: Positive | None = None
    usd: Price | None = None
    seconds: Annotated[float, Meta(ge=0)] | None = None


class ProjectConfig(Struct, frozen=True):
    """The whole file; a project without one is the empty ``ProjectConfig()``."""

    name: str | None = None
    default_model: ModelRef | None = None
    vision_model: ModelRef | None = None
    models: tuple[ModelEntry, ...] = ()
    command_policy: CommandPolicy = CommandPolicy()
    approvals: Approvals = Approvals()
    sandbox: Sandbox = Sandbox()
    commands: Commands = Commands()
    budgets: Budgets = Budgets()
    fetch: Fetch = Fetch()

    def model(self, ref: ModelRef) -> ModelEntry | None:
        """The entry of that pair, if there is one."""
        return next((entry for entry in self.models if entry.ref == ref), None)


class ProjectConfigFile:
    """Read and change one ``.project_config.toml``.

    Each change reads the file again under its lock, so two writers do not lose each other's change,
    and keeps comments, order and unknown keys. The file is always written with mode 0600.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> ProjectConfig:
        """The configuration; the empty one when there is no file.

        Raises:
            ConfigError: with file, line and field; nothing falls back to a default silently.
        """
        return _checked_config(*parse_toml(self.path))

    def list_models(self) -> tuple[ModelEntry, ...]:
        """The ``[[models]]`` entries in the order of the file; raises ConfigError as :meth:`read` does."""
        return self.read().models

    def unknown_keys(self) -> list[ConfigProblem]:
        """Keys without effect, perhaps misspelt: worth a warning, kept in the file."""
        tables, source = parse_toml(self.path)
        return unknown_keys(tables, ProjectConfig, source)

    def error_about(self, field: FieldPath, message: str) -> ConfigError:
        """An error about one field of the file, with its line: for a fault only a reader of the values can see.

        Example::

            raise file.error_about(("models", 0, "base_url"), "is missing")
        """
        _, source = parse_toml(self.path)
        return source.error(field, message)

    def error_about_model(self, ref: ModelRef, name: str, message: str) -> ConfigError:
        """The same about field ``name`` of the model's entry; what may be its misspelling is named."""
        index = next((place for place, entry in enumerate(self.list_models()) if entry.ref == ref), None)
        if index is None:
            return self.error_about(("models",), message)
        within = f"models[{index}]."
        strangers = [str(each.field).removeprefix(within) for each in self.unknown_keys() if within in str(each.field)]
        if strangers:
            message += f" ({', '.join(strangers)} is no key of an entry)"
        return self.error_about(("models", index, name), message)

    def add_model(self, entry: ModelEntry, *, default: bool = False) -> None:
        """Add the entry, or replace the values of the entry with the same pair (its unknown keys stay).

        Args:
            entry: ``created_at`` is filled in; a replaced entry keeps the old one.
            default: also make it the default model.

        Raises:
            ConfigError: the file or the entry is wrong; nothing was written.
        """
        # A struct built in Python is not validated, and in the file the complaint would name a line nobody wrote.
        checked(msgspec.structs.asdict(entry), ModelEntry, Source(self.path, lambda _field: None))

        def edit(document: TOMLDocument) -> None:
            _put_model(document, entry)
            if default:
                _put_ref(document, "default_model", entry.ref)

        self._edit(edit)

    def remove_model(self, ref: ModelRef) -> None:
        """Remove the entry, and the default or vision choice that points to it.

        Raises:
            ConfigError: there is no such entry (the message lists those there are), or the file is wrong.
        """

        def edit(document: TOMLDocument) -> None:
            self._require(ref, document)
            models: Any = document["models"]
            del models[_position(models, ref)]
            if not models:
                del document["models"]
            for choice in ("default_model", "vision_model"):
                if _refers(document.get(choice), ref):
                    del document[choice]

        self._edit(edit)

    def set_default(self, ref: ModelRef) -> None:
        """Choose the model for new sessions; raises ConfigError when the pair has no entry."""
        self._choose("default_model", ref)

    def set_vision_model(self, ref: ModelRef | None) -> None:
        """Choose the model that describes images to text-only ones, or none; raises ConfigError as above."""
        self._choose("vision_model", ref)

    def add_approval_rules(self, rules: Iterable[Mapping[str, str]]) -> None:
        """Append learnt rules to ``[approvals]``; those that stand there already are not doubled."""

        def edit(document: TOMLDocument) -> None:
            known = _approval_rules(document)
            known += [dict(rule) for rule in rules if dict(rule) not in [dict(each) for each in known]]

        self._edit(edit)

    def remove_approval_rule(self, index: int) -> dict[str, Any]:
        """Remove the rule at ``index`` (from 0) and return it; raises ConfigError when there is none."""
        removed: dict[str, Any] = {}

        def edit(document: TOMLDocument) -> None:
            known = _approval_rules(document)
            if not 0 <= index < len(known):
                raise config_error(self.path, f"there is no approval rule {index + 1}; there are {len(known)}")
            removed.update(known[index].unwrap() if hasattr(known[index], "unwrap") else known[index])
            del known[index]

        self._edit(edit)
        return removed

    def _choose(self, choice: str, ref: ModelRef | None) -> None:
        def edit(document: TOMLDocument) -> None:
            if ref is None:
                document.pop(choice, None)
                return
            self._require(ref, document)
            _put_ref(document, choice, ref)

        self._edit(edit)

    def _require(self, ref: ModelRef, document: TOMLDocument) -> None:
        models: Iterable[Any] = document.get("models", ())
        if _position(models, ref) is None:
            known = ", ".join(f"{entry['provider']}/{entry['model_id']}" for entry in models) or "none"
            raise config_error(self.path, f"there is no model {ref}; configured: {known}")

    def _edit(self, edit: Callable[[TOMLDocument], None]) -> None:
        edit_toml(self.path, edit, _checked_config)


def _approval_rules(document: TOMLDocument) -> Any:
    approvals: Any = document.setdefault("approvals", {})
    return approvals.setdefault("rules", [])


# ---------------------------------------------------------------- what the types cannot say


def _checked_config(tables: dict[str, Any], source: Source) -> ProjectConfig:
    config = checked(tables, ProjectConfig, source)
    _refuse_doubled_models(config, source)
    _refuse_broken_patterns(config, source)
    _refuse_broken_addresses(config, source)
    _refuse_broken_hosts(config, source)
    _refuse_impossible_variables(config, source)
    return config


def _refuse_doubled_models(config: ProjectConfig, source: Source) -> None:
    seen: set[ModelRef] = set()
    for index, entry in enumerate(config.models):
        if entry.ref in seen:
            raise source.error(("models", index), f"{entry.ref} is given twice; allowed is one entry per model")
        seen.add(entry.ref)


def _refuse_broken_patterns(config: ProjectConfig, source: Source) -> None:
    for index, rule in enumerate(config.command_policy.rules or ()):
        try:
            re.compile(rule.pattern)
        except re.error as error:
            field: FieldPath = ("command_policy", "rules", index, "pattern")
            raise source.error(field, f"found {rule.pattern!r}, expected a regular expression: {error}") from None


def _refuse_broken_addresses(config: ProjectConfig, source: Source) -> None:
    for index, entry in enumerate(config.models):
        if entry.base_url is not None and not _is_address(entry.base_url):
            field: FieldPath = ("models", index, "base_url")
            shown = entry.base_url.rpartition("@")[2]
            raise source.error(field, f"found {shown!r}, expected an address that begins with http:// or https://")


def _refuse_broken_hosts(config: ProjectConfig, source: Source) -> None:
    for index, host in enumerate(config.fetch.allowed_hosts):
        if not _HOST.fullmatch(host) and not _is_network(host):
            field: FieldPath = ("fetch", "allowed_hosts", index)
            expected = "the name of a host, an address, or a network such as 10.0.0.0/8 (no scheme, no port)"
            raise source.error(field, f"found {host!r}, expected {expected}")


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _refuse_impossible_variables(config: ProjectConfig, source: Source) -> None:
    for index, name in enumerate(config.commands.allowed_variables):
        if not re.fullmatch(r"[A-Za-z_*?][A-Za-z0-9_*?]*", name):
            field: FieldPath = ("commands", "allowed_variables", index)
            raise source.error(field, f"found {name!r}, expected the name of a variable, perhaps with * or ?")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False


# ---------------------------------------------------------------- edits of the document


def _put_model(document: TOMLDocument, entry: ModelEntry) -> None:
    import tomlkit  # noqa: PLC0415 - only a writer needs it

    if "models" not in document:
        document["models"] = tomlkit.aot()
    models: Any = document["models"]
    values = _written(entry)
    position = _position(models, entry.ref)
    if position is None:
        values.setdefault("created_at", _now())
        models.append(_section(values) if isinstance(models, tomlkit.items.AoT) else _inline(values))
        return
    for name in set(ModelEntry.__struct_fields__) - values.keys() - {"created_at"}:
        models[position].pop(name, None)
    _fill(models[position], values)


def _written(entry: ModelEntry) -> dict[str, Any]:
    """What the entry says, without what it leaves open."""
    values = msgspec.structs.asdict(entry)
    if entry.pricing:
        values["pricing"] = {
            name: price for name, price in msgspec.structs.asdict(entry.pricing).items() if price is not None
        }
    # The writer knows lists, not tuples; and only lists compare equal to what it read.
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value is not None
    }


def _section(values: dict[str, Any]) -> Table:
    import tomlkit  # noqa: PLC0415 - only a writer needs it

    table = tomlkit.table()
    _fill(table, values)
    table.add(tomlkit.nl())
    return table


def _fill(table: Any, values: dict[str, Any]) -> None:
    """Set what differs, in place, so that what does not differ keeps its form and comments."""
    for name, value in values.items():
        old = table.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            for gone in old.keys() - value.keys():
                del old[gone]
            _fill(old, value)
        elif name not in table or old != value:
            table[name] = _inline(value) if isinstance(value, dict) else value


def _inline(values: dict[str, Any]) -> InlineTable:
    # A sub-table of its own would swallow every key that is added to the entry later.
    import tomlkit  # noqa: PLC0415 - only a writer needs it

    table = tomlkit.inline_table()
    for name, value in values.items():
        table.append(name, _inline(value) if isinstance(value, dict) else value)
    return table


def _position(models: Iterable[Any], ref: ModelRef) -> int | None:
    return next((index for index, entry in enumerate(models) if _refers(entry, ref)), None)


def _refers(entry: Any, ref: ModelRef) -> bool:
    return entry is not None and (entry["provider"], entry["model_id"]) == (ref.provider, ref.model_id)


def _put_ref(document: TOMLDocument, choice: str, ref: ModelRef) -> None:
    import tomlkit  # noqa: PLC0415 - only a writer needs it

    if choice not in document:
        document[choice] = tomlkit.table()
    _fill(document[choice], msgspec.structs.asdict(ref))


def _now() -> str:
    return dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")
