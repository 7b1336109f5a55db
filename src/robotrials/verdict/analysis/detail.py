"""Details behind the headline: strata one by one, logrank tests, shapes of curves, labels, what was recorded."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing import Cohort, label_sensitivity, logrank_pairs
from robotrials.measure.timing.follow_up import common_follow_up
from robotrials.measure.timing.label import label_reader
from robotrials.record.rows import pick
from robotrials.stats import Rate
from robotrials.stats.dominance import adjusted_p_values
from robotrials.verdict.analysis.absent import Absent, or_absent, present
from robotrials.verdict.analysis.contrast import TIMED
from robotrials.verdict.analysis.frame import project, stratum_names
from robotrials.verdict.analysis.shape import curve_shapes, pair_shapes
from robotrials.verdict.analysis.verdict import EndpointPairs, too_few
from robotrials.verdict.robustness import conditions_by_severity

if TYPE_CHECKING:
    from robotrials.measure.timing import LabelSensitivity, LogrankPair
    from robotrials.stats import Interval
    from robotrials.verdict.analysis.analysis import Analysis
    from robotrials.verdict.analysis.endpoint_pairs import Comparisons
    from robotrials.verdict.analysis.frame import ComparisonFrame
    from robotrials.verdict.analysis.shape import PairShape, Shapes
    from robotrials.verdict.analysis.times import Times
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan


@dataclass(frozen=True, slots=True)
class StratumPair:
    """Two policies in one stratum: mean times, > 0 in favour of a, and the p-value of who is faster there."""

    policy_a: str
    policy_b: str
    stratum: str
    difference_s: float
    interval: Interval | None  # None where the stratum has too few units
    p_value: float | None
    p_bonferroni: float | None  # both corrected over all pairs x strata
    p_holm: float | None
    n_units: tuple[int, int]

    def seen_from(self, policy: str) -> StratumPair:
        """The same from the side of `policy`."""
        if policy == self.policy_a:
            return self
        return replace(
            self, policy_a=self.policy_b, policy_b=self.policy_a, difference_s=-self.difference_s + 0.0,
            interval=None if self.interval is None else self.interval.scaled(-1.0),
            n_units=(self.n_units[1], self.n_units[0]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordedCell:
    """How many valid episodes of one policy a stratum has under all conditions, and how long they took together."""

    policy: str
    stratum: str
    n_episodes: int
    duration_s: float | None  # None where some episode has no duration


@dataclass(frozen=True, slots=True)
class TaskSuccess:
    """Episode success of one policy in one task under one condition."""

    policy: str
    task: str
    condition: str
    rate: Rate


class Detail:
    """Parts of an analysis that go beyond the headline; each is worked out when it is asked for, once."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._labels: dict[str, tuple[LabelSensitivity, ...]] = {}

    @cached_property
    def strata(self) -> tuple[StratumPair, ...] | Absent:
        """Every pair in every stratum alone."""
        pairs = self._analysis.pairs
        if isinstance(pairs, Absent):
            return pairs
        if isinstance(self._analysis.times, Absent):
            return self._analysis.times
        return stratum_pairs(pairs)

    @cached_property
    def logranks(self) -> tuple[LogrankPair, ...] | Absent:
        """Logrank tests of every pair on its common follow-up."""
        frame, times = self._analysis.frame, self._analysis.times
        if isinstance(frame, Absent) or isinstance(times, Absent):
            return times if isinstance(times, Absent) else Absent('no policy has a valid episode')
        lonely = too_few(frame.policies, frame.apart, frame.reference)
        if lonely is not None:
            return lonely
        return or_absent(lambda: logrank_pairs(followed_pairs(frame, times)))

    @cached_property
    def shapes(self) -> Shapes | Absent:
        """Curves as steps, and against the reference: P-P, Q-Q, and UPH against MTBF."""
        frame, times = self._analysis.frame, self._analysis.times
        if isinstance(frame, Absent) or isinstance(times, Absent):
            return times if isinstance(times, Absent) else Absent('no policy has a valid episode')
        return curve_shapes(frame, times)

    @cached_property
    def pair_shapes(self) -> tuple[PairShape, ...] | Absent:
        """P-P plots of every pair, with the macro AUC of the comparison."""
        pairs = self._analysis.pairs
        if isinstance(pairs, Absent):
            return pairs
        if isinstance(self.shapes, Absent):
            return self.shapes
        return pair_shapes(pairs.times, self.shapes)

    def labels(self, label: str | None) -> tuple[LabelSensitivity, ...]:
        """Completion of every policy by a label of its episodes; `a=b` asks whether two labels agree."""
        if label is None:
            raise InputError(f'wanted a label of the episodes; they have: {", ".join(self.known_labels) or "none"}')
        if label not in self._labels:
            self._labels[label] = _by_label(self._analysis, label)
        return self._labels[label]

    @property
    def known_labels(self) -> tuple[str, ...]:
        """Labels that episodes carry."""
        return tuple(sorted({key for e in self._analysis.episodes for key in e.labels}))

    @cached_property
    def recorded(self) -> tuple[RecordedCell, ...]:
        """Episodes and time of every policy in every stratum."""
        return recorded_cells(self._analysis)

    @cached_property
    def task_success(self) -> tuple[TaskSuccess, ...] | Absent:
        """Episode success by policy, task and condition, in that order; INVALID episodes tested no policy."""
        return task_success(self._analysis)


def stratum_pairs(pairs: Comparisons) -> tuple[StratumPair, ...]:
    """Each stratum's difference of mean times with its interval, and the p-value of its own contrast."""
    rows: list[StratumPair] = []
    for pair in pairs.times:
        timed = next(e for e in pairs.endpoints.values() if isinstance(e, EndpointPairs) and e.endpoint in TIMED)
        cells = {c.name: c for c in timed.pair(pair.policy_a, pair.policy_b).contrast.cells}
        rows += [
            StratumPair(
                pair.policy_a, pair.policy_b, s.stratum, s.difference, s.interval, cells[s.stratum].p_value, None, None,
                s.n_units,
            )
            for s in pair.reversal.strata
        ]  # fmt: skip
    p_values = [row.p_value for row in rows]
    by_all, stepped = (adjusted_p_values(p_values, kind) for kind in ('bonferroni', 'holm'))
    return tuple(replace(row, p_bonferroni=by_all[k], p_holm=stepped[k]) for k, row in enumerate(rows))


def followed_pairs(frame: ComparisonFrame, times: Times) -> Iterator[tuple[Cohort, Cohort]]:
    """Every pair of ranked policies, cut at the time to which both were followed."""
    from robotrials.verdict.analysis.endpoint_pairs import pairs_of

    for a, b in pairs_of(frame):
        first, second = times.cohorts[a], times.cohorts[b]
        shared = [s for s in first.cells if s in second.cells]
        follow = common_follow_up(
            {s: first.cells[s] for s in shared}, {s: second.cells[s] for s in shared},
            {s: times.taus_s[s] for s in shared},
        )  # fmt: skip
        yield replace(first, cells=follow.a), replace(second, cells=follow.b)


def _by_label(analysis: Analysis, label: str) -> tuple[LabelSensitivity, ...]:
    frame, plan = present(analysis.frame), analysis.plan
    tested = [p for p in frame.everyone if p != frame.reference] or list(frame.everyone)
    read = label_reader(label)
    found = []
    for policy in tested:
        episodes = tuple(e for group in frame.cells[policy].values() for e in group)
        if any(read(e) is not None for e in episodes):
            cohort = Cohort(policy, False, episodes, {})
            found.append(
                label_sensitivity(
                    cohort, label=label, rng=analysis.stream('label', label, policy), n_resamples=plan.resamples,
                    level=plan.level,
                )
            )  # fmt: skip
    if not found:
        raise UnknownName('label', label, analysis.detail.known_labels)
    return tuple(found)


def recorded_cells(analysis: Analysis) -> tuple[RecordedCell, ...]:
    valid = pick(analysis.episodes, [place for place, e in enumerate(analysis.episodes) if e.is_valid])
    names = stratum_names(valid, analysis.plan.stratify_by)
    counts: Counter[tuple[str, str]] = Counter()
    durations: dict[tuple[str, str], array[float]] = {}
    for e in valid:
        key = e.policy, names[e.benchmark, e.task, e.stratum]
        counts[key] += 1
        durations.setdefault(key, array('d')).extend(() if e.duration_s is None else (e.duration_s,))
    return tuple(
        RecordedCell(*key, n, sum(durations[key]) if len(durations[key]) == n else None)
        for key, n in sorted(counts.items())
    )


def task_success(analysis: Analysis) -> tuple[TaskSuccess, ...] | Absent:
    plan: AnalysisPlan = analysis.plan
    counts: dict[tuple[str, str, str], array[int]] = {}
    named = conditions_by_severity(e for e in analysis.episodes if e.is_valid)
    for episode in (project(e, plan, analysis.by_cameras) for e in analysis.episodes if e.is_valid):
        key = (episode.policy, episode.task, named(episode))
        counts.setdefault(key, array('b')).append(episode.is_success)
    if not counts:
        return Absent('no valid episode', 'a success rate needs one')
    return tuple(TaskSuccess(*key, Rate(sum(v), len(v), plan.level)) for key, v in sorted(counts.items()))
