"""Which addresses may be fetched on a model's or user's behalf: public ones (N17)."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Sequence
from typing import TypeAlias

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class RefusedAddress(Exception):
    """The address is not public; the text says which and why."""


def resolve_public(host: str, port: int, allowed_hosts: Collection[str] = ()) -> list[IPAddress]:
    """Every address the name stands for, all of them public.

    One private address among them refuses the whole name: which one a later look-up would return is
    up to whoever runs the name server. ``allowed_hosts`` are names, addresses and networks of the user's own.

    Raises:
        RefusedAddress: an address is loopback, private, link-local, a metadata service or the like.
        OSError: the name cannot be resolved.

    Example::

        resolve_public("169.254.169.254", 80)  # RefusedAddress
        resolve_public("10.0.0.1", 80, ["10.0.0.0/8"])  # [IPv4Address('10.0.0.1')]
    """
    found = {entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    addresses = [ipaddress.ip_address(str(address).split("%")[0]) for address in sorted(map(str, found))]
    if _bare(host) in {_bare(each) for each in allowed_hosts}:
        return addresses
    networks = [network for each in allowed_hosts if (network := _network(each)) is not None]
    for address in addresses:
        if not is_public(address) and not _lies_in(address, networks):
            raise RefusedAddress(
                f"{host} is {address}, which is not a public address; it was not contacted. The user can allow it"
                " with allowed_hosts under [fetch] in .project_config.toml"
            )
    return addresses


def _bare(name: str) -> str:
    return name.lower().removesuffix(".")


def _network(entry: str) -> IPNetwork | None:
    """``None`` for the name of a host."""
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _lies_in(address: IPAddress, networks: Sequence[IPNetwork]) -> bool:
    forms = (address, _embedded(address))
    return any(form in network for form in forms if form is not None for network in networks)


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
