"""Information never helps by leaving: one reading made absent, non-finite, mistyped or short makes nothing safe."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.measure.safety.random_record import Record, corrupted, random_record

from robotrials.errors import InputError
from robotrials.measure.safety import EpisodeSafety, Scoring, score_episode
from robotrials.measure.safety.safevla import read_safevla
from robotrials.record import Contacts, Episode, Trajectory

SCORING = Scoring()
RECORDED = Path(__file__).parent / 'data' / 'libero_spatial.jsonl.xz'


def read(record: Record, folder: Path) -> tuple[Episode, Trajectory]:
    (folder / 'r.json').write_text(json.dumps(record), encoding='utf-8')
    return next(read_safevla(folder / 'r.json'))


def scored(record: Record, folder: Path) -> EpisodeSafety | None:
    """The score; None for a record that is refused."""
    try:
        return score_episode(*read(record, folder), scoring=SCORING)
    except InputError:
        return None


def check(before: EpisodeSafety, after: EpisodeSafety | None, what: str) -> None:
    if after is None or after.safe is not True:
        return
    assert before.safe is True, f'{what}: {before.safe} became safe ({before.because})'
    assert after.is_scored
    assert {s.id for s in after.active} == {s.id for s in before.active}, what


def corrupt_many(n: int, folder: Path, *, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for number in range(n // 10):
        record = random_record(rng, number)
        before = scored(record, folder)
        assert before is not None
        for _ in range(10):
            made, what = corrupted(record, rng)
            check(before, scored(made, folder), f'record {number} of seed {seed}, {what}')


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_a_corrupted_reading_of_a_random_record_is_never_safe_by_it(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    corrupt_many(10, tmp_path_factory.mktemp('r'), seed=seed)


@pytest.mark.study
def test_ten_thousand_single_corruptions_make_nothing_safe(tmp_path: Path) -> None:
    corrupt_many(10_000, tmp_path, seed=2026)


COLUMNS = ('ee_pose', 'joint_torque_nm', 'body_pose', 'gripper_command')
VALUES = (np.nan, np.inf, -np.inf, 1e12)


def corrupted_trajectory(trajectory: Trajectory, rng: np.random.Generator) -> tuple[Trajectory, str]:
    """One number of one step made non-finite or absurd, or a column that a recorder says is broken."""
    value = VALUES[int(rng.integers(len(VALUES)))]
    name = str(rng.choice([*COLUMNS, 'force_n', 'point_m', 'column', 'bystander']))
    contacts = trajectory.contacts
    assert contacts is not None
    if name in ('force_n', 'point_m'):
        column = np.array(getattr(contacts, name), dtype=float)
        place = tuple(int(rng.integers(n)) for n in column.shape)
        column[place] = value
        return dataclasses.replace(
            trajectory, contacts=dataclasses.replace(contacts, **{name: column})
        ), f'{name}{place}'
    if name in ('column', 'bystander'):
        body = str(rng.choice(list(trajectory.bodies)))
        lost = str(
            rng.choice([*COLUMNS[:3], 'contacts', 'contact_point_m', 'gripper_contact', 'time_s', f'body_pose/{body}'])
        )
        gone: dict[str, Any] = {'broken': {lost: 'not recorded at step 3'}}
        if lost in ('ee_pose', 'joint_torque_nm', 'contacts', 'gripper_contact'):
            gone[lost] = None
        return dataclasses.replace(trajectory, **gone), lost
    column = np.array(getattr(trajectory, name), dtype=float)
    place = tuple(int(rng.integers(n)) for n in column.shape)
    column[place] = value
    return dataclasses.replace(trajectory, **{name: column}), f'{name}{place} = {value}'


def recorded_pairs() -> list[tuple[Episode, Trajectory]]:
    """Four episodes of the scripted policies on LIBERO-Spatial, two of them unsafe: one pushes, one loses the bowl."""
    import lzma
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'r.jsonl'
        path.write_bytes(lzma.decompress(RECORDED.read_bytes()))
        return list(read_safevla(path))


def test_a_corrupted_reading_of_a_recorded_libero_episode_is_never_safe_by_it() -> None:
    rng = np.random.default_rng(7)
    verdicts = []
    for episode, trajectory in recorded_pairs():
        before = score_episode(episode, trajectory, scoring=SCORING)
        verdicts.append(before.safe)
        for _ in range(60):
            made, what = corrupted_trajectory(trajectory, rng)
            check(before, score_episode(episode, made, scoring=SCORING), what)
    assert sorted(map(bool, verdicts)) == [False, False, True, True]


def test_the_bowl_that_is_lost_over_the_plate_has_fallen_though_the_task_succeeds() -> None:
    """Seen in the record: it slips out of the closed fingers 7 cm over the plate, lands on it, and counts as placed."""
    (episode, trajectory) = next(p for p in recorded_pairs() if (p[0].task, p[0].policy) == ('task_0', 'careful'))
    found = score_episode(episode, trajectory, scoring=SCORING)
    assert (found.success, found.safe, found.sbu) == (True, False, True)
    assert [v.family for v in found.violations] == ['stable_grasp_maintained']
    assert found.reported['stable_grasp_height_2cm'] > 0  # by the paper's rule it never falls under where it was


def test_a_sampling_of_contacts_that_is_declared_is_missed_where_it_stops() -> None:
    (_, trajectory), *_ = recorded_pairs()
    contacts = trajectory.contacts
    assert contacts is not None
    with pytest.raises(InputError, match='contacts cover'):
        cut = Contacts(contacts.bodies, contacts.offsets[:-1], *(
            getattr(contacts, n)[: contacts.offsets[-2]] for n in ('body_a', 'body_b', 'force_n')))  # fmt: skip
        dataclasses.replace(trajectory, contacts=cut)
