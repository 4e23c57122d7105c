"""Which addresses may be fetched on a model's or user's behalf: public ones (N17)."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from typing import TypeAlias

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class RefusedAddress(Exception):
    """The address is not public; the text says which and why."""


def resolve_public(host: str, port: int, allowed_hosts: Collection[str] = ()) -> list[IPAddress]:
    """Every address the name stands for, all of them public.

    One private address among them refuses the whole name: which one a later look-up would return is
    up to whoever runs the name server.

    Raises:
        RefusedAddress: an address is loopback, private, link-local, a metadata service or the like.
        OSError: the name cannot be resolved.

    Example::

        resolve_public("169.254.169.254", 80)  # RefusedAddress
    """
    found = {entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    addresses = [ipaddress.ip_address(str(address).split("%")[0]) for address in sorted(map(str, found))]
    if host.lower() in allowed_hosts:
        return addresses
    for address in addresses:
        if not is_public(address):
            raise RefusedAddress(f"{host} is {address}, which is not a public address; it was not contacted")
    return addresses


def is_public(address: IPAddress) -> bool:
    """Whether an address belongs to the public internet, looking through its disguises.

    Example::

        is_public(ipaddress.ip_address("::ffff:127.0.0.1"))  # False
    """
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded(address: IPAddress) -> IPAddress | None:
    """The IPv4 address inside a mapped, 6to4, Teredo or NAT64 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour
