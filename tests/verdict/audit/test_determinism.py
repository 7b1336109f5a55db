from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError, NotEstimable
from robotrials.record import Contacts, Episode, Outcome, Provenance, Store, Trajectory
from robotrials.verdict.audit import Channel, compare_traces, compare_trajectories
from robotrials.verdict.audit.determinism import B3_ITEMS, Grade, RepeatControl, ReproductionTarget

STEPS = 100


def trace(**changes: Any) -> Trajectory:
    steps = np.arange(STEPS, dtype=float)
    columns: dict[str, Any] = {
        'time_s': steps * 0.05,
        'simulator_state': np.stack([np.sin(steps), np.cos(steps)], axis=1),
        'contacts': Contacts.from_steps([[('bowl', 'table', 1.0)]] * STEPS),
        'frame_hash': {'agentview': np.arange(STEPS, dtype=np.uint64)},
        'action_raw': np.ones((STEPS, 7)),
        'action_processed': np.ones((STEPS, 7)),
        'reward': np.zeros(STEPS),
        'done': np.zeros(STEPS, dtype=bool),
        **changes,
    }
    return Trajectory(**columns)


def diverged(**starts: int) -> Trajectory:
    """A trace whose named columns differ from `trace()` from a step on, by a growing amount."""
    base = trace()
    changes: dict[str, Any] = {}
    for name, start in starts.items():
        if name == 'frame_hash':
            hashes = np.arange(STEPS, dtype=np.uint64)
            hashes[start:] += np.uint64(1000)
            changes[name] = {'agentview': hashes}
        elif name == 'contacts':
            step = [('bowl', 'table', 1.0)]
            changes[name] = Contacts.from_steps([step] * start + [[*step, ('bowl', 'gripper', 2.0)]] * (STEPS - start))
        elif name == 'done':
            changes[name] = np.arange(STEPS) >= start
        else:
            column = np.array(getattr(base, name), dtype=float)
            column[start:] += (1e-12 * 10.0 ** np.arange(0, STEPS - start) ** 0.5).reshape(-1, *[1] * (column.ndim - 1))
            changes[name] = column
    return trace(**changes)


def episode(number: int, *, success: bool, **more: Any) -> Episode:
    outcome = Outcome.SUCCESS if success else Outcome.FAILURE
    return Episode(
        policy='p', task=f'task_{number}', seed=number, outcome=outcome, duration_s=5.0, success=success, **more
    )


def run(number: int, first: Trajectory, *, success: bool = True) -> list[tuple[Episode, Trajectory]]:
    return [(episode(i, success=success), first) for i in range(number)]


FIGURE_6 = {'simulator_state': 0, 'frame_hash': 54, 'action_raw': 58, 'action_processed': 58, 'done': 88}


def test_first_divergences_are_those_that_were_planted() -> None:
    """The propagation of Figure 6: state at step 0, pixels at 54, actions at 58, done at 88."""
    found = compare_trajectories(trace(), diverged(**FIGURE_6))
    assert found.first == {
        Channel.STATE: 0, Channel.PIXELS: 54, Channel.ACTION_RAW: 58, Channel.ACTION_PROCESSED: 58, Channel.DONE: 88,
    }  # fmt: skip
    assert not found.is_bitwise_equal
    assert Channel.REWARD in found.compared


def test_growth_is_the_l_infinity_distance() -> None:
    a, b = trace(), diverged(simulator_state=10)
    growth = compare_trajectories(a, b).growth[Channel.STATE]
    assert np.all(growth[:10] == 0)
    assert a.simulator_state is not None
    assert b.simulator_state is not None
    assert growth == pytest.approx(np.abs(a.simulator_state - b.simulator_state).max(axis=1))


def test_a_trace_equals_itself_with_nan_and_signed_zeros_told_apart() -> None:
    state = np.full((STEPS, 2), np.nan)
    assert compare_trajectories(trace(simulator_state=state), trace(simulator_state=state.copy())).is_bitwise_equal
    zero, negative = np.zeros((STEPS, 7)), np.zeros((STEPS, 7))
    negative[3] = -0.0
    found = compare_trajectories(trace(action_raw=zero), trace(action_raw=negative))
    assert found.first == {Channel.ACTION_RAW: 3}


def test_contacts_differ_by_pair_or_force_not_by_order() -> None:
    one = Contacts.from_steps([[('a', 'b', 1.0), ('c', 'd', 2.0)]] * STEPS)
    turned = Contacts.from_steps([[('d', 'c', 2.0), ('b', 'a', 1.0)]] * STEPS)
    assert compare_trajectories(trace(contacts=one), trace(contacts=turned)).is_bitwise_equal
    assert compare_trajectories(trace(), diverged(contacts=7)).first == {Channel.CONTACTS: 7}


def test_unrecorded_channels_are_named_not_passed() -> None:
    found = compare_trajectories(trace(simulator_state=None), trace(simulator_state=None, frame_hash={}))
    assert {Channel.STATE, Channel.PIXELS} <= set(found.missing)
    assert Channel.STATE not in found.growth


def test_frames_give_the_mean_absolute_pixel_difference() -> None:
    images = np.zeros((STEPS, 4, 4, 3), dtype=np.uint8)
    other = images.copy()
    other[60:, 0, 0, 0] = 48
    found = compare_trajectories(trace(), trace(), frames=({'cam': images}, {'cam': other}))
    assert found.first == {Channel.PIXELS: 60}
    assert found.growth[Channel.PIXELS][60] == pytest.approx(48 / 48)
    with pytest.raises(InputError, match='no camera'):
        compare_trajectories(trace(), trace(), frames=({'left': images}, {'right': other}))


def test_lengths_and_widths() -> None:
    short = Trajectory(time_s=np.arange(5.0), reward=np.zeros(5))
    found = compare_trajectories(short, Trajectory(time_s=np.arange(7.0), reward=np.zeros(7)))
    assert found.first == {Channel.LENGTH: 5}
    with pytest.raises(InputError, match='widths'):
        compare_trajectories(trace(action_raw=np.ones((STEPS, 3))), trace())


FULL = Provenance(**dict.fromkeys(B3_ITEMS.values(), 'known'))  # type: ignore[arg-type]


def grades(found: Any) -> dict[ReproductionTarget, Grade]:
    return {g.target: g.grade for g in found.grades}


def test_identical_closed_loop_runs_meet_all_four_targets() -> None:
    found = compare_traces(
        run(5, trace()), run(5, trace()), control=run(5, trace()), closed_loop=True, provenance=(FULL, FULL)
    )
    assert set(grades(found).values()) == {Grade.MET}
    assert found.control is RepeatControl.IDENTICAL
    assert not found.missing_metadata


def test_missing_control_and_loop_are_said() -> None:
    found = compare_traces(run(5, trace()), run(5, trace()))
    assert found.control is RepeatControl.MISSING
    assert set(grades(found).values()) == {Grade.NOT_SHOWN}
    assert all('closed-loop' in g.evidence for g in found.grades)
    assert 'checkpoint' in found.missing_metadata


def test_an_open_loop_replay_is_no_evidence() -> None:
    found = compare_traces(run(3, trace()), run(3, trace()), closed_loop=False)
    assert set(grades(found).values()) == {Grade.NOT_SHOWN}
    suspected = compare_traces(run(3, trace()), run(3, diverged(simulator_state=0, frame_hash=10)))
    assert suspected.is_closed_loop is False
    assert all(t.open_loop_suspected for t in suspected.traces)


def test_diverging_runs_with_equal_outcomes_meet_the_lesser_targets() -> None:
    found = compare_traces(
        run(10, trace()), run(10, diverged(**FIGURE_6)), control=run(10, trace()), closed_loop=True,
        provenance=(FULL, FULL),
    )  # fmt: skip
    assert grades(found) == {
        ReproductionTarget.BITWISE: Grade.NOT_MET, ReproductionTarget.OUTCOME: Grade.MET,
        ReproductionTarget.AGGREGATE: Grade.MET,
        ReproductionTarget.STATISTICAL: Grade.MET,
    }  # fmt: skip
    assert found.first_step(Channel.PIXELS) == 54
    assert len(found.diverged(Channel.STATE)) == 10


def test_swapped_outcomes_keep_the_aggregate_only() -> None:
    a = [(episode(i, success=i % 2 == 0), trace()) for i in range(10)]
    b = [(episode(i, success=i % 2 == 1), trace()) for i in range(10)]
    found = compare_traces(a, b, closed_loop=True, provenance=(FULL, FULL))
    assert grades(found)[ReproductionTarget.OUTCOME] is Grade.NOT_MET
    assert grades(found)[ReproductionTarget.AGGREGATE] is Grade.MET
    assert grades(found)[ReproductionTarget.STATISTICAL] is Grade.MET


def test_a_collapse_fails_every_target() -> None:
    found = compare_traces(
        run(30, trace()), run(30, diverged(action_raw=0), success=False), closed_loop=True, provenance=(FULL, FULL)
    )
    assert set(grades(found).values()) == {Grade.NOT_MET}


def test_a_diverging_control_is_told_with_its_channels() -> None:
    found = compare_traces(run(3, trace()), run(3, diverged(action_raw=5)), control=run(3, diverged(simulator_state=9)))
    assert found.control is RepeatControl.DIVERGED
    assert found.control_channels == (Channel.STATE,)


def test_runs_of_different_plans_share_nothing() -> None:
    with pytest.raises(NotEstimable, match='same plan'):
        compare_traces([(episode(1, success=True), trace())], [(episode(2, success=True), trace())])


def test_a_repeated_id_is_an_error() -> None:
    with pytest.raises(InputError, match='twice'):
        compare_traces(run(1, trace()) * 2, run(1, trace()))


def test_stores_are_compared_with_their_provenance_and_media(tmp_path: Path) -> None:
    stores = []
    for name, record, cpu in (('a', trace(), 'EPYC'), ('b', diverged(simulator_state=3), 'Xeon')):
        store = Store.create(tmp_path / name)
        origin = dataclasses.replace(FULL, cpu=cpu)
        episodes = [e.replace(provenance_id=store.write_provenance(origin)) for e, _ in run(2, record)]
        store.append(episodes, trajectories={e.key: record for e in episodes})
        camera = store.path / 'media' / episodes[0].episode_id / 'agentview'
        camera.mkdir(parents=True)
        for step in range(STEPS):
            image = np.full((2, 2, 3), 7 if name == 'a' or step < 40 else 9, dtype=np.uint8)
            np.save(camera / f'{step:04d}.npy', image)
        stores.append(store)
    found = compare_traces(stores[0], str(stores[1].path), closed_loop=True)
    assert found.contrast == 'EPYC + known versus Xeon + known'
    assert {m.item for m in found.metadata if m.is_same is False} == {'CPU'}
    assert found.first_step(Channel.STATE) == 3
    assert found.first_step(Channel.PIXELS) == 40
    pixels = [t.growth[Channel.PIXELS] for t in found.traces if Channel.PIXELS in t.growth]
    assert [p[50] for p in pixels] == [2.0]


def test_episodes_without_a_trajectory_or_a_partner_leave_the_targets_open() -> None:
    """Equality of what was kept says nothing of the episodes that were not."""
    half: list[tuple[Episode, Trajectory | None]] = [
        (e, t if i < 2 else None) for i, (e, t) in enumerate(run(4, trace()))
    ]
    found = compare_traces(half, half, closed_loop=True, provenance=(FULL, FULL))
    assert grades(found)[ReproductionTarget.BITWISE] is Grade.NOT_SHOWN
    assert '2 have no trajectory' in found.grades[0].evidence
    assert grades(found)[ReproductionTarget.OUTCOME] is Grade.MET
    short = compare_traces(run(4, trace()), run(3, trace()), closed_loop=True, provenance=(FULL, FULL))
    assert set(grades(short).values()) == {Grade.NOT_SHOWN}
    assert all('1 and 0 episodes have no partner' in g.evidence for g in short.grades)


@pytest.mark.parametrize(
    ('second', 'contrast'),
    [({'cpu': 'Xeon'}, 'EPYC and Xeon + known versus EPYC + known'), ({'cpu': '', 'gpu': ''}, 'hardware not recorded'),
     (None, 'hardware not recorded')],
)  # fmt: skip
def test_a_run_made_on_two_machines_is_told_as_such(
    tmp_path: Path, second: dict[str, str] | None, contrast: str
) -> None:
    epyc = dataclasses.replace(FULL, cpu='EPYC')
    origins = {'a': (epyc, None if second is None else dataclasses.replace(epyc, **second)), 'b': (epyc, epyc)}
    for name, pair in origins.items():
        store = Store.create(tmp_path / name)
        ids = ['' if origin is None else store.write_provenance(origin) for origin in pair]
        episodes = [e.replace(provenance_id=i) for (e, _), i in zip(run(2, trace()), ids, strict=True)]
        store.append(episodes, trajectories={e.key: trace() for e in episodes})
    found = compare_traces(tmp_path / 'a', tmp_path / 'b', closed_loop=True)
    assert found.contrast == contrast
    cpu = next(m for m in found.metadata if m.item == 'CPU')
    assert cpu.is_same is (False if second == {'cpu': 'Xeon'} else None)
