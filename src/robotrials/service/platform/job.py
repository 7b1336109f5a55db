"""A job: one slot of a benchmark for one submission, as the server tells it to the worker that holds the lease.

Server and worker derive the planned episode from the same words, so that an upload can be held to what was planned.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import hmac
import json
import secrets
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from robotrials.errors import InputError
from robotrials.old_name import LEASE_TAG, PLATFORM_POLICY_SEED
from robotrials.record import Episode
from robotrials.run.blinding import Blinding, derived_seed
from robotrials.run.plan import MOST_PLAN_BYTES, PolicyEntry, TrialPlan, plan_from_json
from robotrials.run.schedule import Slot, trial_slots
from robotrials.run.station import Context
from robotrials.value import read_table

ARM = 'the-policy-under-test'  # the one policy of a benchmark's plan; nothing that is shown may hold its name
THINKING_S = 1800.0  # for all answers of one episode together, unless the plan says otherwise
# Why a worker gives a job back with no attempt used.
NOT_BEGUN = 'not begun'  # it asked for work to dial, and could not take it up
TURNED_AWAY = 'turned away'  # a client came for it, and the cell was busy, draining or out of service
IMPOSSIBLE = 'impossible'  # the plan names what this cell does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that a worker needs to run one attempt. `code` is what the record calls the submission while blinded."""

    job_id: str
    plan: str  # of the benchmark, as JSON
    slot: int
    attempt: int
    code: str
    blinded: bool = True
    dial: PolicyEntry | None = None  # how the platform reaches the policy, if the client does not come by itself

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def read_plan(self) -> TrialPlan:
        return _plan(self.plan)

    def read_slot(self) -> Slot:
        slots = benchmark_slots(self.plan)
        if not 0 <= self.slot < len(slots):
            raise InputError(f'job {self.job_id}: slot {self.slot} of a benchmark that has {len(slots)}')
        return slots[self.slot]

    def context(self, *, operator: str = '') -> Context:
        """The run's own view of a job: it turns slots into episodes and rollouts into records."""
        plan = self.read_plan()
        blinding = Blinding({ARM: self.code}, PLATFORM_POLICY_SEED, {})
        return Context(plan, blinding, plan.hash, operator=operator)

    def planned(self, *, operator: str = '') -> Episode:
        """The episode as it was planned: its id is what an upload is held to."""
        return self.context(operator=operator).planned(self.read_slot(), self.attempt)

    @property
    def thinking_s(self) -> float:
        """The policy's budget for all answers of the episode together."""
        return self.read_plan().watchdog.thinking_s or THINKING_S

    @property
    def loop_seed(self) -> int:
        """For what the loop draws, such as latencies: the same for every submission, and told to nobody."""
        return derived_seed(PLATFORM_POLICY_SEED, self.read_plan().seed, self.slot)

    @property
    def policy_seed(self) -> int:
        """For the policy's own randomness, and told to it: the same for every attempt, and keyed with the plan's
        secret, so that nothing follows from it about the scene or between submissions.
        """
        return derived_seed(PLATFORM_POLICY_SEED + self.read_plan().blinding.secret.encode(), self.code, self.slot)


def job_from_json(values: Mapping[str, Any]) -> Job:
    """The inverse of `Job.as_json`."""
    given = {k: v for k, v in values.items() if v is not None}
    if isinstance(dial := given.get('dial'), Mapping):
        given['dial'] = {k: v for k, v in dial.items() if v is not None}
    return read_table(Job, given, where='job')


def read_benchmark(text: str, *, where: str = 'benchmark') -> TrialPlan:
    """A benchmark's plan from TOML: a trial's plan without [policies], [stopping] and `reference`."""
    if len(text.encode()) > MOST_PLAN_BYTES:
        raise InputError(f'{where}: wanted a plan of at most {MOST_PLAN_BYTES} bytes')
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f'{where}: not TOML ({error})') from error
    for key in ('policies', 'stopping', 'reference'):
        if key in values:
            raise InputError(f'{where}: {key} is not for a benchmark: policies come as submissions')
    return read_table(TrialPlan, {**values, 'policies': {ARM: {'use': 'platform'}}}, where=where)


def benchmark_slots(plan_json: str) -> tuple[Slot, ...]:
    """Every slot of a benchmark, in its order; each submission meets all of them."""
    return _slots(plan_json)


@lru_cache(maxsize=16)
def _plan(text: str) -> TrialPlan:
    return plan_from_json(text)


@lru_cache(maxsize=16)
def _slots(text: str) -> tuple[Slot, ...]:
    return trial_slots(_plan(text))


# The token of a lease: what a client shows a worker, signed by the server with that worker's own secret.
# v1.<payload>.<signature> both base64url without padding; the payload is JSON, the signature HMAC-SHA256
# A token is good for one connection: the worker keeps the nonces it has seen until they expire.

VERSION = 'v1'
MOST_CHARACTERS = 2048
NONCE_BYTES = 12
SKEW_S = 5.0  # clocks of server and worker may differ by this much


class TokenFault(enum.StrEnum):
    MALFORMED = 'malformed'
    FORGED = 'forged'
    WRONG_WORKER = 'wrong_worker'
    EXPIRED = 'expired'
    REPLAYED = 'replayed'


class TokenRefused(InputError):  # noqa: N818 - reads as the fact it states
    """A token that does not admit its bearer; `fault` is the code that the bearer is told."""

    def __init__(self, fault: TokenFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseClaim:
    """What a token says: this lease, of this job, on this worker, until then (Unix seconds)."""

    lease_id: str
    worker_id: str
    job_id: str
    expires_at: float
    nonce: str


def sign_lease(secret: bytes, *, lease_id: str, worker_id: str, job_id: str, expires_at: float) -> str:
    """A new token, with a nonce of its own."""
    claim = [lease_id, worker_id, job_id, expires_at, secrets.token_urlsafe(NONCE_BYTES)]
    payload = _encode(json.dumps(claim, separators=(',', ':'), allow_nan=False).encode())
    return f'{VERSION}.{payload}.{_encode(_signature(secret, payload))}'


def read_lease(secret: bytes, token: str, *, worker_id: str, now_s: float) -> LeaseClaim:
    """The claim of a token that is whole, ours and in time; TokenRefused says which it is not."""
    payload = _checked_payload(secret, token)
    claim = _claim(payload)
    if not hmac.compare_digest(claim.worker_id.encode(), worker_id.encode()):
        raise TokenRefused(TokenFault.WRONG_WORKER, 'this token is for another worker; ask the server for a lease')
    if now_s > claim.expires_at + SKEW_S:
        late_s = now_s - claim.expires_at
        raise TokenRefused(TokenFault.EXPIRED, f'this token expired {late_s:.0f} s ago; ask the server for a lease')
    return claim


class LeaseGuard:
    """A worker's doorkeeper: checks tokens, and lets each in once."""

    def __init__(self, secret: bytes, *, worker_id: str) -> None:
        self._secret, self._worker_id = secret, worker_id
        self._seen: dict[str, float] = {}  # nonce -> when it can be forgotten
        self._lock = threading.Lock()

    def admit(self, token: str, *, now_s: float) -> LeaseClaim:
        """The claim of a token that was not shown before."""
        claim = read_lease(self._secret, token, worker_id=self._worker_id, now_s=now_s)
        with self._lock:
            self._seen = {nonce: until for nonce, until in self._seen.items() if until + SKEW_S >= now_s}
            if claim.nonce in self._seen:
                raise TokenRefused(TokenFault.REPLAYED, 'this token was used before; ask the server for a lease')
            self._seen[claim.nonce] = claim.expires_at
        return claim


def _checked_payload(secret: bytes, token: object) -> str:
    parts = token.split('.') if isinstance(token, str) and len(token) <= MOST_CHARACTERS and token.isascii() else []
    if len(parts) != 3 or parts[0] != VERSION:
        raise TokenRefused(TokenFault.MALFORMED, f'not a token of the form {VERSION}.PAYLOAD.SIGNATURE')
    if not hmac.compare_digest(_decode(parts[2]), _signature(secret, parts[1])):
        raise TokenRefused(TokenFault.FORGED, 'the signature of this token is not ours')
    return parts[1]


def _claim(payload: str) -> LeaseClaim:
    try:
        lease_id, worker_id, job_id, expires_at, nonce = json.loads(_decode(payload))
    except (ValueError, TypeError, RecursionError) as error:
        raise TokenRefused(TokenFault.MALFORMED, 'the payload of this token cannot be read') from error
    is_text = all(isinstance(text, str) and text for text in (lease_id, worker_id, job_id, nonce))
    if not is_text or isinstance(expires_at, bool) or not isinstance(expires_at, int | float):
        raise TokenRefused(TokenFault.MALFORMED, 'the payload of this token is not a claim')
    return LeaseClaim(
        lease_id=lease_id, worker_id=worker_id, job_id=job_id, expires_at=float(expires_at), nonce=nonce
    )  # fmt: skip


def _signature(secret: bytes, payload: str) -> bytes:
    if len(secret) < 16:
        raise InputError(f'a secret of {len(secret)} bytes, wanted at least 16')
    return hmac.digest(secret, f'{LEASE_TAG} {VERSION}.{payload}'.encode(), 'sha256')


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b'=').decode()


def _decode(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text + '=' * (-len(text) % 4), altchars=b'-_', validate=True)
    except (binascii.Error, ValueError) as error:
        raise TokenRefused(TokenFault.MALFORMED, 'a part of this token is not base64url') from error
    if _encode(decoded) != text:  # + for -, / for _, or unused bits set: another spelling of the same bytes
        raise TokenRefused(TokenFault.MALFORMED, 'a part of this token is not base64url')
    return decoded
