"""Addresses that others name: a worker's, which the server and clients call, and a policy server's, which cells dial.

Unless an operator allows it, neither may be a private, link-local or loopback one: behind it lies what only this
network should reach, such as a cloud's metadata service.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from robotrials.errors import InputError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# Called global by the library, and yet a way in: IPv4 addresses in another spelling, and sites' own.
DISGUISED = tuple(
    map(ipaddress.ip_network, ('::/96', '64:ff9b::/96', '2002::/16', '2001::/32', 'fec0::/10', '192.0.0.0/24'))
)


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks such as 127.0.0.0/8 or 192.168.0.0/16."""
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise InputError(f'private_addresses: {error}; wanted networks such as 192.168.0.0/16') from error


def check_public(host: str, *, allowed: Iterable[str], what: str) -> None:
    """Raise InputError if a host is, or resolves to, a private address that no operator allowed.

    A name that nobody can resolve here passes: nothing is reached by it.
    """
    networks = read_networks(allowed)
    for address in _addresses(host):
        if not _is_public(address) and not _is_in(address, networks):
            found = host if host == str(address) else f'{host} ({address})'
            raise InputError(
                f'{what}: {found} is a private address, which this platform refuses; its operator can allow it with '
                'private_addresses = ["NETWORK/BITS"] in platform.toml, or --allow-private'
            )


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not _is_in(address, DISGUISED)


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _addresses(host: str) -> list[Address]:
    try:
        texts = [ipaddress.ip_address(host.strip('[]'))]
    except ValueError:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
        texts = [ipaddress.ip_address(str(entry[4][0]).partition('%')[0]) for entry in found]
    return [getattr(address, 'ipv4_mapped', None) or address for address in texts]
