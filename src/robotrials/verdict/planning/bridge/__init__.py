"""The Brownian-bridge model of the macro-KS statistic (PhAIL, Appendix H).

In a stratum with N episodes per policy, sqrt(N) (Fa - Fb) is about a Gaussian process around sqrt(N) times the true
difference (the drift). The process is taken as two Brownian bridges, each run on its own curve's clock and scaled by
sqrt(D / m): m operations an episode, D the design effect. Its law does not depend on N, so that one set of simulated
bridges serves every N: only the drift is scaled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import NotEstimable
from robotrials.measure.timing.curve import episode_influence, success_curve
from robotrials.measure.timing.operation import FloatArray, Operations
from robotrials.measure.timing.resample import NullMethod
from robotrials.value import dataclass
from robotrials.verdict.planning.rule_power import AssumedCell, assumed_operations

GRID = 120
ASSUMED_EPISODES = 3000
Cell = Operations | AssumedCell
Float32Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class StratumModel:
    """One stratum: both curves on a grid of times, and the noise of an episode."""

    times_s: FloatArray  # (k,)
    chance_a: FloatArray  # (k,)
    chance_b: FloatArray  # (k,)
    design_effect: tuple[float, float]  # of a, of b
    operations_per_episode: tuple[float, float]
    n_episodes: tuple[int, int]  # the pilot's; what the plug-in's bias comes from
    is_assumed: bool
    pairing: float = 1.0  # variance of the difference of matched scenes over that of unmatched ones

    @property
    def drift(self) -> FloatArray:
        return self.chance_a - self.chance_b

    @property
    def variances(self) -> tuple[float, float]:
        """What multiplies F (1 - F) / N in the variance of each curve."""
        scale = [d / m * self.pairing for d, m in zip(self.design_effect, self.operations_per_episode, strict=True)]
        return scale[0], scale[1]

    @property
    def pilot_size(self) -> float:
        """Episodes a policy that carry the pilot's noise when both arms have as many."""
        (va, vb), (na, nb) = self.variances, self.n_episodes
        return (va + vb) / (va / na + vb / nb)


def stratum_model(
    a: Cell, b: Cell, *, tau_s: float | None, rng: np.random.Generator, design_effect: float | None = None,
    is_paired: bool = False,
) -> StratumModel:  # fmt: skip
    """Curves and noise of one stratum, from pilot operations or from an assumption."""
    if is_paired and (isinstance(a, AssumedCell) or isinstance(b, AssumedCell)):
        raise NotEstimable('assumed curves say nothing about matched scenes; plan them as unpaired')
    drawn = [assumed_operations(c, ASSUMED_EPISODES, rng=rng) if isinstance(c, AssumedCell) else c for c in (a, b)]
    times = _grid(drawn, tau_s)
    influence = [episode_influence(c.durations_s, c.observed, c.cluster, times, n_episodes=c.n_episodes) for c in drawn]
    chance = [
        given.curve.at(times) if isinstance(given, AssumedCell) else np.atleast_1d(_curve_at(c, times))
        for given, c in zip((a, b), drawn, strict=True)
    ]
    effects = [_design_effect(c, f, i) for c, f, i in zip(drawn, chance, influence, strict=True)]
    pairing = 1.0
    if is_paired:
        within = sum(float((i**2).sum()) for i in influence)
        pairing = float(((influence[0] - influence[1]) ** 2).sum()) / within if within > 0 else 1.0
    return StratumModel(
        times_s=times,
        chance_a=chance[0],
        chance_b=chance[1],
        design_effect=(effects[0], effects[1]) if design_effect is None else (design_effect, design_effect),
        operations_per_episode=tuple(c.n_operations / c.n_episodes for c in drawn),  # type: ignore[arg-type]
        n_episodes=(drawn[0].n_episodes, drawn[1].n_episodes),
        is_assumed=isinstance(a, AssumedCell) and isinstance(b, AssumedCell),
        pairing=pairing,
    )


def design_effect(cell: Operations, *, tau_s: float | None = None) -> float:
    """The design effect of one cell: the clustered variance of its curve over that of independent operations.

    Both are summed over the times at which something succeeded. Without censoring and with m operations in every
    episode it is 1 + (m - 1) rho, rho being the within-episode correlation of the indicators T <= t, weighted by their
    variance; censoring makes it larger.
    """
    times = _grid([cell], tau_s)
    influence = episode_influence(cell.durations_s, cell.observed, cell.cluster, times, n_episodes=cell.n_episodes)
    return _design_effect(cell, np.atleast_1d(_curve_at(cell, times)), influence)


def _design_effect(cell: Operations, chance: FloatArray, influence: FloatArray) -> float:
    alone = float((chance * (1 - chance)).sum()) / cell.n_operations
    if alone <= 0 or cell.n_episodes < 2:
        return 1.0
    # The infinitesimal jackknife is short by the degree of freedom that the curve itself takes.
    return float((influence**2).sum()) / alone * cell.n_episodes / (cell.n_episodes - 1)


def _curve_at(cell: Operations, times: FloatArray) -> FloatArray:
    return np.asarray(success_curve(cell.durations_s, cell.observed).at(times), dtype=np.float64)


def _grid(cells: Sequence[Operations], tau_s: float | None) -> FloatArray:
    """The times of successes up to tau, thinned to about GRID of them, evenly in the pooled chance."""
    seen = np.concatenate([c.durations_s[c.observed & np.isfinite(c.durations_s)] for c in cells])
    times = np.unique(seen[seen <= (np.inf if tau_s is None else tau_s)])
    if len(times) == 0:
        raise NotEstimable('no success was seen (by tau, if one is given): there is no curve to plan from')
    pooled = np.mean([np.atleast_1d(_curve_at(c, times)) for c in cells], axis=0)
    places = np.searchsorted(pooled, np.linspace(0, pooled[-1], GRID))
    return np.asarray(times[np.unique(np.minimum(places, len(times) - 1))], dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Bridges:
    """Simulated noise of every stratum, and the null's own: what power at any N and any drift is read from."""

    models: tuple[StratumModel, ...]
    noise: tuple[Float32Array, ...]  # each (k, bridges): sqrt(N) (Fa - Fb) less its drift
    null_noise: tuple[Float32Array, ...]  # each (k, bridges): the same for the pooled curve
    between: FloatArray  # (strata, bridges): the null's share of the difference between the arms
    method: NullMethod
    drifts: tuple[FloatArray, ...] = field(init=False)  # of the models, which work them out anew at every call
    pilot_sizes: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, 'drifts', tuple(m.drift for m in self.models))
        object.__setattr__(self, 'pilot_sizes', tuple(m.pilot_size for m in self.models))

    @property
    def n_bridges(self) -> int:
        return int(self.noise[0].shape[1])

    def critical(self, shrink: float, *, alpha: float, n: float) -> float:
        """The simulated 1 - alpha quantile of sqrt(N) times the macro-KS under the test's own null.

        The null is resampled from both arms together, so that its spread also holds the difference between the arms.
        """
        weight = shrink * (1.0 if self.method is NullMethod.PAIRED_SWAP else math.sqrt(0.5))
        sups = [
            sup_shifted(noise, weight * drift, per_row=row)
            for noise, drift, row in zip(self.null_noise, self.drifts, self.between, strict=True)
        ]
        scale = math.sqrt(1 - 1 / (2 * n)) if self.method is NullMethod.POOLED_BOOTSTRAP else 1.0
        return scale * float(np.quantile(np.mean(sups, axis=0), 1 - alpha))

    def statistics(self, n: float, *, shrink: float = 1.0) -> FloatArray:
        """(bridges,) sqrt(N) times the macro-KS when the drift is `shrink` times the one given."""
        scale = shrink * math.sqrt(n)
        return _mean_of([sup_shifted(z, scale * drift) for z, drift in zip(self.noise, self.drifts, strict=True)])

    def power(self, n: float, *, shrink: float, alpha: float, critical: float | None = None) -> float:
        """The chance that the test rejects at `alpha` with N episodes per cell."""
        edge = self.critical(shrink, alpha=alpha, n=n) if critical is None else critical
        return float(np.mean(self.statistics(n, shrink=shrink) > edge))

    def pilot_statistics(self, shrink: float, *, noise_factor: float = 1.0) -> FloatArray:
        """(bridges,) macro-KS of a pilot of the given size, were the true drift `shrink` times the one given."""
        scales = [math.sqrt(size) / noise_factor for size in self.pilot_sizes]
        return _mean_of([
            sup_shifted(z, (shrink * scale) * drift) / scale
            for z, drift, scale in zip(self.noise, self.drifts, scales, strict=True)
        ])  # fmt: skip


def _mean_of(parts: Sequence[FloatArray]) -> FloatArray:
    """The mean over strata, added up in place: there may be many."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total / len(parts)


def simulate_bridges(
    models: Sequence[StratumModel], n_bridges: int, *, rng: np.random.Generator, method: NullMethod
) -> Bridges:
    """Draw every stratum's bridges once."""
    noise, null_noise = [], []
    for model in models:
        va, vb = model.variances
        noise.append(_bridges([(model.chance_a, va), (model.chance_b, vb)], n_bridges, rng))
        null_noise.append(_bridges([((model.chance_a + model.chance_b) / 2, va + vb)], n_bridges, rng))
    between = rng.standard_normal((len(models), n_bridges))
    return Bridges(tuple(models), tuple(noise), tuple(null_noise), between, method)


def _bridges(parts: Sequence[tuple[FloatArray, float]], count: int, rng: np.random.Generator) -> Float32Array:
    """(k, count) sums of Brownian bridges, each at increasing clock values in [0, 1] and with a variance of its own."""
    from robotrials.verdict.planning.bridge import kernel

    out = np.zeros((len(parts[0][0]), count), dtype=np.float32)
    for clock, variance in parts:
        steps = np.sqrt(np.diff(np.concatenate([[0.0], clock, [1.0]])).clip(0)).astype(np.float32)
        walk = rng.standard_normal((count, len(steps)), dtype=np.float32)
        kernel.add_bridges(walk, steps, clock.astype(np.float32), np.float32(math.sqrt(variance)), out)
    return out


def sup_shifted(noise: Float32Array, drift: FloatArray, *, per_row: FloatArray | None = None) -> FloatArray:
    """(bridges,) sup over times of |noise + drift|, the drift scaled bridge by bridge where asked."""
    from robotrials.verdict.planning.bridge import kernel

    out = np.empty(noise.shape[1], dtype=np.float32)
    if per_row is None:
        kernel.sup_shifted(noise, drift.astype(np.float32), out)
    else:
        kernel.sup_scaled(noise, drift.astype(np.float32), per_row.astype(np.float32), out)
    return out.astype(np.float64)


def stratum_models(
    a: Mapping[str, Cell], b: Mapping[str, Cell], *, tau_s: float | None, rng: np.random.Generator,
    design_effect: float | None = None, is_paired: bool = False,
) -> tuple[StratumModel, ...]:  # fmt: skip
    """One model a stratum, in a's order."""
    return tuple(
        stratum_model(a[s], b[s], tau_s=tau_s, rng=rng, design_effect=design_effect, is_paired=is_paired) for s in a
    )
