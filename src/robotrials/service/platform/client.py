"""Evaluating a policy on a platform, from the machine that has it.

    from robotrials.service.platform.client import evaluate
    from robotrials.run.component import open_policy
    from robotrials.run.plan import PolicyEntry

    policy = open_policy(PolicyEntry('openpi', {'url': 'ws://127.0.0.1:8000', 'preset': 'droid'}))
    done = evaluate(policy, server='http://lab:8080', token='tlt_...', benchmark='reach', name='my-policy')
    print(done.score['values'])

Anything with `spec` and `start` is a policy. The client asks the server for a cell, acts there for one episode, and
asks again, until its submission is finished. Killed and started again with the same name (or client key), it resumes.

Calls to the server's HTTP API: JSON in and out, a deadline on each, the server's error codes as exceptions.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from robotrials.errors import AnswerError, InputError, NoAnswer, RigError, RobotrialsError
from robotrials.run.seam import ClosablePolicy, FittedPolicy, HostSpec, Policy, Session, check_conventions
from robotrials.service.platform.job import sign_lease
from robotrials.service.platform.link import (
    VERSION,
    WORKER_LIMITS,
    EpisodeEnd,
    ErrorCode,
    MessageType,
    decode,
    encode,
    encode_error,
    host_spec_from_map,
    observation_from_map,
    read_error,
    setup_from_map,
    spec_to_map,
)
from robotrials.wire import WireLimits
from robotrials.wire.link import Deadline, split_url
from robotrials.wire.request import HttpLink
from robotrials.wire.websocket import WebSocketLink

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


CONNECT_S = 10.0
SEND_S = 30.0
OPENING_S = 0.5  # between questions whether the results are open
SCORE_S = 120.0  # the first one after an episode is analysed anew
SILENT_S = 3.0  # after which the server is asked whether the worker still has us
WORKER_S = 900.0  # a cell may reset for long before its first observation
PAUSE_S = (0.5, 15.0)
MOST_SETBACKS = 20  # in a row, of a kind that may pass
PATIENCE_S = sum(min(PAUSE_S[0] * 2**k, PAUSE_S[1]) for k in range(MOST_SETBACKS - 1))

Tell = Callable[[str], None]


class WorkerRefused(RobotrialsError):  # noqa: N818 - reads as the fact it states
    """A worker hung up with an error; `code` is one of `ErrorCode`, as far as this version knows it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f'{message} ({code})')
        self.code = code

    @property
    def is_passing(self) -> bool:
        """Whether another lease may fare better."""
        return self.code in set(ErrorCode) and ErrorCode(self.code).is_passing


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a submission came to, as far as blinding lets it be known."""

    submission_id: str
    score: Mapping[str, Any]
    n_episodes: int  # that this call acted in
    faults: Mapping[str, int] = field(default_factory=dict)  # episodes that this policy's own faults ended, by code


class Submitter:
    """One user's view of a platform: submissions, leases and scores."""

    def __init__(self, server: str, token: str, *, tell: Tell | None = None) -> None:
        self._api, self._tell = Api(server, token), tell

    def submit(
        self, benchmark: str, *, name: str, client_key: str = '', card: Mapping[str, Any] | None = None,
        dial: Mapping[str, Any] | None = None, fingerprint: str = '',
    ) -> str:  # fmt: skip
        """Hand in a policy; the same key and content again is the same submission. Gives its id."""
        body: dict[str, Any] = {
            'client_key': client_key or default_key(benchmark, name), 'benchmark': benchmark, 'name': name,
            'card': dict(card or {}),
        }  # fmt: skip
        if dial is not None:
            body['dial'] = dict(dial)
        if fingerprint:
            body['fingerprint'] = fingerprint
        return str(self._patiently(lambda: self._api.post('/submissions', body))[1]['id'])

    def lease(self, submission_id: str) -> tuple[int, Mapping[str, Any]]:
        """Get_Worker: 200 with a lease, 202 with how long to wait, or 410 once the submission is finished."""
        try:
            return self._patiently(lambda: self._api.post(f'/submissions/{submission_id}/lease'))
        except ApiError as error:
            if error.status == 410:
                return 410, {}
            raise

    def score(self, submission_id: str) -> Mapping[str, Any]:
        """Get_Score; of a submission that is over, once the platform has opened its results."""
        path = f'/submissions/{submission_id}/score'
        until_s = time.monotonic() + SCORE_S
        while True:
            score: Mapping[str, Any] = self._patiently(lambda: self._api.get(path, timeout_s=SCORE_S))[1]
            if not score.get('is_due') or time.monotonic() > until_s:
                return score
            time.sleep(OPENING_S)

    def state(self, submission_id: str) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self._patiently(lambda: self._api.get(f'/submissions/{submission_id}'))[1]
        return state

    def cancel(self, submission_id: str) -> None:
        self._patiently(lambda: self._api.post(f'/submissions/{submission_id}/cancel'))

    def episodes(self, submission_id: str) -> list[Mapping[str, Any]]:
        episodes: list[Mapping[str, Any]] = self._patiently(
            lambda: self._api.get(f'/submissions/{submission_id}/episodes')
        )[1]
        return episodes

    def bundle(self, submission_id: str, episode_id: str) -> bytes:
        """One episode, to be read by `robotrials.service.platform.bundle.unpack_bundle`."""
        return self._api.get_bytes(f'/submissions/{submission_id}/episodes/{episode_id}/bundle')

    def close(self) -> None:
        self._api.close()

    def _patiently(self, call: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
        """The answer, through restarts of the server and its rate limit."""
        pause_s = PAUSE_S[0]
        for setback in range(MOST_SETBACKS):
            try:
                return call()
            except (ApiError, *UNREACHABLE) as error:
                is_last = setback + 1 == MOST_SETBACKS
                if is_last or (isinstance(error, ApiError) and not error.is_passing):
                    raise
                if setback == 0 and self._tell is not None:
                    self._tell(f'the platform does not answer, trying again for {PATIENCE_S / 60:.0f} minutes: {error}')
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S[1])
        raise AssertionError('unreachable')


def evaluate(
    policy: Policy, *, server: str, token: str, benchmark: str, name: str, client_key: str = '',
    card: Mapping[str, Any] | None = None, fingerprint: str = '', tell: Tell | None = None,
) -> Evaluation:  # fmt: skip
    """Submit a policy that lives in this process, act in its episodes until it is finished, and give its score.

    With a `fingerprint` of what the policy is made of, another one under the same name is refused, and not mixed up.
    """
    with contextlib.closing(Submitter(server, token, tell=tell)) as platform:
        return _evaluate(
            platform, policy, benchmark=benchmark, name=name, client_key=client_key, card=card,
            fingerprint=fingerprint, tell=tell or (lambda text: None),
        )  # fmt: skip


def _evaluate(
    platform: Submitter, policy: Policy, *, benchmark: str, name: str, client_key: str, card: Mapping[str, Any] | None,
    fingerprint: str, tell: Tell,
) -> Evaluation:  # fmt: skip
    submission_id = platform.submit(benchmark, name=name, client_key=client_key, card=card, fingerprint=fingerprint)
    tell(f'submission {submission_id}')
    leases = _Leases(platform, submission_id, tell)
    n_episodes, setbacks = 0, 0
    faults: dict[str, int] = {}
    while (lease := leases.next()) is not None:
        try:
            end = act_in_episode(policy, str(lease['worker_address']), str(lease['token']), is_over=leases.is_over)
            n_episodes, setbacks = n_episodes + 1, 0
            tell(f'episode {n_episodes}: {end.outcome or "done"} after {end.n_steps} steps')
        except WorkerRefused as error:
            tell(f'the cell hung up: {error}')
            if error.code in (ErrorCode.BAD_ACTION, ErrorCode.POLICY_FAILED):
                faults[error.code] = faults.get(error.code, 0) + 1
                n_episodes += 1
            elif not error.is_passing:
                raise
            setbacks += 1
        except (RigError, NoAnswer) as error:
            tell(f'the cell was lost: {error}')
            setbacks += 1
        if setbacks > MOST_SETBACKS:
            raise RigError(f'{setbacks} leases in a row came to nothing; see the log of the platform')
        time.sleep(min(PAUSE_S[0] * setbacks, PAUSE_S[1]))
    return Evaluation(
        submission_id=submission_id, score=platform.score(submission_id), n_episodes=n_episodes, faults=faults
    )  # fmt: skip


class _Leases:
    """The leases of one submission, one after the other."""

    def __init__(self, platform: Submitter, submission_id: str, tell: Tell) -> None:
        self._platform, self._id, self._tell = platform, submission_id, tell
        self._found: tuple[int, Mapping[str, Any]] | None = None

    def next(self) -> Mapping[str, Any] | None:
        """The next lease, however long it takes; None once the submission is finished."""
        while True:
            status, answer = self._found or self._platform.lease(self._id)
            self._found = None
            if status == 410:
                return None
            if status == 200:
                return answer
            self._tell(answer.get('note') or f'waiting for a cell, {answer.get("place_in_queue", "?")} before us')
            time.sleep(min(max(float(answer.get('retry_after_s', 1.0)), 0.05), PAUSE_S[1]))

    def is_over(self) -> bool:
        """Whether the server has given the lease at hand up: then it has another for us, or is done with us."""
        try:
            lease = self._platform.lease(self._id)
        except RobotrialsError:
            return False  # nobody to ask; the worker may well be at work
        if lease[0] == 202:
            return False
        self._found = lease
        return True


def default_key(benchmark: str, name: str) -> str:
    """A name stands for one submission to a benchmark, unless a key says otherwise."""
    return re.sub(r'[^\x21-\x7e]', '_', f'{benchmark}/{name}')


def act_in_episode(
    policy: Policy, address: str, token: str, *, connect_s: float = CONNECT_S, is_over: Callable[[], bool] | None = None
) -> EpisodeEnd:
    """Act for one episode at a worker. RigError if it is lost on the way, WorkerRefused if the worker hangs up.

    A worker that hangs keeps its connection; `is_over` is asked, while it says nothing, whether it was given up.
    """
    try:
        link = WebSocketLink(address, deadline=Deadline.after(connect_s), limits=WORKER_LIMITS)
    except OSError as error:
        raise RigError(f'{address}: no connection ({str(error) or type(error).__name__})') from error
    with contextlib.closing(link):
        return _Conversation(link, policy, is_over or (lambda: False)).run(token)


class _Conversation:
    """The client's side of one connection."""

    def __init__(self, link: WebSocketLink, policy: Policy, is_over: Callable[[], bool]) -> None:
        self._link, self._policy, self._is_over = link, policy, is_over

    def run(self, token: str) -> EpisodeEnd:
        self._send(encode(MessageType.BEGIN_EVAL, version=VERSION, token=token))
        _, fields = self._receive(MessageType.WELCOME)
        host = host_spec_from_map(fields.get('host'))
        self._own(lambda: self._fit(host), ErrorCode.DOES_NOT_FIT)
        self._send(encode(MessageType.POLICY, spec=spec_to_map(self._policy.spec)))
        session: Session | None = None
        try:
            while True:
                kind, fields = self._receive(MessageType.OBSERVATION, MessageType.END)
                if kind is MessageType.END:
                    return _end(fields)
                began_s = time.perf_counter()
                if session is None:  # the first question says what is to be done
                    session = self._started(fields)
                self._answer(session, fields, start_s=time.perf_counter() - began_s)
        finally:
            begun: object = session  # whatever it is, it may have an end of its own
            if isinstance(begun, ClosablePolicy):
                with contextlib.suppress(Exception):  # the episode is over and judged
                    begun.close()

    def _started(self, fields: dict[str, Any]) -> Session:
        setup = setup_from_map(fields.get('setup'))
        session: Session = self._own(lambda: self._policy.start(setup, seed=setup.seed), ErrorCode.POLICY_FAILED)
        return session

    def _answer(self, session: Session, fields: dict[str, Any], *, start_s: float) -> None:
        observation, step = observation_from_map(fields), fields['step']
        began_s = time.perf_counter()
        chunk = self._own(lambda: session.act(observation), ErrorCode.POLICY_FAILED)
        thought_s = time.perf_counter() - began_s
        inference_s = start_s + (chunk.inference_s if chunk.inference_s is not None else thought_s)
        self._send(encode(MessageType.ACTION, step=step, actions=chunk.actions, inference_s=float(inference_s)))

    def _fit(self, host: HostSpec) -> None:
        if isinstance(self._policy, FittedPolicy):
            self._policy.fit(host)
        check_conventions(host, self._policy.spec)

    def _own(self, call: Callable[[], Any], code: ErrorCode) -> Any:
        """The result of the policy's own code; if it fails, the worker is told before the error goes on."""
        try:
            return call()
        except Exception as error:
            with contextlib.suppress(RobotrialsError):
                self._link.send(encode_error(code, type(error).__name__), timeout_s=SEND_S)
            raise

    def _send(self, data: bytes) -> None:
        try:
            self._link.send(data, timeout_s=SEND_S)
        except AnswerError:
            # The worker has said something out of turn: an error, which the next receive reads.
            return

    def _next_frame(self) -> bytes | str:
        ends_s = time.monotonic() + WORKER_S
        while True:
            try:
                return self._link.receive(timeout_s=SILENT_S)
            except NoAnswer:
                if time.monotonic() > ends_s:
                    raise
                if self._is_over():
                    raise RigError(f'{self._link.url}: the server has given this lease up') from None

    def _receive(self, *wanted: MessageType) -> tuple[MessageType, dict[str, Any]]:
        try:
            kind, fields = decode(self._next_frame(), limits=WORKER_LIMITS)
        except InputError as error:
            raise RigError(f'{self._link.url}: the worker sent a malformed message: {error}') from error
        if kind is MessageType.ERROR:
            raise WorkerRefused(*read_error(fields))
        if kind not in wanted:
            raise RigError(f'{self._link.url}: the worker sent {kind}, wanted {" or ".join(wanted)}')
        return kind, fields


def _end(fields: Mapping[str, Any]) -> EpisodeEnd:
    n_steps = fields.get('n_steps')
    return EpisodeEnd(
        outcome=str(fields.get('outcome', '')), reason=str(fields.get('reason', '')),
        n_steps=n_steps if isinstance(n_steps, int) else 0,
    )  # fmt: skip
