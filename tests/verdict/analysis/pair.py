"""Small stores with known truth, for what compares two of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.record import Episode, Outcome, Store

CAP_S = 60.0
STRATA = ('block', 'spoon', 'towel')


def rollouts(
    rng: np.random.Generator, policy: str, rate: float, *, n: int, median_s: float = 15.0,
    strata: Sequence[str] = STRATA, first_seed: int = 0, cap_s: float | None = CAP_S, **changes: Any,
) -> list[Episode]:  # fmt: skip
    """n episodes a stratum: success with this chance, at a lognormal time; the others run into the cap."""
    made = []
    for stratum in strata:
        for number in range(n):
            end_s = CAP_S if cap_s is None else cap_s
            success = bool(rng.random() < rate)
            time_s = min(median_s * float(np.exp(0.4 * rng.normal())), end_s - 1)
            fields: dict[str, Any] = {
                'policy': policy, 'task': 'pick', 'stratum': stratum, 'seed': first_seed + number, 'time_cap_s': cap_s,
                'outcome': Outcome.SUCCESS if success else Outcome.TIMEOUT, 'duration_s': time_s if success else end_s,
            }  # fmt: skip
            made.append(Episode(**{**fields, **changes}))
    return made


def store_of(path: Path, *groups: Sequence[Episode]) -> Store:
    store = Store.create(path)
    for group in groups:
        store.append(group)
    return store


def plain_store(path: Path, rate: float, *, seed: int, n: int = 20, policy: str = 'pi', **options: Any) -> Store:
    return store_of(path, rollouts(np.random.default_rng(seed), policy, rate, n=n, **options))
