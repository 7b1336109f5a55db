"""How often the rule errs, family by family: faster, success, margins, loss, races, and whole lists of claims.

Every world is a null (or has a known truth), named by its family and number; its stream hangs on the seed and the name
alone. A row keeps the share of trials with a false claim at 0.05 and at 0.05 / 15; for intervals, the share that miss.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from tests.grid.null_world import NullWorld, balanced, random_null, win_chance

from robotrials.stats.dominance import LOOKS_WORSE
from robotrials.stats.interval import satterthwaite
from robotrials.stats.matching import one_sided_p_values
from robotrials.stats.success_rule import success_arm, success_contrast
from robotrials.stats.trials import TrialTests, success_trials, win_trials
from robotrials.stats.win import win_arm, win_contrast

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
ALPHA, MANY = 0.05, 15
TRIALS = 2_000
SLOW_TRIALS = 400  # of what is judged trial by trial
RATE_SHAPES = ((0.5, 0.5), (5.0, 1.0), (1.0, 1.0), (20.0, 1.0))  # beta laws of success rates


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One world: how often something false was said."""

    family: str
    world: str
    strata: int
    units: str  # per cell, of both arms
    n_trials: int
    rate: float  # at 0.05
    rate_many: float | None  # at 0.05 / 15
    n_again: int = 0  # trials of a rerun with a fresh seed, for the worst worlds
    again: float | None = None

    def as_row(self) -> dict[str, str | int | float | None]:
        return asdict(self)


Study = Callable[[np.random.Generator, int], tuple[float, float | None]]  # false at 0.05 and at 0.05 / 15


@dataclass(frozen=True, slots=True, eq=False)
class GridWorld:
    """One world of the grid and how it is judged, in so many trials."""

    family: str
    name: str
    strata: int
    units: str
    study: Study
    n_trials: int = TRIALS


def study_world(world: GridWorld, *, seed: int, n_trials: int | None = None) -> VerdictRow:
    n = world.n_trials if n_trials is None else n_trials
    rng = np.random.default_rng([seed, zlib.crc32(f'{world.family} {world.name}'.encode())])
    rate, many = world.study(rng, n)
    return VerdictRow(world.family, world.name, world.strata, world.units, n, rate, many)


def verdict_worlds(*, per_family: int = 40, seed: int = 1) -> Iterator[GridWorld]:
    """The worlds of every family: `per_family` of the random ones, fewer of the slow ones."""
    slow = max(4, per_family // 4)
    for family, make, count in (
        ('faster, independent arms', _independent, 4 * per_family),
        ('faster, matched starts', _matched, per_family),
        ('faster, some starts shared', _part_shared, per_family),
        ('faster, repeated starts', _repeated, per_family),
        ('faster, several items', _race, per_family),
        ('faster, runs lost', _lossy, slow),
        ('success, equal counts', partial(_success, kind='equal'), per_family),
        ('success, unequal counts', partial(_success, kind='unequal'), 2 * per_family),
        ('success, matched starts', partial(_success, kind='matched'), per_family),
        ('success, some starts shared', partial(_success, kind='shared'), per_family),
        ('success, repeated starts', partial(_success, kind='repeated'), per_family),
        ('success, starts decided for either arm', _turning, per_family),
        ('success, not worse by a margin', _margin, per_family),
        ('any false claim of a list', _list, per_family),
        ('better, of a policy that is ahead in nothing', partial(_list, is_better=True), per_family),
        ('any false claim of race and lost items', _items, per_family),
        ('interval of P misses', _cover_win, per_family),
        ('interval of success misses', _cover_success, slow),
    ):
        for number in range(count):
            rng = np.random.default_rng([seed, zlib.crc32(family.encode()), number])
            yield make(family, number, rng)
    yield from _hidden_in_strata()


def _units(world: NullWorld) -> str:
    sizes = [sorted(set(n)) for n in (world.n_a, world.n_b)]
    return ' v '.join(f'{s[0]}' if len(s) == 1 else f'{s[0]}-{s[-1]}' for s in sizes)


def _rates(tests: TrialTests) -> tuple[float, float]:
    return float(np.mean(tests.p_value <= ALPHA)), float(np.mean(tests.p_value <= ALPHA / MANY))


def _in_parts(world: NullWorld, n_trials: int, judge: Callable[[int], TrialTests]) -> tuple[float, float]:
    """Large worlds go through memory in parts."""
    step = max(50, min(n_trials, 8_000_000 // max(1, (sum(world.n_a) + sum(world.n_b)) * world.runs)))
    parts = [(min(step, n_trials - k), _rates(judge(min(step, n_trials - k)))) for k in range(0, n_trials, step)]
    total = sum(n for n, _ in parts)
    return sum(n * r[0] for n, r in parts) / total, sum(n * r[1] for n, r in parts) / total


def _judge_win(world: NullWorld, rng: np.random.Generator, n_trials: int) -> tuple[float, float]:
    return _in_parts(world, n_trials, lambda n: win_trials(*world.draw(n, rng), n_shared=world.n_shared or None))


def _judge_success(world: NullWorld, rng: np.random.Generator, n_trials: int) -> tuple[float, float]:
    def judge(n: int) -> TrialTests:
        arms = [[np.isfinite(x) for x in arm] for arm in world.draw(n, rng)]
        return success_trials(arms[0], arms[1], n_shared=world.n_shared or None)

    return _in_parts(world, n_trials, judge)


def _grid_world(family: str, world: NullWorld, judge: Callable[..., tuple[float, float]]) -> GridWorld:
    return GridWorld(family, world.name, world.strata, _units(world), partial(judge, world))


def _independent(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    return _grid_world(family, random_null(rng, number=number), _judge_win)


def _hidden_in_strata() -> Iterator[GridWorld]:
    """Large trials whose losses hide in whole strata: always earlier in some, level but for rare losses in others."""
    for ahead, level, n in ((31, 30, 39), (10, 10, 30), (20, 20, 20), (1, 1, 60), (5, 35, 25)):
        law_a, law_b = np.zeros((ahead + level, 4)), np.zeros((ahead + level, 4))
        law_a[:ahead, 0], law_a[ahead:, 1] = 1.0, 1.0
        law_b[:, 1] = 1.0
        # Each stratum that a always wins is paid for by losses where it is level, as far as they can pay.
        law_b[:ahead, 0], law_b[:ahead, 1] = 1 - min(1.0, level / ahead) * 0.1, min(1.0, level / ahead) * 0.1
        where = np.arange(ahead + level) >= ahead
        mixed = balanced(law_a, law_b, where)
        if mixed is None:
            continue
        sizes = (n,) * (ahead + level)
        world = NullWorld(f'{ahead} + {level} strata of {n}', mixed, law_b, sizes, sizes)
        yield _grid_world('faster, losses hidden in strata', world, _judge_win)


def _matched(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    """Given the start runs are independent: unlike laws without a start effect, or equal laws with one."""
    base = random_null(rng, number=number, most_cost=8_000)
    n = tuple(min(pair) for pair in zip(base.n_a, base.n_b, strict=True))
    if number % 2:
        n = (max(6, n[0]),) * base.strata
    equal = number % 3 == 0
    world = NullWorld(
        f'{base.name}{", equal laws" if equal else ""}', base.law_b if equal else base.law_a, base.law_b, n, n, n,
        start_effect=float(rng.uniform(0.3, 0.95)) if equal else 0.0,
    )  # fmt: skip
    return _grid_world(family, world, _judge_win)


def _part_shared(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    base = random_null(rng, number=number, most_cost=8_000)
    shared = tuple(int(rng.integers(0, min(n, m) + 1)) for n, m in zip(base.n_a, base.n_b, strict=True))
    equal = number % 3 == 0
    world = NullWorld(
        base.name, base.law_b if equal else base.law_a, base.law_b, base.n_a, base.n_b, shared,
        start_effect=float(rng.uniform(0.3, 0.95)) if equal else 0.0,
    )  # fmt: skip
    return _grid_world(family, world, _judge_win)


def _repeated(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    base = random_null(rng, number=number, most_cost=2_000)
    equal = number % 2 == 0
    matched = tuple(min(pair) for pair in zip(base.n_a, base.n_b, strict=True)) if number % 4 == 0 else ()
    sizes = (matched, matched) if matched else (base.n_a, base.n_b)
    world = NullWorld(
        base.name, base.law_b if equal else base.law_a, base.law_b, *sizes, n_shared=matched,
        start_effect=float(rng.uniform(0.3, 0.95)) if equal else 0.0, runs=int(rng.integers(2, 6)),
    )  # fmt: skip
    return _grid_world(family, world, _judge_win)


def _race(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    """K items in a row, correlated within a run; equal policies, or one whose whole run is early or late by a coin."""
    strata, n = int(rng.choice([1, 3, 6])), int(rng.integers(4, 25))
    n = max(n, -(-6 // strata))
    items, correlation, lost = int(rng.integers(2, 9)), float(rng.uniform(0, 0.8)), float(rng.uniform(0, 0.3))
    budget = float(rng.uniform(0.4, 1.5)) * items
    coin = number % 2 == 1

    def arm(rng: np.random.Generator, trials: int, is_coin: bool) -> FloatArray:
        start = rng.standard_normal((trials, n, 1))
        noise = np.sqrt(correlation) * start + np.sqrt(1 - correlation) * rng.standard_normal((trials, n, items))
        if is_coin:
            # Symmetric about the other arm's law item by item: half of the runs are as much earlier as half are later.
            side = np.where(rng.random((trials, n, 1)) < 0.5, -1.0, 1.0)
            return np.asarray(np.arange(1, items + 1) * 10.0 + 4.0 * side + 0.01 * noise, dtype=np.float64)
        if coin:
            return np.asarray(np.arange(1, items + 1) * 10.0 + 0.5 * noise, dtype=np.float64)
        times = np.cumsum(np.exp(0.8 * noise - 0.32), axis=-1)
        dropped = np.cumsum(rng.random(times.shape) < lost / items, axis=-1) > 0
        return np.where((times > budget) | dropped, np.inf, times)

    def study(rng: np.random.Generator, trials: int) -> tuple[float, float]:
        arms = [[arm(rng, trials, coin and k == 0)[:, :, None, :] for _ in range(strata)] for k in (0, 1)]
        return _rates(win_trials(arms[0], arms[1]))

    kind = 'a coin per run' if coin else f'equal policies, correlation {correlation:.2f}'
    return GridWorld(family, f'{number}: {items} items, {kind}', strata, f'{n} v {n}', study, TRIALS // 2)


def _lossy(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    """Runs lost at a level of their own, whatever they would have done."""
    base = random_null(rng, number=number, most_cost=1_500)
    sizes = tuple(max(8, n) for n in base.n_a), tuple(max(8, n) for n in base.n_b)
    world = NullWorld(base.name, base.law_a, base.law_b, *sizes)
    shares = rng.uniform(0, 0.5), rng.choice([0.0, rng.uniform(0, 0.5)])
    levels = base.law_a.shape[1]

    def study(rng: np.random.Generator, trials: int) -> tuple[float, float]:
        drawn = world.draw(trials, rng)
        p = np.ones(trials)
        for t in range(trials):
            arms = []
            for arm, share in zip(drawn, shares, strict=True):
                cells = []
                for times in arm:
                    end = rng.uniform(0, levels - 1, len(times[t])) // 1 + 0.5
                    ends = np.where(rng.random(len(end)) < share, end, np.inf)
                    lost = times[t, :, 0] > ends
                    cells.append(win_arm(np.where(lost, np.inf, times[t, :, 0]), None, np.where(lost, ends, np.inf)))
                arms.append(cells)
            p[t] = win_contrast(arms[0], arms[1]).p_value or 1.0
        return float(np.mean(p <= ALPHA)), float(np.mean(p <= ALPHA / MANY))

    return GridWorld(family, world.name, world.strata, _units(world), study, SLOW_TRIALS)


def _success(family: str, number: int, rng: np.random.Generator, *, kind: str) -> GridWorld:
    """Two levels, done and never: a macro win probability of 1/2 is a macro difference of rates of 0."""
    while True:
        strata = int(rng.choice([1, 2, 3, 4, 6, 10, 20]))
        shape = RATE_SHAPES[int(rng.choice(len(RATE_SHAPES)))]
        rates = rng.beta(shape[0], shape[1], size=(2, strata))
        laws = np.stack([rates, 1 - rates], axis=-1)
        mixed = balanced(laws[0], laws[1])
        if mixed is not None:
            break
    most = 40 if strata > 4 else 100
    base = int(np.round(np.exp(rng.uniform(np.log(3), np.log(most)))))
    base = max(base, -(-6 // strata))
    n_a = n_b = (base,) * strata
    shared: tuple[int, ...] = ()
    if kind == 'unequal':
        drawn = np.maximum(3, rng.poisson(base * rng.choice([0.2, 1.0, 3.0], (2, strata))))
        n_a, n_b = tuple(drawn[0].tolist()), tuple(drawn[1].tolist())
    elif kind == 'matched':
        shared = n_a
        if number % 3 == 0 and strata > 1:
            n_a = n_b = shared = tuple(np.maximum(3, rng.poisson(base * rng.choice([0.2, 1.0, 3.0], strata))).tolist())
    elif kind == 'shared':
        shared = (base // 2,) * strata
    equal = number % 4 == 0
    world = NullWorld(
        f'{number}: {"equal rates" if equal else "macro-equal rates"}', laws[1] if equal else mixed, laws[1], n_a, n_b,
        shared, start_effect=float(rng.uniform(0.2, 0.95)) if equal and kind != 'equal' else 0.0,
        runs=int(rng.integers(2, 6)) if kind == 'repeated' else 1,
    )  # fmt: skip
    return _grid_world(family, world, _judge_success)


def _turning(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    """Matched starts with repeats or in unequal cells, of which half only a solves and half only b, as a rule.

    In every cell or in one alone, where the arms agree elsewhere. A start that turns moves the difference by two.
    """
    strata, runs = int(rng.choice([1, 1, 2, 4, 8])), 1 + number % 3
    n = rng.integers(3, int(rng.choice([5, 9, 16, 40])), strata)
    if runs == 1 and strata == 1:
        runs = 2
    n[0] = max(n[0], -(-3 // strata))
    noise = float(rng.choice([0.0, 0.05, 0.2]))
    turns = np.arange(strata) < (strata if number % 2 else 1)

    def study(rng: np.random.Generator, trials: int) -> tuple[float, float]:
        arms: tuple[list[BoolArray], list[BoolArray]] = ([], [])
        for size, is_turning in zip(n.tolist(), turns, strict=True):
            for_a = rng.random((trials, size, 1)) < 0.5
            for arm, solved in zip(arms, (for_a, ~for_a if is_turning else for_a), strict=True):
                arm.append(solved ^ (rng.random((trials, size, runs)) < noise))
        return _rates(success_trials(arms[0], arms[1], n_shared=n.tolist()))

    where = 'every cell' if turns.all() else 'one cell'
    name = f'{number}: {where}, {runs} runs, {100 * noise:g} % by chance'
    return GridWorld(family, name, strata, f'{n.min()}-{n.max()}', study)


def _margin(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    """The new arm is worse by exactly the margin: "not worse" is false."""
    strata, n = int(rng.choice([1, 3, 10])), int(rng.choice([5, 10, 20, 40, 80]))
    margin = float(rng.choice([0.05, 0.1, 0.2]))
    gaps = margin + rng.uniform(-1, 1, strata) * min(margin, 0.1)
    gaps += margin - gaps.mean()
    rates = rng.uniform(np.maximum(gaps, 0), 1 + np.minimum(gaps, 0))

    def study(rng: np.random.Generator, trials: int) -> tuple[float, float]:
        a, b = (rng.binomial(n, np.clip(p, 0, 1), (trials, strata)) / n for p in (rates - gaps, rates))
        terms = np.concatenate([x * (1 - x) / (n - 1) for x in (a, b)], axis=1) / strata**2
        degrees = satterthwaite(terms, np.full(terms.shape, n - 1.0), 0.0)
        p = one_sided_p_values((a - b).mean(axis=1) + margin, terms.sum(axis=1), degrees, float(strata * n))
        return float(np.mean(p <= ALPHA)), float(np.mean(p <= ALPHA / MANY))

    return GridWorld(family, f'{number}: margin {margin:g}', strata, f'{n} v {n}', study)


def _list(family: str, number: int, rng: np.random.Generator, *, is_better: bool = False) -> GridWorld:
    """Several policies on success, speed and safety in one Holm list: any claim that is not true, or the wrong way.

    With `is_better`: a policy is called better (a claim for it, none against, no veto) that is ahead on no endpoint.
    """
    policies, strata, n = int(rng.integers(3, 7)), int(rng.choice([1, 4])), int(rng.choice([6, 12, 25]))
    speeds = rng.choice([20.0, 20.0, 25.0, 32.0], policies)
    fails = rng.choice([0.05, 0.05, 0.2, 0.4], policies)
    unsafe = rng.choice([0.0, 0.1], policies) if number % 2 else np.zeros(policies)
    pairs = [(i, j) for i in range(policies) for j in range(i)]

    def truth(i: int, j: int) -> tuple[float, float, float]:
        """Signs in favour of i: success, speed (by simulation-free P of exponentials with failures), safety."""
        rate_i, rate_j, ok_i, ok_j = 1 / speeds[i], 1 / speeds[j], 1 - fails[i], 1 - fails[j]
        p = ok_i * (1 - ok_j) + ok_i * ok_j * rate_i / (rate_i + rate_j) + (1 - ok_i) * (1 - ok_j) / 2
        return np.sign(fails[j] - fails[i]), np.sign(round(p - 0.5, 12)), np.sign(unsafe[j] - unsafe[i])

    def study(rng: np.random.Generator, trials: int) -> tuple[float, float | None]:
        arms = []
        for k in range(policies):
            times = rng.exponential(speeds[k], (strata, trials, n))
            times = np.where(rng.random(times.shape) < fails[k], np.inf, times)
            arms.append((times, rng.random(times.shape) >= unsafe[k]))
        p, wrong, one_sided = [], [], []
        signs = np.array([truth(i, j)[: 3 if number % 2 else 2] for i, j in pairs])
        for i, j in pairs:
            (times_i, safe_i), (times_j, safe_j) = arms[i], arms[j]
            tests = [
                success_trials([np.isfinite(x) for x in times_i], [np.isfinite(x) for x in times_j]),
                win_trials(list(times_i), list(times_j)),
            ]
            if number % 2:
                tests.append(success_trials(list(safe_i), list(safe_j)))
            for test, sign in zip(tests, truth(i, j), strict=False):
                p.append(test.p_value)
                wrong.append(np.sign(test.gap) != sign)
                one_sided.append((test.p_a, test.p_b))
        passed = _holm(np.stack(p))
        if is_better:
            return _false_better(passed, np.stack(one_sided), signs), None
        return float(np.mean((passed & np.stack(wrong)).any(axis=0))), None

    name = f'{number}: {policies} policies, {3 if number % 2 else 2} endpoints'
    return GridWorld(family, name, strata, f'{n} v {n}', study, TRIALS // 2)


def _false_better(passed: BoolArray, one_sided: FloatArray, signs: FloatArray) -> float:
    """(tests, trials) claims, (tests, 2, trials) one-sided p-values, both by pair; (pairs, endpoints) true signs."""
    pairs, endpoints = signs.shape
    claims = passed.reshape(pairs, endpoints, -1)
    p_a, p_b = (one_sided[:, k].reshape(pairs, endpoints, -1) for k in (0, 1))
    false = np.zeros((pairs, claims.shape[-1]), dtype=np.bool_)
    for ahead, behind, sign in ((p_a, p_b, 1), (p_b, p_a, -1)):
        own, against = claims & (ahead < behind), claims & (ahead > behind)
        vetoes = ~claims & (behind <= LOOKS_WORSE)
        is_called = own.any(axis=1) & ~against.any(axis=1) & ~vetoes.any(axis=1)
        false |= is_called & ((sign * signs).max(axis=1) <= 0)[:, None]
    return float(false.any(axis=0).mean())


def _items(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    """Equal policies with several items per run: the race, lost items and all placed, in one list of three."""
    strata, n = int(rng.choice([1, 4])), int(rng.choice([6, 12, 25]))
    items, correlation, lost = int(rng.integers(2, 9)), float(rng.uniform(0, 0.8)), float(rng.uniform(0.02, 0.4))
    budget = float(rng.uniform(0.4, 1.5)) * items

    def arm(rng: np.random.Generator, trials: int) -> tuple[FloatArray, FloatArray, BoolArray]:
        noise = np.sqrt(correlation) * rng.standard_normal((trials, n, 1))
        noise = noise + np.sqrt(1 - correlation) * rng.standard_normal((trials, n, items))
        done, dropped = np.cumsum(np.exp(0.8 * noise - 0.32), axis=-1), rng.random((trials, n, items)) < lost
        placed = np.sort(np.where((done <= budget) & ~dropped, done, np.inf), axis=-1)
        return placed[:, :, None, :], (dropped & (done <= budget)).sum(axis=-1) * 1.0, np.isfinite(placed).all(axis=-1)

    def study(rng: np.random.Generator, trials: int) -> tuple[float, float | None]:
        arms = [[arm(rng, trials) for _ in range(strata)] for _ in range(2)]
        race, fewer, whole = ([[cell[k] for cell in side] for side in arms] for k in range(3))
        tests = win_trials(race[0], race[1]), win_trials(fewer[0], fewer[1]), success_trials(whole[0], whole[1])
        return float(np.mean(_holm(np.stack([t.p_value for t in tests])).any(axis=0))), None

    name = f'{number}: {items} items, {100 * lost:.0f} % lost, correlation {correlation:.2f}'
    return GridWorld(family, name, strata, f'{n} v {n}', study, TRIALS // 2)


def _holm(p: FloatArray) -> BoolArray:
    """(tests, trials) which hypotheses Holm rejects at 0.05."""
    order = np.argsort(p, axis=0)
    steps = np.take_along_axis(p, order, axis=0) <= ALPHA / (len(p) - np.arange(len(p)))[:, None]
    passed = np.logical_and.accumulate(steps, axis=0)
    rejected = np.zeros(p.shape, dtype=np.bool_)
    np.put_along_axis(rejected, order, passed, axis=0)
    return rejected


def _cover_win(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    """Laws that are not balanced: how often P ± R misses the truth."""
    base = random_null(rng, number=number, most_cost=4_000)
    shift = rng.uniform(0, 1)
    law_a = (1 - shift) * base.law_a + shift * rng.dirichlet(np.full(base.law_a.shape[1], 0.3), base.strata)
    world = NullWorld(base.name, law_a, base.law_b, base.n_a, base.n_b)
    truth = float(win_chance(law_a, base.law_b).mean())

    def study(rng: np.random.Generator, trials: int) -> tuple[float, float | None]:
        drawn, missed = world.draw(trials, rng), 0
        for t in range(trials):
            arms = [[win_arm(x[t, :, 0]) for x in arm] for arm in drawn]
            interval = win_contrast(arms[0], arms[1]).interval
            missed += interval is not None and not interval.low - 1e-9 <= truth <= interval.high + 1e-9
        return missed / trials, None

    return GridWorld(family, f'{world.name}, P = {truth:.2f}', world.strata, _units(world), study, SLOW_TRIALS)


def _cover_success(family: str, number: int, rng: np.random.Generator) -> GridWorld:
    """Unlike rates in equal, unequal or matched cells: how often the interval of the difference misses."""
    strata, n = int(rng.choice([1, 3])), int(rng.choice([6, 12, 30]))
    rates = rng.beta(4, 1.5, size=(2, strata))
    sizes = [n + (k % 2) * (number % 2) * n // 2 for k in range(strata)]
    matched = number % 3 == 0
    truth = float((rates[0] - rates[1]).mean())

    def study(rng: np.random.Generator, trials: int) -> tuple[float, float | None]:
        missed = 0
        for _ in range(trials):
            arms = [
                [success_arm(rng.random(m) < p, range(m) if matched else None) for p, m in zip(row, sizes, strict=True)]
                for row in rates
            ]
            interval = success_contrast(arms[0], arms[1]).interval
            missed += interval is not None and not interval.low - 1e-9 <= truth <= interval.high + 1e-9
        return missed / trials, None

    kind = 'matched' if matched else 'independent'
    return GridWorld(
        family, f'{number}: {kind}, {truth:+.2f}', strata, f'{min(sizes)}-{max(sizes)}', study, SLOW_TRIALS
    )
