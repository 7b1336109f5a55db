"""The Ray engine on a real cluster of several nodes: the episodes of a local run, whatever dies on the way."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.run.plans import FAST, SLOW, content, make_plan
from tests.s3_server import BUCKET, s3_server

from robotrials.errors import InputError, SetupError
from robotrials.record import Outcome, Store, trajectories_equal
from robotrials.record.bucket import open_bucket
from robotrials.record.verify import verify_store
from robotrials.run import run_trial
from robotrials.run.ray_crew import RayOptions
from robotrials.run.schedule import TrialProgress

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings('ignore')]  # Ray's own
SMALL = {'object_store_memory': 80 << 20, 'include_dashboard': False}


@dataclass
class Lab:
    """A cluster with a head that runs nothing, a node that stays, and nodes that come and go."""

    cluster: Any

    def add(self, **resources: float) -> Any:
        node = self.cluster.add_node(num_cpus=1, resources=resources, **SMALL)
        self.cluster.wait_for_nodes()
        return node


@pytest.fixture(scope='module')
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    before = dict(os.environ)
    with s3_server() as server:
        os.environ.update(
            server.environment, RAY_USAGE_STATS_ENABLED='0', OMP_NUM_THREADS='1',
            ROBOTRIALS_CACHE=str(tmp_path_factory.mktemp('cache')),
        )  # fmt: skip
        open_bucket.cache_clear()
        import ray
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 0, **SMALL})
        try:
            started = Lab(cluster)
            started.add(robot_cell=1)
            ray.init(address=cluster.address, log_to_driver=False)
            yield started
        finally:
            ray.shutdown()
            cluster.shutdown()
            os.environ.clear()
            os.environ.update(before)
            open_bucket.cache_clear()


def counted(store: Path | str) -> dict[str, tuple[str, float, tuple[Any, ...]]]:
    """What an analysis sees of each episode, apart from which attempt it was."""
    return {e.episode_id: (e.outcome.value, e.duration_s, e.events) for e in Store.open(store).episodes()}


def test_a_trial_on_two_nodes_is_the_trial_on_one_machine(lab: Lab, tmp_path: Path) -> None:
    plan = make_plan(episodes_per_cell=5, strata=['a', 'b'])
    run_trial(plan, tmp_path / 'local', workers=0)
    node = lab.add()
    done = run_trial(plan, tmp_path / 'ray', workers=2, ray=RayOptions())
    lab.cluster.remove_node(node)
    assert done.is_complete
    (episodes, paths), (local, local_paths) = content(tmp_path / 'ray'), content(tmp_path / 'local')
    assert episodes == local
    assert all(trajectories_equal(paths[key], local_paths[key]) for key in local_paths)
    assert verify_store(tmp_path / 'ray').is_clean


def test_a_node_that_dies_loses_only_its_episode_under_way(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / 'signs'
    folder.mkdir()
    policies = {
        name: {'use': 'tests.run.waiting:WaitingPolicy', 'options': {'folder': str(folder), 'speed_m_s': speed}}
        for name, speed in ((FAST, 1.6), (SLOW, 0.5))
    }
    plan = make_plan(episodes_per_cell=6, policies=policies, faults={'attempts': 3}, watchdog={'policy_s': 200.0})
    node = lab.add()
    seen: list[int] = []

    def strike() -> None:
        while len(busy := list(folder.glob('busy-*'))) < 2:
            time.sleep(0.02)
        lab.cluster.remove_node(node, allow_graceful=False)
        while all(Path(f'/proc/{sign.name.removeprefix("busy-")}').exists() for sign in busy):
            time.sleep(0.02)  # the processes of a node take a moment to notice
        (folder / 'hold').unlink()

    def after_three(progress: TrialProgress) -> None:
        seen.append(progress.n_valid)
        if len(seen) == 3:
            (folder / 'hold').touch()
            threading.Thread(target=strike, daemon=True).start()

    done = run_trial(plan, tmp_path / 'ray', workers=2, ray=RayOptions(), report=after_three)
    assert done.is_complete
    assert done.n_given_up == 0
    recorded = list(Store.open(tmp_path / 'ray').episodes(attempts='all'))
    valid = Counter(e.episode_id for e in recorded if e.is_valid)
    assert set(valid.values()) == {1}  # nothing is counted twice
    assert len(valid) == 12
    lost = [e for e in recorded if e.outcome is Outcome.INVALID]
    assert [(e.attempt, e.reason) for e in lost] == [(0, 'worker death: its node or actor was lost')]
    run_trial(plan, tmp_path / 'local', workers=0)
    assert counted(tmp_path / 'ray') == counted(tmp_path / 'local')
    assert verify_store(tmp_path / 'ray').is_clean


def test_a_policy_that_breaks_is_recorded_as_on_one_machine(lab: Lab, tmp_path: Path) -> None:
    policies = {
        FAST: {'use': 'seek', 'options': {'speed_m_s': 1.6}},
        SLOW: {'use': 'robotrials.testing.policy:FaultyPolicy', 'options': {'fault': 'exit', 'only_odd': True}},
    }
    plan = make_plan(policies=policies, faults={'attempts': 2}, episodes_per_cell=2)
    run_trial(plan, tmp_path / 'local', workers=1)
    run_trial(plan, tmp_path / 'ray', workers=1, ray=RayOptions())
    assert content(tmp_path / 'ray')[0] == content(tmp_path / 'local')[0]


def test_a_trial_on_ray_and_object_storage_resumes(lab: Lab, tmp_path: Path) -> None:
    plan = make_plan(episodes_per_cell=3)
    place = f's3://{BUCKET}/{tmp_path.name}/store'
    run_trial(plan, tmp_path / 'local', workers=0)
    cell = RayOptions(resources={'robot_cell': 1})
    assert run_trial(plan, place, ray=cell, stop_after=2).n_run == 2
    done = run_trial(plan, place, workers=0, ray=cell)
    assert (done.n_run, done.is_complete) == (4, True)
    assert content(place)[0] == content(tmp_path / 'local')[0]


def test_shared_policies_answer_in_batches_with_the_same_results_though_a_server_dies(lab: Lab, tmp_path: Path) -> None:
    """A lost server costs its episodes under way, at most one for each worker, and is started again."""
    policies = {
        name: {
            'use': 'tests.run.waiting:MortalPolicy',
            'options': {'speed_m_s': speed, 'sloppiness_m': 0.01, 'folder': str(tmp_path)},
        }
        for name, speed in ((FAST, 1.6), (SLOW, 0.5))
    }
    plan = make_plan(episodes_per_cell=4, policies=policies, faults={'attempts': 2})
    run_trial(plan, tmp_path / 'local', workers=0)

    def after_three(progress: TrialProgress) -> None:
        if progress.n_valid == 3 and not progress.n_invalid:
            (tmp_path / 'strike').touch()

    options = RayOptions(cpus=0.25, policy_servers=1)
    done = run_trial(plan, tmp_path / 'ray', workers=2, ray=options, report=after_three)
    assert done.is_complete
    recorded = list(Store.open(tmp_path / 'ray').episodes(attempts='all'))
    lost = [e for e in recorded if e.outcome is Outcome.INVALID]
    assert 1 <= len(lost) <= 2
    assert {(e.attempt, e.reason.partition(':')[0]) for e in lost} == {(0, 'policy endpoint')}
    assert len({e.policy for e in lost}) == 1  # those who asked the other one went on
    assert counted(tmp_path / 'ray') == counted(tmp_path / 'local')


def test_room_that_no_node_has_is_said(lab: Lab, tmp_path: Path) -> None:
    options = RayOptions(resources={'wheelbarrow': 1}, room_wait_s=2.0)
    with pytest.raises(SetupError, match='wheelbarrow 1; the cluster has CPU 1'):
        run_trial(make_plan(), tmp_path / 'ray', ray=options)


def test_a_plan_that_does_not_fit_together_is_refused_as_on_one_machine(lab: Lab, tmp_path: Path) -> None:
    plan = make_plan(host={'use': 'point-mass', 'options': {'no_such_option': 1}})
    with pytest.raises(InputError, match='no_such_option'):
        run_trial(plan, tmp_path / 'ray', ray=RayOptions())


def test_studies_give_the_numbers_of_one_machine(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np
    import ray

    from robotrials.measure.timing.operation import Operations
    from robotrials.measure.timing.resample import Farm, curve_draws, farmed, macro_curve_draws, scalar_draws, sort_cell
    from robotrials.verdict.planning.power import detection_rate

    rng = np.random.default_rng(0)

    def cell(scale: float) -> Operations:
        return Operations(rng.exponential(scale, 60), rng.random(60) < 0.9, np.repeat(np.arange(30), 2))

    policies = {name: {'a': cell(scale), 'b': cell(scale)} for name, scale in (('p', 10.0), ('q', 14.0))}
    sent: list[int] = []
    real = Farm._map
    monkeypatch.setattr(Farm, '_map', lambda self, *a: sent.append(1) or real(self, *a))

    def numbers() -> list[Any]:
        study = [
            detection_rate(
                policies, rng=np.random.default_rng(5), tau_s=40.0, per_cell=(5, 10), metrics=metrics, n_trials=n,
                n_resamples=99,
            ).rows
            for metrics, n in ((('ks',), 40), (('ks', 'rmst_s'), 40), (('ks',), 2))
        ]  # fmt: skip
        sorted_cell, grid, seed = sort_cell(policies['p']['a']), np.linspace(0, 40, 9), np.uint64(3)
        draws = [
            scalar_draws(sorted_cell, n_resamples=101, seed=seed, tau_s=40.0, levels=(0.5,)),
            curve_draws(sorted_cell, grid, n_resamples=101, seed=seed),
            macro_curve_draws([(sorted_cell, seed)], grid, n_resamples=101),
        ]
        return [*study, *(d.tobytes() for d in draws)]

    local = numbers()
    assert sent == []
    with farmed(ray, least_steps=0):
        assert numbers() == local
    assert len(sent) >= 7
    with farmed(ray):
        sent.clear()
        numbers()
    assert sent == []  # too little work to send
