"""Every kind of damage is found, named by file, and costs nothing but what it touched."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robotrials.errors import StoreError
from robotrials.record import Contacts, Episode, Event, Provenance, Store, Trajectory
from robotrials.record import part as part_module
from robotrials.record import rows as schema_module
from robotrials.record import verify as verify_module
from robotrials.record.folder import Folder
from robotrials.record.log import Finding, FindingKind, commit
from robotrials.record.part import EntryKind, PartInfo, write_table
from robotrials.record.rows import EPISODE_SCHEMA, SCHEMA_VERSION, episodes_to_arrow
from robotrials.record.trajectory import trajectories_equal
from robotrials.record.verify import verify_store


def episode(seed: int) -> Episode:
    return Episode(
        policy='p', task='t', outcome='success', duration_s=3.0, seed=seed, events=(Event(1.0, 'placement'),)
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three parts of two episodes, with events and trajectories."""
    made = Store.create(tmp_path / 's')
    origin = made.write_provenance(Provenance(cpu='x'))
    for first in (0, 2, 4):
        batch = [episode(first).replace(provenance_id=origin), episode(first + 1)]
        steps = Trajectory(time_s=np.arange(50.0), joint_position_rad=np.random.default_rng(first).normal(size=(50, 7)))
        made.append(batch, trajectories={batch[0].key: steps})
    assert verify_store(made.path).findings == ()
    return made


def files(store: Store, folder: str) -> list[Path]:
    return sorted((store.path / folder).iterdir())


def damage_found(store: Store) -> list[Finding]:
    return [f for f in verify_store(store.path).findings if f.is_damage]


@pytest.mark.parametrize('folder', ['episodes', 'events', 'trajectories'])
@pytest.mark.parametrize('keep', [0.0, 0.5, 0.99])
def test_a_truncated_part_is_named(store: Store, folder: str, keep: float) -> None:
    victim = files(store, folder)[1]
    content = victim.read_bytes()
    victim.write_bytes(content[: int(len(content) * keep)])
    (finding,) = damage_found(store)
    assert (finding.kind, finding.path) == (FindingKind.DAMAGED, victim)
    with pytest.raises(StoreError, match=victim.name):
        list(store.trajectories())


@pytest.mark.parametrize('folder', ['episodes', 'events', 'trajectories'])
def test_any_flipped_byte_is_found(store: Store, folder: str) -> None:
    victim = files(store, folder)[1]
    content = victim.read_bytes()
    for position in np.linspace(0, len(content) - 1, 23).astype(int):
        victim.write_bytes(content[:position] + bytes([content[position] ^ 0x40]) + content[position + 1 :])
        assert [f.path for f in damage_found(store)] == [victim], position
    victim.write_bytes(content)
    assert damage_found(store) == []


@pytest.mark.parametrize('folder', ['events', 'trajectories', 'provenance'])
def test_a_missing_file_is_named_with_who_names_it(store: Store, folder: str) -> None:
    victim = files(store, folder)[0]
    victim.unlink()
    (finding,) = damage_found(store)
    assert (finding.kind, finding.path) == (FindingKind.MISSING, victim)
    told = {'events': 'it held the 2 events of 2 episodes', 'trajectories': files(store, 'episodes')[0].name}
    assert told.get(folder, 'the log names it') in finding.detail


def test_damage_in_one_part_leaves_the_others_readable(store: Store) -> None:
    files(store, 'trajectories')[1].unlink()
    assert [e.seed for e in store.episodes()] == [0, 1, 2, 3, 4, 5]
    assert store.trajectory(next(e for e in store.episodes() if e.seed == 0)) is not None
    verification = verify_store(store.path)
    assert (verification.n_episodes, verification.n_trajectories) == (6, 2)


def test_foreign_files_are_named(store: Store) -> None:
    (store.path / 'episodes' / 'notes.txt').write_text('hello')
    (store.path / 'plot.png').write_bytes(b'x')
    foreign = {f.path.name for f in damage_found(store) if f.kind is FindingKind.FOREIGN}
    assert foreign == {'notes.txt', 'plot.png'}
    assert len(list(store.episodes())) == 6


def test_a_parquet_file_of_somebody_else_does_not_count(store: Store) -> None:
    pq.write_table(pa.table({'a': [1]}), store.path / 'episodes' / 'theirs.parquet')
    (finding,) = damage_found(store)
    assert (finding.kind, finding.path.name) == (FindingKind.FOREIGN, 'theirs.parquet')
    assert len(list(store.episodes())) == 6


def write_version(store: Store, version: int, table: pa.Table, events: pa.Table | None = None) -> str:
    """A part as a robotrials of another version would have written it."""
    with commit(store.path) as under_way:
        companion = ''
        if events is not None:
            meta: dict[str, object] = {'schema_version': version}
            companion = under_way.add_part('events', lambda sink: write_table(events, sink, metadata=meta))
        n_events = events.num_rows if events is not None else 0
        meta = {'schema_version': version, 'n_events': n_events, 'events': companion, 'trajectories': []}
        name = under_way.add_part('episodes', lambda sink: write_table(table, sink, metadata=meta))
        part = PartInfo(store.path / 'episodes' / name, table.num_rows, version, n_events, companion, ())
        under_way.finish(EntryKind.APPEND, {'parts': [part.as_json()]})
    return name


def test_a_newer_schema_asks_for_a_newer_robotrials(store: Store) -> None:
    name = write_version(store, 99, episodes_to_arrow([episode(9)]))
    (finding,) = damage_found(store)
    assert (finding.kind, finding.path.name) == (FindingKind.SCHEMA, name)
    with pytest.raises(StoreError, match=r'schema version 99.*upgrade robotrials'):
        list(store.episodes())


def test_an_older_schema_is_migrated_on_reading_and_by_compaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = episodes_to_arrow([episode(9).replace(events=())]).drop_columns(['repeat', 'max_score', 'steps'])
    old = old.rename_columns(['duration' if n == 'duration_s' else n for n in old.column_names])
    name = write_version(store, 0, old)
    (finding,) = damage_found(store)
    assert (finding.kind, finding.path.name) == (FindingKind.SCHEMA, name)
    assert 'no migration' in finding.detail

    def to_version_1(table: pa.Table) -> pa.Table:
        table = table.rename_columns(['duration_s' if n == 'duration' else n for n in table.column_names])
        table = table.append_column(EPISODE_SCHEMA.field('repeat'), pa.array([0] * table.num_rows, pa.int32()))
        table = table.append_column(EPISODE_SCHEMA.field('max_score'), pa.nulls(table.num_rows, pa.float64()))
        return table.select([n for n in EPISODE_SCHEMA.names if n != 'steps'])

    monkeypatch.setitem(schema_module.EPISODE_MIGRATIONS, 0, to_version_1)
    assert damage_found(store) == []
    assert [e.seed for e in store.episodes()] == [0, 1, 2, 3, 4, 5, 9]
    assert [e.seed for e in store.episodes(where={'duration_s': 3.0, 'seed': [5, 9]})] == [5, 9]
    from robotrials.record.maintain import compact_store

    compact_store(store.path, stale_after_s=0)
    monkeypatch.delitem(schema_module.EPISODE_MIGRATIONS, 0)
    assert [e.seed for e in store.episodes()] == [0, 1, 2, 3, 4, 5, 9]


def test_parts_of_the_first_schema_are_read_with_absent_steps_and_unnamed_events(store: Store) -> None:
    one = episode(9)
    first = episodes_to_arrow([one]).drop_columns(['steps'])
    events = schema_module.events_to_arrow([one]).drop_columns(['name'])
    write_version(store, 1, first, events)
    assert damage_found(store) == []
    assert [e for e in store.episodes() if e.seed == 9] == [one]


def test_parts_of_the_second_schema_have_contacts_without_points(store: Store) -> None:
    contacts = Contacts.from_steps([[('hand', 'cube', 1.0)], []])
    plain, pointed = (
        Trajectory(time_s=np.array([0.0, 0.1]), contacts=dataclasses.replace(contacts, point_m=points))
        for points in (None, np.array([[0.1, 0.2, np.nan]]))
    )
    old, new = episode(9), episode(10)
    store.append([old], trajectories={old.key: plain})
    part = store.parts()[-1]
    assert not any('point' in name for name in pq.read_schema(store.path / 'trajectories' / part.trajectories[0]).names)
    write_version(store, 2, episodes_to_arrow([episode(11)]), schema_module.events_to_arrow([episode(11)]))
    store.append([new], trajectories={new.key: pointed})
    assert damage_found(store) == []
    assert [e for e in store.episodes() if e.seed == 11] == [episode(11)]
    read = {e.seed: t for e, t in store.trajectories()}
    assert trajectories_equal(read[9], plain)
    assert trajectories_equal(read[10], pointed)


def test_a_row_that_breaks_the_rules_is_named_by_file_row_and_field(store: Store) -> None:
    table = episodes_to_arrow([episode(7), episode(8)])
    bad = table.set_column(table.column_names.index('duration_s'), 'duration_s', pa.array([3.0, -2.0]))
    name = write_version(store, SCHEMA_VERSION, bad)
    with pytest.raises(StoreError, match=rf'{name} .*row 1: duration_s is -2\.0, wanted'):
        list(store.episodes())
    (finding,) = damage_found(store)
    assert (finding.kind, finding.path.name) == (FindingKind.RECORD, name)
    assert 'row 1: duration_s is -2.0' in finding.detail


def test_one_key_with_two_contents_is_a_clash(store: Store) -> None:
    copy = Store.create(store.path.with_name('copy'))
    copy.append([episode(0).replace(duration_s=4.0)])
    for folder in ('episodes', 'events', 'log'):  # as whoever copies folders over each other would
        shutil.copytree(copy.path / folder, store.path / folder, dirs_exist_ok=True)
    findings = damage_found(store)
    assert {f.kind for f in findings} == {FindingKind.CLASH}
    assert episode(0).episode_id in findings[0].detail


def test_a_broken_trial_description_is_named(store: Store) -> None:
    path = store.path / 'trial.json'
    values = json.loads(path.read_text())
    for content in ('{', json.dumps({**values, 'format': 'other'}), json.dumps({**values, 'schema_version': 99})):
        path.write_text(content)
        with pytest.raises(StoreError, match=r'trial\.json'):
            Store.open(store.path)


def test_damaged_provenance_is_named(store: Store) -> None:
    (victim,) = files(store, 'provenance')
    victim.write_text(victim.read_text().replace('"x"', '"y"'))
    (finding,) = damage_found(store)
    assert (finding.kind, finding.path) == (FindingKind.DAMAGED, victim)
    assert part_module.PART_NAME.match(victim.name) is None


@pytest.mark.parametrize('is_before', [True, False])
@pytest.mark.parametrize('moment', ['announced', 'read_ledger', '_check_parts'])
def test_what_a_running_trial_adds_meanwhile_is_no_damage(
    store: Store, moment: str, is_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = getattr(verify_module, moment)
    seeds = iter(range(100, 200))

    def adding(*args: Any, **kwargs: Any) -> Any:
        done = None if is_before else step(*args, **kwargs)
        one = episode(next(seeds))
        origin = store.write_provenance(Provenance(cpu=f'{one.seed}'))
        store.append([one.replace(provenance_id=origin)], media={f'episodes/{one.seed}/film.mp4': b'film'})
        return step(*args, **kwargs) if is_before else done

    monkeypatch.setattr(verify_module, moment, adding)
    assert verify_store(store.path).findings == ()


def test_a_file_that_is_shown_and_logged_while_files_are_listed_is_no_damage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list has the film; the commit's promise is read after it, and gone once the log has it."""
    listed = Folder.files

    def late(folder: Folder, name: str = '') -> Iterator[str]:
        yield from listed(folder, name)
        store.append([episode(100)], media={'episodes/100/film.mp4': b'film'})
        yield 'media/episodes/100/film.mp4'

    monkeypatch.setattr(Folder, 'files', late)
    assert verify_store(store.path).findings == ()
