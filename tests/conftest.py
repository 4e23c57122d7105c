"""What holds for every test: no real network, no real data root, anyio on asyncio, examples that repeat."""

from __future__ import annotations

import ipaddress
import itertools
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent

# A slow machine is not a broken product, so no deadline; the same examples each time, so that red means changed.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", deadline=None, max_examples=2_000, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests marked `long`, with many more examples")


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts a job in the background lets it ignore Ctrl-C, and what the tests start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.load_profile("long" if config.getoption("--long") else "ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    skipped = pytest.mark.skip(reason="long; runs with --long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skipped)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asyncio, as in production; a directory of tests that must hold on trio too overrides this fixture."""
    return "asyncio"


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """The recorded reference traces; the test is skipped when this machine has none."""
    default = ROOT.parent / "shared" / "golden"
    golden = Path(os.environ.get("PENGUIN_GOLDEN") or default)
    if not golden.is_dir():
        pytest.skip("no reference traces here; PENGUIN_GOLDEN names the directory that holds them")
    return golden


# ---------------------------------------------------------------- no real network


class RealNetworkRefusedError(OSError):
    """A test tried to reach something that is not this machine."""


@pytest.fixture(autouse=True)
def no_real_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse every connection that leaves the loopback, and fail the test that tried one.

    Refusing alone is not enough: a harness that retries and reports network errors as outcomes would swallow it.
    """
    attempts: list[str] = []
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, _only_to_loopback(getattr(socket.socket, name), attempts))
    monkeypatch.setattr(socket, "getaddrinfo", _only_local_names(socket.getaddrinfo, attempts))
    yield
    assert not attempts, f"the test reached for the real network: {', '.join(attempts)}"


def _only_to_loopback(connect: Callable[..., Any], attempts: list[str]) -> Callable[..., Any]:
    def guarded(sock: socket.socket, address: Any) -> Any:
        if sock.family in {socket.AF_INET, socket.AF_INET6} and not _is_loopback(address[0]):
            _refuse(address[0], attempts)
        return connect(sock, address)

    return guarded


def _only_local_names(resolve: Callable[..., Any], attempts: list[str]) -> Callable[..., Any]:
    def guarded(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        # An address in digits is only parsed; whether it may be connected to is decided above.
        if name and not _is_address(name) and not _is_loopback(name):
            _refuse(name, attempts)
        return resolve(host, *args, **kwargs)

    return guarded


def _refuse(host: str, attempts: list[str]) -> None:
    attempts.append(host)
    message = f"{host} is not this machine; tests talk to 127.0.0.1 only"
    raise RealNetworkRefusedError(message)


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and _address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        _address(host)
    except ValueError:
        return False
    return True


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    # `fe80::1%eth0` names the interface too.
    return ipaddress.ip_address(host.partition("%")[0])


# ---------------------------------------------------------------- no real data root, no real keys

_SECRETIVE = ("_API_KEY", "_BASE_URL", "_AUTH_TOKEN", "_PROXY")
_homes = itertools.count()


@pytest.fixture(autouse=True)
def no_real_data_root(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Point `PENGUIN_HOME` and `HOME` at empty places; hide the keys, endpoints and proxies of whoever runs the tests.

    A login shell of ours then reads nobody's start-up files, which may be slow or take locks.
    """
    for name in list(os.environ):
        if name.startswith("PENGUIN_") or name.upper().endswith(_SECRETIVE):
            monkeypatch.delenv(name)
    home = tmp_path_factory.getbasetemp() / f"penguin-home-{next(_homes)}"
    monkeypatch.setenv("PENGUIN_HOME", str(home))
    monkeypatch.setenv("HOME", str(home.with_name(f"{home.name}-user")))
