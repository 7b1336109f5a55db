"""Pictures that comparison studies are used to: posterior violins, performance profiles, improvement, ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError
from robotrials.show.catalog import FigureRequest
from robotrials.show.document import EpisodeFilter
from robotrials.show.figure import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, add_legend, fold, font_scale, new_figure
from robotrials.show.figure_mark import lead_to, of_policies
from robotrials.show.timing_figure import drawn_policies, whole_strata
from robotrials.stats import Profile
from robotrials.verdict.analysis import present
from robotrials.verdict.analysis.practice import Improvement, Posterior

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from robotrials.show.figure import PolicyLook

PROFILE_APART = 10  # thresholds between marks that lead to episodes
LEAST_WIDTH = 0.002  # of a violin: thinner tails are not drawn


def _behind(request: FigureRequest, *policies: str) -> EpisodeFilter:
    return of_policies(present(request.analysis.frame), *policies)


def posteriors(request: FigureRequest) -> list[Posterior]:
    """The posteriors of the policies shown, best first."""
    whole_strata(request, 'posterior')
    shown = drawn_policies(request)
    return [p for p in present(request.analysis.practice.posteriors) if p.policy in shown]


def draw_posterior(request: FigureRequest) -> Figure:
    """Posterior of each policy's episode success with its credible interval, and letters.

    Policies sharing a letter are not significantly different; letters are those of the tables of episode success.
    """
    found, looks = posteriors(request), request.looks()
    figure = new_figure(max(COLUMN_WIDTH_IN, 0.9 * len(found) + 0.8), 2.8)
    axes = figure.subplots()
    for place, posterior in enumerate(found):
        _draw_violin(axes, posterior, place, looks[posterior.policy])
        words = f'{posterior.policy}: {posterior.rate.count} of {posterior.rate.n} episodes'
        span = (place - 0.4, place + 0.4)
        lead_to(
            axes, span, (posterior.credible.low, posterior.credible.high), _behind(request, posterior.policy), words
        )
    names = [f'{p.policy}\n{p.rate.count}/{p.rate.n}' for p in found]
    longest = max(len(p.policy) for p in found)
    if longest * len(found) > 13 * figure.get_figwidth() / font_scale():
        axes.set_xticks(range(len(found)), names, fontsize='small', rotation=40, ha='right', rotation_mode='anchor')
    else:
        axes.set_xticks(range(len(found)), names, fontsize='small')
    axes.set(ylim=(0, 1.1), ylabel='episode success', xlim=(-0.6, len(found) - 0.4))
    return figure


def _draw_violin(axes: Axes, found: Posterior, place: int, look: PolicyLook) -> None:
    width = 0.4 * found.density / found.density.max()
    kept = width > LEAST_WIDTH
    axes.fill_betweenx(
        found.grid[kept], place - width[kept], place + width[kept], color=look.color, alpha=0.35, linewidth=0
    )
    axes.plot([place, place], [found.credible.low, found.credible.high], color=look.color, linewidth=1.5)
    axes.plot(place, found.rate.count / found.rate.n, marker=look.marker, color=look.color, markersize=4)
    if found.letters:
        axes.text(place, 1.03, found.letters, ha='center')


def profiles(request: FigureRequest) -> dict[str, Profile]:
    """The profiles of the policies shown."""
    whole_strata(request, 'profile')
    found = present(request.analysis.practice.profiles)
    return {p: found[p] for p in request.shown(found)}


def draw_profile(request: FigureRequest) -> Figure:
    """Performance profiles: the share of runs that score above each threshold, with bands."""
    found, looks = profiles(request), request.looks()
    matrix = present(request.analysis.practice.matrix)
    figure = new_figure(PAGE_WIDTH_IN * 0.6, 2.8)
    axes = figure.subplots()
    for name, profile in found.items():
        look = looks[name]
        axes.fill_between(profile.thresholds, profile.low, profile.high, color=look.color, alpha=0.15, linewidth=0)
        axes.plot(profile.thresholds, profile.share, color=look.color, linestyle=look.dash, linewidth=1.3, label=name)
        for k in range(0, len(profile.thresholds), PROFILE_APART):
            at, share = float(profile.thresholds[k]), float(profile.share[k])
            lead_to(axes, at, share, _behind(request, name), f'{name}: {share:.2f} of runs above {at:.2f}')
    axes.set(xlim=(0, 1), ylim=(0, 1.02), ylabel='share of runs')
    axes.set_xlabel(fold(f'{matrix.meaning} above', 0.8 * figure.get_figwidth()))
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def improvements(request: FigureRequest) -> list[Improvement]:
    """The pairs of policies shown."""
    whole_strata(request, 'improvement')
    found = present(request.analysis.practice.improvements)
    shown = request.shown(dict.fromkeys(p for i in found for p in (i.policy_a, i.policy_b)))
    kept = [i for i in found if i.policy_a in shown and i.policy_b in shown]
    if not kept:
        raise InputError('improvement needs two policies besides the reference')
    return kept


def draw_improvement(request: FigureRequest) -> Figure:
    """Probability of improvement of every pair, mean over strata, with intervals."""
    found, looks = improvements(request), request.looks()
    matrix = present(request.analysis.practice.matrix)
    figure = new_figure(PAGE_WIDTH_IN * 0.6, 0.26 * len(found) + 0.9, is_rows=True)
    axes = figure.subplots()
    for row, pair in enumerate(found):
        color = looks[pair.policy_a].color
        if pair.interval is not None:
            axes.plot([pair.interval.low, pair.interval.high], [row, row], color=color, linewidth=4, alpha=0.4)
        axes.plot(pair.chance, row, '|', color=color, markersize=9, markeredgewidth=1.8)
        words = f'{pair.policy_a} over {pair.policy_b}: {pair.chance:.2f}'
        ends = pair.interval or (pair.chance, pair.chance)
        lead_to(axes, (min(ends), max(ends) + 0.004), (row - 0.4, row + 0.4),
                _behind(request, pair.policy_a, pair.policy_b), words)  # fmt: skip
    axes.axvline(0.5, color='0.5', linewidth=0.8, linestyle='--')
    axes.set_yticks(range(len(found)), [f'{i.policy_a} over {i.policy_b}' for i in found])
    axes.set(xlim=(0, 1), ylim=(len(found) - 0.5, -0.5))
    axes.set_xlabel(fold(f'P(better), by {matrix.meaning}', 0.6 * figure.get_figwidth()))
    return figure


def draw_ranks(request: FigureRequest) -> Figure:
    """How sure each policy's rank is: the share of resamples in which it has each rank, by mean score."""
    whole_strata(request, 'ranks')
    found, looks = present(request.analysis.practice.ranks), request.looks()
    matrix = present(request.analysis.practice.matrix)
    shown = request.shown(found.names)
    places = range(1, len(found.names) + 1)
    figure = new_figure(max(COLUMN_WIDTH_IN, 0.6 * len(found.names) + 1.4), 2.7)
    axes = figure.subplots()
    left = np.zeros(len(found.names))
    for k, name in enumerate(found.names):
        if name not in shown:
            continue
        look = looks[name]
        axes.bar(
            places, found.chance[k], bottom=left, color=look.color, hatch=look.hatch, edgecolor='white',
            linewidth=0.4, label=name,
        )  # fmt: skip
        for rank, low, chance in zip(places, left.tolist(), found.chance[k].tolist(), strict=True):
            if chance > 0:
                words = f'{name}: rank {rank} in {100 * chance:.0f} % of resamples'
                lead_to(axes, (rank - 0.4, rank + 0.4), (low, low + chance), _behind(request, name), words)
        left += found.chance[k]
    axes.set(xlabel='rank', ylabel='share of resamples', ylim=(0, 1.02))
    axes.set_title(fold(f'by {matrix.meaning}', 0.85 * figure.get_figwidth(), size=0.833), fontsize='small')
    axes.set_xticks(list(places))
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure
