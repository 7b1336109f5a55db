"""Pictures of time to success: curves with bands, P-P and Q-Q plots, restricted means, trade-offs (PhAIL).

Figures 1, 2 and 5 to 10. What each shows is read from the analysis by a function of its own (`curve_panels`, ...). At
the end are pictures that comparison studies are used to: posterior violins, performance profiles, improvement, ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing.curve_test import PPTrace, QQTrace, TradeOffTrace
from robotrials.show.catalog import FigureRequest
from robotrials.show.document import EpisodeFilter
from robotrials.show.figure import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, figure_width_in, font_scale, vertex_links
from robotrials.show.phrase import ends
from robotrials.show.plot import (
    THING_PALETTE,
    Area,
    Axis,
    Bar,
    Curve,
    EpisodeLink,
    Facet,
    GuideLine,
    Layer,
    Note,
    Plot,
    Point,
    Sheet,
    facets,
    of_policies,
    places,
)
from robotrials.show.svg import LinearScale
from robotrials.stats import Estimate, Profile
from robotrials.value import dataclass
from robotrials.verdict.analysis import PolicyCurve, present
from robotrials.verdict.analysis.detail import Cycle, PairShape
from robotrials.verdict.analysis.practice import Improvement, Posterior
from robotrials.verdict.analysis.ranking import ALL_STRATA

TICKS = 7
SHARE = Axis('F(t) = P(T ≤ t)', (0.0, 1.02))
UNIT = (0.0, 1.0)
KS_COLOR = '#C00000'


def drawn_policies(request: FigureRequest, *, with_reference: bool = True) -> tuple[str, ...]:
    """The reference, then who is ranked; a policy that stands apart only where it was asked for by name."""
    frame = present(request.analysis.frame)
    known = (*((frame.reference,) if frame.reference and with_reference else ()), *frame.policies)
    drawn = request.shown((*known, *(p for p in frame.apart if p in request.policies)))
    if not [p for p in drawn if p != frame.reference]:
        raise InputError('no policy with a valid episode is left to draw')
    return drawn


def whole_strata(request: FigureRequest, name: str) -> None:
    """Refuse to show some strata of what is a mean over all of them."""
    if request.strata:
        raise InputError(
            f'{name} is over all strata of the analysis; analyse a selection of episodes to leave some out'
        )


# --- curves


@dataclass(frozen=True, slots=True, eq=False)
class CurvePanel:
    """One drawing of curves: the mean over strata, or one stratum."""

    stratum: str  # ALL_STRATA is the mean
    tau_s: float
    curves: tuple[PolicyCurve, ...]
    ticks_s: tuple[float, ...]
    at_risk: Mapping[str, tuple[int, ...]]  # policy -> operations still unfinished at each tick


def curve_panels(request: FigureRequest, *, n_ticks: int = TICKS) -> tuple[CurvePanel, ...]:
    """The mean over strata; or, where strata were asked for, a panel for each of them."""
    analysis = request.analysis
    curves, times = present(analysis.curves), present(analysis.times)
    strata = present(analysis.frame).strata
    asked = request.shown_strata(strata) if request.strata else (ALL_STRATA,)
    policies = drawn_policies(request)
    panels = []
    for stratum in asked:
        every = curves.get(stratum, curves[ALL_STRATA])
        tau_s = times.tau_s if stratum == ALL_STRATA else times.taus_s[stratum]
        ticks = np.array(LinearScale(0.0, tau_s).ticks(n_ticks))
        panels.append(
            CurvePanel(
                stratum, tau_s, tuple(c for p in policies for c in every if c.policy == p), tuple(ticks.tolist()),
                {p: _at_risk(request, p, stratum, ticks) for p in policies},
            )
        )  # fmt: skip
    return tuple(panels)


def _at_risk(request: FigureRequest, policy: str, stratum: str, ticks: np.ndarray) -> tuple[int, ...]:
    shapes = present(request.analysis.detail.shapes)
    own = shapes.strata_of(policy) if stratum == ALL_STRATA else (stratum,)
    counts = [shapes.curves[policy, s].at_risk_at(ticks) for s in own if (policy, s) in shapes.curves]
    return tuple(int(n) for n in np.sum(counts, axis=0)) if counts else ()


def draw_cdf(request: FigureRequest) -> Plot:
    """Success curves of all policies, mean over strata, with bands and numbers at risk; or single strata."""
    n_ticks = TICKS if figure_width_in(PAGE_WIDTH_IN * 0.75) > 4.2 * font_scale() else 5
    panels = curve_panels(request, n_ticks=n_ticks)
    is_single = len(panels) == 1
    drawn = []
    for panel in panels:
        curves = tuple(
            Curve(
                c.policy, c.times_s, c.chance, c.low, c.high, is_step=True, end=panel.tau_s,
                links=vertex_links(request, c.times_s, c.chance, {c.policy: c.times_s}, stratum=panel.stratum),
            )
            for c in panel.curves
        )  # fmt: skip
        axis = Axis('time to success T (s)', (0.0, panel.tau_s), ticks=panel.ticks_s if is_single else ())
        drawn.append(Facet(panel.stratum, curves, axis, below=panel.at_risk if is_single else {}))
    sheet = Sheet(PAGE_WIDTH_IN * 0.75, 2.9) if is_single else Sheet(facet_in=(1.9, 2.2), shared='y')
    return Plot('cdf', 'Chance of success by time', tuple(drawn), y=SHARE, sheet=sheet)


# --- P-P


def required_reference(request: FigureRequest, name: str) -> str:
    reference = present(request.analysis.frame).reference
    if reference is None:
        raise InputError(f'{name} draws against a reference, and none is marked or declared')
    return reference


def check_strata(request: FigureRequest) -> None:
    """A stratum that no policy has is an error with the near name."""
    known = tuple(dict.fromkeys(s for _, s in present(request.analysis.detail.shapes).curves if s != ALL_STRATA))
    for name in request.strata:
        if name not in known:
            raise UnknownName('stratum', name, known)


def draw_pp(request: FigureRequest) -> Plot:
    """One cell against the reference: both curves, and their P-P plot with AUC and KS segment.

    The first policy and stratum unless asked for others.
    """
    shapes = present(request.analysis.detail.shapes)
    reference = required_reference(request, 'pp')
    policy = drawn_policies(request, with_reference=False)[0]
    check_strata(request)
    stratum = next((s for p, s in shapes.pp if p == policy and (not request.strata or s in request.strata)), None)
    if stratum is None:
        raise InputError(f'{policy} and {reference} share no stratum to draw')
    trace, tau_s, drawn = shapes.pp[policy, stratum], shapes.taus_s[stratum], []
    for name in (policy, reference):
        curve = shapes.curves[name, stratum]
        links = vertex_links(request, curve.times_s, curve.chance, {name: curve.times_s}, stratum=stratum)
        drawn.append(Curve(name, curve.times_s, curve.chance, is_step=True, end=tau_s, links=links))
    title = f'AUC {trace.auc:.3f}, KS {trace.ks:.3f}'
    times = Axis('time to success T (s)', (0.0, tau_s))
    pair = (
        Facet(stratum, tuple(drawn), times, Axis('F(t)', SHARE.limits)),
        _pp_facet(request, trace, (policy, reference), title=title, stratum=stratum),
    )
    return Plot('pp', 'P-P plot', pair, sheet=Sheet(facet_in=(2.6, 2.7), most=2))


def _pp_facet(
    request: FigureRequest, trace: PPTrace, policies: tuple[str, str], *, title: str, stratum: str
) -> Facet:  # fmt: skip
    """The P-P curve, its shaded area, the diagonal, and the perpendicular of length KS / sqrt 2.

    Every point of the curve leads to the placements of both policies at its time.
    """
    across, up = trace.ks_point
    middle = (across + up) / 2
    layers = (
        GuideLine(color='0.6'),
        Area(trace.reference, np.zeros(len(trace.reference)), trace.model, policies[0], alpha=0.12),
        Curve(
            policies[0], trace.reference, trace.model, dash='-', is_listed=False,
            links=vertex_links(
                request, trace.reference, trace.model, dict.fromkeys(policies, trace.times_s), stratum=stratum
            ),
        ),
        Curve('', [across, middle], [up, middle], color=KS_COLOR, width=1.6, is_listed=False),
    )  # fmt: skip
    x, y = (Axis(f'F {policy}', UNIT, ticks=(0, 0.5, 1)) for policy in reversed(policies))
    return Facet(title, layers, x, y, is_square=True)


def pair_plots(request: FigureRequest) -> list[PairShape]:
    """The P-P plot of every pair shown."""
    whole_strata(request, 'pairwise-pp')
    drawn = drawn_policies(request, with_reference=False)
    kept = [p for p in present(request.analysis.detail.pair_shapes) if p.policy_a in drawn and p.policy_b in drawn]
    if not kept:
        raise InputError('pairwise-pp needs two policies besides the reference')
    return kept


def draw_pairwise_pp(request: FigureRequest) -> Plot:
    """P-P plots of every pair of policies, averaged over strata, with macro-AUC and its interval."""
    drawn = []
    for pair in pair_plots(request):
        interval = pair.auc.interval
        between = f' [{interval.low:.2f}, {interval.high:.2f}]' if interval else ''
        title = '' if pair.auc.value is None else f'AUC {pair.auc.value:.2f}{between}'
        names = (pair.policy_a, pair.policy_b)
        drawn.append(_pp_facet(request, pair.trace, names, title=title, stratum=ALL_STRATA))
    sheet = Sheet(facet_in=(1.8, 2.4), most=3, extra_in=0.0)
    return Plot('pairwise-pp', 'P-P plots', tuple(drawn), sheet=sheet)


# --- restricted means


def rmst_grid(
    request: FigureRequest,
) -> tuple[tuple[str, ...], tuple[str, ...], dict[tuple[str, str], Estimate]]:
    """Policies, strata, and the RMST of each policy in each stratum that it has one in."""
    ranking = present(request.analysis.ranking)
    policies = tuple(p for p in drawn_policies(request) if p in ranking.scores)
    strata = request.shown_strata(dict.fromkeys(s for p in policies for s in ranking.scores[p].cells))
    cells = {(p, s): ranking.scores[p].cells.get(s, {}).get('rmst_s') for p in policies for s in strata}
    return policies, strata, {key: rmst for key, rmst in cells.items() if rmst is not None and rmst.value is not None}


def draw_rmst_grid(request: FigureRequest) -> Plot:
    """Restricted mean time to success of every policy in every stratum, with intervals."""
    policies, strata, means = rmst_grid(request)
    frame, width = present(request.analysis.frame), 0.7 / max(len(policies) - 1, 1)
    marks = [
        Point(
            policy, strata.index(stratum) - 0.35 + policies.index(policy) * width, rmst.value, None, None,
            *ends(rmst.interval), is_listed=True,
            episodes=of_policies(frame, policy, stratum=stratum), words=f'{policy}, {stratum}: {rmst.value:.1f} s',
        )
        for (policy, stratum), rmst in means.items()
    ]  # fmt: skip
    return Plot(
        'rmst-grid', 'Restricted mean time to success', facets(marks),
        Axis(names=places(strata), limits=(-0.6, len(strata) - 0.4)),
        Axis(f'RMST({present(request.analysis.times).tau_text}) (s)', (0.0, None)),
        sheet=Sheet(max(COLUMN_WIDTH_IN, 1.1 * len(strata) + 1.6)),
    )  # fmt: skip


# --- distributional shape and scalar trade-offs

BUDGET_STRIDE = 10
STRATA_SHEET = Sheet(facet_in=(1.6, 2.2), shared='xy')


def draw_qq(request: FigureRequest) -> Plot:
    """Quantile-quantile plots against the reference in each stratum; circles mark the last quantile reached.

    The last quantile of each policy, in percent, stands at the top of the panel in the policy's colour.
    """
    traces, reference = qq_traces(request), required_reference(request, 'qq')
    drawn = []
    for stratum, by_policy in traces.items():
        layers: list[Layer] = [GuideLine(color='0.6')]
        for place, (policy, trace) in enumerate(by_policy.items()):
            x, y = trace.model_s, trace.reference_s
            links = vertex_links(request, x, y, {policy: x, reference: y}, stratum=stratum)
            layers += [
                Curve(policy, x, y, links=links),
                Point(policy, float(x[-1]), float(y[-1]), marker='o', is_filled=False),
                # Side by side, so that none covers another.
                Note(f'{100 * trace.last_level:.0f} %', (place + 0.5) / len(by_policy), 0.99, policy, size='x-small',
                     align=('center', 'top'), is_share=(True, True)),
            ]  # fmt: skip
        drawn.append(Facet(stratum, tuple(layers)))
    top = 1.3 * max((float(t.reference_s.max()) for some in traces.values() for t in some.values()), default=1.0)
    axes = Axis('T model (s)', (0.0, None)), Axis(f'T {reference} (s)', (0.0, top))
    return Plot('qq', 'Q-Q plots', tuple(drawn), *axes, sheet=STRATA_SHEET)


def qq_traces(request: FigureRequest) -> dict[str, dict[str, QQTrace]]:
    """Stratum -> policy -> trace, of those shown."""
    shapes = present(request.analysis.detail.shapes)
    reference = required_reference(request, 'qq')
    check_strata(request)
    strata = [s for s in shapes.strata_of(reference) if not request.strata or s in request.strata]
    if not strata:
        raise InputError(f'{reference} was not run on {", ".join(request.strata)}')
    policies = drawn_policies(request, with_reference=False)
    return {s: {p: shapes.qq[p, s] for p in policies if (p, s) in shapes.qq} for s in strata}


def trade_offs(request: FigureRequest) -> dict[str, dict[str, TradeOffTrace]]:
    """Stratum (ALL_STRATA first) -> policy -> trace, of those shown."""
    shapes = present(request.analysis.detail.shapes)
    check_strata(request)
    policies = drawn_policies(request, with_reference=False)
    strata = dict.fromkeys(s for p, s in shapes.trade_off if p in policies)
    kept = [s for s in strata if s == ALL_STRATA or not request.strata or s in request.strata]
    return {s: {p: shapes.trade_off[p, s] for p in policies if (p, s) in shapes.trade_off} for s in kept}


def draw_uph_mtbf(request: FigureRequest) -> Plot:
    """UPH against MTBF in each stratum as the time budget grows from 30 s to tau."""
    drawn = tuple(
        Facet(stratum, tuple(_trade_off_layers(request, traces, stratum)))
        for stratum, traces in trade_offs(request).items() if stratum != ALL_STRATA
    )  # fmt: skip
    axes = Axis('UPH = 3600 / RMST'), Axis('MTBF/A (s)', is_log=True)
    return Plot('uph-mtbf', 'UPH against MTBF', drawn, *axes, sheet=STRATA_SHEET)


def draw_uph_mtbf_macro(request: FigureRequest) -> Plot:
    """UPH against MTBF averaged over strata, as the time budget grows from 30 s to tau."""
    whole_strata(request, 'uph-mtbf-macro')
    return Plot(
        'uph-mtbf-macro', 'UPH against MTBF',
        facets(_trade_off_layers(request, trade_offs(request)[ALL_STRATA], ALL_STRATA)),
        Axis('UPH = 3600 / RMST, mean over strata'), Axis('MTBF/A (s), ratio of means over strata', is_log=True),
        sheet=Sheet(COLUMN_WIDTH_IN * 1.2, 2.9),
    )  # fmt: skip


def _trade_off_layers(request: FigureRequest, traces: Mapping[str, TradeOffTrace], stratum: str) -> list[Layer]:
    """A line from the smallest budget (a disc) to the largest (a triangle).

    Every tenth budget and the last lead to the episodes that were counted under it: all of the policy in the stratum.
    """
    layers: list[Layer] = []
    for policy, trace in traces.items():
        kept = np.flatnonzero(np.isfinite(trace.mtbf_s) & np.isfinite(trace.uph) & (trace.mtbf_s > 0))
        if not len(kept):  # nothing failed within any budget: no point to draw, and the legend says so
            layers.append(Curve(policy, [], [], name=f'{policy} (no failure)'))
            continue
        behind = of_policies(present(request.analysis.frame), policy, stratum=stratum)
        n, last = len(trace.tau_s), len(trace.tau_s) - 1
        links = [
            EpisodeLink(float(trace.uph[k]), float(trace.mtbf_s[k]), behind,
                 f'{policy} at {trace.tau_s[k]:.0f} s: UPH {trace.uph[k]:.0f}, MTBF/A {trace.mtbf_s[k]:.0f} s')
            for k in (*range(0, last, BUDGET_STRIDE), last) if k in kept and n
        ]  # fmt: skip
        uph, between = trace.uph[kept], trace.mtbf_s[kept]
        layers += [
            Curve(policy, uph, between, links=links),
            Point(policy, float(uph[0]), float(between[0]), marker='o', size=3.0),
            Point(policy, float(uph[-1]), float(between[-1]), marker='^'),
        ]
    return layers


def draw_sup_sign_cycle(request: FigureRequest) -> Plot:
    """Three curves whose KS signs cycle, so that none is first: from the store if it has such a triple.

    Else the constructed example, and the title says so.
    """
    whole_strata(request, 'sup-sign-cycle')
    cycle = present(request.analysis.detail.shapes).cycle
    if cycle.is_example:
        colors = dict(zip(cycle.curves, THING_PALETTE, strict=False))
        return _cycle_plot(cycle, 'constructed example (no three policies of this store cycle)', colors=colors)
    links = []
    for edge in cycle.edges:
        curve = cycle.curves[edge.upper]
        times = {edge.upper: curve.times_s}
        links += vertex_links(request, curve.times_s, curve.chance, times, stratum=ALL_STRATA)
        low, high = (float(cycle.curves[name].at(edge.time_s)) for name in (edge.lower, edge.upper))
        words = f'{edge.upper} over {edge.lower} by {edge.distance:.2f} at {edge.time_s:.2f} s'
        behind = of_policies(present(request.analysis.frame), edge.upper, edge.lower)
        links.append(EpisodeLink(edge.time_s, (low, high), behind, words))
    return _cycle_plot(cycle, 'sup-signs of three recorded policies cycle', links)


def _cycle_plot(
    cycle: Cycle, title: str, links: Sequence[EpisodeLink] = (), *, colors: Mapping[str, str] | None = None
) -> Plot:
    """The three curves as steps, and each phase: where one is furthest above the next."""
    names = {name for edge in cycle.edges for name in (edge.upper, edge.lower)}
    end_s = 1.4 * max(edge.time_s for edge in cycle.edges)
    layers: list[Layer] = [
        Curve(
            name, cycle.curves[name].times_s, cycle.curves[name].chance, is_step=True, end=end_s,
            color=(colors or {}).get(name, ''),
        )
        for name in sorted(names)
    ]  # fmt: skip
    for edge in cycle.edges:
        at = edge.time_s + 0.015 * end_s
        low, high = (float(cycle.curves[name].at(edge.time_s)) for name in (edge.lower, edge.upper))
        layers += [
            Curve('', [at, at], [low, high], color='0.3', width=0.9, is_listed=False),
            Point('', at, low, color='0.3', marker='v', size=3.0),
            Point('', at, high, color='0.3', marker='^', size=3.0),
            Note(f'{edge.upper} over {edge.lower}\n{edge.distance:.2f}', at + 0.012 * end_s, (low + high) / 2,
                 align=('left', 'center'), is_boxed=True),
        ]  # fmt: skip
    drawn = (Facet(title, tuple(layers), links=links),)
    axes = Axis('t (s)', (0.0, end_s)), Axis('F(t)', SHARE.limits)
    return Plot('sup-sign-cycle', title, drawn, *axes, sheet=Sheet(4.2, 2.9))


PROFILE_STRIDE = 10  # thresholds between marks that lead to episodes
LEAST_WIDTH = 0.002  # of a violin: thinner tails are not drawn


def _behind(request: FigureRequest, *policies: str) -> EpisodeFilter:
    return of_policies(present(request.analysis.frame), *policies)


def posteriors(request: FigureRequest) -> list[Posterior]:
    """The posteriors of the policies shown, best first."""
    whole_strata(request, 'posterior')
    policies = drawn_policies(request)
    return [p for p in present(request.analysis.practice.posteriors) if p.policy in policies]


def draw_posterior(request: FigureRequest) -> Plot:
    """Posterior of each policy's episode success with its credible interval, and letters.

    Policies sharing a letter are not significantly different; letters are those of the tables of episode success.
    """
    drawn = posteriors(request)
    layers: list[Layer] = []
    for place, p in enumerate(drawn):
        half = 0.4 * p.density / p.density.max()
        kept = half > LEAST_WIDTH
        layers += [
            Area(p.grid[kept], place - half[kept], place + half[kept], p.policy, alpha=0.35, is_upright=True),
            Point(p.policy, place, p.rate.count / p.rate.n, y_low=p.credible.low, y_high=p.credible.high),
            Note(p.letters, place, 1.03, align=('center', 'bottom'), size='medium'),
        ]
    links = [
        EpisodeLink((place - 0.4, place + 0.4), (p.credible.low, p.credible.high), _behind(request, p.policy),
             f'{p.policy}: {p.rate.count} of {p.rate.n} episodes')
        for place, p in enumerate(drawn)
    ]  # fmt: skip
    names = places(f'{p.policy}\n{p.rate.count}/{p.rate.n}' for p in drawn)
    return Plot(
        'posterior', 'Posterior of episode success', (Facet('', tuple(layers), links=links),),
        Axis(names=names, limits=(-0.6, len(drawn) - 0.4)), Axis('episode success', (0.0, 1.1)),
        sheet=Sheet(max(COLUMN_WIDTH_IN, 0.9 * len(drawn) + 0.8)),
    )  # fmt: skip


def profiles(request: FigureRequest) -> dict[str, Profile]:
    """The profiles of the policies shown."""
    whole_strata(request, 'profile')
    every = present(request.analysis.practice.profiles)
    return {p: every[p] for p in request.shown(every)}


def draw_profile(request: FigureRequest) -> Plot:
    """Performance profiles: the share of runs that score above each threshold, with bands."""
    curves = []
    for name, p in profiles(request).items():
        links = [
            EpisodeLink(float(at), float(share), _behind(request, name), f'{name}: {share:.2f} of runs above {at:.2f}')
            for at, share in zip(p.thresholds[::PROFILE_STRIDE], p.share[::PROFILE_STRIDE], strict=True)
        ]
        curves.append(Curve(name, p.thresholds, p.share, p.low, p.high, links=links))
    measure = present(request.analysis.practice.matrix).meaning
    return Plot(
        'profile', 'Performance profiles', facets(curves), Axis(f'{measure} above', (0.0, 1.0)),
        Axis('share of runs', (0.0, 1.02)), sheet=Sheet(PAGE_WIDTH_IN * 0.6),
    )  # fmt: skip


def improvements(request: FigureRequest) -> list[Improvement]:
    """The pairs of policies shown."""
    whole_strata(request, 'improvement')
    every = present(request.analysis.practice.improvements)
    policies = request.shown(dict.fromkeys(p for i in every for p in (i.policy_a, i.policy_b)))
    kept = [i for i in every if i.policy_a in policies and i.policy_b in policies]
    if not kept:
        raise InputError('improvement needs two policies besides the reference')
    return kept


def draw_improvement(request: FigureRequest) -> Plot:
    """Probability of improvement of every pair, mean over strata, with intervals."""
    rows = [
        Point(
            i.policy_a, i.chance, None, *ends(i.interval), name=f'{i.policy_a} over {i.policy_b}',
            marker='|', size=9, episodes=_behind(request, i.policy_a, i.policy_b),
            words=f'{i.policy_a} over {i.policy_b}: {i.chance:.2f}',
        )
        for i in improvements(request)
    ]  # fmt: skip
    measure = present(request.analysis.practice.matrix).meaning
    return Plot(
        'improvement', 'Probability of improvement', facets([GuideLine(x=0.5), *rows]),
        Axis(f'P(better), by {measure}', (0.0, 1.0)),
        sheet=Sheet(PAGE_WIDTH_IN * 0.6, 0.26 * len(rows) + 0.9, is_rows=True),
    )  # fmt: skip


def draw_ranks(request: FigureRequest) -> Plot:
    """How sure each policy's rank is: the share of resamples in which it has each rank, by mean score."""
    whole_strata(request, 'ranks')
    ranks = present(request.analysis.practice.ranks)
    kept, order = request.shown(ranks.names), range(1, len(ranks.names) + 1)
    bars = [
        Bar(
            name, rank, chance, name, is_upright=True, episodes=_behind(request, name),
            words=f'{name}: rank {rank} in {100 * chance:.0f} % of resamples',
        )
        for name, chances in zip(ranks.names, ranks.chance, strict=True) if name in kept
        for rank, chance in zip(order, chances.tolist(), strict=True)
    ]  # fmt: skip
    return Plot(
        'ranks', 'Ranks', facets({f'by {present(request.analysis.practice.matrix).meaning}': bars}),
        Axis('rank', ticks=order), Axis('share of resamples', (0.0, 1.02)),
        sheet=Sheet(max(COLUMN_WIDTH_IN, 0.6 * len(ranks.names) + 1.4), 2.7),
    )  # fmt: skip
