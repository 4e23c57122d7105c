"""What must hold for the repository itself: nothing of one machine in it, locks that lock, documents that fit."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOCK_FILES = ("requirements.txt", "requirements-build.txt", "requirements-dev.txt", "requirements-uv.txt")
PLACEHOLDER_NAMES = "(?:ada|me|user|you)"

# Each is put together from pieces, so that this file does not contain what it looks for.
FORBIDDEN = {
    "a package registry's host": "|".join(
        ["py" + r"pi\.(?:org|python)", "pythonhosted" + r"\.org", "registry" + r"\.npmjs"]
    ),
    "an index address": r"https?://[^\s\"'<>]+/sim" + r"ple\b",
    "a package file's address": r"https?://[^\s\"'<>]+\.(?:w" + r"hl|tgz|tar\.gz)\b",
    "a path in somebody's home": r"/ro" + r"ot/|/(?:home|Users)/(?!" + PLACEHOLDER_NAMES + r"\b)[a-z][\w.-]*/",
    "an API key": r"\bs" + r"k-(?:ant-|proj-)?[A-Za-z0-9_]{24,}|\bAI" + r"za[\w-]{35}|\bAK" + r"IA[0-9A-Z]{16}\b",
    "an access token": r"\bgh" + r"[pousr]_[A-Za-z0-9]{36}|\bxox" + r"[abp]-[A-Za-z0-9-]{20,}",
    "a private key": "-----BEGIN [A-Z ]*PRIV" + "ATE KEY-----",
}


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout: nothing says which files are tracked")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    return [ROOT / name for name in os.fsdecode(listed).split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_contains(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"{what} in {', '.join(found)}"


def test_the_lock_file_of_npm_has_a_hash_for_each_package_and_no_address() -> None:
    directory = ROOT / "tests/environment/mcp/reference_servers"
    wanted = json.loads((directory / "package.json").read_text())["dependencies"]
    packages = json.loads((directory / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["dependencies"] == wanted
    assert [name for name, each in packages.items() if not each.get("integrity", "").startswith("sha512-")] == []
    assert [name for name, each in packages.items() if "resolved" in each] == []
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted


def test_no_tracked_file_names_this_checkout() -> None:
    here = f"{ROOT}{os.sep}".encode()
    assert [path.name for path in tracked_files() if here in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a package registry's host", "https://files.python" + "hosted.org/x"),
        ("an index address", "--index-url https://mirror.example/sim" + "ple"),
        ("a package file's address", "https://mirror.example/a-1.w" + "hl"),
        ("a path in somebody's home", "/ro" + "ot/x"),
        ("a path in somebody's home", "/ho" + "me/maria/x"),
        ("an API key", "s" + "k-" + "a1" * 20),
        ("an access token", "gh" + "p_" + "a1" * 18),
        ("a private key", "-----BEGIN RSA PRIV" + "ATE KEY-----"),
    ],
)
def test_the_patterns_find_what_they_are_for(what: str, line: str) -> None:
    assert re.search(FORBIDDEN[what], line)


def test_placeholder_homes_and_short_made_up_keys_are_allowed() -> None:
    allowed = "/ho" + "me/user/project s" + "k-test-1234"
    assert not any(re.search(pattern, allowed) for pattern in FORBIDDEN.values())


# ---------------------------------------------------------------- locks


def locked(name: str) -> dict[str, list[str]]:
    """The requirements of a lock file: `name==version` with its hashes."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    return {line.split()[0]: re.findall(r"--hash=sha256:[0-9a-f]{64}", line) for line in lines}


@pytest.mark.parametrize("name", LOCK_FILES)
def test_every_locked_requirement_has_a_version_and_hashes(name: str) -> None:
    requirements = locked(name)
    assert requirements
    assert all("==" in requirement for requirement in requirements)
    assert [requirement for requirement, hashes in requirements.items() if not hashes] == []


def test_lock_files_that_are_installed_together_agree() -> None:
    pins = [dict(requirement.split("==") for requirement in locked(name)) for name in LOCK_FILES]
    versions = {name: {pin[name] for pin in pins if name in pin} for pin in pins for name in pin}
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_what_pyproject_asks_for_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {
        "requirements.txt": project["project"]["dependencies"],
        **{f"requirements-{group}.txt": asked for group, asked in project["dependency-groups"].items()},
    }
    missing = [
        asked
        for name, requirements in wanted.items()
        for asked in requirements
        if normalised(re.split(r"[\s<>=~!\[;]", asked)[0]) not in {pin.split("==")[0] for pin in locked(name)}
    ]
    assert not missing, "run `python3 dev.py lock`"


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# ---------------------------------------------------------------- scripts and documents


def test_dev_py_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse((ROOT / "dev.py").read_text(encoding="utf-8"))
    imports = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imports |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imports} <= sys.stdlib_module_names


@pytest.mark.parametrize("script", [".ci/run", "dev.py"])
def test_scripts_are_executable(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)


def test_the_map_for_coding_agents_is_short_and_true() -> None:
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    named = re.findall(r"`((?:src|tests|bench|decisions|\.ci)/[^`\s]*)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_decisions_are_numbered_without_gaps_and_whole() -> None:
    records = sorted((ROOT / "decisions").glob("*.md"))
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for record in records:
        sections = re.findall(r"^## (.+)$", record.read_text(encoding="utf-8"), re.MULTILINE)
        assert sections == ["Context", "Decision", "What it gives up", "How it is checked"], record.name


def test_links_between_documents_lead_somewhere() -> None:
    documents = [path for path in tracked_files() if path.suffix == ".md" and path.is_relative_to(ROOT)]
    broken = [
        f"{document.name}: {link}"
        for document in documents
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
        if not (document.parent / link).exists()
    ]
    assert not broken


# ---------------------------------------------------------------- the import contract can break

VIOLATIONS = {
    "penguin/engine/x.py": ("import penguin.llm", "Imports point downwards"),
    "penguin/protocol/x.py": ("import penguin.session", "Imports point downwards"),
    "penguin/agent/x.py": ("import httpx2", "Only llm"),
    "penguin/session/x.py": ("import click", "Only cli"),
    "penguin/environment/x.py": ("import mcp", "Only environment.mcp"),
    "penguin/cli/x.py": ("import fastapi", "Only server"),
    "penguin/cli/y.py": ("import penguin.engine", "The command line"),
    "penguin/agent/y.py": ("import penguin.testing", "The fakes stay out"),
}


def test_each_import_contract_breaks_when_it_should(tmp_path: Path) -> None:
    layers = ("cli", "agent", "session", "engine", "llm", "environment", "trace", "state", "protocol", "testing")
    for package in ("", *layers):
        _write(tmp_path / "penguin" / package / "__init__.py", "")
    assert "0 broken" in _contracts(tmp_path)

    for path, (line, _) in VIOLATIONS.items():
        _write(tmp_path / path, line + "\n")
    report = _contracts(tmp_path)
    for path, (line, contract) in VIOLATIONS.items():
        module = path.removesuffix(".py").replace("/", ".")
        broken = f"{module} -> {line.removeprefix('import ')}"
        assert re.search(rf"^{contract}.*?BROKEN", report, re.MULTILINE | re.DOTALL), contract
        assert broken in report


def _contracts(package_dir: Path) -> str:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run(
        [str(linter), "--no-logo", "--no-cache", "--config", str(ROOT / "pyproject.toml")],
        cwd=package_dir,
        env={**os.environ, "PYTHONPATH": str(package_dir)},
        check=False,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# ---------------------------------------------------------------- the guard of conftest.py


def test_the_network_guard_refuses_the_world_and_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(
        """
        import contextlib
        import socket

        def test_swallows_the_refusal():
            with contextlib.suppress(OSError), socket.socket() as sock:
                sock.connect(("192.0.2.1", 9))

        def test_looks_up_a_name():
            with contextlib.suppress(OSError):
                socket.getaddrinfo("example.invalid", 80)
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(["*reached for the real network: 192.0.2.1*", "*network: example.invalid*"])


def test_the_network_guard_lets_loopback_through() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()
