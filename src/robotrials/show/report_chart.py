"""A report's charts, each from one part of an analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robotrials.measure.timing.incidence import CAUSES, End, Incidence
from robotrials.show.document import EpisodeFilter, Missing, TableBlock
from robotrials.show.figure_mark import of_policies, these_episodes
from robotrials.show.phrase import ends
from robotrials.show.plot import Axis, Bar, Curve, Plot, Point, Tile, facets
from robotrials.show.table import Table
from robotrials.stats import Estimate
from robotrials.verdict.analysis import Absent, Analysis, ComparisonFrame, PolicyCurve, Ranking, Rates
from robotrials.verdict.analysis.behind import EpisodesBehind

ALL_STRATA = 'all strata'
ENDS = {
    End.SUCCESS: 'done', End.DROP: 'dropped', End.SAFETY_STOP: 'safety stop', End.FAILURE: 'failed',
    End.TIME_OUT: 'timed out',
}  # fmt: skip
UNDER_WAY = 'under way'
SHARED_LETTER = 'Policies sharing a letter are not significantly different.'


def ranking_plot(ranking: Ranking, frame: ComparisonFrame, letters: Mapping[str, str]) -> Plot:
    """RMST of every ranked policy with its interval and letters: over all strata, and in each."""
    policies = [p for p in (ranking.reference, *ranking.order) if p is not None and p in ranking.scores]
    rows = {
        ALL_STRATA: [
            _row(p, ranking.scores[p].macro['rmst_s'], letters.get(p, ''), episodes=of_policies(frame, p))
            for p in policies
        ]
    }
    if len(ranking.strata) > 1:
        for stratum in ranking.strata:
            cells = {p: ranking.scores[p].cells.get(stratum) for p in policies}
            rows[stratum] = [
                _row(p, None if cell is None else cell['rmst_s'], episodes=of_policies(frame, p, stratum=stratum))
                for p, cell in cells.items()
            ]
    note = f'Capped at {ranking.times.tau_text}.'
    return Plot(
        'ranking-chart', 'Restricted mean time to success', facets(rows), Axis('seconds (less is better)'),
        number_format='.1f', note=f'{note} {SHARED_LETTER}' if letters else note,
    )  # fmt: skip


def _row(
    policy: str, estimate: Estimate | None, letters: str = '', *, scale: float = 1.0, episodes: EpisodeFilter
) -> Point:
    low, high = ends(None if estimate is None else estimate.interval, scale)
    value = None if estimate is None or estimate.value is None else scale * estimate.value
    return Point(policy, value, x_low=low, x_high=high, letters=letters, episodes=episodes)


def success_plot(
    rates: Rates, frame: ComparisonFrame, policies: Sequence[str], letters: Mapping[str, str]
) -> Plot:  # fmt: skip
    """Episode success of every ranked policy with its interval and letters: over all strata, and in each."""
    rows = {
        ALL_STRATA: [
            _row(p, rates.macro[p], letters.get(p, ''), scale=100.0, episodes=of_policies(frame, p)) for p in policies
        ]
    }
    if len(frame.strata) > 1:
        for stratum in frame.strata:
            counts = {p: rates.counts.get((p, stratum)) for p in policies}
            rows[stratum] = [
                _row(p, None if c is None else Estimate(c.value, c.interval), scale=100.0,
                     episodes=of_policies(frame, p, stratum=stratum))
                for p, c in counts.items()
            ]  # fmt: skip
    return Plot(
        'success-chart', 'Episode success', facets(rows), Axis('% of episodes (more is better)', (0.0, 100.0)),
        number_format='.0f', note=SHARED_LETTER if letters else '',
    )  # fmt: skip


def curve_plot(
    curves: Mapping[str, tuple[PolicyCurve, ...]], ranking: Ranking, frame: ComparisonFrame, *, level: float
) -> Plot:
    """F(t) with pointwise bands: the mean over the ranked strata, and each stratum.

    A policy that stands apart is drawn only in the strata that it was run on.
    """
    drawn: dict[str, list[Curve]] = {}
    for stratum, every in curves.items():
        taus = ranking.times.taus_s
        end_s = taus[stratum] if stratum else min(taus[s] for s in ranking.strata or taus)
        kept = [c for c in every if stratum or c.policy not in ranking.apart]
        drawn[stratum or ALL_STRATA] = [
            _steps(c, end_s, of_policies(frame, c.policy, stratum=stratum))
            for c in sorted(kept, key=lambda c: ranking.policies.index(c.policy))
        ]
    return Plot(
        'curve-chart', 'Operations done by time t', facets(drawn), Axis('time (s)', (0.0, ranking.tau_s)),
        Axis('operations done by then', (0.0, 1.0)),
        note=f'F(t), Kaplan-Meier; shaded: pointwise {100 * level:g} % bands that take start states (or episodes), not '
        'operations, as independent. Over all strata: their equal-weight mean, as far as every stratum is judged.',
    )  # fmt: skip


def _steps(curve: PolicyCurve, end_s: float, episodes: EpisodeFilter) -> Curve:
    """The curve as far as it is judged: where strata have caps of their own, the mean ends at the smallest."""
    n = int((curve.times_s <= end_s).sum())
    low, high = (None if band is None else band[:n].tolist() for band in (curve.low, curve.high))
    return Curve(
        curve.policy, curve.times_s[:n].tolist(), curve.chance[:n].tolist(), low, high, is_step=True, end=end_s,
        episodes=episodes,
    )  # fmt: skip


def incidence_plot(
    incidences: Mapping[str, Incidence], frame: ComparisonFrame, behind: EpisodesBehind, policies: Sequence[str]
) -> Plot:
    """How operations ended: by the end of observation, and by tau."""
    by_end = {p: behind.by_end(frame, p) for p in policies}

    def bars(policy: str, *, at_tau: bool) -> list[Bar]:
        incidence = incidences[policy]
        shares = [incidence.causes[c].by_tau if at_tau else incidence.causes[c].chance[-1] for c in CAUSES]
        rest = incidence.under_way_at_tau if at_tau else incidence.under_way[-1]
        everyone = of_policies(frame, policy)
        parts = [
            Bar(policy, policy, share, ENDS[c], episodes=these_episodes(by_end[policy].get(c, ()), everyone))
            for c, share in zip(CAUSES, shares, strict=True)
        ]
        return [*parts, Bar(policy, policy, rest, UNDER_WAY, episodes=everyone)]

    drawn = {
        label: [bar for p in policies for bar in bars(p, at_tau=at_tau)]
        for label, at_tau in (('by the end', False), ('by tau', True))
    }
    return Plot(
        'failure-chart', 'How operations end', facets(drawn), Axis('share of operations'),
        names=(*ENDS.values(), UNDER_WAY),
        note='Cumulative incidence (Aalen-Johansen), the mean over strata, by the end of observation or by tau.',
    )  # fmt: skip


def success_grid(rates: Rates, frame: ComparisonFrame, policies: Sequence[str], strata: Sequence[str]) -> Plot:
    """Episode success of every policy in every stratum."""
    tiles = []
    for stratum in strata:
        for policy in policies:
            count = rates.counts.get((policy, stratum))
            detail = '' if count is None else f'{count.count} of {count.n} episodes'
            value = None if count is None or count.value is None else 100 * count.value
            behind = None if count is None else of_policies(frame, policy, stratum=stratum)
            tiles.append(Tile(policy, stratum, value, detail, behind))
    return Plot(
        'success-grid', 'Episode success in every cell', facets(tiles), value=Axis('episode success (%)', (0.0, 100.0)),
        number_format='.0f', names=tuple(policies), rows=tuple(strata),
    )  # fmt: skip


# What the sections of a report share: blocks of tables with their definitions, links to episodes, what is missing.

__all__ = ['missing', 'of_policies', 'shown_order', 'table_block']


def missing(what: str, absent: Absent) -> Missing:
    return Missing(what, absent.reason, absent.remedy)


def table_block(
    key: str, shown: Table, definitions: Mapping[str, str], *, episodes: Sequence[EpisodeFilter | None] = (),
    policy: str = 'policy', stratum: str = '', is_folded: bool = False,
    cells: Mapping[tuple[int, str], EpisodeFilter] | None = None,
) -> TableBlock:  # fmt: skip
    """A block that keeps only the definitions of columns that the table has."""
    names = {c.name for c in shown.columns}
    return TableBlock(
        key, shown, {k: v for k, v in definitions.items() if k in names}, tuple(episodes),
        policy if policy in names else '', stratum if stratum in names else '', is_folded,
        cells or {},
    )  # fmt: skip


def shown_order(analysis: Analysis, frame: ComparisonFrame) -> tuple[str, ...]:
    """The reference, then the ranked policies by the first primary endpoint, best first; policies apart come last."""
    pairs = analysis.pairs
    ranked = frame.policies
    if not isinstance(pairs, Absent) and not isinstance(pairs.lead, Absent):
        ranked = pairs.lead.policies
    elif not isinstance(analysis.ranking, Absent):
        ranked = analysis.ranking.order
    return (*((frame.reference,) if frame.reference else ()), *ranked)
