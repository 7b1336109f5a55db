"""Random histories of a store, checked against a small model of it: append, edit, merge, compact, repair, kill.

The model is a set of episodes, the edits in their order, and what was acknowledged; the store must agree after every
step, whoever merged whom, and verify must find nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.record.crash_disk import Crash, CrashDisk
from tests.record.test_crash_disk import QuickDisk
from tests.record.test_log import episode

from robotrials.errors import InputError, StoreError
from robotrials.record import Episode, Outcome, Store, Unblinding
from robotrials.record.blinding import write_unblinding
from robotrials.record.folder import replaced_disk
from robotrials.record.maintain import compact_store, merge_stores
from robotrials.record.verify import repair_store, verify_store

STORES = 3
Key = tuple[str, int]


class Model:
    """What a store must say: recorded episodes, and the edits of each in order."""

    def __init__(self) -> None:
        self.recorded: dict[Key, Episode] = {}
        self.edits: list[tuple[str, Key, str, str]] = []  # time, key, operation, reason
        self.is_closed = False

    def copy_into(self, other: Model) -> None:
        other.recorded.update(self.recorded)
        other.edits = sorted({*other.edits, *self.edits})
        other.is_closed = other.is_closed or self.is_closed

    def shown(self) -> dict[Key, tuple[str, bool]]:
        """Key -> reason and whether it is dropped."""
        result = {key: (one.reason, False) for key, one in self.recorded.items()}
        for _, key, operation, reason in self.edits:
            before = result[key]
            result[key] = (reason, before[1]) if operation == 'set' else (before[0], operation == 'drop')
        return result

    def counted(self) -> set[Key]:
        shown = self.shown()
        result = set()
        for episode_id in {key[0] for key in self.recorded}:
            keys = sorted(k for k in self.recorded if k[0] == episode_id)
            present = [k for k in keys if not shown[k][1]]
            valid = [k for k in present if self.recorded[k].is_valid]
            result.update(valid[:1] or present[-1:])
        return result


class History:
    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.folder = folder
        self.stores = [Store.create(folder / str(n), trial_id='t') for n in range(STORES)]
        self.models = [Model() for _ in range(STORES)]
        self.steps = 0

    def step(self) -> str:
        name = str(self.rng.choice(['append', 'rerun', 'edit', 'merge', 'compact', 'kill', 'look', 'close', 'repair']))
        number = int(self.rng.integers(STORES))
        getattr(self, name)(self.stores[number], self.models[number])
        self.steps += 1
        return f'{name} {number}'

    def append(self, store: Store, model: Model) -> None:
        outcome = Outcome.INVALID if self.rng.random() < 0.3 else Outcome.SUCCESS
        one = episode(int(self.rng.integers(8)), outcome=outcome)
        held = [m for m in self.models if one.key in m.recorded]
        if held:
            one = held[0].recorded[one.key]  # the same attempt has the same content wherever it is recorded
        self.add(store, model, one)

    def add(self, store: Store, model: Model, one: Episode) -> None:
        """Append, unless the trial is closed or the attempt is there, which is refused."""
        if model.is_closed or one.key in model.recorded:
            with pytest.raises(StoreError, match='was closed by' if model.is_closed else 'is there already'):
                store.append([one])
        else:
            store.append([one])
            model.recorded[one.key] = one

    def rerun(self, store: Store, model: Model) -> None:
        if not model.recorded:
            return
        keys = sorted(model.recorded)
        episode_id, _ = keys[self.rng.integers(len(keys))]
        attempt = 1 + max(a for m in self.models for i, a in m.recorded if i == episode_id)
        if attempt < 5:
            first = model.recorded[next(k for k in keys if k[0] == episode_id)]
            again = first.replace(attempt=attempt, outcome=Outcome.SUCCESS)
            self.add(store, model, again)

    def edit(self, store: Store, model: Model) -> None:
        if not model.recorded:
            return
        keys = sorted(model.recorded)
        key = keys[self.rng.integers(len(keys))]
        operation = str(self.rng.choice(['set', 'drop', 'undrop']))
        reason = f'r{self.steps}' if operation == 'set' else ''
        field = {'field': 'reason', 'value': reason} if operation == 'set' else {}
        if model.is_closed:
            with pytest.raises(InputError, match='an edit after closing needs a second name'):
                store.edit(key[0], operation, by='ana', why='x', attempt=key[1], **field)  # type: ignore[arg-type]
            field['approved_by'] = 'kim'
        store.edit(key[0], operation, by='ana', why='x', attempt=key[1], **field)  # type: ignore[arg-type]
        at = max(e.at for _, e in store.ledger().entries if e.kind == 'edit')
        model.edits.append((at, key, operation, reason))

    def merge(self, store: Store, model: Model) -> None:
        other = int(self.rng.integers(STORES))
        if self.stores[other].path != store.path:
            merge_stores(store.path, self.stores[other].path)
            self.models[other].copy_into(model)

    def compact(self, store: Store, model: Model) -> None:
        compact_store(store.path, stale_after_s=float(self.rng.choice([0.0, 3600.0])), rows_a_part=4)

    def look(self, store: Store, model: Model) -> None:
        assert store.log_look('score')

    def close(self, store: Store, model: Model) -> None:
        opening = Unblinding(trial_id='t', by='kim', at='now', policies={'p': 'p'})
        if model.is_closed:
            with pytest.raises(StoreError, match='it closes once'):
                write_unblinding(store.path, opening)
        else:
            write_unblinding(store.path, opening)
            model.is_closed = True

    def repair(self, store: Store, model: Model) -> None:
        assert repair_store(store.path, by='ana', why='to be sure').is_empty

    def kill(self, store: Store, model: Model) -> None:
        """A writer or a compaction ends at some call; what it was at may be there, whole, or not at all."""
        one = episode(100 + self.steps)
        action = [lambda: store.append([one]), lambda: compact_store(store.path, stale_after_s=0)][self.rng.integers(2)]
        disk = CrashDisk(store.path, at=int(self.rng.integers(1, 60)))
        try:
            with replaced_disk(disk):
                action()
        except StoreError:
            assert model.is_closed
        except Crash:
            copy = self.folder / f'left-{self.steps}'
            disk.left_after(copy, rng=self.rng if self.rng.random() < 0.5 else None)
            shutil.rmtree(store.path)
            shutil.move(copy, store.path)
        if one.key in {e.key for e in store.episodes(attempts='all')}:
            model.recorded[one.key] = one

    def check(self) -> None:
        for store, model in zip(self.stores, self.models, strict=True):
            edits = store.edits()
            found = {e.key: (e.reason, edits.is_dropped(*e.key)) for e in store.episodes(attempts='all', dropped=True)}
            assert found == model.shown()
            assert {e.key for e in store.episodes()} == model.counted()
            assert bool(store.unblindings().by_trial) == model.is_closed

    def verify(self) -> None:
        for store in self.stores:
            damage = [f for f in verify_store(store.path).findings if f.is_damage and f.kind != 'clash']
            assert damage == []


def run_history(folder: Path, *, seed: int, steps: int) -> None:
    history = History(folder, seed)
    told: list[str] = []
    try:
        for number in range(steps):
            told.append(history.step())
            history.check()
            if number % 10 == 9:
                history.verify()
    except AssertionError as error:
        raise AssertionError(f'seed {seed}: {", ".join(told)}') from error


@pytest.mark.parametrize('seed', range(2))
def test_a_random_history_agrees_with_the_model(tmp_path: Path, seed: int) -> None:
    with replaced_disk(QuickDisk()):
        run_history(tmp_path, seed=seed, steps=40)


@pytest.mark.crash
@pytest.mark.parametrize('seed', range(100, 114))
def test_a_long_random_history_agrees_with_the_model(tmp_path: Path, seed: int) -> None:
    with replaced_disk(QuickDisk()):
        run_history(tmp_path, seed=seed, steps=150)


def test_an_episode_of_two_merged_stores_survives_compaction_once(tmp_path: Path) -> None:
    """A counterexample that a random history found: both rows came into one part, and neither counted any more."""
    one, two = Store.create(tmp_path / '1'), Store.create(tmp_path / '2')
    for store in (one, two):
        store.append([episode(0)])
    merge_stores(one.path, two.path)
    compact_store(one.path, stale_after_s=0)
    for attempts in ('counted', 'all'):
        (left,) = one.episodes(attempts=attempts)
        assert left == episode(0), 'with its events once'
    assert verify_store(one.path).n_episodes == 1


def test_stores_merged_both_ways_keep_their_own_descriptions(tmp_path: Path) -> None:
    """A counterexample that a random history found: each log then holds the creation of the other store."""
    one, two = Store.create(tmp_path / '1'), Store.create(tmp_path / '2')
    merge_stores(one.path, two.path)
    merge_stores(two.path, one.path)
    assert verify_store(one.path).findings == verify_store(two.path).findings == ()
