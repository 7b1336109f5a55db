"""What routes share: the platform behind them, who asks, and which refusals they document."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from robotrials.service.platform.access import Caller, Scope, identify
from robotrials.service.platform.schema import ProblemBody
from robotrials.service.platform.server import Platform

BEARER = HTTPBearer(auto_error=False, description='A token of this server: tlt_...')
MEANINGS = {
    400: 'The request cannot be read.',
    401: 'No token, or one that is unknown, expired or revoked.',
    403: 'The token has not the scope for this.',
    404: 'No such thing, or it is not yours.',
    409: 'It contradicts what is there: a name or key that is taken, a state that does not allow it.',
    410: 'It is over: a finished submission, an expired lease.',
    413: 'The body is too large.',
    422: 'The body is not what was wanted.',
    429: 'A quota or rate limit; see Retry-After.',
    503: 'Busy, or about to end; see Retry-After.',
    507: 'The disk is full; nothing was changed.',
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, for its description."""
    common = (400, 401, 403, 413, 422, 429, 503, 507)
    return {s: {'model': ProblemBody, 'description': MEANINGS[s]} for s in sorted({*common, *statuses})}


async def platform_of(request: Request) -> Platform:  # async: what does not wait needs no thread of its own
    platform: Platform = request.app.state.platform
    return platform


ThePlatform = Annotated[Platform, Depends(platform_of)]


def caller_of(
    platform: ThePlatform, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
) -> Caller:
    """Who asks; counted against their rate."""
    with platform.database.read() as session:
        caller = identify(session, credentials.credentials if credentials else '', now=platform.clock())
    platform.limiter.take(caller.user_id, per_minute=caller.requests_per_minute)
    return caller


class Scoped:
    """A dependency that wants one of these scopes."""

    def __init__(self, *any_of: Scope) -> None:
        self._any_of = any_of

    async def __call__(self, caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
        caller.require(*self._any_of)
        return caller


AnAdmin = Annotated[Caller, Depends(Scoped(Scope.ADMIN))]
ASubmitter = Annotated[Caller, Depends(Scoped(Scope.SUBMITTER, Scope.ADMIN))]
AWorker = Annotated[Caller, Depends(Scoped(Scope.WORKER))]
AnOperator = Annotated[Caller, Depends(Scoped(Scope.OPERATOR))]
AReader = Annotated[Caller, Depends(Scoped(Scope.READER))]

Id = Annotated[str, Path(pattern=r'^[a-z]{3}_[0-9a-f]{20}$', description='As it was given.')]
BenchmarkName = Annotated[str, Path(pattern=r'^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$')]
EpisodeId = Annotated[str, Path(pattern=r'^[0-9a-f]{24}$')]
UserName = BenchmarkName
