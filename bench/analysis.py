"""One analysis of a large store: all pairs against the bare kernels, and a second question against the first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from bench.measure import OWN, Result, against, seconds
from robotrials.measure.timing import auc, macro_ks, score_cohort
from robotrials.record import Episode, Outcome
from robotrials.show.catalog import ShowRequest, find_table
from robotrials.verdict.analysis import Analysis, analyse, present

POLICIES, STRATA, PER_CELL, RESAMPLES = 4, 10, 1250, 2000
FIRST, SECOND = ('headline', 'pairs'), ('scalars', 'scalars-by-stratum', 'success', 'failures')


def large_trial() -> list[Episode]:
    """50,000 matched episodes of 4 policies in 10 strata: exponential times, a tenth of early failures."""
    rng = np.random.default_rng(0)
    episodes = []
    for policy, stratum in itertools.product(range(POLICIES), range(STRATA)):
        times, failed = rng.exponential(20 + 3 * policy, PER_CELL), rng.random(PER_CELL) < 0.1
        for start in range(PER_CELL):
            cut = min(float(times[start]), 60.0)
            outcome = Outcome.FAILURE if failed[start] else Outcome.TIMEOUT if cut >= 60.0 else Outcome.SUCCESS
            episodes.append(
                Episode(
                    policy=f'p{policy}', task=f't{stratum}', seed=start, time_cap_s=60.0, outcome=outcome,
                    duration_s=cut / 3 if failed[start] else cut, episode_id=f'{policy}-{stratum}-{start}',
                )
            )  # fmt: skip
    return episodes


def bare(analysis: Analysis) -> None:
    """The same resamples without anything around them: scores, AUC and KS of every policy and pair."""
    times, rng = present(analysis.times), np.random.default_rng(0)
    for cohort in times.cohorts.values():
        score_cohort(cohort, scale=times.scale(tuple(cohort.cells)), n_resamples=RESAMPLES, rng=rng)
    for a, b in itertools.combinations(times.cohorts.values(), 2):
        auc(a.cells, b.cells, tau_s=times.taus_s, n_resamples=RESAMPLES, rng=rng)
        macro_ks(a.cells, b.cells, tau_s=60.0, n_resamples=RESAMPLES, rng=rng)


def ask(analysis: Analysis, tables: Sequence[str]) -> None:
    """Rows of tables, which is when an analysis draws what it needs for them."""
    for name in tables:
        assert find_table(name)(ShowRequest(subject=analysis))


def run() -> list[Result]:
    episodes = large_trial()
    ask(analyse(episodes[::50], resamples=10), FIRST + SECOND)  # imports what the tables need
    analysis = analyse(episodes, resamples=RESAMPLES)
    first_s = seconds(lambda: ask(analysis, FIRST), repeats=1)
    again_s = seconds(lambda: ask(analysis, SECOND), repeats=1)
    bare_s = seconds(lambda: bare(analysis), repeats=1)
    work = f'{len(episodes):,} episodes, {POLICIES} policies, {STRATA} strata, {RESAMPLES:,} resamples, warm'
    work = f'{work}: the tables {" and ".join(FIRST)}'
    kernels = f'the same resamples by the bare kernels{OWN}'
    return [
        against('analysis/all-pairs', ours_s=first_s, peer=kernels, peer_s=bare_s, target=1 / 3, work=work),
        against(
            'analysis/second-question', ours_s=again_s, peer=f'the first{OWN}', peer_s=first_s, target=10.0,
            work=f'{work}; then {", ".join(SECOND)}',
        ),
    ]  # fmt: skip
