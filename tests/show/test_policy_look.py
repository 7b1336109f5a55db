"""A policy looks the same in every figure of its store, and no two look alike."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from robotrials.errors import NotEstimable
from robotrials.record import Episode, Outcome
from robotrials.show.catalog import FIGURES, FigureRequest, find_figure, input_of
from robotrials.show.plot import PALETTE, policy_colors, policy_looks
from robotrials.testing.showcase import Showcase, make_showcase, showcase_request
from robotrials.verdict.analysis import analyse


@pytest.fixture(scope='module')
def case(tmp_path_factory: pytest.TempPathFactory) -> Showcase:
    return make_showcase(tmp_path_factory.mktemp('showcase'))


def colors_in(figure: Figure) -> set[str]:
    """The colours of lines, points and bars."""
    found = set()
    for axes in figure.axes:
        found |= {to_hex(line.get_color()) for line in axes.lines}
        for drawn in [*axes.collections, *axes.patches]:
            found |= {to_hex(c) for c in np.atleast_2d(drawn.get_facecolor()) if len(c)}
    return {c.upper() for c in found}


BY_POLICY = (
    'cdf', 'posterior', 'profile', 'qq', 'ranks', 'rmst-grid', 'uph-mtbf', 'uph-mtbf-macro', 'condition-drops',
    'condition-success', 'doses', 'safety-pareto', 'starts',
)  # fmt: skip


@pytest.mark.parametrize('name', BY_POLICY)
def test_a_policy_drawn_alone_keeps_its_colour(case: Showcase, name: str) -> None:
    """groot and smolvla are second and fourth in the alphabet, and stay so when only they are drawn."""
    draw = find_figure(name)
    chosen = ('groot', 'smolvla')
    figure = draw(showcase_request(case, name, draw, n_resamples=10, policies=chosen))
    shown = colors_in(figure) & {c.upper() for c in PALETTE}
    assert shown == {PALETTE[1].upper(), PALETTE[3].upper()}


def test_a_filter_and_another_reference_change_no_colour(case: Showcase) -> None:
    draw = find_figure('cdf')
    request = showcase_request(case, 'cdf', draw)
    looks = request.looks()
    assert looks['human'].color == '#000000'
    for changed in (
        analyse(case.trial, where={'policy': ['human', 'smolvla']}), analyse(case.trial, reference='act'),
    ):  # fmt: skip
        assert FigureRequest(subject=changed).looks() == looks
    analysis = request.analysis
    everyone = policy_colors(analysis.every_policy, reference=analysis.marked_reference)
    assert everyone == {name: look.color for name, look in looks.items()}


def test_no_two_of_two_hundred_policies_look_alike() -> None:
    looks = policy_looks((f'p{k:03d}' for k in range(200)), reference='p007')
    for kind in ('dash', 'marker', 'hatch'):
        seen = [(look.color, getattr(look, kind)) for look in looks.values()]
        assert len(set(seen)) == 200, kind


def many_episodes(count: int = 11) -> tuple[Episode, ...]:
    rng = np.random.default_rng(0)
    return tuple(
        Episode(
            policy=f'p{k:02d}', task='t', stratum='t', seed=i, outcome=Outcome.SUCCESS, success=True,
            duration_s=float(rng.uniform(5, 50)), time_cap_s=60.0,
        )
        for k, i in itertools.product(range(count), range(8))
    )  # fmt: skip


def test_more_policies_than_colours_are_told_apart_by_dashes() -> None:
    figure = find_figure('cdf')(FigureRequest(subject=analyse(many_episodes(), resamples=5)))
    lines = [(line.get_color(), line._dash_pattern) for line in figure.axes[0].lines]  # type: ignore[attr-defined]
    assert len(lines) == 11
    assert len(set(map(str, lines))) == 11


def test_figures_of_no_policy_use_no_policys_colour(case: Showcase) -> None:
    for name in ('power', 'sequential', 'safety-composition', 'claims', 'citations', 'cutoffs', 'divergence'):
        draw = find_figure(name)
        figure = draw(showcase_request(case, name, draw, n_resamples=10))
        assert not colors_in(figure) & {c.upper() for c in PALETTE if c != '#7F7F7F'}, name


def test_every_figure_declares_a_known_input() -> None:
    assert all(input_of(find_figure(name)) for name in FIGURES.names())


def test_what_needs_trajectories_says_so_where_there_are_none() -> None:
    with pytest.raises(NotEstimable):
        find_figure('placement')(FigureRequest(subject=analyse(many_episodes(2), resamples=5)))
