"""Summaries that merge: the same whatever the order and the parts, and equal to what is counted directly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError, StoreError
from robotrials.record import Episode, Outcome, Store
from robotrials.record.counted import merge_summaries, summarize_episodes, summarize_stores
from robotrials.testing import strategies


def episodes(n: int, *, first: int = 0) -> list[Episode]:
    rng = np.random.default_rng(first)
    return [
        Episode(
            policy='pq'[seed % 2], task='t', outcome=(Outcome.SUCCESS, Outcome.TIMEOUT, Outcome.INVALID)[seed % 3],
            duration_s=float(rng.lognormal(3, 1)), seed=seed,
        )
        for seed in range(first, first + n)
    ]  # fmt: skip


@given(rows=st.lists(strategies.episodes(), max_size=12), cut=st.integers(0, 12), order=st.randoms())
def test_parts_in_any_order_merge_to_the_whole(rows: list[Episode], cut: int, order: object) -> None:
    whole = summarize_episodes(rows)
    shuffled = list(rows)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    parts = summarize_episodes(shuffled[:cut]), summarize_episodes(shuffled[cut:])
    assert merge_summaries(*parts) == merge_summaries(*reversed(parts)) == whole


def test_counts_means_and_quantiles_are_those_of_the_episodes() -> None:
    rows = episodes(3000)
    (cell,) = (c for key, c in summarize_episodes(rows).items() if key[0] == 'p')
    own = [e for e in rows if e.policy == 'p']
    assert cell.outcomes == Counter(e.outcome for e in own)
    assert cell.n_valid == sum(e.is_valid for e in own)
    times_s = np.sort([e.duration_s or 0.0 for e in own if e.outcome is Outcome.SUCCESS])
    assert cell.mean_success_s == pytest.approx(times_s.mean(), rel=1e-12)
    for level in (0.1, 0.5, 0.9, 1.0):
        exact = times_s[int(np.ceil(level * len(times_s))) - 1]
        assert exact <= (cell.success_quantile_s(level) or 0.0) * (1 + 1e-9) <= exact * 1.021


def test_a_cell_without_success_has_no_time_rather_than_zero() -> None:
    (cell,) = summarize_episodes([Episode(policy='p', task='t', outcome=Outcome.TIMEOUT, duration_s=5.0)]).values()
    assert cell.mean_success_s is None
    assert cell.success_quantile_s(0.5) is None
    with pytest.raises(InputError, match='level'):
        cell.success_quantile_s(0.0)


def test_several_stores_are_summed_and_an_episode_in_two_is_refused(tmp_path: Path) -> None:
    rows = episodes(60)
    for name, part in (('a', rows[:30]), ('b', rows[30:]), ('c', rows[20:40])):
        Store.create(tmp_path / name).append(part)
    assert summarize_stores([tmp_path / 'a', tmp_path / 'b']) == summarize_episodes(rows)
    with pytest.raises(StoreError, match='another of these stores'):
        summarize_stores([tmp_path / 'a', tmp_path / 'c'])


def test_edits_and_reruns_count_as_in_every_analysis(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    broken = Episode(policy='p', task='t', outcome=Outcome.INVALID, duration_s=1.0, seed=1)
    store.append([broken])
    store.append([broken.replace(attempt=1, outcome=Outcome.SUCCESS)])
    other = Episode(policy='p', task='t', outcome=Outcome.SUCCESS, duration_s=1.0, seed=2)
    store.append([other])
    store.edit(other.episode_id, 'drop', by='ana', why='wrong scene')
    (cell,) = summarize_stores([store.path]).values()
    assert cell.outcomes == {Outcome.SUCCESS: 1}
