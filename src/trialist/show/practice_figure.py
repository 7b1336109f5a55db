"""Pictures that comparison studies are used to: posterior violins, performance profiles, improvement, ranks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from trialist.errors import InputError
from trialist.planning import episode_promptness
from trialist.show.figure import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, add_legend, fold, font_scale, new_figure
from trialist.show.figure_catalog import FigureRequest
from trialist.show.timing_figure import Cast, cast_of
from trialist.stats import (
    barnard,
    different_matrix,
    holm,
    letter_groups,
    performance_profile,
    probability_of_improvement,
    rank_policies,
    success_posterior,
)
from trialist.stats.argument import FloatArray
from trialist.timing.operation import stratum_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trialist.episodes import Episode

ALPHA = 0.05
PROFILE_POINTS = 61


def draw_posterior(request: FigureRequest) -> Figure:
    """Posterior of each policy's success rate with its 95 % credible interval; letters by Barnard's test and Holm."""
    cast = cast_of(request)
    counts = []
    for cohort in cast.everyone:
        outcomes = [float(e.is_success) for e in cohort.valid if stratum_of(e) in cast.strata]
        counts.append((int(sum(outcomes)), len(outcomes)))
    ranked = sorted(range(len(counts)), key=lambda i: -counts[i][0] / counts[i][1])
    pairs = list(itertools.combinations(range(len(ranked)), 2))
    letters = ['a'] * len(ranked)
    if pairs:
        p = holm([barnard(*counts[ranked[i]], *counts[ranked[j]]).p_value for i, j in pairs])
        letters = list(letter_groups(different_matrix(pairs, p.tolist(), k=len(ranked), alpha=ALPHA)))
    figure = new_figure(max(COLUMN_WIDTH_IN, 0.9 * len(ranked) + 0.8), 2.8)
    axes = figure.subplots()
    grid = np.linspace(0, 1, 401)
    for place, i in enumerate(ranked):
        name = cast.everyone[i].policy
        look = cast.looks[name]
        belief = success_posterior(*counts[i])
        density = belief.density(grid)
        width = 0.4 * density / density.max()
        shown = width > 0.002
        axes.fill_betweenx(
            grid[shown], place - width[shown], place + width[shown], color=look.color, alpha=0.35, linewidth=0
        )
        interval = belief.credible(0.95)
        axes.plot([place, place], [interval.low, interval.high], color=look.color, linewidth=1.5)
        axes.plot(place, counts[i][0] / counts[i][1], marker=look.marker, color=look.color, markersize=4)
        axes.text(place, 1.03, letters[place], ha='center')
    names = [f'{cast.everyone[i].policy}\n{counts[i][0]}/{counts[i][1]}' for i in ranked]
    longest = max(len(c.policy) for c in cast.everyone)
    if longest * len(ranked) > 13 * figure.get_figwidth() / font_scale():
        axes.set_xticks(range(len(ranked)), names, fontsize='small', rotation=40, ha='right', rotation_mode='anchor')
    else:
        axes.set_xticks(range(len(ranked)), names, fontsize='small')
    axes.set(ylim=(0, 1.1), ylabel='success rate', xlim=(-0.6, len(ranked) - 0.4))
    return figure


def _value(episode: Episode, tau_s: float) -> float:
    """A score in [0, 1]: the host's own over its maximum, or promptness."""
    if episode.score is not None and episode.max_score:
        return episode.score / episode.max_score
    return episode_promptness(episode, tau_s=tau_s)


def score_matrices(request: FigureRequest, cast: Cast) -> tuple[dict[str, FloatArray], str]:
    """Policy -> (runs, strata) of scores, cut to the smallest cell, and what the scores are."""
    chosen = {c.policy: c for c in cast.models}
    caps = [e.time_cap_s for c in chosen.values() for e in c.valid if e.time_cap_s is not None]
    tau_s = min([request.tau_s, *caps])
    cells = {
        name: [[_value(e, tau_s) for e in c.valid if stratum_of(e) == s] for s in cast.strata]
        for name, c in chosen.items()
    }
    least = min(len(cell) for columns in cells.values() for cell in columns)
    if least == 0:
        raise InputError('some policy has no valid episode in some stratum; choose strata that all have with --stratum')
    own = all(e.score is not None and e.max_score for c in chosen.values() for e in c.valid)
    what = 'score / maximum' if own else f'promptness 1 - min(T, {tau_s:g} s)/{tau_s:g} s'
    return {n: np.array([cell[:least] for cell in columns]).T for n, columns in cells.items()}, what


def draw_profile(request: FigureRequest) -> Figure:
    """Performance profiles: the share of episodes that score above each threshold, with 95 % bands."""
    cast = cast_of(request)
    matrices, what = score_matrices(request, cast)
    figure = new_figure(PAGE_WIDTH_IN * 0.6, 2.8)
    axes = figure.subplots()
    rng = np.random.default_rng(request.seed)
    thresholds = np.linspace(0, 1, PROFILE_POINTS)
    for name, matrix in matrices.items():
        found = performance_profile(matrix, thresholds, n_resamples=request.n_resamples, rng=rng)
        look = cast.looks[name]
        axes.fill_between(thresholds, found.low, found.high, color=look.color, alpha=0.15, linewidth=0)
        axes.plot(thresholds, found.share, color=look.color, linestyle=look.dash, linewidth=1.3, label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), ylabel='share of episodes')
    axes.set_xlabel(fold(f'{what} above', 0.8 * figure.get_figwidth()))
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def draw_improvement(request: FigureRequest) -> Figure:
    """Probability of improvement of every pair, mean over strata, with 95 % intervals."""
    cast = cast_of(request)
    matrices, what = score_matrices(request, cast)
    pairs = list(itertools.combinations(matrices, 2))
    if not pairs:
        raise InputError('improvement needs two policies besides the reference')
    figure = new_figure(PAGE_WIDTH_IN * 0.6, 0.26 * len(pairs) + 0.9, is_rows=True)
    axes = figure.subplots()
    rng = np.random.default_rng(request.seed)
    for row, (a, b) in enumerate(pairs):
        found = probability_of_improvement(matrices[a], matrices[b], n_resamples=request.n_resamples, rng=rng)
        color = cast.looks[a].color
        axes.plot([found.interval.low, found.interval.high], [row, row], color=color, linewidth=4, alpha=0.4)
        axes.plot(found.estimate, row, '|', color=color, markersize=9, markeredgewidth=1.8)
    axes.axvline(0.5, color='0.5', linewidth=0.8, linestyle='--')
    axes.set_yticks(range(len(pairs)), [f'{a} over {b}' for a, b in pairs])
    axes.set(xlim=(0, 1), ylim=(len(pairs) - 0.5, -0.5))
    axes.set_xlabel(fold(f'P(better), by {what}', 0.6 * figure.get_figwidth()))
    return figure


def draw_ranks(request: FigureRequest) -> Figure:
    """How sure each policy's rank is: the share of resamples in which it has each rank, by mean score."""
    cast = cast_of(request)
    matrices, what = score_matrices(request, cast)
    if len(matrices) < 2:
        raise InputError('ranks needs two policies besides the reference')
    found = rank_policies(matrices, n_resamples=request.n_resamples, rng=np.random.default_rng(request.seed))
    figure = new_figure(max(COLUMN_WIDTH_IN, 0.6 * len(matrices) + 1.4), 2.7)
    axes = figure.subplots()
    left = np.zeros(len(matrices))
    for k, name in enumerate(found.names):
        look = cast.looks[name]
        axes.bar(
            range(1, len(matrices) + 1), found.chance[k], bottom=left, color=look.color, hatch=look.hatch,
            edgecolor='white', linewidth=0.4, label=name,
        )  # fmt: skip
        left += found.chance[k]
    axes.set(xlabel='rank', ylabel='share of resamples', ylim=(0, 1.02))
    axes.set_title(fold(f'by {what}', 0.85 * figure.get_figwidth(), size=0.833), fontsize='small')
    axes.set_xticks(range(1, len(matrices) + 1))
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure
