"""Dialling: the platform calls a policy server on behalf of a submission, over a wire of the policies package.

A submission is a stranger's word. So only wires are allowed (no code by name), no option may name something of the
worker's own (a variable of its environment would carry its secrets away), and waits and messages are bounded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from robotrials.errors import InputError, RemoteError, RigError, UnknownName
from robotrials.run.component import open_policy
from robotrials.run.plan import PolicyEntry
from robotrials.run.seam import (
    Chunk,
    ClosablePolicy,
    FittedPolicy,
    HostSpec,
    Observation,
    Policy,
    PolicySpec,
    Session,
    Setup,
)
from robotrials.service.platform.client import check_public
from robotrials.service.platform.link import check_size, told_setup

WIRES = ('groot', 'openpi', 'openvla', 'positronic', 'roboarena', 'vla-eval')
OPTIONS = (
    'url', 'preset', 'observation', 'action', 'connect_timeout_s', 'answer_timeout_s', 'actions_key', 'image_format',
    'generation', 'form', 'action_keys', 'model', 'fields', 'double_encoded', 'act_path', 'reset_path',
)  # fmt: skip
LONGEST_WAIT_S = 120.0
MOST_BYTES = 8 << 20


def check_dial(entry: PolicyEntry, *, allowed: Iterable[str] = ('*',), private: Iterable[str] = ()) -> None:
    """Raise InputError unless the entry is a wire, with harmless options, to an allowed `host:port` (as in a shell).

    A private address wants an operator who named it, in `allowed` without a wildcard for the host, or in `private`.
    """
    if entry.use not in WIRES:
        raise UnknownName('wire that the platform dials', entry.use, WIRES)
    if entry.checkpoints:
        raise InputError('dial: checkpoints are files of the machine that runs the policy; leave them out')
    for name, value in entry.options.items():
        if name not in OPTIONS:
            raise UnknownName('option of a dialled policy', name, OPTIONS)
        is_time = name.endswith('_timeout_s')
        if is_time and not (isinstance(value, int | float) and 0 < value <= LONGEST_WAIT_S):
            raise InputError(f'dial: {name} is {value!r}, wanted above 0 and at most {LONGEST_WAIT_S:g} s')
    address = _address(entry.options)
    patterns = [pattern for pattern in allowed if fnmatch.fnmatchcase(address, pattern)]
    if not patterns:
        raise InputError(
            f'dial: {address} is not among the addresses that this platform dials; its admin can add it to allow, '
            'under [dial] of platform.toml'
        )
    host = urlsplit(str(entry.options['url'])).hostname or ''
    if not any(pattern.rpartition(':')[0] == host for pattern in patterns):
        check_public(host, allowed=private, what='dial')


def _address(options: Mapping[str, Any]) -> str:
    url = options.get('url')
    try:
        parts = urlsplit(url if isinstance(url, str) else '')
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f'dial: url is {str(url)[:100]!r} ({error})') from error
    if not host:
        raise InputError(f'dial: url is {str(url)[:100]!r}, wanted an address such as ws://HOST:8000')
    return f'{host}:{port}' if port is not None else host


def open_dialled(
    entry: PolicyEntry, *, code: str, seed: int, allowed: Iterable[str] = ('*',), private: Iterable[str] = ()
) -> Policy:
    """The policy behind an address; RemoteError if nobody answers there."""
    check_dial(entry, allowed=allowed, private=private)
    options = {**entry.options, 'name': code, 'max_message_bytes': MOST_BYTES}
    with _held_to_it():
        return DialledPolicy(open_policy(dataclasses.replace(entry, options=options)), code=code, seed=seed)


@contextlib.contextmanager
def _held_to_it() -> Iterator[None]:
    """A connection that fails is the policy's own error: its submitter could cut it whenever an episode goes badly."""
    try:
        yield
    except RigError as error:
        raise RemoteError(f'the policy server went away: {error}') from error


class DialledPolicy:
    """A submitter's server is the submitter's to keep up: being away at any moment is a fault of the policy."""

    def __init__(self, policy: Policy, *, code: str, seed: int) -> None:
        self._policy, self._code, self._seed = policy, code, seed

    @property
    def spec(self) -> PolicySpec:
        return dataclasses.replace(self._policy.spec, name=self._code, is_remote=True)

    def fit(self, host: HostSpec) -> None:
        if isinstance(self._policy, FittedPolicy):
            with _held_to_it():
                self._policy.fit(host)

    def start(self, setup: Setup, *, seed: int) -> Session:
        """A session, of which the server hears with its first question; `seed` is the loop's, it gets its own."""
        return _DialledSession(self._policy, told_setup(setup, seed=self._seed))

    def close(self) -> None:
        if isinstance(self._policy, ClosablePolicy):
            self._policy.close()


class _DialledSession:
    """Begins with the first observation: before it, a server is told nothing of the episode."""

    def __init__(self, policy: Policy, setup: Setup) -> None:
        self._policy, self._setup = policy, setup
        self._session: Session | None = None

    def act(self, observation: Observation) -> Chunk:
        with _held_to_it():
            if self._session is None:
                self._session = self._policy.start(self._setup, seed=self._setup.seed)
            chunk = self._session.act(observation)
        check_size(chunk)
        return chunk

    def close(self) -> None:
        session: object = self._session
        if isinstance(session, ClosablePolicy):
            session.close()
