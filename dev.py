#!/usr/bin/env python3
"""Set up, run, test, lock, measure and build Penguin, with Python's standard library alone.

    python3 dev.py run                 the demo, which needs neither a key nor a network
    python3 dev.py run run -m "TASK"   any penguin command: everything after the first `run` goes to penguin
    python3 dev.py test [--long] ...   lint, types, import contracts and tests; the rest goes to pytest
    python3 dev.py bench [NAME ...]    the scripts of bench/
    python3 dev.py build               wheel and sdist into dist/
    python3 dev.py lock [--upgrade]    refresh the lock files from pyproject.toml

Each of them first makes or refreshes `.venv`, which costs nothing while the lock files stay the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"

OLDEST = (3, 11)
NAMES_ON_PATH = ("python3.13", "python3.12", "python3.11", "python3.14", "python3", "python")

RUN = "run"
DEV = "dev"
LOCKS = {
    RUN: ("requirements-build.txt", "requirements.txt"),
    DEV: ("requirements-build.txt", "requirements-dev.txt"),
}


SYSTEM_PACKAGES = {"bwrap": "bubblewrap", "perl": "perl-base", "git": "git"}
"""Programs the tests need, and Debian's package for each: what tests the sandbox is skipped without them."""


REFERENCE_SERVERS = Path("tests", "environment", "mcp", "reference_servers")
"""Where the npm lock file is of the MCP servers of other makers that the tests talk to."""


class DevError(Exception):
    """Something that a person has to put right; the text says what happened, where, and what to do."""


# ---------------------------------------------------------------- the interpreter


def ensure_interpreter() -> None:
    """Return when this Python can make the environment; otherwise start again with one that can.

    Raises:
        DevError: no suitable Python is on PATH.
    """
    if os.name == "nt":
        message = "Penguin runs on Linux and macOS. On Windows, open a WSL terminal and run the same command there."
        raise DevError(message)
    missing = _missing_in(sys.executable)
    if not missing:
        return
    other = _better_interpreter()
    if other is None:
        raise DevError(_no_interpreter(missing))
    _say(f"set-up: {sys.executable} {missing}; going on with {other}")
    os.execv(other, [other, str(ROOT / "dev.py"), *sys.argv[1:]])  # noqa: S606 - replacing this process is the point


def _missing_in(python: str) -> str:
    """Say in words what keeps `python` from making the environment; empty when nothing does."""
    probe = f"import sys; sys.exit(9 if sys.version_info < {OLDEST} else 0)"
    if _quiet([python, "-c", probe]) != 0:
        return "is older than Python {}.{}".format(*OLDEST)
    # Debian splits the standard library: a Python without `ensurepip` makes a venv without pip.
    if _quiet([python, "-c", "import venv, ensurepip"]) != 0:
        return "lacks the modules venv or ensurepip"
    return ""


def _better_interpreter() -> str | None:
    found = (shutil.which(name) for name in NAMES_ON_PATH)
    # A pyenv shim is on PATH even when no such version is selected, so a name proves nothing: ask it.
    return next((python for python in found if python and not _missing_in(python)), None)


def _no_interpreter(missing: str) -> str:
    return (
        f"{sys.executable} {missing}, and no other Python on PATH is {OLDEST[0]}.{OLDEST[1]} or newer with venv. "
        f"Install one (Debian and Ubuntu: apt-get install python3 python3-venv; macOS: brew install python@3.13) "
        f"and run the same command again."
    )


# ---------------------------------------------------------------- set-up


def set_up(level: str) -> None:
    """Make `.venv` hold what `level` needs; does nothing and needs no network when it already does.

    Args:
        level: `RUN` for the product, `DEV` for its tests and tools as well.

    Raises:
        DevError: the environment could not be made or a package could not be installed.
    """
    with _one_at_a_time():
        if not _venv_is_ours():
            _make_venv()
        if _stamp(level) == _digest(level):
            return
        _bring_uv()
        _install_locked(level)
        _install_project()
        _write_stamps(level)


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    import fcntl  # noqa: PLC0415 - absent on Windows, which is told about WSL before this line

    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _identity() -> str:
    # Scripts in a venv carry its absolute path: a checkout that was moved or copied needs a new one.
    return f"{ROOT} {sys.version_info[0]}.{sys.version_info[1]}"


def _venv_is_ours() -> bool:
    return PYTHON.exists() and _read(VENV / ".penguin-venv") == _identity()


def _make_venv() -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    # Seen from inside a venv, `sys.executable` may be the very environment that gets replaced here.
    python = getattr(sys, "_base_executable", None) or sys.executable
    with _step(f"making .venv with Python {version}"):
        _must([python, "-m", "venv", "--clear", str(VENV)], "Check that the disk is not full and that you own it.")
        (VENV / ".penguin-venv").write_text(_identity(), encoding="utf-8")


def _bring_uv() -> None:
    with _step("installing uv"):
        pip = _captured([str(PYTHON), "-m", "pip", "install", "--require-hashes", "-r", "requirements-uv.txt"])
    if pip.returncode != 0:
        _say("set-up: no uv for this platform or from this registry; pip does its work, more slowly")


def _install_locked(level: str) -> None:
    files = [part for name in LOCKS[level] for part in ("-r", name)]
    with _step("installing the locked requirements"):
        _uv_or_pip(["install", "--require-hashes", *files])


def _install_project() -> None:
    with _step("installing penguin itself, editable"):
        # The build backend is locked and already there; isolation would fetch an unlocked one from the network.
        _uv_or_pip(["install", "--no-deps", "--no-build-isolation", "--no-index", "-e", "."])


def _uv_or_pip(arguments: Sequence[str]) -> None:
    uv = BIN / "uv"
    # uv does not read pip's configuration, so a registry set up for pip alone is one that only pip finds.
    if uv.exists() and _captured([str(uv), "pip", *arguments, "--python", str(PYTHON)]).returncode == 0:
        return
    _must(
        [str(PYTHON), "-m", "pip", *arguments],
        "Check the connection to your package registry (pip's own settings are used: PIP_INDEX_URL, pip.conf).",
    )


def _digest(level: str) -> str:
    digest = hashlib.sha256(_identity().encode())
    for name in ("pyproject.toml", "requirements-uv.txt", *LOCKS[level]):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def _stamp(level: str) -> str:
    return _read(VENV / f".penguin-{level}")


def _write_stamps(level: str) -> None:
    # What development needs contains what running needs.
    for stamped in {level, RUN}:
        (VENV / f".penguin-{stamped}").write_text(_digest(stamped), encoding="utf-8")


def bring_system_packages() -> None:
    """Install the programs that the tests need and that no Python package brings; without the right to, say so."""
    missing = [package for program, package in SYSTEM_PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        _say(f"set-up: {', '.join(missing)} missing, tests that need it are skipped; as root: {shlex.join(command)}")
        return
    with _step(f"installing {', '.join(missing)} with apt-get"):
        installed = all(_captured(each).returncode == 0 for each in (["apt-get", "update"], command))
    if not installed:
        _say(f"set-up: that failed, and tests that need it are skipped; try it yourself: {shlex.join(command)}")


def bring_reference_servers() -> None:
    """Install the locked MCP servers from npm into `.venv/mcp-servers`; where that cannot be, say so and go on.

    Raises:
        DevError: npm is here and fails, on a build server (`CI=true`), where nobody reads what was skipped.
    """
    if shutil.which("npm") is None or shutil.which("node") is None:
        _say("set-up: no npm, tests against the MCP reference servers are skipped; install Node.js to have them")
        return
    # Of the checkout only, not of the interpreter: nothing in there depends on it.
    files = [ROOT / REFERENCE_SERVERS / name for name in ("package.json", "package-lock.json")]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    place = VENV / "mcp-servers"
    stamp = place / ".penguin-servers"
    with _one_at_a_time():
        if _read(stamp) == digest:
            return
        place.mkdir(exist_ok=True)
        for file in files:
            shutil.copy(file, place)
        # No install scripts: they would be code from the network that no hash of ours covers. Few tries: a machine
        # without a network must not wait minutes to be told so.
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=30000"]
        command = ["npm", "ci", "--prefix", str(place), *options]
        with _step("installing the MCP reference servers"):
            done = _captured(command)
        if done.returncode == 0:
            stamp.write_text(digest, encoding="utf-8")
            return
    last_words = "\n".join(done.stdout.strip().splitlines()[-5:])
    message = f"`{shlex.join(command)}` failed with status {done.returncode}. It said:\n{last_words}"
    if os.environ.get("CI") == "true":
        raise DevError(message)
    _say(f"set-up: tests against the MCP reference servers are skipped: {message}")


# ---------------------------------------------------------------- commands


def run(arguments: Sequence[str]) -> NoReturn:
    """Become `penguin` with `arguments`, or `penguin demo` without any."""
    set_up(RUN)
    penguin = str(BIN / "penguin")
    os.execv(penguin, [penguin, *(arguments or ["demo"])])  # noqa: S606 - signals and the terminal go straight to it


def test(arguments: Sequence[str]) -> int:
    """Run every check, also after one has failed, and sum up at the end; the status is 1 when any failed."""
    set_up(DEV)
    bring_system_packages()
    bring_reference_servers()
    results = [(name, *_timed(command)) for name, command in _stages(arguments)]
    print("\n== summary")
    for name, status, seconds in results:
        print(f"{'ok    ' if status == 0 else 'FAILED'} {name} ({seconds:.1f} s)")
    return int(any(status for _, status, _ in results))


def _stages(arguments: Sequence[str]) -> list[tuple[str, list[str]]]:
    return [
        ("ruff check", [str(BIN / "ruff"), "check", "."]),
        ("ruff format", [str(BIN / "ruff"), "format", "--check", "."]),
        ("mypy", [str(BIN / "mypy")]),
        ("import-linter", [str(BIN / "lint-imports"), "--no-logo", "--no-cache"]),
        ("pytest", [str(BIN / "pytest"), "-n", "auto", *arguments]),
    ]


def _timed(command: Sequence[str]) -> tuple[int, float]:
    print(f"\n== {shlex.join([Path(command[0]).name, *command[1:]])}", flush=True)
    started = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    return status, time.monotonic() - started


def bench(arguments: Sequence[str]) -> int:
    """Run the scripts of bench/ one after the other, or only those whose name is given."""
    set_up(DEV)
    scripts = [path for path in sorted((ROOT / "bench").glob("[!_]*.py")) if not arguments or path.stem in arguments]
    if not scripts:
        message = f"bench/ in {ROOT} has no script {' or '.join(arguments)}. Look into bench/ for the names."
        raise DevError(message)
    return max(_timed([str(PYTHON), str(script)])[0] for script in scripts)


def build(arguments: Sequence[str]) -> int:
    """Build wheel and sdist into dist/ with the locked build backend."""
    set_up(DEV)
    return _timed([str(PYTHON), "-m", "build", "--no-isolation", *arguments])[0]


def lock(arguments: Sequence[str]) -> int:
    """Write the four lock files anew; with `--upgrade` to the newest versions, otherwise keeping what still fits."""
    with _one_at_a_time():
        if not _venv_is_ours():
            _make_venv()
        _bring_uv()
    _compile("requirements-uv.txt", ["--group", "pyproject.toml:uv"], arguments)
    _compile("requirements-build.txt", ["--group", "pyproject.toml:build"], arguments)
    # The files are installed together, so each must agree with those before it.
    agree = ["-c", "requirements-build.txt"]
    _compile("requirements.txt", ["pyproject.toml", *agree], arguments)
    agree += ["-c", "requirements.txt"]
    _compile("requirements-dev.txt", ["pyproject.toml", "--group", "pyproject.toml:dev", *agree], arguments)
    return 0


def _compile(target: str, sources: Sequence[str], arguments: Sequence[str]) -> None:
    # Without the header: it would name the command line, and with it the registry of whoever ran it.
    options = ["--universal", "--generate-hashes", "--no-header", "--python-version", "{}.{}".format(*OLDEST)]
    with _step(f"locking {target}"):
        _must(
            [str(BIN / "uv"), "pip", "compile", *sources, *options, *arguments, "-o", target],
            "Put the dependencies in pyproject.toml right and run `python3 dev.py lock` again.",
        )


# ---------------------------------------------------------------- processes and words


def _environment() -> dict[str, str]:
    # uv may otherwise fetch an interpreter of its own: hundreds of megabytes that nobody asked for.
    return {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _captured(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env=_environment(),
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )


def _must(command: Sequence[str], advice: str) -> None:
    done = _captured(command)
    if done.returncode != 0:
        last_words = "\n".join(done.stdout.strip().splitlines()[-15:])
        message = (
            f"`{shlex.join(command)}` failed in {ROOT} with status {done.returncode}. {advice} It said:\n{last_words}"
        )
        raise DevError(message)


def _quiet(command: Sequence[str]) -> int:
    try:
        return _captured(command).returncode
    except OSError:
        return -1


@contextlib.contextmanager
def _step(title: str) -> Iterator[None]:
    # On stderr: `python3 dev.py run run --json | ...` must print messages and nothing else.
    started = time.monotonic()
    _say(f"set-up: {title} ... ", end="")
    try:
        yield
    except BaseException:
        _say("failed")
        raise
    _say(f"{time.monotonic() - started:.1f} s")


def _say(line: str, end: str = "\n") -> None:
    print(line, file=sys.stderr, end=end, flush=True)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


COMMANDS = {"run": run, "test": test, "bench": bench, "build": build, "lock": lock}


def main(arguments: Sequence[str]) -> int:
    """Run one command and return the exit status: 2 when it could not even start."""
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        print((__doc__ or "").strip())
        return 0 if arguments and arguments[0] in {"-h", "--help", "help"} else 2
    try:
        ensure_interpreter()
        return command(arguments[1:])
    except DevError as error:
        _say(f"dev.py: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
