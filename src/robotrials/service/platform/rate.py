"""Rate limits: a bucket per user that fills steadily. Kept in memory, because one server answers for its folder."""

from __future__ import annotations

import threading
import time

from robotrials.service.platform.refusal import Refusal

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
