"""Many episodes are held as columns: nothing of a report may depend on it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.cli.command import robotrials
from tests.verdict.analysis import stores

from robotrials.measure.timing.operation import Unit
from robotrials.record import Episode, Event, EventKind, Outcome, Store
from robotrials.record import rows as packed
from robotrials.record.rows import EpisodeRows, coded, distinct, join, ordered_rows, pick
from robotrials.stats.matching import match_units, units_of
from robotrials.verdict.analysis import selection
from robotrials.verdict.analysis.arm import Side, success_of
from robotrials.verdict.analysis.selection import projected_episodes, select_store
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, FailureRule

STORES: dict[str, Callable[[Path], Store]] = {
    'timed': stores.timed_store, 'items': stores.item_store, 'conditions': stores.changed_store,
    'safety': stores.safety_store,
}  # fmt: skip


def mixed(n: int, rng: np.random.Generator) -> list[Episode]:
    """Episodes with and without everything that may be absent, in no order."""

    def maybe(value: Any, absent: Any = None) -> Any:
        return value if rng.random() < 0.5 else absent

    made = []
    for k in range(n):
        items = maybe(3)
        timed = bool(rng.random() < 0.5)
        times = np.sort(rng.uniform(0, 20, int(rng.integers(0, 3)))).tolist() if timed else []
        made.append(
            Episode(
                policy=f'p{rng.integers(3)}', task=str(rng.choice(['pick', 'stäck', 'stack'])), repeat=k,
                outcome=rng.choice(list(Outcome)), duration_s=20.0 if times else maybe(float(rng.uniform(0, 60))),
                steps=maybe(7), stratum=maybe('block', ''), benchmark=maybe('bench', ''), time_cap_s=maybe(60.0),
                condition=maybe('dark', 'nominal'), condition_parameters=maybe({'lux': 3, 'b': 2.0, 'a': True}, {}),
                seed=maybe(int(rng.integers(-5, 5))), instance=maybe(int(rng.integers(0, 4))), items=items,
                success=maybe(True), score=maybe(0.5), labels=maybe({'z': 'ü', 'a': ''}, {}), attempt=maybe(2, 0),
                started_at=maybe(dt.datetime(2026, 5, 1, 9, k % 60, 7, 123, tzinfo=dt.UTC)), reason=maybe('fell', ''),
                events=tuple(Event(t_s=t, kind=EventKind.PLACEMENT) for t in times),
            )
        )  # fmt: skip
    return made


@pytest.mark.parametrize('n', [1, 2, 300])
def test_columns_give_back_the_episodes_in_the_canonical_order(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('robotrials.record.rows.BATCH', 7)
    episodes = mixed(n, np.random.default_rng(n))
    rows, expected = ordered_rows(episodes), selection.ordered_episodes(episodes)
    assert tuple(rows) == expected
    assert [hash(e.key) for e in rows] == [hash(e.key) for e in expected]
    assert rows[n - 1] == rows[-1] == expected[-1]
    assert tuple(rows[n // 2 :]) == expected[n // 2 :]
    with pytest.raises(IndexError):
        rows[n]
    chosen = list(range(n))[::-2]
    assert tuple(pick(rows, chosen)) == pick(expected, chosen)
    assert tuple(join([rows[:1], rows[1:]])) == join([expected[:1], expected[1:]])
    for names in (
        ('policy',),
        ('benchmark', 'task', 'stratum'),
        ('instance', 'is_reference', 'condition'),
        ('attempt',),
    ):
        assert distinct(rows, *names) == distinct(rows[: n // 2 + 1], *names) | distinct(rows[n // 2 :], *names)
        assert distinct(rows, *names) == distinct(expected, *names)
    assert rows[0].replace(reason='again').reason == 'again'  # a whole episode, which can be checked again


@pytest.mark.parametrize('name', STORES)
def test_a_report_of_columns_is_the_report_of_objects(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = STORES[name](tmp_path / 'store')
    told = []
    for most_kept, batch in ((selection.MOST_KEPT, packed.BATCH), (0, 3)):
        monkeypatch.setattr(selection, 'MOST_KEPT', most_kept)
        monkeypatch.setattr(packed, 'BATCH', batch)  # safety scores and starts, too, are built as they are read
        assert isinstance(select_store(store).episodes, EpisodeRows) == (most_kept == 0)
        robotrials('report', store.path, '-o', tmp_path / 'r.json', '--resamples', 60)
        told.append(json.loads((tmp_path / 'r.json').read_text(encoding='utf-8')))
    assert told[0] == told[1]


def test_an_ordinary_episode_takes_under_a_hundred_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Id, seed, duration, success and a byte for each name that varies; an object takes over 400."""
    import tracemalloc

    monkeypatch.setattr(selection, 'MOST_KEPT', 0)
    store, n = Store.create(tmp_path / 's'), 4000
    store.append(
        Episode(
            policy=f'p{k % 4}', task=f't{k % 7}', outcome=Outcome.SUCCESS, duration_s=1.0 + k, seed=k, time_cap_s=1e6,
            instruction='put the bowl on the plate', labels={'lab': 'north'}, started_at=stores.START,
        )
        for k in range(n)
    )  # fmt: skip
    select_store(store)
    tracemalloc.start()
    chosen = select_store(store).episodes
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(chosen, EpisodeRows)
    arrow = sum(array.nbytes for array in chosen._columns.varying.values())
    assert (arrow + kept) / n < 100


def plain(n: int, rng: np.random.Generator) -> list[Episode]:
    """Timed episodes without items or events, some without a cap, a start, a predicate or a word on mending."""

    def maybe(value: Any, share: float = 0.5) -> Any:
        return value if rng.random() < share else None

    return [
        Episode(
            policy=f'p{k % 2}', task=f't{rng.integers(2)}', outcome=rng.choice(list(Outcome)), repeat=k,
            duration_s=float(rng.choice([5.0, 20.0, 59.8, 60.0])), time_cap_s=maybe(60.0), success=maybe(True, 0.2),
            seed=maybe(int(rng.integers(0, 9)), 0.8), instance=maybe(int(rng.integers(0, 3)), 0.3),
            is_unrecoverable=maybe(bool(rng.random() < 0.5)), session=maybe('am') or '',
        )
        for k in range(n)
    ]  # fmt: skip


@pytest.mark.parametrize('unit', list(Unit))
@pytest.mark.parametrize('failure', list(FailureRule))
def test_what_columns_say_of_runs_is_what_episodes_say(unit: Unit, failure: FailureRule) -> None:
    rng = np.random.default_rng(5)
    episodes = plain(400, rng)
    readings = []
    for many in (False, True):
        every = ordered_rows(episodes) if many else selection.ordered_episodes(episodes)
        assert isinstance(every, EpisodeRows) == many
        shown = projected_episodes(every, AnalysisPlan(failure=failure))
        codes, kinds = coded(shown, 'policy', 'task')
        lost = [replace(e, outcome=Outcome.INVALID) for e in episodes[:2]]  # one of a start that others share
        sides = {
            p: Side(p, {'c': pick(shown, np.flatnonzero(codes == kinds.index((p, 't0'))))}, unit, missing={'c': lost})
            for p in ('p0', 'p1')
        }
        found = [facts_of(side) for side in sides.values()]
        a, b = (units_of(side.starts('c'), len(side.cells['c']) + 2) for side in sides.values())
        match = match_units(a, b, 'auto')
        found.append([match.shared_a.tolist(), match.shared_b.tolist(), match.rest_a.tolist(), match.rest_b.tolist()])
        readings.append(found)
    assert readings[0] == readings[1]


def facts_of(side: Side) -> list[Any]:
    own, starts = side.operations('c'), side.starts('c')
    times, followed = side.race('c', items=1, until_s=50.0)
    chosen = own.take([3, 1, 3])
    return [
        own.durations_s.tolist(), own.observed.tolist(), own.episode.tolist(), own.cause, own.scored.tolist(),
        own.n_invalid, tuple(own.scenes or ()), tuple(own.units or ()), own.unit_codes.tolist(),
        None if own.lost is None else own.lost.tolist(), tuple(own.by_unit().units or ()), tuple(starts),
        units_of(starts, len(starts)).codes.tolist(), tuple(units_of(starts, len(starts)).labels),
        times.tolist(), followed.tolist(), side.shares('c', success_of).tolist(), sorted(side.caps_s('c')),
        side.fewest_items('c'), chosen.durations_s.tolist(), tuple(chosen.units or ()), chosen.cause,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ('name', 'value', 'words'),
    [
        ('duration_s', -5.0, 'duration_s is -5.0'),
        ('duration_s', float('nan'), 'duration_s is nan'),
        ('time_cap_s', 0.0, 'time_cap_s is 0.0'),
        ('items_placed', 3, 'more than items = 1'),
        ('outcome', 'great', "outcome is 'great'"),
        ('labels', '[1]', 'wanted a JSON object'),
        ('policy', '', 'policy is empty'),
    ],
)
def test_a_row_that_breaks_a_rule_is_named_however_many_there_are(
    name: str, value: object, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part whose digest fits, because its log was made for it: many rows are refused as few are."""
    from robotrials.errors import StoreError
    from robotrials.record import Episode, Store
    from robotrials.record.addition import Addition
    from robotrials.record.rows import EPISODE_SCHEMA, EVENT_SCHEMA, episodes_to_arrow
    from robotrials.verdict.analysis.selection import select_store

    table = episodes_to_arrow([Episode(policy='a', task='t', outcome='success', seed=k, items=1) for k in range(40)])  # type: ignore[arg-type]
    values = table[name].to_pylist()
    values[20] = value
    field = EPISODE_SCHEMA.field(name)
    table = table.set_column(table.column_names.index(name), field, pa.array(values, field.type))
    store = Store.create(tmp_path / 'store')
    Addition(store).finish([table], EVENT_SCHEMA.empty_table())
    for most in (10, 1000):
        monkeypatch.setattr('robotrials.verdict.analysis.selection.MOST_KEPT', most)
        with pytest.raises(StoreError, match=words):
            select_store(store)
