"""What ``penguin doctor`` looks at: one question a function, cheap; nothing leaves this machine."""

from __future__ import annotations

import locale
import os
import platform
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penguin._version import VERSION
from penguin.agent.configured_tools import configured_tools
from penguin.agent.model_report import ModelReport, keys_in, report_models
from penguin.cli.connecting import command_to_connect, model_to_offer
from penguin.cli.render.text import one_line
from penguin.protocol.errors import ConfigError
from penguin.state.agent_files import AgentConfig, read_agent_config, unknown_agent_keys
from penguin.state.project import ProjectConfig, ProjectConfigFile, Sandbox
from penguin.state.vault import VaultFile

if TYPE_CHECKING:
    from penguin.llm.probing import LocalServer
    from penguin.state.paths import AgentPaths

ADD_MODEL = "penguin config model add --provider openai --model-id MODEL --api-key KEY --set-default"
OWN_SERVER = "penguin config model add --provider custom --model-id MODEL --base-url URL --set-default"
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; ``bad`` is what keeps a task from running."""

    verdict: Literal["good", "remark", "bad"]
    text: str
    advice: str = ""


def examine(paths: AgentPaths) -> Iterator[Finding]:
    """Everything a task needs, in the order in which it would be missed."""
    yield Finding("good", f"penguin {VERSION}, Python {platform.python_version()}, {platform.system()}")
    yield _data_root(paths.project.path.parent)
    yield from _configuration(paths)
    yield _shell()
    yield _sandbox(paths)
    yield from _terminal()


def _data_root(root: Path) -> Finding:
    # The first directory that exists decides whether the rest can be made.
    there = next(directory for directory in (root, *root.parents) if directory.exists())
    if os.access(there, os.W_OK | os.X_OK) and there.is_dir():
        return Finding("good", f"data root {root}" + ("" if there == root else " (made with the first session)"))
    return Finding(
        "bad",
        f"data root {root}: {there} cannot be written",
        "Name another one with PENGUIN_HOME or --root, or give yourself the right to write there.",
    )


def _configuration(paths: AgentPaths) -> Iterator[Finding]:
    project, agent = ProjectConfig(), AgentConfig()
    file = ProjectConfigFile(paths.project.config)
    try:
        project = file.read()
        agent = read_agent_config(paths.system_config)
        secrets = VaultFile(paths.vault).names()
        configured_tools(agent, paths.system_config)
    except ConfigError as error:
        yield Finding("bad", str(error), "Put that right; nothing is used instead of it, and nothing was changed.")
        return
    for name, path in (("project", paths.project.config), ("agent", paths.system_config)):
        there = path.exists()
        yield Finding(
            "good" if there else "remark",
            f"{name} configuration {path}" + ("" if there else ": none, the defaults hold"),
        )
    for problem in (*file.unknown_keys(), *unknown_agent_keys(paths.system_config)):
        yield Finding("remark", str(problem), "It has no effect.")
    yield from _permissions(paths)
    if secrets:
        yield Finding("good", f"vault: {', '.join(secrets)}")
    yield from _models(project, agent)
    yield from _local_servers(project)


def _permissions(paths: AgentPaths) -> Iterator[Finding]:
    for path in (paths.project.config, paths.vault):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield Finding("remark", f"{path} can be read by others, and it holds keys", f"chmod 600 {path}")


def _models(project: ProjectConfig, agent: AgentConfig) -> Iterator[Finding]:
    reports = report_models(project, agent, os.environ)
    for report in reports:
        yield _model(report, is_default=report.ref == project.default_model)
    if not reports:
        yield _no_model()
    elif project.default_model is None and len(reports) > 1:
        yield Finding("bad", "several models and no default", "penguin config model default PROVIDER MODEL_ID")


def _model(report: ModelReport, *, is_default: bool) -> Finding:
    name = f"model {report.ref}" + (" (default)" if is_default else "")
    if report.problem is not None:
        return Finding("bad" if is_default else "remark", f"{name}: {report.problem}")
    where = next((field for field in report.fields if field.name == "base_url"), None)
    key = next((field for field in report.fields if field.name == "api_key"), None)
    source = "no key" if key is None or key.value is None else f"key from {_source(key.source)}"
    return Finding("good", f"{name} at {where.value if where else '?'}, {source}")


def _source(source: str) -> str:
    return "the project configuration" if source == "entry" else source


def _no_model() -> Finding:
    found = keys_in(os.environ)
    if found:
        provider, variable = found[0]
        return Finding(
            "bad",
            f"no model is configured; there is a key in {variable}",
            f"penguin config model add --provider {provider} --model-id MODEL --set-default",
        )
    return Finding(
        "bad", "no model is configured", f"{ADD_MODEL}\n    {OWN_SERVER}\n    penguin demo  (needs no model)"
    )


def _local_servers(project: ProjectConfig) -> Iterator[Finding]:
    """Model servers that run on this machine, and the command that connects one."""
    from penguin.agent.probing import running_servers  # noqa: PLC0415 - nothing else here opens a connection

    for server in running_servers():
        connected = any(entry.provider == server.provider for entry in project.models) or any(
            (entry.base_url or "").rstrip("/") == server.base_url for entry in project.models
        )
        advice = "" if connected else _connect(server)
        if server.wants_key:
            text = f"something at {server.base_url}, where {server.provider} usually is, wants a key"
            yield Finding("good", text, advice)
            continue
        names = ", ".join(map(one_line, server.models[:_NAMED])) or "no model"
        more = f" and {len(server.models) - _NAMED} more" if len(server.models) > _NAMED else ""
        yield Finding("good", f"{server.provider} runs at {server.base_url} with {names}{more}", advice)


def _connect(server: LocalServer) -> str:
    model, remark = model_to_offer(server.models)
    command = command_to_connect(server.provider, model, api_key=server.wants_key)
    if server.wants_key:
        remark = f"its models: penguin config model detect {server.base_url} --api-key KEY"
    return command + (f"\n    ({remark})" if remark else "")


def _shell() -> Finding:
    bash = shutil.which("bash")
    if bash:
        return Finding("good", f"commands run in {bash}")
    return Finding("bad", "there is no bash on PATH, and commands run in it", "Install bash.")


def _sandbox(paths: AgentPaths) -> Finding:
    from penguin.environment.sandbox.probe import probe  # noqa: PLC0415 - this command only

    try:
        settings = ProjectConfigFile(paths.project.config).read().sandbox
    except ConfigError:  # said already
        settings = Sandbox()
    found = probe(network=settings.network)
    if found.mechanism is None:
        wanted = settings.mode != "off"
        refused = f"sandbox {settings.mode}: every command is refused, for" if wanted else "no sandbox can be set up:"
        return Finding("bad" if wanted else "remark", f"{refused} {found.problem}", f"{found.advice}.")
    how = "is off" if settings.mode == "off" else f"is {settings.mode}, network {'on' if settings.network else 'off'}"
    return Finding("good", f"sandbox: bubblewrap {found.mechanism.version} works; the project's sandbox {how}")


def _terminal() -> Iterator[Finding]:
    encoding = locale.getpreferredencoding(do_setlocale=False)
    if encoding.lower().replace("-", "") != "utf8":
        yield Finding("remark", f"text is shown as {encoding}", "With LANG=C.UTF-8 every character can be shown.")
