"""The server's own call to a worker's port: a stop must not wait for the next heartbeat."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from robotrials.errors import RobotrialsError
from robotrials.service.platform.address import check_public
from robotrials.service.platform.lease_token import sign_lease
from robotrials.wire.http import HttpLink
from robotrials.wire.link import split_url

CALL_S = 2.0
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
            return link.post(f'/{word}', b'', timeout_s=CALL_S).status == 200
    except RobotrialsError:
        return False
