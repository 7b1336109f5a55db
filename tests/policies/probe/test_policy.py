"""What a checkpoint's card says, without the environment: no process is started before the first question."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.policies.probe.build import CONVENTION, TASKS

from robotrials.errors import InputError, SetupError
from robotrials.policies.probe import ProbeOptions, ProbePolicy
from robotrials.policies.probe.option import TaskInput
from robotrials.run import HostSpec, Setup
from robotrials.run.seam import check_conventions

HOST = HostSpec(name='toy', action=CONVENTION, control_rate_hz=10.0, state_width=3, images={'top': (24, 24)})


def checkpoint(folder: Path, *, probe: ProbeOptions | None = None, **changes: Any) -> Path:
    """The files of a checkpoint, as far as they are looked at before anything is loaded."""
    folder.mkdir()
    card = {
        'format': 'trialist-probe',
        'version': 1,
        'options': dataclasses.asdict(probe or ProbeOptions()),
        'tasks': list(TASKS),
        'phrasings': {'turn left': TASKS[0]},
        'sizes': {'cameras': ['top'], 'input_size': {'top': [24, 24]}, 'image_size': {'top': [24, 24]}, 'state': 3},
        'statistics': {},
        'control_rate_hz': 10.0,
        'action': dataclasses.asdict(CONVENTION),
        'state_layout': [],
    }
    (folder / 'probe.json').write_text(json.dumps({**card, **changes}))
    (folder / 'model.safetensors').write_bytes(b'')
    return folder


def told(policy: ProbePolicy, task: str, words: str = '') -> object:
    return policy.start(Setup(task=task, seed=0, instruction=words), seed=0).told


def test_the_card_is_held_against_the_host(tmp_path: Path) -> None:
    spec = ProbePolicy(path=str(checkpoint(tmp_path / 'c'))).spec
    check_conventions(HOST, spec)
    assert (spec.chunk_length, spec.execute) == (ProbeOptions().chunk_length, ProbeOptions().execute)
    with pytest.raises(InputError, match='camera top'):
        check_conventions(dataclasses.replace(HOST, images={'top': (32, 32)}), spec)
    with pytest.raises(InputError, match='control_rate_hz'):
        check_conventions(dataclasses.replace(HOST, control_rate_hz=20.0), spec)
    with pytest.raises(InputError, match='state_width'):
        check_conventions(dataclasses.replace(HOST, state_width=4), spec)


def test_a_task_is_told_by_its_number(tmp_path: Path) -> None:
    policy = ProbePolicy(path=str(checkpoint(tmp_path / 'c')), phrasings={'Turn  right.': TASKS[1]})
    assert [told(policy, task) for task in TASKS] == [0, 1]
    assert told(policy, 'x', 'Turn left!'[:-1]) == 0
    assert told(policy, 'x', 'turn right') == 1
    with pytest.raises(InputError, match='turn left'):
        told(policy, 'x', 'turn up')
    with pytest.raises(InputError, match='wanted one of'):
        ProbePolicy(path=str(tmp_path / 'c'), phrasings={'turn up': 'go up'})


def test_a_shuffled_probe_is_told_another_task(tmp_path: Path) -> None:
    policy = ProbePolicy(path=str(checkpoint(tmp_path / 'c')), shuffle_tasks=0)
    assert [told(policy, task) for task in TASKS] == [1, 0]
    with pytest.raises(InputError, match='at least two tasks'):
        ProbePolicy(path=str(checkpoint(tmp_path / 'one', tasks=TASKS[:1], phrasings={})), shuffle_tasks=0)


def test_a_probe_that_is_told_nothing_takes_any_task(tmp_path: Path) -> None:
    options = ProbeOptions(task_input=TaskInput.NONE)
    assert told(ProbePolicy(path=str(checkpoint(tmp_path / 'c', probe=options))), 'anything') == 0


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'format': 'other'}, 'not the card'),
        ({'options': {'stepps': 3}}, 'steps'),
        ({'action': {'control_mode': 'se3'}}, 'target'),
    ],
)
def test_a_foreign_card_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ProbePolicy(path=str(checkpoint(tmp_path / 'c', **changes)))


def test_no_checkpoint_and_no_environment_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    from tests.policies.probe.test_training import seen

    with pytest.raises(InputError, match=r'no probe\.json'):
        ProbePolicy(path=str(tmp_path))
    monkeypatch.setenv('ROBOTRIALS_ENVIRONMENTS', str(tmp_path / 'none'))
    policy = ProbePolicy(path=str(checkpoint(tmp_path / 'c')))
    with pytest.raises(SetupError, match='robotrials env create probe'):
        policy.start(Setup(task=TASKS[0], seed=0), seed=0).act(seen(12))
