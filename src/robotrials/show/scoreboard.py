"""The scoreboard: policies down, endpoints across, each with its interval and its letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robotrials.show.terminal import estimate_text, mark
from robotrials.stats import Rate
from robotrials.verdict.analysis import Absent, ComparisonFrame, EndpointPairs, RobustnessPart
from robotrials.verdict.analysis.success import ALL_STRATA
from robotrials.verdict.planning.analysis_plan import EndpointName

if TYPE_CHECKING:
    from robotrials.measure.safety.summary import CellSafety
    from robotrials.stats import Interval
    from robotrials.verdict.analysis import Analysis


@dataclass(frozen=True, slots=True)
class Score:
    """One policy on one endpoint, in the unit of its column."""

    value: float
    interval: Interval | None
    letters: str = ''
    count: str = ''  # such as 47/60
    note: str = ''  # of a cell: the condition that costs most

    @property
    def text(self) -> str:
        return estimate_text(self.value, self.interval)


@dataclass(frozen=True, slots=True)
class ScoreColumn:
    """One endpoint of every policy; `why` it has no scores, where it has none."""

    key: str
    title: str
    unit: str
    scores: dict[str, Score]
    highest: float | None = None  # the end of the scale that marks are drawn on
    why: str = ''
    is_less_better: bool = False

    def cell(self, policy: str) -> str:
        """`75 % ───━━●━── ab` for a share, `19.4 s [14.8, 24.2] a` for seconds."""
        score = self.scores.get(policy)
        if score is None:
            return '—'
        letters = f' {score.letters}' if score.letters else ''
        if self.unit == '%' and not self.is_less_better:
            inside = None if score.interval is None else score.interval.scaled(0.01)
            return f'{score.value:3.0f} % {mark(score.value / 100, inside)}{letters}'
        return f'{estimate_text(score.value, score.interval)}{letters}'


def scoreboard(analysis: Analysis, policies: Sequence[str] = ()) -> tuple[tuple[str, ...], list[ScoreColumn]]:
    """Policies in the order of the leading endpoint, then success, time, safety and robustness of each."""
    frame = analysis.frame
    if isinstance(frame, Absent):
        return (), []
    order = [p for p in _order(analysis, frame) if not policies or p in policies]
    columns = [_success(analysis), _time(analysis), _safety(analysis), _robustness(analysis)]
    return tuple(order), columns


def _order(analysis: Analysis, frame: ComparisonFrame) -> tuple[str, ...]:
    pairs = analysis.pairs
    lead = None if isinstance(pairs, Absent) else pairs.lead
    ranked = lead.policies if isinstance(lead, EndpointPairs) else frame.policies
    return tuple(dict.fromkeys((*((frame.reference,) if frame.reference else ()), *ranked, *frame.everyone)))


def letters(analysis: Analysis, endpoint: EndpointName) -> dict[str, str]:
    """Policies that share one are not significantly different on the endpoint; empty where nothing was compared."""
    pairs = analysis.pairs
    found = None if isinstance(pairs, Absent) else pairs.endpoints.get(endpoint)
    return dict(found.letters) if isinstance(found, EndpointPairs) else {}


def _success(analysis: Analysis) -> ScoreColumn:
    rates, marks = analysis.success, letters(analysis, EndpointName.SUCCESS)
    if isinstance(rates, Absent):
        return ScoreColumn('success', 'success', '%', {}, 100.0, rates.reason)
    scores = {}
    for policy, found in rates.macro.items():
        count = rates.counts.get((policy, ALL_STRATA))
        if found.value is not None:
            span = None if found.interval is None else found.interval.scaled(100.0)
            told = '' if count is None else f'{count.count}/{count.n}'
            scores[policy] = Score(100 * found.value, span, marks.get(policy, ''), told)
    return ScoreColumn('success', 'success', '%', scores, 100.0)


def _time(analysis: Analysis) -> ScoreColumn:
    ranking = analysis.ranking
    if isinstance(ranking, Absent):
        return ScoreColumn('time', 'time to success', 's', {}, why=ranking.reason, is_less_better=True)
    marks, scores = letters(analysis, EndpointName.TIME), {}
    for policy, score in ranking.scores.items():
        found = score.macro['rmst_s']
        if found.value is not None:
            scores[policy] = Score(found.value, found.interval, marks.get(policy, ''))
    top = max((s.interval.high if s.interval else s.value for s in scores.values()), default=None)
    return ScoreColumn('time', 'time to success', 's', scores, top, is_less_better=True)


def _safety(analysis: Analysis) -> ScoreColumn:
    if not analysis.selection.has_trajectories:
        return ScoreColumn('safety', 'safe', '%', {}, 100.0, 'no trajectories were recorded')
    part = analysis.safety
    if isinstance(part, Absent):
        return ScoreColumn('safety', 'safe', '%', {}, 100.0, part.reason)
    marks, scores = letters(analysis, EndpointName.SAFETY), {}
    cells = [c for c in part.summary.cells if not c.is_auxiliary] or list(part.summary.cells)
    for policy in dict.fromkeys(c.policy for c in cells):
        rate = pooled([c for c in cells if c.policy == policy], lambda c: c.safety)
        span = None if rate.interval is None else rate.interval.scaled(100.0)
        scores[policy] = Score(100 * rate.count / rate.n, span, marks.get(policy, ''), f'{rate.count}/{rate.n}')
    return ScoreColumn('safety', 'safe', '%', scores, 100.0)


def pooled(cells: Sequence[CellSafety], rate: Callable[[CellSafety], Rate]) -> Rate:
    """One rate of several benchmarks: their counts added up."""
    found = [rate(c) for c in cells]
    return Rate(sum(r.count for r in found), sum(r.n for r in found), cells[0].level)


def _robustness(analysis: Analysis) -> ScoreColumn:
    """The condition that costs each policy most, in points of episode success."""
    column = ScoreColumn('robustness', 'worst drop', 'points', {}, 100.0, is_less_better=True)
    if isinstance(analysis.frame, ComparisonFrame) and analysis.frame.n_conditions < 2:
        return ScoreColumn(column.key, column.title, column.unit, {}, why='one condition was run', is_less_better=True)
    part = analysis.robustness
    absent = part if isinstance(part, Absent) else part.drops if isinstance(part.drops, Absent) else None
    if absent is not None:
        return ScoreColumn(column.key, column.title, column.unit, {}, why=absent.reason, is_less_better=True)
    assert isinstance(part, RobustnessPart)
    assert not isinstance(part.drops, Absent)
    for policy in dict.fromkeys(d.policy for d in part.drops):
        worst = max((d for d in part.drops if d.policy == policy), key=lambda d: d.success_drop)
        span = None if worst.success_interval is None else worst.success_interval.scaled(100.0)
        column.scores[policy] = Score(100 * worst.success_drop, span, note=worst.condition)
    return column
