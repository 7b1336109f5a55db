"""The data-source diagnostic on the embedded cell: starts keep their distance, a lookup plays what is nearest."""

import dataclasses
import math

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.policies.probe import DemonstrationWriter, EpisodeFacts
from robotrials.policies.probe.collect import using_host
from robotrials.run.plan import HostEntry, PolicyEntry
from robotrials.run.seam import ActionConvention, ControlMode, Frame, Gripper, Observation, Rotation, Setup, Target
from robotrials.study.datasource import ExpertEntry, SourcePlan, run_data_source
from robotrials.study.evaluate import displaced_starts, grid_plan, observe_starts, start_setups, start_table
from robotrials.study.probe_maker import LookupPolicy
from robotrials.value import read_toml
from robotrials.verdict.audit.datasource import nearest_start, read_datasource

EXPERT = PolicyEntry('scripted', {'temper': 'reference'})
BARE = HostEntry('tabletop')
DELTA = ActionConvention(
    control_mode=ControlMode.SE3, target=Target.DELTA, frame=Frame.BASE, rotation=Rotation.NONE,
    gripper=Gripper.OPEN_IS_ONE,
)  # fmt: skip


@pytest.fixture(scope='module')
def grid():
    return start_setups(grid_plan(BARE, {'expert': EXPERT}, task='single_block', seed=7, grid=3, time_cap_s=10.0))


def test_the_default_is_the_protocol_of_appendix_a3():
    plan = SourcePlan()
    assert plan.grid * plan.demonstrations_per_start == 120
    assert (plan.jitter_m, plan.turn_deg, plan.chunk_length, plan.execute) == (0.0025, 15.0, 5, 5)
    options = plan.probe_options()
    assert (options.augmentation, options.checkpoints, options.chunk_length, options.execute) == (0.0, (), 5, 5)
    assert options.validation == 0.0  # all 120 are trained on


def test_the_test_grid_follows_from_task_and_seed_alone(grid):
    again = start_setups(
        grid_plan(BARE, {'a': EXPERT, 'b': EXPERT}, task='single_block', seed=7, grid=3, time_cap_s=99.0)
    )
    assert [(s.seed, s.instance) for s in again] == [(s.seed, s.instance) for s in grid]
    assert len({s.seed for s in grid}) == 3


@pytest.mark.parametrize('distance_m', [0.0, 0.06])
def test_training_starts_keep_the_distance_that_was_asked_for(grid, distance_m):
    with using_host(BARE) as host:
        observed = observe_starts(host, grid, turns=4)
        starts = displaced_starts(
            host, grid, observed, distance_m=distance_m, per_start=2, jitter_m=0.0025, turn_rad=math.radians(15), seed=1
        )
    assert [start.test_start for start in starts] == [0, 0, 1, 1, 2, 2]
    nearest = nearest_start(start_table(starts, observed), observed.states)
    assert (nearest.position_m >= 0.8 * distance_m - 0.004).all()
    assert (nearest.position_m <= distance_m + 0.005).all()
    assert nearest.n_leaked == (3 if distance_m == 0 else 0)


def test_a_distance_with_no_room_is_an_error_and_not_fewer_starts(grid, monkeypatch):
    monkeypatch.setattr('robotrials.study.evaluate.DRAWS', 1)
    with using_host(BARE) as host:
        observed = observe_starts(host, grid, turns=4)
        with pytest.raises(InputError, match='ask for a smaller distance'):
            displaced_starts(
                host, grid, observed, distance_m=0.9, per_start=1, jitter_m=0.0, turn_rad=0.0, seed=1
            )  # fmt: skip


def demonstrations(folder, shades):
    """One demonstration per shade of grey; its actions are the shade."""
    with DemonstrationWriter(folder, action=DELTA, control_rate_hz=20.0, source={'kind': 'test'}) as writer:
        for shade in shades:
            frames = np.full((3, 16, 16, 3), shade, np.uint8)
            action = np.full((3, DELTA.width), shade / 255)
            writer.append(EpisodeFacts(task='t'), images={'front': frames}, state=np.zeros((3, 2)), action=action)
        return writer.finish()


def test_a_lookup_plays_the_nearest_demonstration_and_then_keeps_still(tmp_path):
    demonstrations(tmp_path / 'd', (40, 120, 200))
    session = LookupPolicy(path=str(tmp_path / 'd'), chunk_length=2).start(Setup(task='t', seed=0), seed=0)
    seen = Observation(0.0, np.zeros(2), {'front': np.full((16, 16, 3), 130, np.uint8)})
    assert session.act(seen).actions == pytest.approx(np.full((2, DELTA.width), 120 / 255))
    other = Observation(0.1, np.zeros(2), {'front': np.full((16, 16, 3), 200, np.uint8)})
    last, still = session.act(other).actions  # chosen once, at the start; every chunk has its declared length
    assert last == pytest.approx(120 / 255)
    assert session.act(other).actions == pytest.approx(np.array([still, still]))
    assert still[: DELTA.motion_width] == pytest.approx(0.0)
    assert still[-1] == pytest.approx(120 / 255)


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('learner = "prob"', "did you mean 'probe'"),
        ('distances_m = [0.1, 0.1]', 'each once'),
        ('grid = 1', 'at least 2'),
        ('distance = 3', 'distances_m'),
        ('[probe]\nstep = 3', 'steps'),
        ('tasks = []', 'at least one'),
        ('tolerance_m = -1.0', 'tolerance_m is -1.0'),
        ('jitter_m = -0.001', 'jitter_m is -0.001'),
        ('seed = -1', 'seed is -1'),
        ('demonstrations_per_start = 1000000', 'wanted at most 100000'),
    ],
)
def test_a_plan_that_does_not_fit_says_where(tmp_path, text, message):
    path = tmp_path / 'source.toml'
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_toml(SourcePlan, path)


@pytest.mark.parametrize('distance_m', [math.nan, math.inf, -0.1])
def test_a_distance_is_a_finite_number(distance_m):
    with pytest.raises(InputError, match='finite numbers >= 0'):
        SourcePlan(distances_m=(0.0, distance_m))


SMALL = SourcePlan(
    grid=8, demonstrations_per_start=2, distances_m=(0.0, 0.1), time_cap_s=7.0, learner='lookup',
    host=HostEntry('tabletop', {'cameras': ['front'], 'image_size': [48, 48], 'shadows': False}),
)  # fmt: skip


@pytest.mark.training
def test_the_score_falls_with_the_distance_of_the_data_and_a_second_call_runs_nothing(tmp_path):
    """Section 6 on the embedded cell: beside the test a policy that learns nothing scores, 10 cm away it does not."""
    found = run_data_source(SMALL, tmp_path / 'work')
    near, far = found.curve()
    assert near.n_leaked == 8
    assert far.n_leaked == 0
    assert near.successes >= 7
    assert far.successes <= 2
    assert found.fall().is_resolved
    assert read_datasource(tmp_path / 'work' / 'datasource.json') == found
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / 'work').rglob('*.npy')}
    assert run_data_source(SMALL, tmp_path / 'work') == found
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / 'work').rglob('*.npy')} == before


@pytest.mark.training
def test_a_probe_is_trained_and_evaluated_without_choosing_a_checkpoint(tmp_path):
    """On the state of the objects, which trains in a minute; how it scores is not the point here."""
    plan = dataclasses.replace(
        SMALL, learner='probe', grid=3, distances_m=(0.0,), host=HostEntry('tabletop', {'state': 'privileged'}),
        expert=ExpertEntry(state_width=None, host_options={}), probe={'uses_images': False, 'steps': 200},
    )  # fmt: skip
    (point,) = run_data_source(plan, tmp_path / 'work').points
    assert point.parameters is not None
    assert point.parameters > 1000
    assert (point.n, point.n_leaked, point.images) == (3, 3, {})
    assert len(list((tmp_path / 'work').rglob('model.safetensors'))) == 1
