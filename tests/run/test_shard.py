"""Shards: array jobs that share nothing but a folder come to what one run comes to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.run.plans import content, make_plan

from robotrials.errors import InputError, StoreError
from robotrials.record import trajectories_equal
from robotrials.record.verify import verify_store
from robotrials.run import Shard, run_trial
from robotrials.run.engine import sole_runner
from robotrials.run.schedule import trial_slots

JOB = """
import sys
from robotrials.run import Shard, run_trial
from robotrials.run.plan import plan_from_json
run_trial(plan_from_json(open(sys.argv[1]).read()), sys.argv[2], workers=0, shard=Shard.parse(sys.argv[3]))
"""


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 40), sessions=st.integers(1, 3), repeats=st.integers(1, 2))
def test_shards_have_every_slot_once_and_all_policies_of_a_start_state(count: int, sessions: int, repeats: int) -> None:
    plan = make_plan(
        episodes_per_cell=6, repeats=repeats, strata=['a', 'b'], rotation={'sessions': sessions, 'fixtures': ['l', 'r']}
    )
    slots = trial_slots(plan)
    shares = [Shard(number, count).slots(slots) for number in range(1, count + 1)]
    assert sorted(slot.number for share in shares for slot in share) == list(range(len(slots)))
    for share in shares:
        met = Counter((s.cell.name, s.instance, s.repeat) for s in share)
        assert set(met.values()) <= {len(plan.policies)}
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= len(plan.policies)


@pytest.mark.parametrize('text', ['0/4', '5/4', '1', '1/0', 'a/b', '-1/3', '1/2/3', ''])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(InputError, match='wanted i/n'):
        Shard.parse(text)


def test_shards_started_at_once_in_a_new_folder_make_the_store_of_one_run(tmp_path: Path) -> None:
    plan = make_plan(episodes_per_cell=6, strata=['a', 'b'])
    (tmp_path / 'plan.json').write_text(plan.as_json())
    run_trial(plan, tmp_path / 'whole', workers=0)
    jobs = [
        subprocess.Popen(
            [sys.executable, '-c', JOB, str(tmp_path / 'plan.json'), str(tmp_path / 'shared'), f'{number}/3'],
            env={**os.environ, 'OMP_NUM_THREADS': '1'},
        )
        for number in (1, 2, 3)
    ]
    assert [job.wait(timeout=300) for job in jobs] == [0, 0, 0]
    (episodes, paths), (whole, whole_paths) = content(tmp_path / 'shared'), content(tmp_path / 'whole')
    assert episodes == whole
    assert all(trajectories_equal(paths[key], whole_paths[key]) for key in whole_paths)
    assert verify_store(tmp_path / 'shared').is_clean
    assert run_trial(plan, tmp_path / 'shared', workers=0).n_run == 0


def test_an_interrupted_shard_resumes_and_leaves_the_others_alone(tmp_path: Path) -> None:
    plan = make_plan(episodes_per_cell=6)
    first, second = Shard(1, 2), Shard(2, 2)
    assert run_trial(plan, tmp_path / 's', workers=0, shard=first, stop_after=2).n_run == 2
    done = run_trial(plan, tmp_path / 's', workers=0, shard=second)
    assert (done.n_run, done.n_total) == (6, 6)
    assert run_trial(plan, tmp_path / 's', workers=0, shard=first).n_run == 4
    assert run_trial(plan, tmp_path / 's', workers=0).n_run == 0


def test_divisions_that_overlap_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('robotrials.run.engine.LOCK_WAIT_S', 0.0)
    with sole_runner(tmp_path, 'shard 1/8', division='shards-of-8'):
        with sole_runner(tmp_path, 'shard 2/8', division='shards-of-8'):
            pass
        with pytest.raises(StoreError, match='another run'), sole_runner(tmp_path, 'shard 1/8', division='shards-of-8'):
            pass
        with pytest.raises(StoreError, match='shards-of-8'), sole_runner(tmp_path, 'shard 1/4', division='shards-of-4'):
            pass
        with pytest.raises(StoreError, match='shards-of-8'), sole_runner(tmp_path, 'left'):
            pass
        with pytest.raises(StoreError, match='another run'), sole_runner(tmp_path, None):
            pass


def test_a_stopping_rule_or_a_fixture_refuses_shards(tmp_path: Path) -> None:
    ruled = make_plan(stopping={'rule': 'sequential'})
    with pytest.raises(InputError, match='a stopping rule looks at all slots'):
        run_trial(ruled, tmp_path / 's', shard=Shard(1, 2))
    with pytest.raises(InputError, match='one of the two'):
        run_trial(make_plan(), tmp_path / 's', fixture='left', shard=Shard(1, 2))
