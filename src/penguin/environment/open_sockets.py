"""What the sockets of a process are for, as far as /proc tells (Linux)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

_SOCKET = re.compile(r"socket:\[(\d+)\]")
_LISTENS = "0A"
_CONNECTED = "03"


class TcpSocket(NamedTuple):
    """A line of /proc/net/tcp: ``port`` is the one on this side."""

    inode: int
    port: int
    listens: bool


class Sockets:
    """The sockets of one network namespace, that of process ``pid``; each table is read once, when it is asked for."""

    def __init__(self, pid: int) -> None:
        self._net = Path("/proc", str(pid), "net")

    @cached_property
    def tcp(self) -> dict[int, TcpSocket]:
        """By inode, IPv4 and IPv6."""
        lines = (line for table in ("tcp", "tcp6") for line in self._lines(table))
        sockets = (
            TcpSocket(int(inode), int(local.rpartition(":")[2], 16), state == _LISTENS)
            for _, local, _, state, _, _, _, _, _, inode, *_ in lines
        )
        return {socket.inode: socket for socket in sockets}

    @cached_property
    def listening(self) -> dict[int, int]:
        """The inode of each listening socket, with its port."""
        return {socket.inode: socket.port for socket in self.tcp.values() if socket.listens}

    @cached_property
    def nameless_pairs(self) -> set[int]:
        """Inodes of connected Unix sockets without a name, as ``socketpair`` makes them."""
        return {int(line[6]) for line in self._lines("unix") if line[5:6] == [_CONNECTED] and len(line) == 7}  # noqa: PLR2004 - an eighth is the name

    def is_outgoing(self, inode: int) -> bool:
        """Whether it is a TCP connection that was made, not accepted."""
        socket = self.tcp.get(inode)
        return socket is not None and socket.port not in self.listening.values()

    def _lines(self, table: str) -> Iterator[list[str]]:
        try:
            lines = (self._net / table).read_text().splitlines()[1:]
        except OSError:
            return
        yield from (line.split() for line in lines)


def socket_inode(name: str) -> int | None:
    """The inode in what /proc calls a socket, ``socket:[4711]``; ``None`` for anything else."""
    match = _SOCKET.fullmatch(name)
    return int(match[1]) if match else None


def listening_ports(pids: Iterable[int]) -> list[int]:
    """The TCP ports on which these processes listen, in ascending order. Blocks briefly.

    A process of another user tells nothing; without /proc there are none.
    """
    return sorted({port for pid in pids for port in _ports_of(pid)})


def _ports_of(pid: int) -> Iterator[int]:
    sockets = Sockets(pid)
    for name in descriptor_names(pid):
        inode = socket_inode(name)
        # The tables are long on some machines, and most processes have no socket: so only now.
        if inode is not None and inode in sockets.listening:
            yield sockets.listening[inode]


def descriptor_names(pid: int) -> list[str]:
    """What stands behind each open descriptor of a process, as /proc calls it."""
    try:
        return [_target(each) for each in Path("/proc", str(pid), "fd").iterdir()]
    except OSError:
        return []


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:  # closed meanwhile
        return ""
