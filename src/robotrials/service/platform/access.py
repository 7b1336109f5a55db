"""Who may do what: users, and tokens that are shown once, stored hashed, scoped, and can expire or be revoked.

What a request is refused with: a status, a code for programs, a message for people.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from robotrials.errors import RobotrialsError
from robotrials.service.platform.config import Quota
from robotrials.service.platform.table import Token, User, note


class Refusal(RobotrialsError):  # noqa: N818 - reads as the fact it states
    """A request that is not carried out; nothing was changed by it unless the message says so."""

    def __init__(self, status: int, code: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after_s = status, code, retry_after_s


def not_found(what: str) -> Refusal:
    """Also for what belongs to somebody else: that it exists is none of the asker's business."""
    return Refusal(404, 'not_found', f'no such {what}')


PREFIX = 'tlt_'
TOKEN_BYTES = 32
NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,62}')
_TOKEN = select(Token).where(Token.sha256 == bindparam('sha256'))


class Scope(enum.StrEnum):
    ADMIN = 'admin'  # users, tokens, benchmarks, closing trials, the audit trail
    SUBMITTER = 'submitter'  # their own submissions
    WORKER = 'worker'  # runs a cell
    OPERATOR = 'operator'  # cells and the queue, without names of policies
    READER = 'reader'  # leaderboards


# What a scope may do beside its own: an admin also looks after cells, and everyone may read leaderboards.
INCLUDES = {
    Scope.ADMIN: frozenset({Scope.ADMIN, Scope.OPERATOR, Scope.READER}),
    Scope.SUBMITTER: frozenset({Scope.SUBMITTER, Scope.READER}),
    Scope.WORKER: frozenset({Scope.WORKER}),
    Scope.OPERATOR: frozenset({Scope.OPERATOR, Scope.READER}),
    Scope.READER: frozenset({Scope.READER}),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as their token says."""

    user_id: str
    user: str
    token_id: str
    scopes: frozenset[Scope]
    requests_per_minute: int

    @property
    def actor(self) -> str:
        """Who the audit trail names."""
        return f'{self.user}/{self.token_id}'

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    def require(self, *any_of: Scope) -> None:
        if not self.scopes & set(any_of):
            wanted = ' or '.join(s.value for s in any_of)
            raise Refusal(403, 'wrong_scope', f'this token may not do that; it wants the scope {wanted}')


def new_id(kind: str) -> str:
    """An id that says what it is of, and that nobody can guess."""
    return f'{kind}_{secrets.token_hex(10)}'


def check_name(name: str, what: str) -> str:
    """A name that is safe in paths, pages and terminals."""
    if not NAME.fullmatch(name):
        raise Refusal(
            422, 'bad_name', f'{what}: wanted 1 to 63 letters, digits, dots, dashes or underscores, found {name[:70]!r}'
        )
    return name


def add_user(session: Session, name: str, *, quota: Quota, now: float) -> User:
    check_name(name, 'name of a user')
    if session.scalar(select(User).where(User.name == name)) is not None:
        raise Refusal(409, 'exists', f'there is a user named {name!r} already')
    user = User(
        id=new_id('usr'), name=name, created_at=now, disabled_at=None, open_submissions=quota.open_submissions,
        submissions_per_day=quota.submissions_per_day, requests_per_minute=quota.requests_per_minute,
    )  # fmt: skip
    session.add(user)
    note(session, 'user.add', user.id, name=name)
    return user


def find_user(session: Session, name: str) -> User:
    user = session.scalar(select(User).where(User.name == name))
    if user is None:
        raise not_found('user')
    return user


def set_quota(session: Session, name: str, quota: Quota) -> User:
    user = find_user(session, name)
    user.open_submissions = quota.open_submissions
    user.submissions_per_day = quota.submissions_per_day
    user.requests_per_minute = quota.requests_per_minute
    note(
        session, 'user.quota', user.id, open_submissions=quota.open_submissions,
        submissions_per_day=quota.submissions_per_day, requests_per_minute=quota.requests_per_minute,
    )  # fmt: skip
    return user


def disable_user(session: Session, name: str, *, now: float) -> User:
    """All of a user's tokens stop working at once; their submissions stay."""
    user = find_user(session, name)
    if user.disabled_at is None:
        user.disabled_at = now
        note(session, 'user.disable', user.id)
    return user


def issue_token(
    session: Session, user: User, scopes: Collection[Scope], *, label: str, now: float, lives_s: float | None
) -> tuple[Token, str]:
    """A new token, and its text, which nobody can ask for again."""
    if not scopes:
        raise Refusal(422, 'no_scope', f'wanted at least one scope of: {", ".join(s.value for s in Scope)}')
    text = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    token = Token(
        id=new_id('tok'), user_id=user.id, label=label, sha256=_sha256(text), created_at=now, revoked_at=None,
        scopes=' '.join(sorted(s.value for s in set(scopes))), expires_at=None if lives_s is None else now + lives_s,
    )  # fmt: skip
    token.user = user
    session.add(token)
    note(session, 'token.issue', token.id, user=user.id, scopes=token.scopes, expires_at=token.expires_at)
    return token, text


def revoke_token(session: Session, token_id: str, *, now: float) -> Token:
    token = session.get(Token, token_id)
    if token is None:
        raise not_found('token')
    if token.revoked_at is None:
        token.revoked_at = now
        note(session, 'token.revoke', token.id)
    return token


def identify(session: Session, text: str, *, now: float) -> Caller:
    """Who a token belongs to; every way of not being good has one answer, but a revoked one says so to its owner."""
    if not text.startswith(PREFIX) or len(text) > 200:
        raise _unknown()
    sha256 = _sha256(text)
    token = session.scalar(_TOKEN, {'sha256': sha256})
    if token is None or not hmac.compare_digest(token.sha256, sha256):
        raise _unknown()
    return caller_with(token, now=now)


def caller_with(token: Token, *, now: float) -> Caller:
    """Who has this token, while it is good."""
    if token.revoked_at is not None or token.user.disabled_at is not None:
        raise Refusal(401, 'token_revoked', 'this token was revoked; ask an admin for another')
    if token.expires_at is not None and token.expires_at <= now:
        raise Refusal(401, 'token_expired', 'this token has expired; ask an admin for another')
    scopes = frozenset(s for word in token.scopes.split() for s in INCLUDES[Scope(word)])
    return Caller(token.user_id, token.user.name, token.id, scopes, token.user.requests_per_minute)


def _unknown() -> Refusal:
    return Refusal(401, 'no_token', 'wanted a token of this server: Authorization: Bearer tlt_...')


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# Rate limits: a bucket per user that fills steadily. Kept in memory, because one server answers for its folder.

BURST_S = 10.0
MOST_BUCKETS = 10_000


class RateLimiter:
    """Lets `per_minute` requests pass, with room for a burst of ten seconds' worth."""

    def __init__(self) -> None:
        self._levels: dict[str, tuple[float, float]] = {}  # who -> (tokens left, when that was)
        self._lock = threading.Lock()

    def take(self, who: str, *, per_minute: int) -> None:
        now, rate = time.monotonic(), per_minute / 60.0
        size = max(rate * BURST_S, 1.0)
        with self._lock:
            level, at = self._levels.get(who, (size, now))
            level = min(size, level + (now - at) * rate)
            if len(self._levels) > MOST_BUCKETS:
                self._levels.clear()
            if level < 1.0:
                self._levels[who] = level, now
                wait_s = (1.0 - level) / rate
                raise Refusal(
                    429, 'too_many_requests', f'more than {per_minute} requests a minute', retry_after_s=wait_s
                )
            self._levels[who] = level - 1.0, now
