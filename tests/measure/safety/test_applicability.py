"""Who is a bystander, a scene without one, torque at its limit, benchmarks without a name, labelled phases."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.measure.safety.scene import ROLES, episode, lifted, with_contacts, with_pose

from robotrials.measure.safety import (
    EpisodeSafety,
    Scoring,
    derive_signals,
    load_registry,
    score_episode,
    summarize_safety,
    unnamed_benchmark,
)
from robotrials.measure.safety.registry import Phase, Spec, Tier
from robotrials.record import Event, EventKind, Scene, Store, Trajectory

SCORING = Scoring()
CELL: dict[str, Any] = {'benchmark': 'tabletop', 'task': 'single_block'}
NT = 'non_target_max_disp_5mm'


def score(trajectory: Trajectory, scoring: Scoring = SCORING, **who: Any) -> EpisodeSafety:
    return score_episode(episode(**who), trajectory, scoring=scoring)


def scene(**roles: str) -> Scene:
    return Scene(body_roles={k: v for k, v in {**ROLES, **roles}.items() if v}, target_object='bowl')


@pytest.mark.parametrize('role', ['bystander', 'object', 'distractor', 'receptacle', 'other', ''])
def test_whatever_is_neither_robot_target_nor_furniture_is_a_bystander(role: str) -> None:
    """The paper's B; a body without a role is one too, and that is said."""
    moved = with_pose('cup', {4: 0.02}, part=slice(1, 2), scene=scene(cup=role))
    found = score(moved)
    assert (found.safe, found.violations[0].bodies) == (False, ('cup',))
    assert any('no role was recorded of cup' in note for note in found.notes) is (role == '')


@pytest.mark.parametrize('role', ['robot', 'furniture', 'floor'])
def test_robot_furniture_and_building_are_none(role: str) -> None:
    assert score(with_pose('cup', {4: 0.02}, part=slice(1, 2), scene=scene(cup=role))).safe is True


def test_a_registry_excuses_a_bystander_by_name(tmp_path: Path) -> None:
    text = '[[task]]\nbenchmark = "libero-10"\nid = "mine"\ntemplate = "pnp-basic"\nexcused_bystanders = ["cu*"]\n'
    (tmp_path / 'r.toml').write_text(text)
    rules = Scoring(load_registry(tmp_path / 'r.toml'))
    moved = with_pose('cup', {4: 0.02}, part=slice(1, 2))
    assert score(moved, rules, task='mine').safe is True
    assert score(moved, rules).safe is False


def alone(**changes: Any) -> Trajectory:
    """The bowl with robot and furniture alone."""
    base = lifted()
    assert base.body_pose is not None
    roles = {k: v for k, v in ROLES.items() if v != 'bystander'}
    return lifted(bodies=('bowl',), body_pose=base.body_pose[:, :1], scene=Scene(roles, 'bowl'), **changes)


def test_a_scene_without_bystanders_leaves_the_clause_out_and_scores_the_others() -> None:
    found = score(alone(), **CELL)
    assert found.is_scored
    assert found.safe is True
    assert found.inapplicable == {NT: 'no body is a bystander: all are robot, target or furniture'}
    assert NT not in {spec.id for spec in found.active}
    cell = summarize_safety([found], n_resamples=10).cells[0]
    assert cell.inapplicable == ((NT, 1),)


def test_a_benchmark_that_always_has_bystanders_is_unscored_where_the_record_shows_none() -> None:
    found = score(alone())
    assert found.safe is None
    assert 'no body is a bystander' in found.unscored[NT]


def test_a_bystander_without_a_pose_or_roles_that_are_missing_leave_the_clause_open() -> None:
    hidden = dataclasses.replace(alone(), scene=scene())
    assert "the pose of 'cup' was not recorded" in score(hidden, **CELL).unscored[NT]
    bare = dataclasses.replace(lifted(), scene=Scene(target_object='bowl'))
    assert 'no role of any body was recorded' in score(bare, **CELL).unscored[NT]


def test_a_target_that_contradicts_its_roles_is_broken() -> None:
    wrong = dataclasses.replace(lifted(), scene=dataclasses.replace(scene(), target_object='cup'))
    assert "target_object is 'cup', but the role target is that of bowl" in score(wrong).because


def test_time_at_the_torque_limit_is_told_and_the_clause_marked_as_unable_to_fail() -> None:
    torque = np.full((20, 7), 1.0)
    torque[3:7, 0] = -87.0
    found = score(lifted(joint_torque_nm=torque))
    assert found.safe is True
    assert found.saturation_s == pytest.approx(4 * 0.05)
    assert found.cannot_fail == ('joint_torque',)
    cell = summarize_safety([found, score(lifted(), seed=1)], n_resamples=10).cells[0]
    assert [s.spec_id for s in cell.specs if not s.can_fail] == ['joint_torque']
    assert cell.saturation_s is not None
    assert cell.saturation_s.value == pytest.approx(0.1)


def noisy(rate_hz: float, *, seconds: float = 4.0, noise_m: float = 0.0) -> Trajectory:
    """A hand on a smooth path, sampled at a rate, with position noise."""
    t = np.arange(0, seconds, 1 / rate_hz)
    pose = np.zeros((len(t), 7))
    pose[:, 0] = 0.2 * np.sin(2 * np.pi * 0.5 * t)
    pose[:, :3] += np.random.default_rng(3).normal(0, noise_m, (len(t), 3))
    return Trajectory(time_s=t, ee_pose=pose)


def test_derivatives_mean_the_same_at_every_rate() -> None:
    for name in ('eef_speed_mps', 'eef_acc_mps2', 'eef_jerk_mps3'):
        peaks = [derive_signals(noisy(rate)).values[name].max() for rate in (20, 50, 100, 500)]
        np.testing.assert_allclose(peaks, peaks[0], rtol=0.06)


def test_noise_does_not_grow_with_the_rate_as_it_does_step_by_step() -> None:
    """0.2 mm of noise: tens of m/s^3 at 20 Hz, tens of thousands at 500 Hz, unless the band is limited first."""
    signals = {rate: derive_signals(noisy(rate, noise_m=2e-4)).values for rate in (20, 500)}
    assert signals[500]['eef_jerk_mps3'].max() < 1.1 * signals[20]['eef_jerk_mps3'].max()
    assert signals[500]['eef_jerk_raw_mps3'].max() > 1000 * signals[20]['eef_jerk_raw_mps3'].max()
    np.testing.assert_allclose(signals[20]['eef_jerk_mps3'], signals[20]['eef_jerk_raw_mps3'])


def test_jitter_is_resampled_and_a_gap_is_not_bridged() -> None:
    even = noisy(50)
    jitter = np.random.default_rng(5).uniform(-0.004, 0.004, even.n_steps)
    t = np.asarray(even.time_s) + jitter
    pose = np.zeros((len(t), 7))
    pose[:, 0] = 0.2 * np.sin(2 * np.pi * 0.5 * t)
    found = derive_signals(Trajectory(time_s=t, ee_pose=pose))
    assert found.values['eef_acc_mps2'].max() == pytest.approx(
        derive_signals(even).values['eef_acc_mps2'].max(), rel=0.05
    )
    gap = np.where(np.arange(len(t)) > 90, 1.0, 0.0)
    assert 'too uneven' in derive_signals(Trajectory(time_s=t + gap, ee_pose=pose)).absent['eef_acc_mps2']
    assert 'coarser' in derive_signals(noisy(5)).absent['eef_speed_mps']


def test_episodes_without_a_benchmark_are_told_once_with_the_names_they_could_mean() -> None:
    registry = load_registry()
    some = [episode(benchmark='', task='bin_to_bin', seed=k) for k in range(9)]
    gap = unnamed_benchmark([(e.benchmark, e.stratum, e.task) for e in some], registry)
    assert gap is not None
    assert (gap.tasks, gap.candidates) == (('bin_to_bin',), ('tabletop',))
    assert 'it could be tabletop' in str(gap)
    found = score_episode(some[0], lifted(), scoring=SCORING)
    assert 'it could be tabletop' in found.because
    named = Scoring(benchmark='libero-10')
    assert score_episode(episode(benchmark=''), lifted(), scoring=named).is_scored
    assert unnamed_benchmark([('libero-10', '', 'task_0')], registry) is None
    assert unnamed_benchmark([('', 'libero_10', 'task_0')], registry) is None
    several = unnamed_benchmark([('', '', 'task_0')], registry)
    assert several is not None
    assert len(several.candidates) == 6
    assert str(gap).endswith('it could be tabletop: say which, as benchmark = NAME')
    nowhere = unnamed_benchmark([('', '', 'reach-v3')], registry)
    assert str(nowhere).endswith(
        'no benchmark of the registry has these tasks: describe them in a registry file (--registry)'
    )


def test_import_and_plan_say_it_once(tmp_path: Path) -> None:
    (tmp_path / 'r.csv').write_text('policy,task,success,duration_s\np,bin_to_bin,1,5\np,bin_to_bin,0,6\n')
    said = robotrials('import', tmp_path / 'r.csv', '--to', tmp_path / 'store')
    assert said.count('it could be tabletop') == 1
    (tmp_path / 'q.csv').write_text('policy,task,outcome,duration_s\np,bin_to_bin,invalid,5\n')
    assert 'it could be' not in robotrials('import', tmp_path / 'q.csv', '--to', tmp_path / 'other')


LABELS = (Event(0.0, EventKind.PHASE, name='turn the knob'), Event(0.6, EventKind.PHASE, name='Place the pot'))


def test_labelled_phases_have_margins_of_their_own_and_name_the_violation() -> None:
    moved = with_pose('cup', {4: 0.02}, part=slice(1, 2))
    found = score(moved, events=LABELS, duration_s=1.0)
    assert [p.phase for p in found.phases] == ['turn the knob', 'Place the pot']
    assert [p.robustness[NT] for p in found.phases] == [pytest.approx(-0.015), 0.005]
    assert [p.safe for p in found.phases] == [False, True]
    assert [p.duration_s for p in found.phases] == [pytest.approx(0.6), pytest.approx(0.4)]
    assert found.violations[0].phase == 'turn the knob'
    assert score(moved).phases == ()


def test_a_spec_can_be_asked_of_a_labelled_phase() -> None:
    spec = Spec(
        'late', 'late', Tier.PHASE, 'always (max_contact_force_n < {threshold})', 200.0, 'N', severe=500.0,
        phase=Phase.LABELLED, phase_label='place*',
    )  # fmt: skip
    rules = Scoring(load_registry().with_specs([*load_registry().specs, spec]), use_phases=True)
    early, late = (with_contacts({step: [('link7', 'cup', 150.0)]}) for step in (4, 15))
    hard = with_contacts({15: [('link7', 'cup', 260.0)]})
    assert score(early, rules, events=LABELS, duration_s=1.0).robustness['late'] == 200.0
    assert score(late, rules, events=LABELS, duration_s=1.0).robustness['late'] == 50.0
    assert score(hard, rules, events=LABELS, duration_s=1.0).robustness['late'] == -60.0
    assert score(hard, rules).inapplicable['late'] == 'no phase was labelled'


def test_old_stores_read_and_new_fields_survive_one(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    who = episode()
    store.append([who], trajectories={who.key: dataclasses.replace(lifted(), broken={'ee_pose': 'x'})})
    ((_, back),) = store.trajectories()
    assert back.broken == {'ee_pose': 'x'}
