"""Marks of figures lead to the episodes behind them: every figure of a store has some, and none leads nowhere."""

from __future__ import annotations

import pytest

from robotrials.record import Episode
from robotrials.show.figure import figure_marks, lead_to, leading, new_figure
from robotrials.show.plot import MOST_IDS, these_episodes


def test_figures_for_files_keep_no_marks() -> None:
    figure = new_figure()
    axes = figure.subplots()
    lead_to(axes, 0.5, 0.5, {'policy': ('a',)}, 'a')
    assert figure_marks(figure) == ()


def test_a_mark_lies_where_its_point_is_drawn() -> None:
    figure = new_figure(4, 2)
    axes = figure.add_axes((0.25, 0.25, 0.5, 0.5))
    axes.set(xlim=(0, 10), ylim=(0, 1))
    with leading():
        lead_to(axes, 5.0, 0.5, {'policy': ('a',)}, 'point')
        lead_to(axes, (0.0, 10.0), (0.0, 1.0), {'policy': ('a',)}, 'box')
        lead_to(axes, float('nan'), 0.5, {'policy': ('a',)}, 'nowhere')
    point, box = figure_marks(figure)
    assert (point.left + point.width / 2, point.top + point.height / 2) == pytest.approx((0.5, 0.5))
    assert (box.left, box.top, box.width, box.height) == pytest.approx((0.25, 0.25, 0.5, 0.5))


def test_too_many_episodes_for_an_address_lead_to_the_filter_that_holds_them() -> None:
    episodes = [Episode(policy='a', task='t', outcome='success', seed=n, instance=n) for n in range(MOST_IDS + 1)]
    assert these_episodes(episodes[:2]) == {'episode_id': tuple(e.episode_id for e in episodes[:2])}
    assert these_episodes(episodes, {'policy': ('a',), 'stratum': ('s',)}) == {'policy': ('a',), 'stratum': ('s',)}
    assert these_episodes(episodes) == {'policy': ('a',)}
