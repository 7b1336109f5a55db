"""The embedded cell as a worker runs it: resets are looked at, conditions applied, placements scored in 3D."""

import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip('mujoco')
import mujoco
from tests.service.platform.desk import Desk, token
from tests.service.platform.desk import job as make_job

from robotrials.cli import worker as worker_command
from robotrials.errors import StoreError
from robotrials.measure.geometry.projection import Rescoring, camera_scores
from robotrials.record import Outcome, Store
from robotrials.record.folder import held_lock
from robotrials.record.footage import END, KNOWN, START
from robotrials.run.fault import FaultKind
from robotrials.run.loop import Order, run_episode
from robotrials.run.station import setup_of
from robotrials.service.platform import worker_episode as worker_host
from robotrials.service.platform.bundle import unpack_bundle
from robotrials.service.platform.client import act_in_episode
from robotrials.service.platform.worker_episode import CellOptions, NotBegun, ViewScorer
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.checked import PlannedCell
from robotrials.worlds.cell.scripted import ScriptedPolicy
from robotrials.worlds.wrapper import RESETS, GuardedHost, Interrupts, ToolWorkspace

PLAN = """
seed = 3
host = {use = 'tabletop', options = {state = 'privileged'}}
tasks = ['single_block']
time_cap_s = 20.0
episodes_per_cell = 2
watchdog = {host_s = 600.0, policy_s = 300.0}
"""


class ClumsyCell(PlannedCell):
    """A cell whose automatic reset goes wrong as often as told: some hand moves an item afterwards."""

    n_wrong = 0
    n_resets = 0

    def reset(self, task, *, seed):
        super().reset(task, seed=seed)
        type(self).n_resets += 1
        if type(self).n_wrong:
            type(self).n_wrong -= 1
            start = self._begun()
            at = next(iter(start.scene.item_qpos.values()))
            start.data.qpos[at] += 0.06
            mujoco.mj_forward(start.scene.model, start.data)
            self._read_poses()
        return self._observe()


@pytest.fixture
def clumsy(monkeypatch):
    monkeypatch.setattr(worker_host, 'INSPECTED', {'tabletop': 'tests.service.platform.test_worker_cell:ClumsyCell'})
    ClumsyCell.n_wrong = ClumsyCell.n_resets = 0
    return ClumsyCell


def run(plan=PLAN, **options):
    desk = Desk(CellOptions(host='tabletop', **options))
    try:
        return desk.run(make_job(plan), lambda: act_in_episode(ScriptedPolicy(temper='reference'), desk.url, token()))
    finally:
        desk.close()


def test_a_reset_as_planned_starts_and_the_placement_is_scored_in_3d():
    attempt, end = run()
    episode = unpack_bundle(attempt.bundle).episode
    assert (end.outcome, episode.outcome) == ('success', Outcome.SUCCESS)
    assert episode.labels['reset_check'] == 'as planned'
    assert episode.labels['score_kind'] == 'iou_3d'
    assert 0 < episode.score <= 1


def test_a_wrong_reset_is_tried_again(clumsy):
    clumsy.n_wrong = 2
    attempt, _ = run()
    assert attempt.episode.outcome is Outcome.SUCCESS
    assert clumsy.n_resets == 3


def test_a_reset_that_stays_wrong_is_invalid_with_its_reason(clumsy):
    clumsy.n_wrong = 100
    attempt, _ = run()
    assert attempt.episode.outcome is Outcome.INVALID
    assert attempt.fault.kind is FaultKind.HOST_CRASH
    assert 'moved by' in attempt.reset_fault
    assert 'moved by' in attempt.episode.reason
    assert clumsy.n_resets == RESETS


def test_under_a_condition_the_plain_scene_is_checked_first(clumsy):
    plan = PLAN + "conditions = [{name = 'layout', severity = 0.5}]\n"
    attempt, _ = run(plan)
    assert attempt.episode.labels['reset_check'] == 'as planned'
    assert attempt.episode.condition == 'layout'
    assert clumsy.n_resets == 2


def test_the_tool_stays_in_the_workspace():
    low_m = 0.2
    attempt, _ = run(workspace=ToolWorkspace((-1.0, -1.0, low_m), (1.0, 1.0, 1.0)))
    trajectory = unpack_bundle(attempt.bundle).trajectory
    assert attempt.episode.outcome is not Outcome.SUCCESS  # it cannot reach the table
    assert np.min(trajectory.ee_pose[:, 2]) > low_m - 0.02


def on_the_cell_alone(plan):
    """The same job in the run's own loop, on the cell with nothing around it."""
    given = make_job(plan)
    declared, slot = given.read_plan(), given.read_slot()
    order = Order(time_cap_s=slot.cell.time_cap_s, policy_seed=given.loop_seed, loop=declared.loop)
    cell = TabletopHost(state='privileged')
    return run_episode(cell, ScriptedPolicy(temper='reference'), setup_of(slot), order=order)


def test_latency_is_cut_as_finely_as_on_the_cell_itself():
    plan = PLAN.replace('20.0', '1.0') + "loop = {latency = {mode = 'injected', network_s = 0.0125}}\n"
    attempt, _ = run(plan)
    alone = on_the_cell_alone(plan)
    assert attempt.episode.labels['latency_resolution_s'] == alone.labels['latency_resolution_s'] == '0.0025'
    recorded = unpack_bundle(attempt.bundle).trajectory
    # The first answer takes effect a quarter of a step in; later ones depend on what a client is told.
    np.testing.assert_array_equal(recorded.action_processed[0], alone.trajectory.action_processed[0])
    np.testing.assert_array_equal(recorded.ee_pose[0], alone.trajectory.ee_pose[0])


def test_a_paraphrase_is_clear_among_the_things_of_the_scene():
    """Without them 'the azure cube' would be said in other words: this start state is one where it matters."""
    plan = PLAN.replace('single_block', 'three_block').replace('20.0', '0.5')
    plan += "conditions = [{name = 'instruction', severity = 1.0}]\n"
    attempt, _ = run(plan)
    said = attempt.episode.condition_parameters['text']
    assert said == on_the_cell_alone(plan).condition_parameters['text']
    assert 'emerald object' in said


def test_a_cell_of_the_plan_that_cannot_be_laid_out_is_the_plans_fault_before_it_begins():
    refused, _ = run(PLAN + "strata = ['teapot']\n")
    assert isinstance(refused, NotBegun)
    assert refused.is_plans
    assert 'teapot' in str(refused)


def test_two_workers_do_not_share_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv('ROBOTRIALS_TOKEN', 'tlt_x')
    monkeypatch.setattr(worker_command, 'LOCK_S', 0.0)
    with held_lock(tmp_path, worker_command.LOCK, busy=''), pytest.raises(StoreError, match='another worker keeps its'):
        worker_command.worker('http://127.0.0.1:9', host='point-mass', name='two', folder=tmp_path)


# --- scored from cameras

WATCHED = PLAN.replace("'privileged'", "'privileged', watchers = ['front', 'side']")


@pytest.fixture(scope='module')
def filmed():
    """The bundle of an episode whose benchmark is scored from cameras, its views scored by the worker."""
    attempt, _ = run(WATCHED + "analysis = {success = 'reconstruction'}\n")
    return unpack_bundle(attempt.bundle)


def test_views_are_kept_and_scored_by_the_worker_as_anyone_would_score_them(filmed, tmp_path):
    assert filmed.episode.success  # the host's, as it was
    store = Store.create(tmp_path / 'store', trial_id='t')
    store.append([filmed.episode], media=filmed.media)
    kept, anew = (
        camera_scores(store, [filmed.episode], rescoring=r)[filmed.episode.key]
        for r in Rescoring
        if r.value != 'missing'
    )
    assert anew.success
    assert kept.iou == anew.iou > 0.25
    assert kept == anew


def test_an_episode_is_filmed_as_in_any_trial_of_the_cell(filmed):
    films = {name.rpartition('/')[2] for name in filmed.media if name.endswith('.mp4')}
    assert films == {f'{c.video}'.rpartition('/')[2] for c in filmed.trajectory.scene.cameras if c.video}
    assert len(films) == 2  # of the policy's camera and an overview
    plan = PLAN + "recording = {film = {cameras = ['front'], rate_hz = 2.0}}\n"
    declared = unpack_bundle(run(plan)[0].bundle)
    assert [c.name for c in declared.trajectory.scene.cameras if c.video] == ['film_front']


def test_without_cameras_in_the_analysis_views_are_kept_and_not_scored():
    attempt, _ = run(WATCHED)
    files = {name.rpartition('/')[2] for name in unpack_bundle(attempt.bundle).media if '/rgbd/' in name}
    assert files == {'known.json', 'start.zip', 'end.zip'}


def test_a_reconstruction_that_dies_or_hangs_costs_a_score_and_nothing_else(filmed):
    own = {name.split('/', 2)[2]: content for name, content in filmed.media.items()}
    files = {name: own[name] for name in (KNOWN, START, END)}
    scorer = ViewScorer(score_s=0.5)
    try:
        for number, told in ((signal.SIGKILL, 'broke off'), (signal.SIGSTOP, 'no answer to score')):
            assert scorer.score(files).success  # in a new process, which is given longer
            os.kill(scorer._process.pid, number)
            broken = scorer.score(files)
            assert broken.success is None
            assert told in broken.reason
    finally:
        scorer.close()


def test_an_arm_that_was_stopped_is_not_driven_out_of_sight():
    asked = []
    host = SimpleNamespace(
        spec=PlannedCell().spec, has_views=True, known_scene=lambda: None, reset=id, step=id, outcome=lambda: None,
        views=lambda is_over: asked.append(is_over),
    )  # fmt: skip
    interrupts = Interrupts()
    guarded = GuardedHost(host, interrupts=interrupts)
    guarded.views(is_over=True)
    interrupts.stop.set()
    guarded.views(is_over=True)
    assert asked == [True, False]
