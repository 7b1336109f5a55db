"""Pictures that comparison studies are used to: posterior violins, performance profiles, improvement, ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.errors import InputError
from robotrials.show.catalog import FigureRequest
from robotrials.show.curve import drawn_policies, whole_strata
from robotrials.show.document import EpisodeFilter
from robotrials.show.figure import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, of_policies
from robotrials.show.phrase import ends
from robotrials.show.plot import (
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
    places,
)
from robotrials.show.plot_paper import paint_paper
from robotrials.stats import Profile
from robotrials.verdict.analysis import present
from robotrials.verdict.analysis.practice import Improvement, Posterior

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROFILE_STRIDE = 10  # thresholds between marks that lead to episodes
LEAST_WIDTH = 0.002  # of a violin: thinner tails are not drawn


def _behind(request: FigureRequest, *policies: str) -> EpisodeFilter:
    return of_policies(present(request.analysis.frame), *policies)


def posteriors(request: FigureRequest) -> list[Posterior]:
    """The posteriors of the policies shown, best first."""
    whole_strata(request, 'posterior')
    policies = drawn_policies(request)
    return [p for p in present(request.analysis.practice.posteriors) if p.policy in policies]


def draw_posterior(request: FigureRequest) -> Figure:
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
    plot = Plot(
        'posterior', 'Posterior of episode success', (Facet('', tuple(layers), links=links),),
        Axis(names=names, limits=(-0.6, len(drawn) - 0.4)), Axis('episode success', (0.0, 1.1)),
        sheet=Sheet(max(COLUMN_WIDTH_IN, 0.9 * len(drawn) + 0.8)),
    )  # fmt: skip
    return paint_paper(plot, request.looks())


def profiles(request: FigureRequest) -> dict[str, Profile]:
    """The profiles of the policies shown."""
    whole_strata(request, 'profile')
    every = present(request.analysis.practice.profiles)
    return {p: every[p] for p in request.shown(every)}


def draw_profile(request: FigureRequest) -> Figure:
    """Performance profiles: the share of runs that score above each threshold, with bands."""
    curves = []
    for name, p in profiles(request).items():
        links = [
            EpisodeLink(float(at), float(share), _behind(request, name), f'{name}: {share:.2f} of runs above {at:.2f}')
            for at, share in zip(p.thresholds[::PROFILE_STRIDE], p.share[::PROFILE_STRIDE], strict=True)
        ]
        curves.append(Curve(name, p.thresholds, p.share, p.low, p.high, links=links))
    measure = present(request.analysis.practice.matrix).meaning
    plot = Plot(
        'profile', 'Performance profiles', facets(curves), Axis(f'{measure} above', (0.0, 1.0)),
        Axis('share of runs', (0.0, 1.02)), sheet=Sheet(PAGE_WIDTH_IN * 0.6),
    )  # fmt: skip
    return paint_paper(plot, request.looks())


def improvements(request: FigureRequest) -> list[Improvement]:
    """The pairs of policies shown."""
    whole_strata(request, 'improvement')
    every = present(request.analysis.practice.improvements)
    policies = request.shown(dict.fromkeys(p for i in every for p in (i.policy_a, i.policy_b)))
    kept = [i for i in every if i.policy_a in policies and i.policy_b in policies]
    if not kept:
        raise InputError('improvement needs two policies besides the reference')
    return kept


def draw_improvement(request: FigureRequest) -> Figure:
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
    plot = Plot(
        'improvement', 'Probability of improvement', facets([GuideLine(x=0.5), *rows]),
        Axis(f'P(better), by {measure}', (0.0, 1.0)),
        sheet=Sheet(PAGE_WIDTH_IN * 0.6, 0.26 * len(rows) + 0.9, is_rows=True),
    )  # fmt: skip
    return paint_paper(plot, request.looks())


def draw_ranks(request: FigureRequest) -> Figure:
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
    plot = Plot(
        'ranks', 'Ranks', facets({f'by {present(request.analysis.practice.matrix).meaning}': bars}),
        Axis('rank', ticks=order), Axis('share of resamples', (0.0, 1.02)),
        sheet=Sheet(max(COLUMN_WIDTH_IN, 0.6 * len(ranks.names) + 1.4), 2.7),
    )  # fmt: skip
    return paint_paper(plot, request.looks())
