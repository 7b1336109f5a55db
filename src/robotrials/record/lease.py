"""A lock on object storage: a lease that its holder renews, seen by all machines that use the store.

Each holder writes an object of its own and then looks for others. Listings show every object that was acknowledged
before, so of two that come at once at least one sees the other. A holder that is gone stops renewing, and its lease
runs out. Machines' clocks must agree within `SLACK_S`. Should two holders overlap all the same, ids are deterministic
and an attempt counts once, so work is done twice and nothing is counted twice.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
import uuid
from collections.abc import Iterator

from robotrials.errors import StoreError
from robotrials.record.bucket import CachedPath
from robotrials.record.folder import LEASES

LEASE_S = 90.0
SLACK_S = 30.0
RENEW_S = 20.0


@contextlib.contextmanager
def held_lease(root: CachedPath, name: str, *, shared: bool, wait_s: float, busy: str) -> Iterator[None]:
    """Hold a lease; `busy` says what is under way if it can't be had within `wait_s`."""
    bucket, folder = root.bucket, f'{root.key}/{LEASES}/{name}'
    own = f'{"shared" if shared else "alone"}-{uuid.uuid4().hex}'
    deadline = time.monotonic() + wait_s
    ended = threading.Event()

    def renew() -> None:
        bucket.write(f'{folder}/{own}', json.dumps({'until': time.time() + LEASE_S}).encode())

    def keep() -> None:
        while not ended.wait(RENEW_S):
            with contextlib.suppress(StoreError):  # tried again in time; a lease that runs out costs double work
                renew()

    try:
        while True:
            renew()
            if not _rivals(root, name, own, shared=shared):
                break
            bucket.remove(f'{folder}/{own}')
            if time.monotonic() >= deadline:
                raise StoreError(f'{root.address}: {busy}')
            time.sleep(random.uniform(0.1, 0.5))
        threading.Thread(target=keep, daemon=True, name='lease').start()
        yield
    finally:
        ended.set()
        bucket.remove(f'{folder}/{own}')


def _rivals(root: CachedPath, name: str, own: str, *, shared: bool) -> list[str]:
    """Other holders that are alive and can't hold it together with us; what ran out long ago is removed."""
    bucket, folder = root.bucket, f'{root.key}/{LEASES}/{name}'
    rivals = []
    for other in bucket.names(folder):
        if other == own or (shared and other.startswith('shared-')):
            continue
        try:
            until_s = float(json.loads(bytes(bucket.read(f'{folder}/{other}')))['until'])
        except FileNotFoundError:
            continue
        if until_s + SLACK_S > time.time():
            rivals.append(other)
        else:
            bucket.remove(f'{folder}/{other}')
    return rivals
