"""Large resampling as tasks of a Ray cluster: the same numbers, because every resample has a stream of its own."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

LEAST_STEPS = 2_000_000_000  # operations passed over, about 3 s of one core: below, sending costs more than it brings
PIECES_A_CORE = 3  # so that a slow node does not hold up the rest


@dataclass(frozen=True, slots=True)
class Farm:
    """A cluster that takes pieces of a resampling; what is below `least_steps` stays on this machine."""

    ray: Any
    least_steps: int = LEAST_STEPS

    def takes(self, steps: int) -> bool:
        return steps >= self.least_steps

    def rows(self, draw: Callable[..., Any], *given: Any, n_resamples: int, **options: Any) -> Any:
        """`draw` over all resamples: its rows are resamples."""
        edges = self._edges(n_resamples)
        options = {**options, 'threads': 1}
        asked = [{'first': a, 'n_resamples': b - a, **options} for a, b in edges]
        return np.concatenate(self._map(draw, given, asked))

    def trials(self, test: Callable[..., Any], layout: Any, units: Any, *, n_resamples: int, **options: Any) -> Any:
        """`test` over all trials or, of few, over their resamples: (observed, null)."""
        over_trials = len(units) >= self._count()
        edges = self._edges(len(units) if over_trials else n_resamples)
        options = {**options, 'threads': 1}
        if over_trials:
            asked = [{'units': units[a:b], 'first_trial': a, 'n_resamples': n_resamples, **options} for a, b in edges]
        else:
            asked = [{'units': units, 'first_resample': a, 'n_resamples': b - a, **options} for a, b in edges]
        found = self._map(test, (layout,), asked)
        observed = np.concatenate([seen for seen, _ in found]) if over_trials else found[0][0]
        return observed, np.concatenate([null for _, null in found], axis=0 if over_trials else 1)

    def _count(self) -> int:
        return max(1, int(self.ray.cluster_resources().get('CPU', 1))) * PIECES_A_CORE

    def _edges(self, n: int) -> list[tuple[int, int]]:
        edges = np.linspace(0, n, min(self._count(), n) + 1).astype(int).tolist()
        return list(itertools.pairwise(edges))

    def _map(self, function: Callable[..., Any], given: Sequence[Any], asked: Sequence[dict[str, Any]]) -> list[Any]:
        # Pure functions of their arguments: a piece that was lost with its node is simply done again.
        call = self.ray.remote(_call).options(num_cpus=1, max_retries=5)
        shared = self.ray.put(tuple(given))
        return list(self.ray.get([call.remote(function, shared, options) for options in asked]))


def _call(function: Callable[..., Any], given: Sequence[Any], options: dict[str, Any]) -> Any:
    # What Ray hands over can't be written to.
    return function(*copy.deepcopy(given), **copy.deepcopy(options))


_farm: ContextVar[Farm | None] = ContextVar('farm', default=None)


def current_farm() -> Farm | None:
    """The cluster that large resampling goes to, if any."""
    return _farm.get()


@contextlib.contextmanager
def farmed(ray: Any, *, least_steps: int = LEAST_STEPS) -> Iterator[None]:
    """Send resampling of at least so many steps to a cluster that `ray` is connected to."""
    token = _farm.set(Farm(ray, least_steps))
    try:
        yield
    finally:
        _farm.reset(token)
