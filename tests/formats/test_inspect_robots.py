"""Logs of inspect-robots. `data/inspect-robots` was written by its release 0.60.0:

inspect-robots run --task cubepick-reach --policy scripted|random --embodiment cubepick --epochs 2 --seed 3 --no-prompt
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import robotrials

from robotrials.errors import InputError
from robotrials.formats.catalog import open_source
from robotrials.formats.imported import ImportOptions
from robotrials.record import Episode, Store

LOGS = Path(__file__).with_name('data') / 'inspect-robots'


def changed(tmp_path: Path, **samples: Any) -> Path:
    """A copy of the log directory in which the first scene of every log is changed."""
    shutil.copytree(LOGS, tmp_path / 'logs')
    for file in (tmp_path / 'logs').glob('*.json'):
        document = json.loads(file.read_text())
        document['samples'][0].update(samples)
        file.write_text(json.dumps(document))
    return tmp_path / 'logs'


def episodes_of(path: Path, **options: Any) -> list[Episode]:
    imported = open_source(path, ImportOptions(**options))
    assert imported.format == 'inspect-robots'
    return list(imported.episodes())


def test_a_log_directory_is_imported_with_steps_and_seconds(tmp_path: Path) -> None:
    assert '16 episodes added' in robotrials('import', LOGS, '--to', tmp_path / 'store')
    assert '0 episodes added, 16 already there' in robotrials('import', LOGS, '--to', tmp_path / 'store')
    episodes = list(Store.open(tmp_path / 'store').episodes())
    assert Counter((e.policy, e.outcome.value) for e in episodes) == {
        ('scripted', 'success'): 8,
        ('random', 'timeout'): 8,
    }
    for file in LOGS.glob('*.json'):
        document = json.loads(file.read_text())
        own = [e for e in episodes if e.policy == document['eval']['policy']]
        assert sum(e.steps or 0 for e in own) == document['stats']['total_steps']
        assert all(e.duration_s == (e.steps or 0) / 10 and e.time_cap_s == 8.0 for e in own)


def test_equal_scenes_and_epochs_of_two_policies_pair() -> None:
    starts = {
        policy: {(e.task, e.instance, e.seed, e.repeat) for e in episodes_of(LOGS) if e.policy == policy}
        for policy in ('scripted', 'random')
    }
    assert starts['scripted'] == starts['random']
    assert len(starts['random']) == 8


def test_an_unscored_trial_is_the_policys_only_if_the_log_says_so(tmp_path: Path) -> None:
    folder = changed(tmp_path, epochs=[{}, {'success_at_end': 0.0}], error='PolicyError: no answer')
    assert Counter(e.outcome.value for e in episodes_of(folder) if e.policy == 'scripted') == {
        'success': 6,
        'failure': 2,
    }
    told = episodes_of(folder, answers={'policy-errors': 'invalid'})
    assert [e.reason for e in told if e.outcome == 'invalid'] == ['PolicyError: no answer'] * 2
    shutil.rmtree(folder)
    folder = changed(tmp_path, epochs=[{}, {'success_at_end': 0.0}], error='EmbodimentFault: estop')
    assert sum(e.outcome == 'invalid' for e in episodes_of(folder)) == 2
    assert not any(e.outcome == 'invalid' for e in episodes_of(folder, answers={'faults': 'failures'}))


def test_a_missing_or_foreign_action_file_leaves_the_steps_unknown(tmp_path: Path) -> None:
    folder = changed(tmp_path, trial_metadata=[{'actions': '../../etc/passwd'}, {'actions': 'actions/gone.jsonl'}])
    imported = open_source(folder, ImportOptions())
    episodes = list(imported.episodes())
    assert sum(e.steps is None and e.duration_s is None for e in episodes) == 4
    assert sum(entry.count or 0 for entry in imported.ledger.dropped if entry.what == 'step counts') == 4


@pytest.mark.parametrize(
    ('samples', 'message'),
    [
        ({'epochs': [{'success_at_end': 7}]}, "samples[0] epoch 0: score 'success_at_end' is 7, wanted 0 to 1"),
        ({'epochs': [{'success_at_end': 'often'}]}, 'samples[0] epoch 0'),
    ],
)
def test_a_score_that_is_none_is_named(tmp_path: Path, samples: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        episodes_of(changed(tmp_path, **samples))
    assert message in str(caught.value)


def test_a_log_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = changed(tmp_path)
    for file in folder.glob('*.json'):
        file.write_text(json.dumps({**json.loads(file.read_text()), 'version': 2}))
    with pytest.raises(InputError, match='a log of version 2; wanted 1'):
        episodes_of(folder)
