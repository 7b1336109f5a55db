"""Until a trial is closed, nothing that it writes or prints names a policy; closing says all, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.patience import PATIENCE_S
from tests.run.plans import FAST, SLOW, make_plan

from robotrials.errors import InputError, StoreError
from robotrials.record import Outcome, Store
from robotrials.record.maintain import merge_stores
from robotrials.record.part import entry_id
from robotrials.record.verify import verify_store
from robotrials.run import close_trial, run_trial
from robotrials.run.blinding import blinding_of, seal, unseal
from robotrials.run.fault import read_fault

CHECKPOINT = 'hub-narwhal-weights'
TELLING = (FAST, SLOW, CHECKPOINT, 'LoudPolicy', 'zebrafinch', 'quokka')

LOUD = """
import logging, sys
from robotrials.testing.policy import FaultyPolicy

class LoudPolicyError(Exception):
    pass

class LoudPolicy(FaultyPolicy):
    def __init__(self, *, checkpoint, **options):
        print('loading', checkpoint, flush=True)
        logging.warning('loading %s', checkpoint)
        self.checkpoint = checkpoint
        super().__init__(fault='crash', only_odd=True, **options)

    def start(self, setup, *, seed):
        print('LoudPolicy starts', file=sys.stderr, flush=True)
        if setup.instance % 3 == 2:
            raise LoudPolicyError(f'{self.checkpoint} is out of memory')
        return super().start(setup, seed=seed)
"""

TRIAL = f"""
title = "{FAST} (ours) against {SLOW}"
seed = 5
host = "point-mass"
tasks = [{{name = "reach", items = 2}}]
reference = "{SLOW}"
episodes_per_cell = 4
time_cap_s = 4.0
[blinding]
secret = "0123456789abcdef"
[faults]
attempts = 2
[policies.{FAST}]
use = "loud_module:LoudPolicy"
options = {{checkpoint = "{CHECKPOINT}", message = "{FAST} failed"}}
[policies.{SLOW}]
use = "seek"
"""


def leaks(root: Path) -> list[tuple[Path, str]]:
    """Every file under `root` whose name or content holds a telling word, Parquet decoded as well as raw."""
    found = []
    for path in sorted(root.rglob('*')):
        text = str(path.relative_to(root)).encode()
        if path.is_file():
            text += path.read_bytes()
            if path.suffix == '.parquet':
                text += json.dumps(pq.read_table(path).to_pylist(), default=str).encode()
        found += [(path, word) for word in TELLING if word.lower().encode() in text.lower()]
    return found


@pytest.mark.parametrize('workers', ['0', '2'])
def test_no_artifact_and_no_output_names_a_policy_before_closing(tmp_path: Path, workers: str) -> None:
    (tmp_path / 'loud_module.py').write_text(LOUD)
    (tmp_path / 'trial.toml').write_text(TRIAL)
    environment = {**os.environ, 'PYTHONPATH': f'{os.environ.get("PYTHONPATH", "")}:{tmp_path}'}
    command = [sys.executable, '-m', 'robotrials.cli', 'run', 'trial.toml', '--store', 'store', '--workers', workers]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert 'episodes valid' in ran.stdout
    assert not [word for word in TELLING if word.lower() in (ran.stdout + ran.stderr).lower()], ran.stderr
    assert leaks(tmp_path / 'store') == []
    store = Store.open(tmp_path / 'store')
    crashed = [e for e in store.episodes(attempts='all') if e.outcome is Outcome.INVALID]
    assert len(crashed) >= 2
    assert not any(e.is_reference for e in store.episodes())
    listed = subprocess.run(
        [sys.executable, '-m', 'robotrials.cli', 'store', 'ls', 'store', '--all'],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert not [word for word in TELLING if word in listed.stdout]
    # The same search finds them all once the trial is closed: it can see what it looks for.
    command = [sys.executable, '-m', 'robotrials.cli', 'close', 'trial.toml', '--store', 'store', '--by', 'kim']
    subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert {word for _, word in leaks(tmp_path / 'store')} == set(TELLING)
    assert f'{CHECKPOINT} is out of memory' in ''.join(read_fault(store, e) or '' for e in crashed)


def closed(tmp_path: Path, **changes: Any) -> Store:
    plan = make_plan(**changes)
    run_trial(plan, tmp_path / 's', workers=0)
    close_trial(plan, tmp_path / 's', by='kim', why='done')
    return Store.open(tmp_path / 's')


def test_closing_shows_names_and_the_reference_and_filters_by_them(tmp_path: Path) -> None:
    store = closed(tmp_path)
    assert {(e.policy, e.is_reference) for e in store.episodes()} == {(FAST, False), (SLOW, True)}
    assert len(list(store.episodes(where={'policy': FAST}))) == 4
    assert len(list(store.episodes(where={'policy': [FAST, SLOW]}))) == 8
    assert {e.policy for e in store.episodes(where={'is_reference': True})} == {SLOW}
    assert {e.policy for e, _ in store.trajectories(where={'policy': SLOW})} == {SLOW}
    assert list(store.episodes(where={'policy': 'nobody'})) == []
    assert verify_store(store.path).findings == ()


def test_closing_is_on_record_and_happens_once(tmp_path: Path) -> None:
    store = closed(tmp_path)
    record = store.unblindings().by_trial[make_plan().hash]
    assert (record.by, record.why) == ('kim', 'done')
    assert record.at
    assert json.loads(record.plan)['policies'].keys() == {FAST, SLOW}
    with pytest.raises(StoreError, match=r'was closed by kim at .*; it closes once'):
        close_trial(make_plan(), store.path, by='lee')
    with pytest.raises(StoreError, match='this trial is closed; nothing can be added'):
        run_trial(make_plan(), store.path, workers=0)


def test_an_unfinished_trial_closes_only_early_and_with_a_reason(tmp_path: Path) -> None:
    plan = make_plan()
    run_trial(plan, tmp_path / 's', workers=0, stop_after=3)
    for options in ({}, {'early': True}, {'why': 'tired'}):
        with pytest.raises(InputError, match='5 of 8 episodes are still to be run'):
            close_trial(plan, tmp_path / 's', by='kim', **options)  # type: ignore[arg-type]
    arms = close_trial(plan, tmp_path / 's', by='kim', early=True, why='the gripper broke')
    assert sum(a.n_valid for a in arms) == 3
    assert sum(a.n_missing for a in arms) == 5


def test_a_trial_is_closed_with_its_own_plan(tmp_path: Path) -> None:
    run_trial(make_plan(), tmp_path / 's', workers=0)
    with pytest.raises(StoreError, match='another plan'):
        close_trial(make_plan(seed=99), tmp_path / 's', by='kim')
    with pytest.raises(InputError, match='by whom'):
        close_trial(make_plan(), tmp_path / 's', by='')


def test_names_survive_a_merge_and_edits_still_apply(tmp_path: Path) -> None:
    store = closed(tmp_path)
    first = next(store.episodes(where={'policy': FAST}))
    store.edit(first.episode_id, 'set', field='reason', value='slipped', by='kim', approved_by='ana',
               why='seen on video')  # fmt: skip
    target = Store.create(tmp_path / 'all')
    merge_stores(target.path, store.path)
    assert {e.policy for e in target.episodes()} == {FAST, SLOW}
    assert [e.reason for e in target.episodes(where={'policy': FAST, 'reason': 'slipped'})] == ['slipped']
    assert verify_store(target.path).findings == ()


def test_damage_to_the_record_of_closing_is_found(tmp_path: Path) -> None:
    store = closed(tmp_path)
    path = max((store.path / 'log').iterdir())
    path.write_bytes(path.read_bytes().replace(b'"why":"done"', b'"why":"dont"'))
    findings = verify_store(store.path).findings
    assert [(f.kind.value, f.path) for f in findings] == [('damaged', path)]


def test_a_closing_record_with_swapped_names_is_found_though_its_hash_is_made_to_fit(tmp_path: Path) -> None:
    store = closed(tmp_path)
    head = store.head()
    path = max((store.path / 'log').iterdir())
    values = json.loads(path.read_bytes())
    record = values['body']['unblinding']
    (first, a), (second, b) = record['policies'].items()
    record['policies'] = {first: b, second: a}
    line = json.dumps(values, sort_keys=True, separators=(',', ':')).encode() + b'\n'
    path.unlink()
    (path.parent / f'{path.name[:16]}-{entry_id(line)}.json').write_bytes(line)
    (finding,) = verify_store(store.path).findings
    assert 'do not follow from the plan and the key' in finding.detail
    assert any(f'no entry {head[:12]}' in f.detail for f in verify_store(store.path, head=head).findings)


def test_codes_follow_from_the_plan_and_a_secret_changes_them() -> None:
    codes = blinding_of(make_plan()).codes
    assert codes == blinding_of(make_plan()).codes
    assert sorted(codes) == [SLOW, FAST]
    assert len(set(codes.values())) == 2
    assert codes != blinding_of(make_plan(blinding={'secret': 'x'})).codes
    assert make_plan().hash != make_plan(blinding={'secret': 'x'}).hash


def test_an_open_trial_shows_names_from_the_start(tmp_path: Path) -> None:
    plan = make_plan(blinding={'enabled': False})
    run_trial(plan, tmp_path / 's', workers=0)
    assert {(e.policy, e.is_reference) for e in Store.open(tmp_path / 's').episodes()} == {(FAST, False), (SLOW, True)}
    close_trial(plan, tmp_path / 's', by='kim')
    assert {e.policy for e in Store.open(tmp_path / 's').episodes()} == {FAST, SLOW}


def test_sealed_text_opens_with_its_key_only() -> None:
    text = 'Traceback: ' + 'x' * 500
    hidden = seal(b'key', text, nonce='n')
    assert 'Traceback' not in hidden
    assert unseal(b'key', hidden, nonce='n') == text
    for key, nonce in [(b'other', 'n'), (b'key', 'm')]:
        with pytest.raises(InputError, match='does not open'):
            unseal(key, hidden, nonce=nonce)


def test_scrubbing_leaves_ordinary_words_alone() -> None:
    blinding = blinding_of(make_plan(policies={'act': 'seek', 'pi0': 'seek'}, reference='', title=''))
    code = blinding.codes['act']
    assert blinding.scrub('action of ACT, act-2, extract, fact') == f'action of {code}, {code}-2, extract, fact'
