"""A large store is analysed in columns and counts: no verb holds an object for each episode."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import robotrials

from robotrials.record import Episode, Outcome, Store, rows
from robotrials.show import report
from robotrials.verdict.analysis import selection

BATCH = 40
# As `robotrials VERB` runs it, in a process of its own; then the peak of its memory, in bytes, on the last line.
CHILD = """
import resource, sys
from robotrials.cli import main
try:
    main()
except SystemExit as end:
    if end.code:
        raise
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def plain_store(path: Path, n: int, *, policies: int, tasks: int) -> Path:
    """Policies on the same start states of some tasks."""
    rng = np.random.default_rng(3)
    outcomes = (Outcome.SUCCESS, Outcome.FAILURE, Outcome.TIMEOUT)
    store = Store.create(path)
    for first in range(0, n, 50_000):
        some = range(first, min(first + 50_000, n))
        kinds, times_s = rng.integers(0, 3, len(some)).tolist(), rng.uniform(1, 60, len(some)).tolist()
        store.append(
            Episode(
                policy=f'p{k % policies}', task=f't{k // policies % tasks}', outcome=outcomes[kind],
                duration_s=60.0 if outcomes[kind] is Outcome.TIMEOUT else time_s, time_cap_s=60.0,
                seed=k // (policies * tasks),
            )
            for k, kind, time_s in zip(some, kinds, times_s, strict=True)
        )  # fmt: skip
    return path


def test_a_report_builds_a_batch_of_episodes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, 'MOST_KEPT', 0)
    monkeypatch.setattr(report, 'MOST_LISTED', 0)
    monkeypatch.setattr(rows, 'BATCH', BATCH)
    store = plain_store(tmp_path / 'store', 800, policies=2, tasks=2)
    build, alive, n_built = rows.trusted_episodes, [], 0
    before = _alive()

    def counted(columns: Mapping[str, Sequence[Any]]) -> list[Episode]:
        nonlocal n_built
        made = build(columns)
        n_built += 1
        if n_built % 13 == 0:  # looking takes time
            alive.append(_alive() - before)
        return made

    monkeypatch.setattr(rows, 'trusted_episodes', counted)
    robotrials('report', store, '-o', tmp_path / 'r.json', '--resamples', 5)
    assert n_built * BATCH > 4000  # it is read several times over
    assert len(alive) > 5
    assert max(alive) <= 3 * BATCH


def _alive() -> int:
    return sum(type(each) is Episode for each in gc.get_objects())


def test_a_report_of_too_many_episodes_says_how_to_list_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = plain_store(tmp_path / 'store', 160, policies=2, tasks=2)
    whole, cut = tmp_path / 'whole.json', tmp_path / 'cut.json'
    robotrials('report', store, '-o', whole, '--resamples', 20)
    monkeypatch.setattr(report, 'MOST_LISTED', 159)
    robotrials('report', store, '-o', cut, '--resamples', 20)
    listed, unlisted = (json.loads(path.read_text(encoding='utf-8')) for path in (whole, cut))
    assert (len(listed.pop('episodes')['rows']), listed.pop('unlisted_episodes')) == (160, None)
    assert (unlisted.pop('episodes'), unlisted.pop('unlisted_episodes')) == (None, 160)
    assert listed == unlisted
    robotrials('report', store, '-o', tmp_path / 'cut.html', '--resamples', 20)
    page = (tmp_path / 'cut.html').read_text(encoding='utf-8')
    assert 'This page holds no list of episodes: 160 are too many for a page.' in page
    assert f'<code>robotrials explore {store}</code>' in page
    assert f'robotrials store ls {store} --limit 0' in page


@pytest.mark.scale
@pytest.mark.parametrize(
    ('arguments', 'most_bytes'),
    [(('report', '-o', 'r.html'), 1300), (('compare',), 900), (('tables', 'headline'), 700)],
    ids=['report', 'compare', 'headline'],
)  # fmt: skip
def test_a_further_episode_costs_few_bytes(arguments: tuple[str, ...], most_bytes: int, tmp_path: Path) -> None:
    """Between 40,000 episodes and 200,000; what the program takes itself is in both.

    A report takes more here than the 416 bytes between 96,000 and a million (docs/concepts/scale.md): a looser bound.
    """
    peaks = {}
    for n in (40_000, 200_000):
        store = plain_store(tmp_path / str(n), n, policies=4, tasks=10)
        verb, *rest = arguments
        named = [rest[0], str(store), *rest[1:]] if verb == 'tables' else [str(store), *rest]
        done = subprocess.run(
            [sys.executable, '-c', CHILD, verb, *named, '--resamples', '50'], capture_output=True, text=True,
            cwd=tmp_path, check=True,
        )  # fmt: skip
        peaks[n] = int(done.stdout.splitlines()[-1])
    few, many = peaks
    assert (peaks[many] - peaks[few]) / (many - few) < most_bytes


def test_a_plain_store_is_selected_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And equal to what episodes give: rows, order, policies and the marked reference, with edits and filters."""
    store = Store.open(plain_store(tmp_path / 'store', 900, policies=3, tasks=2))
    store.append([Episode(policy='p2', task='t0', outcome=Outcome.SUCCESS, duration_s=3.0, is_reference=True)])
    edited = next(iter(store.episodes())).episode_id
    store.edit(edited, 'set', field='outcome', value='invalid', why='camera', by='ana')
    for where in (None, {'policy': 'p1'}):
        wanted = selection.select_episodes(store.episodes(where=where))
        few = selection.select_store(store, where=where)
        with monkeypatch.context() as small:
            small.setattr(selection, 'MOST_KEPT', 0)
            small.setattr(selection, '_kept', None)
            many = selection.select_store(store, where=where)
        assert isinstance(few.episodes, tuple)
        assert isinstance(many.episodes, rows.EpisodeRows)
        assert tuple(many.episodes) == few.episodes == wanted.episodes
        assert few.every_policy == many.every_policy == ('p0', 'p1', 'p2')
        assert few.marked_reference == many.marked_reference == 'p2'
