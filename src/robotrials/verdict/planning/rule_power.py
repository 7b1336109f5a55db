"""Power of the rule itself, simulated: who succeeds more often, who is faster, and both in one list.

A cell is a law of time to success as a function of a uniform number; what never succeeds is infinite. The same uniform
numbers serve every size (the first n columns of one table), so that a bisection over n compares trials that differ in
nothing but their size. What is simulated is robotrials.stats.trials, which is held equal to the contrast that judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError
from robotrials.measure.timing.operation import Operations
from robotrials.stats.interval import FloatArray, check_count, check_open_unit
from robotrials.stats.matching import unseen_reach
from robotrials.stats.proportion import wilson
from robotrials.stats.trials import TrialTests, success_trials, win_trials
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.stats.interval import Interval
    from robotrials.stats.matching import UnseenRule


# Assumed curves: what a plan believes before there is any rollout, and rollouts drawn from that belief.

ASSUMED_LEVELS = 400


@dataclass(frozen=True, slots=True, eq=False)
class AssumedCurve:
    """F(t) by points, straight between them from (0, 0), flat after the last: what is left there never succeeds."""

    times_s: FloatArray  # (k,) increasing
    chance: FloatArray  # (k,) not decreasing, at most 1

    def __post_init__(self) -> None:
        times = np.asarray(self.times_s, dtype=np.float64)
        chance = np.asarray(self.chance, dtype=np.float64)
        if times.ndim != 1 or times.shape != chance.shape or len(times) == 0:
            raise InputError(f'times_s has shape {times.shape} and chance {chance.shape}, wanted the same (k,), k > 0')
        if not np.all(np.isfinite(times)) or times[0] < 0 or np.any(np.diff(times) <= 0):
            raise InputError('times_s must be finite seconds >= 0, each after the one before')
        if not np.all(np.isfinite(chance)) or chance[0] < 0 or chance[-1] > 1 or np.any(np.diff(chance) < 0):
            raise InputError('chance must run from at least 0 to at most 1 and never fall')
        object.__setattr__(self, 'times_s', times)
        object.__setattr__(self, 'chance', chance)

    @property
    def ceiling(self) -> float:
        """The chance of ever succeeding."""
        return float(self.chance[-1])

    def at(self, t_s: ArrayLike) -> FloatArray:
        """F at each time."""
        times, chance = self._points()
        return np.asarray(np.interp(np.asarray(t_s, dtype=np.float64), times, chance), dtype=np.float64)

    def quantile(self, level: ArrayLike) -> FloatArray:
        """The time by which a share `level` has succeeded; infinite above the ceiling."""
        times, chance = self._points()
        asked = np.asarray(level, dtype=np.float64)
        rising = np.concatenate([[True], np.diff(chance) > 0])
        return np.where(asked <= self.ceiling, np.interp(asked, chance[rising], times[rising]), np.inf)

    def _points(self) -> tuple[FloatArray, FloatArray]:
        if self.times_s[0] == 0:
            return self.times_s, self.chance
        return np.concatenate([[0.0], self.times_s]), np.concatenate([[0.0], self.chance])


def lognormal_curve(median_s: float, *, spread: float = 0.8, ceiling: float = 1.0) -> AssumedCurve:
    """A lognormal time with this median and log standard deviation, for the share `ceiling` that ever succeeds."""
    from robotrials.stats.special import ndtri

    if not (np.isfinite(median_s) and median_s > 0 and np.isfinite(spread) and spread > 0):
        raise InputError(f'median_s is {median_s} and spread {spread}, wanted finite numbers > 0')
    if not 0 < ceiling <= 1:
        raise InputError(f'ceiling is {ceiling}, wanted a chance over 0 and at most 1')
    level = (np.arange(ASSUMED_LEVELS) + 0.5) / ASSUMED_LEVELS
    times = median_s * np.exp(spread * ndtri(level))
    end = times[-1] * np.exp(spread)
    return AssumedCurve(np.append(times, end), ceiling * np.append(level, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class AssumedCell:
    """A curve, and how episodes come: operations in each, how alike they are, and when watching one stops.

    `correlation` is that of two operations' normal scores within an episode (0: independent). `watched_s` censors an
    operation that takes longer; None watches for ever.
    """

    curve: AssumedCurve
    operations_per_episode: int = 1
    correlation: float = 0.0
    watched_s: float | None = None

    def __post_init__(self) -> None:
        if self.operations_per_episode < 1:
            raise InputError(f'operations_per_episode is {self.operations_per_episode}, wanted at least 1')
        if not 0 <= self.correlation < 1:
            raise InputError(f'correlation is {self.correlation}, wanted 0 <= correlation < 1')
        if self.watched_s is not None and not self.watched_s > 0:
            raise InputError(f'watched_s is {self.watched_s}, wanted seconds > 0, or None')


def assumed_operations(cell: AssumedCell, n_episodes: int, *, rng: np.random.Generator) -> Operations:
    """Episodes drawn from the assumption: each operation's time has the curve's distribution."""
    from robotrials.stats.special import ndtr

    if n_episodes < 1:
        raise InputError(f'n_episodes is {n_episodes}, wanted at least 1')
    shared = rng.standard_normal((n_episodes, 1))
    own = rng.standard_normal((n_episodes, cell.operations_per_episode))
    level = ndtr(np.sqrt(cell.correlation) * shared + np.sqrt(1 - cell.correlation) * own).ravel()
    times = cell.curve.quantile(level)
    observed = np.ones(len(times), dtype=np.bool_)
    if cell.watched_s is not None:
        late = np.isfinite(times) & (times > cell.watched_s)
        times, observed = np.where(late, cell.watched_s, times), ~late
    episode = np.repeat(np.arange(n_episodes), cell.operations_per_episode)
    return Operations(times, observed, episode.astype(np.int64))


Law = Callable[[FloatArray], FloatArray]  # uniform numbers -> seconds, infinite where it never succeeds
TRIALS = 4_000
AT_ONCE = 4_000_000  # times held at once
MOST_PER_CELL = 2_000
MOST_TIMES = 10_000.0
LEVELS = 2_000  # quantiles by which a law is summed up


@dataclass(frozen=True, slots=True, eq=False)
class RuleDesign:
    """Two arms' laws, one per stratum, followed to `tau_s`; `correlation` is that of both on a matched start."""

    a: tuple[Law, ...]
    b: tuple[Law, ...]
    tau_s: float
    is_matched: bool = False
    correlation: float = 0.0

    def __post_init__(self) -> None:
        if not self.a or len(self.a) != len(self.b):
            raise InputError(f'wanted the same strata of both arms, found {len(self.a)} and {len(self.b)}')
        if not 0 <= self.correlation < 1:
            raise InputError(f'correlation must be at least 0 and below 1, found {self.correlation}')
        if self.correlation and not self.is_matched:
            raise InputError('a correlation is that of both arms on one start; only matched starts have it')

    @property
    def win_probability(self) -> float:
        """The chance that a is faster than b, by quantiles of both laws, the mean over strata; level is one half."""
        levels = (np.arange(LEVELS) + 0.5) / LEVELS
        chances = []
        for law_a, law_b in zip(self.a, self.b, strict=True):
            x, y = (np.where((t := law(levels)) <= self.tau_s, t, np.inf) for law in (law_a, law_b))
            below, up_to = (np.searchsorted(np.sort(y), x, side=side) for side in ('left', 'right'))
            chances.append(1 - float((below + up_to).mean()) / (2 * LEVELS))
        return math.fsum(chances) / len(chances)

    @property
    def success_rates(self) -> tuple[float, float]:
        """Both arms' chance to be done by tau, the mean over strata."""
        levels = (np.arange(LEVELS) + 0.5) / LEVELS
        first, second = (
            math.fsum(float((law(levels) <= self.tau_s).mean()) for law in arm) / len(arm) for arm in (self.a, self.b)
        )
        return first, second


def curve_law(curve: AssumedCurve | AssumedCell) -> Law:
    """An assumed curve as a law."""
    return curve.curve.quantile if isinstance(curve, AssumedCell) else curve.quantile


def sample_law(times_s: Sequence[float] | FloatArray) -> Law:
    """A pilot's times as a law: values between neighbours are as likely, so that no time of the pilot repeats."""
    ordered = np.sort(np.asarray(times_s, dtype=np.float64))
    done = ordered[np.isfinite(ordered)]
    share = len(done) / len(ordered)

    def law(uniform: FloatArray) -> FloatArray:
        if not len(done):
            return np.full_like(uniform, np.inf)
        levels = (np.arange(len(done)) + 0.5) / len(done) * share
        return np.where(uniform < share, np.interp(uniform, levels, done), np.inf)

    return law


@dataclass(frozen=True, slots=True)
class RulePower:
    """In how many of the simulated trials each claim for the truly better arm passed, at one number of episodes."""

    per_cell: int
    success: int
    faster: int
    either: int  # at least one of both, in one Holm list
    wrong: int  # any claim for the other arm
    n_trials: int

    def rate(self, name: str) -> float:
        """The power of 'success', 'faster' or 'either'."""
        return float(getattr(self, name)) / self.n_trials

    def interval(self, name: str) -> Interval:
        """Its Monte-Carlo (Wilson) 95 % interval."""
        return wilson(int(getattr(self, name)), self.n_trials)


def rule_power(
    design: RuleDesign, per_cell: int, *, rng: np.random.Generator, n_tests: int = 1, alpha: float = 0.05,
    n_trials: int = TRIALS,
) -> RulePower:  # fmt: skip
    """Simulate the rule with `per_cell` episodes of each arm in each stratum.

    `n_tests` hypotheses are in the list: a claim alone must pass at alpha / n_tests. `either` counts both endpoints of
    this pair in one list of at least two, by Holm, with every other hypothesis true.
    """
    return _power_at(design, per_cell, _uniforms(design, per_cell, n_trials, rng), n_tests=n_tests, alpha=alpha)


Uniforms = list[tuple[FloatArray, FloatArray]]


def _uniforms(design: RuleDesign, most: int, n_trials: int, rng: np.random.Generator) -> Uniforms:
    """(trials, most) uniform numbers of both arms in every stratum; fewer episodes are the first columns of more."""
    from robotrials.stats.special import ndtr

    check_count('n_trials', n_trials, least=1)
    shape = (most, n_trials)
    tables = []
    for seed in np.random.SeedSequence(int(rng.integers(2**63))).spawn(len(design.a)):
        streams = [np.random.default_rng(s) for s in seed.spawn(3)]
        if design.is_matched:
            start, *own = (stream.standard_normal(shape).T for stream in streams)
            rho = design.correlation
            first, second = (ndtr(math.sqrt(rho) * start + math.sqrt(1 - rho) * x) for x in own)
        else:
            first, second = (stream.random(shape).T for stream in streams[:2])
        tables.append((first, second))
    return tables


def _power_at(
    design: RuleDesign, n: int, uniforms: Uniforms, *, n_tests: int, alpha: float, endpoint: str = 'either'
) -> RulePower:
    check_count('per_cell', n, least=2), check_open_unit('alpha', alpha)
    trials, wants = len(uniforms[0][0]), {'success': (True, False), 'faster': (False, True), 'either': (True, True)}
    if endpoint not in wants:
        raise InputError(f'endpoint must be one of {", ".join(wants)}, found {endpoint!r}')
    rows = max(1, AT_ONCE // (n * len(uniforms)))
    counts, n_claims = np.zeros(4, dtype=np.int64), max(n_tests, 2)
    by_stratum = list(zip(design.a, design.b, strict=True))
    ever = [] if wants[endpoint][1] else [[_last_level(law, design.tau_s) for law in laws] for laws in by_stratum]
    for start in range(0, trials, rows):
        part = slice(start, start + rows)
        arms: tuple[list[FloatArray], list[FloatArray]] = ([], [])
        done: tuple[list[NDArray[np.bool_]], list[NDArray[np.bool_]]] = ([], [])
        for k, laws in enumerate(by_stratum):
            for arm, law in enumerate(laws):
                levels = uniforms[k][arm][part, :n]
                if wants[endpoint][1]:
                    times = law(levels)
                    arms[arm].append(np.where(times <= design.tau_s, times, np.inf))
                    done[arm].append(np.isfinite(arms[arm][-1]))
                else:
                    done[arm].append(levels <= ever[k][arm])
        shared = [n] * len(done[0]) if design.is_matched else None
        hit = win = _untested(len(done[0][0]))
        if wants[endpoint][0]:
            hit = success_trials(done[0], done[1], n_shared=shared, n_tests=n_tests, alpha=alpha)
        if wants[endpoint][1]:
            win = win_trials(arms[0], arms[1], n_shared=shared, n_tests=n_tests, alpha=alpha)
        claims = [test.claims(alpha / n_tests)[0].sum() for test in (hit, win)]
        listed = _holm_claims(hit.p_value, win.p_value, hit.gap, win.gap, n_claims, alpha)
        counts += np.array([*claims, listed[0].sum(), listed[1].sum()])
    success, faster, either, wrong = (int(c) for c in counts)
    return RulePower(n, success, faster, either, wrong, trials)


def _last_level(law: Law, tau_s: float) -> float:
    """The last uniform number that a law has done by tau, to the bit: below 0 if none, 1 if all. Laws do not fall."""
    low, high = -1.0, math.nextafter(1.0, 0.0)  # the largest that is drawn: at 1 a law may be without an end
    if law(np.array([high]))[0] <= tau_s:
        return 1.0
    while low < (middle := (max(low, 0.0) + high) / 2) < high:
        low, high = (middle, high) if law(np.array([middle]))[0] <= tau_s else (low, middle)
    return low


def _untested(n: int) -> TrialTests:
    return TrialTests(np.zeros(n), np.ones(n), np.ones(n), np.ones(n))


def _holm_claims(
    p: FloatArray, q: FloatArray, gap_p: FloatArray, gap_q: FloatArray, n_tests: int, alpha: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where any of two endpoints is claimed for a, and where any is for b, by Holm in a list of `n_tests`."""
    first = np.minimum(p, q) <= alpha / n_tests
    second = first & (np.maximum(p, q) <= alpha / max(n_tests - 1, 1))
    made_p, made_q = np.where(p <= q, first, second), np.where(p <= q, second, first)
    return (made_p & (gap_p > 0)) | (made_q & (gap_q > 0)), (made_p & (gap_p < 0)) | (made_q & (gap_q < 0))


def rule_size(
    design: RuleDesign, *, rng: np.random.Generator, endpoint: str = 'faster', power: float = 0.8, n_tests: int = 1,
    alpha: float = 0.05, n_trials: int = TRIALS, most: int = MOST_PER_CELL,
) -> RulePower | None:  # fmt: skip
    """The fewest episodes per cell at which a's claim has the power asked; None where `most` are not enough.

    `endpoint` is 'success', 'faster' or 'either'. The law of a must be the better one.
    """
    check_open_unit('power', power)
    seed = int(rng.integers(2**63))
    size = 8

    def at(n: int) -> RulePower:
        tables = _uniforms(design, n, n_trials, np.random.default_rng(seed))
        return _power_at(design, n, tables, n_tests=n_tests, alpha=alpha, endpoint=endpoint)

    while (simulated := at(size)).rate(endpoint) < power:
        if size >= most:
            return None
        size = min(2 * size, most)
    low, high = size // 2 if size > 8 else 2, size
    best = simulated
    while high - low > max(1, high // 200):  # a large size is known no better from as many trials
        middle = (low + high) // 2
        simulated = at(middle)
        low, high, best = (low, middle, simulated) if simulated.rate(endpoint) >= power else (middle, high, best)
    return best


def units_needed(
    rule: UnseenRule, *, per_cell: float, alpha: float = 0.05, power: float = 0.8, gap: float | None = None
) -> float:
    """Units per cell with which R would call today's gap (or another) with this power; infinite without a gap.

    A trial x times as large has a variance of V / x and an N* of x N*: power is the chance that the estimate exceeds
    R there. `alpha` is that of the first step of the correction.
    """
    from robotrials.stats.special import ndtri

    size, z = abs(rule.gap if gap is None else gap), float(ndtri(check_open_unit('power', power)))
    variance, degrees = rule.spread.variance, rule.degrees

    def is_enough(times: float) -> bool:
        v = variance / times
        return size >= float(unseen_reach(v, degrees * times, rule.n_comparisons * times, alpha)) + z * math.sqrt(v)

    if not size > 0 or not is_enough(MOST_TIMES):
        return math.inf
    low, high = 1 / MOST_TIMES, MOST_TIMES
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return float(math.ceil(high * per_cell - 1e-9))
