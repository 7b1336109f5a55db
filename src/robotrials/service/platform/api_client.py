"""Calls to the server's HTTP API: JSON in and out, a deadline on each, the server's error codes as exceptions."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from robotrials.errors import AnswerError, InputError, NoAnswer, RigError, RobotrialsError
from robotrials.service.platform.job import sign_lease
from robotrials.wire import WireLimits
from robotrials.wire.http import HttpLink
from robotrials.wire.link import split_url

PREFIX = '/api/v1'
CALL_S = 10.0
UPLOAD_S = 120.0
ANSWER_LIMITS = WireLimits(max_bytes=256 << 20)  # a bundle may come back
UNREACHABLE = (RigError, NoAnswer)


class ApiError(RobotrialsError):
    """The server understood, and refused; `status` is HTTP's and `code` the server's own."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f'{message} (HTTP {status}, {code})')
        self.status, self.code = status, code

    @property
    def is_passing(self) -> bool:
        """Whether the same call may work later: too many calls, a server in trouble, a full disk."""
        return self.status in (408, 429) or self.status >= 500


class Api:
    """One server, one token. Safe to use from several threads, each on a connection of its own."""

    def __init__(self, server: str, token: str) -> None:
        self.server = server.rstrip('/')
        self._headers = {'Authorization': f'Bearer {token}', 'Accept': 'application/json'}
        self._links = threading.local()
        HttpLink(self.server)  # an address that is none is refused here

    def get(self, path: str, *, timeout_s: float = CALL_S) -> tuple[int, Any]:
        return self._call('GET', path, None, timeout_s=timeout_s)

    def post(self, path: str, body: object = None, *, timeout_s: float = CALL_S) -> tuple[int, Any]:
        data = json.dumps(body if body is not None else {}, allow_nan=False).encode()
        return self._call('POST', path, data, timeout_s=timeout_s)

    def post_bytes(self, path: str, data: bytes, *, timeout_s: float = UPLOAD_S) -> tuple[int, Any]:
        return self._call('POST', path, data, timeout_s=timeout_s, content_type='application/octet-stream')

    def get_bytes(self, path: str, *, timeout_s: float = UPLOAD_S) -> bytes:
        answer = self._link().request('GET', f'{PREFIX}{path}', timeout_s=timeout_s)
        if answer.status != 200:
            raise _refusal(answer.status, answer.body)
        return answer.body

    def close(self) -> None:
        """Let go of this thread's connection; the next call opens another."""
        self._link().close()

    def _call(
        self, method: str, path: str, data: bytes | None, *, timeout_s: float, content_type: str = 'application/json'
    ) -> tuple[int, Any]:
        """Status and JSON of an answer below 400; ApiError above, RigError or NoAnswer if there was none."""
        answer = self._link().request(
            method, f'{PREFIX}{path}', body=data, timeout_s=timeout_s, content_type=content_type
        )
        if answer.status >= 400:
            raise _refusal(answer.status, answer.body)
        if not answer.body:
            return answer.status, None
        try:
            return answer.status, json.loads(answer.body)
        except ValueError as error:
            raise AnswerError(f'{self.server}{PREFIX}{path}: the answer is not JSON ({error})') from error

    def _link(self) -> HttpLink:
        link: HttpLink | None = getattr(self._links, 'link', None)
        if link is None:
            link = self._links.link = HttpLink(self.server, headers=self._headers, limits=ANSWER_LIMITS)
        return link


def _refusal(status: int, body: bytes) -> ApiError:
    try:
        error = json.loads(body)['error']
        return ApiError(status, str(error['code']), str(error['message']))
    except (ValueError, KeyError, TypeError):
        return ApiError(status, 'unknown', body[:200].decode('utf-8', errors='replace') or 'no reason given')


# Addresses that others name: a worker's, which the server and clients call, and a policy server's, which cells dial.
# Unless an operator allows it, neither may be a private, link-local or loopback one: behind it lies what only this
# network should reach, such as a cloud's metadata service.

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# Called global by the library, and yet a way in: IPv4 addresses in another spelling, and sites' own.
DISGUISED = tuple(
    ipaddress.ip_network(text)
    for text in ('::/96', '64:ff9b::/96', '64:ff9b:1::/48', '2002::/16', '2001::/32', 'fec0::/10', '3fff::/20',
                 '5f00::/16', '192.0.0.0/24', '192.88.99.0/24')
)  # fmt: skip


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
            target = host if host == str(address) else f'{host} ({address})'
            raise InputError(
                f'{what}: {target} is a private address, which this platform refuses; its operator can allow it with '
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
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
        texts = [ipaddress.ip_address(str(entry[4][0]).partition('%')[0]) for entry in infos]
    return [getattr(address, 'ipv4_mapped', None) or address for address in texts]


# The server's own call to a worker's port: a stop must not wait for the next heartbeat.

COMMAND_CALL_S = 2.0
LIVES_S = 30.0


def command_id(word: str) -> str:
    """What stands for a lease in the token of a command; no lease is called so."""
    return f'command {word}'


def press(address: str, secret: bytes, *, worker_id: str, word: str, now_s: float, private: Sequence[str] = ()) -> bool:
    """Tell a worker to stop or to resume, at its own port; False if it could not be reached or would not."""
    token = sign_lease(secret, lease_id=command_id(word), worker_id=worker_id, job_id=word, expires_at=now_s + LIVES_S)
    try:
        parts, host, port = split_url(address, ('ws', 'wss'))
        check_public(host, allowed=private, what='address')  # a name may stand for another place by now
        scheme = 'https' if parts.scheme == 'wss' else 'http'
        link = HttpLink(f'{scheme}://{host}:{port}', headers={'Authorization': f'Bearer {token}'})
        with contextlib.closing(link):
            return link.post(f'/{word}', b'', timeout_s=COMMAND_CALL_S).status == 200
    except RobotrialsError:
        return False
