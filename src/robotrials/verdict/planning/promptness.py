"""Time to success as a bounded score, so that it can be watched while rollouts come in."""

from __future__ import annotations

import math
from collections.abc import Sequence

from robotrials.errors import InputError, NotEstimable
from robotrials.stats.argument import check_count


def promptness(
    placed_s: Sequence[float], *, tau_s: float, items: int = 1, watched_s: float = math.inf, is_over: bool = True
) -> float:
    """The mean over an episode's items of 1 - min(T, tau) / tau, T being the time from the start until each was placed.

    `placed_s`: when items were placed, seconds from the start. An item that was not placed scores 0: never is later
    than tau. `watched_s` is how long the episode was followed and `is_over` whether it ended by itself (all done, hard
    failure, safety stop); one that was cut off before tau with items left is NotEstimable: what it would have done by
    tau is not known.

    >>> promptness([30.0], tau_s=120), promptness([30.0, 60.0], tau_s=120, items=4), promptness([], tau_s=120)
    (0.75, 0.3125, 0.0)
    """
    if not (math.isfinite(tau_s) and tau_s > 0):
        raise InputError(f'tau_s must be a finite number of seconds over 0, found {tau_s!r}')
    items = check_count('items', items, least=1)
    times = sorted(placed_s)
    if len(times) > items or (times and not times[0] >= 0):
        raise InputError(f'wanted at most {items} times >= 0, found {len(times)} from {times[0] if times else None}')
    if not is_over and watched_s < tau_s and len(times) < items:
        raise NotEstimable(
            f'watched for {watched_s:g} s with items left, and tau is {tau_s:g} s: choose a tau within the time cap'
        )
    return sum(max(0.0, 1 - t / tau_s) for t in times) / items
