"""What comparison studies are used to: posteriors of success, performance profiles, improvement, ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.stats import Interval, performance_profile, probability_of_improvement, rank_policies, success_posterior
from robotrials.verdict.analysis.endpoint_pairs import too_few
from robotrials.verdict.analysis.ranking import ALL_STRATA
from robotrials.verdict.analysis.selection import Absent, or_absent, present
from robotrials.verdict.planning import episode_promptness
from robotrials.verdict.planning.analysis_plan import EndpointName

if TYPE_CHECKING:
    from robotrials.record import Episode
    from robotrials.stats import Bootstrap, Profile, Ranks, Rate
    from robotrials.stats.interval import FloatArray
    from robotrials.verdict.analysis.analysis import Analysis
    from robotrials.verdict.analysis.selection import ComparisonFrame

DENSITY_POINTS = 401
PROFILE_POINTS = 61


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """What is believed of one policy's episode success after these episodes (uniform prior), strata pooled."""

    policy: str
    rate: Rate
    credible: Interval
    grid: FloatArray
    density: FloatArray
    letters: str  # as in every table of episode success; '' for a policy that is not compared


@dataclass(frozen=True, slots=True, eq=False)
class ScoreMatrix:
    """Each ranked policy's (runs, strata) scores in [0, 1], as many runs as the smallest cell has."""

    scores: Mapping[str, FloatArray]
    meaning: str
    n_runs: int


@dataclass(frozen=True, slots=True, eq=False)
class Improvement:
    """The chance that a run of a scores higher than a run of b in the same stratum, mean over strata."""

    policy_a: str
    policy_b: str
    chance: float
    interval: Interval | None

    def seen_from(self, policy: str) -> Improvement:
        if policy == self.policy_a:
            return self
        turned = self.interval and self.interval.scaled(-1.0).shifted(1.0)
        return Improvement(self.policy_b, self.policy_a, 1.0 - self.chance, turned)


class Practice:
    """Parts of an analysis in the manner of other studies; each is worked out when it is asked for, once."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    @cached_property
    def posteriors(self) -> tuple[Posterior, ...] | Absent:
        """Posteriors of episode success, highest macro rate first; the reference and those apart follow."""
        frame, rates = self._analysis.frame, self._analysis.success
        if isinstance(frame, Absent) or isinstance(rates, Absent):
            return Absent('no policy has a valid episode')
        pairs = self._analysis.pairs
        endpoint = None if isinstance(pairs, Absent) else pairs.endpoints.get(EndpointName.SUCCESS)
        letters: Mapping[str, str] = {} if endpoint is None or isinstance(endpoint, Absent) else endpoint.letters
        order = sorted(
            frame.everyone, key=lambda p: (p not in frame.policies, -(rates.macro[p].value or 0.0), p)
        )  # fmt: skip
        return tuple(
            _posterior(p, rates.counts[p, ALL_STRATA], letters.get(p, ''))
            for p in order
            if (p, ALL_STRATA) in rates.counts
        )

    @cached_property
    def matrix(self) -> ScoreMatrix | Absent:
        """Scores of single runs: the host's own, or promptness, or success where there are no times."""
        frame = self._analysis.frame
        if isinstance(frame, Absent):
            return frame
        if not frame.policies:
            return too_few(frame) or Absent('no policy can be ranked')
        return or_absent(lambda: score_matrix(self._analysis, frame))

    @cached_property
    def profiles(self) -> Mapping[str, Profile] | Absent:
        """The share of runs that score above each threshold."""
        if isinstance(self.matrix, Absent):
            return self.matrix
        plan, thresholds = self._analysis.plan, np.linspace(0, 1, PROFILE_POINTS)
        return {
            name: performance_profile(
                scores, thresholds, n_resamples=plan.resamples, rng=self._analysis.stream('profile', name),
                level=plan.level,
            )
            for name, scores in self.matrix.scores.items()
        }  # fmt: skip

    @cached_property
    def improvements(self) -> tuple[Improvement, ...] | Absent:
        """Every pair's chance of improvement."""
        matrix = self._compared
        if isinstance(matrix, Absent):
            return matrix
        plan = self._analysis.plan
        rows = []
        for a, b in itertools.combinations(sorted(matrix.scores), 2):
            drawn = probability_of_improvement(
                matrix.scores[a], matrix.scores[b], n_resamples=plan.resamples,
                rng=self._analysis.stream('improvement', a, b), level=plan.level,
            )  # fmt: skip
            rows.append(Improvement(a, b, drawn.estimate, _with_width(drawn)))
        return tuple(rows)

    @cached_property
    def ranks(self) -> Ranks | Absent:
        """How sure each policy's rank by mean score is."""
        matrix = self._compared
        if isinstance(matrix, Absent):
            return matrix
        plan = self._analysis.plan
        return rank_policies(
            matrix.scores, n_resamples=plan.resamples, rng=self._analysis.stream('ranks', *matrix.scores),
            level=plan.level,
        )  # fmt: skip

    @property
    def _compared(self) -> ScoreMatrix | Absent:
        """The matrix, where it has two policies to compare."""
        if isinstance(self.matrix, Absent) or len(self.matrix.scores) > 1:
            return self.matrix
        return too_few(present(self._analysis.frame)) or Absent('fewer than two policies are ranked')


def _posterior(policy: str, rate: Rate, letters: str) -> Posterior:
    belief = success_posterior(rate.count, rate.n)
    grid = np.linspace(0, 1, DENSITY_POINTS)
    return Posterior(policy, rate, belief.credible(rate.level), grid, belief.density(grid), letters)


def _with_width(draws: Bootstrap) -> Interval | None:
    return draws.interval if draws.interval.width > 0 else None


def score_matrix(analysis: Analysis, frame: ComparisonFrame) -> ScoreMatrix:
    """The scores of every ranked policy, cut to the smallest cell in the canonical order of episodes."""
    ranked = {p: frame.ranked_cells(p) for p in frame.policies}
    episodes = [e for cells in ranked.values() for group in cells.values() for e in group]
    value, meaning = _measure(analysis, frame, episodes)
    least = min(len(group) for cells in ranked.values() for group in cells.values())
    scores = {
        p: np.array([[value(e, s) for e in cells[s][:least]] for s in frame.strata]).T for p, cells in ranked.items()
    }
    return ScoreMatrix(scores, meaning, least)


def _measure(
    analysis: Analysis, frame: ComparisonFrame, episodes: Sequence[Episode]
) -> tuple[Callable[[Episode, str], float], str]:
    """How a run is scored, the same for all of them, and what that is called."""
    if all(e.score is not None and e.max_score for e in episodes):
        return lambda e, _: (e.score or 0.0) / (e.max_score or 1.0), 'score / maximum'
    times = analysis.times
    if isinstance(times, Absent):
        return lambda e, _: float(e.is_success), 'episode success'
    taus = times.taus_s
    text = f'promptness 1 - min(T, tau)/tau, tau = {times.tau_text}'

    def prompt(episode: Episode, stratum: str) -> float:
        cap_s = episode.time_cap_s
        return episode_promptness(episode, tau_s=taus[stratum] if cap_s is None else min(taus[stratum], cap_s))

    try:
        for e in episodes:
            prompt(e, frame.stratum_of(e))
    except (NotEstimable, InputError) as error:
        raise NotEstimable(f'runs have no common score: {error}') from error
    return prompt, text
