from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robotrials.errors import InputError
from robotrials.policies.probe import ProbeOptions, read_options, variants
from robotrials.policies.probe.option import TaskInput


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'execute': 17}, 'execute is 17'),
        ({'steps': 0}, 'steps is 0'),
        ({'steps': 10**12}, 'wanted 1 to 100000000'),
        ({'chunk_length': 10**9}, 'chunk_length is 1000000000'),
        ({'hidden': (10**9,)}, 'of 1 to 16384 units'),
        ({'task_noise': 1.0}, 'task_noise is 1.0'),
        ({'seed': -1}, 'seed is -1'),
        ({'checkpoints': (3000,)}, 'checkpoints'),
        ({'learning_rate': 0.0}, 'learning_rate'),
        ({'image_size': (64,)}, 'image_size'),
        ({'uses_images': False, 'uses_state': False, 'task_input': TaskInput.NONE}, 'has no input'),
        ({'encoder': 'dinov2-s14'}, 'nothing is downloaded'),
    ],
)
def test_bad_options_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ProbeOptions(**given)


def test_options_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / 'probe.toml'
    path.write_text('[probe]\ncameras = ["front"]\ntask_input = "none"\nsteps = 10\n')
    assert read_options(path) == ProbeOptions(cameras=('front',), task_input=TaskInput.NONE, steps=10)
    path.write_text('[probe]\nlearning_rat = 0.1\n')
    with pytest.raises(InputError, match='learning_rate'):
        read_options(path)


def test_variants_take_away_what_their_names_say() -> None:
    full = ProbeOptions(steps=7)
    made = variants(full)
    shown = {name: (o.uses_images, o.uses_state, o.task_input.value) for name, o in made.items()}
    assert shown == {
        'full': (True, True, 'id'),
        'blind': (False, True, 'id'),
        'proprioception': (False, True, 'none'),
        'no_task': (True, True, 'none'),
        'shuffled': (True, True, 'id'),
    }
    assert {o.steps for o in made.values()} == {7}


def test_every_option_changes_the_digest(tmp_path: Path) -> None:
    weights = tmp_path / 'w.pth'
    weights.write_bytes(b'1')
    options = ProbeOptions(weights=str(weights))
    digests = [ProbeOptions().digest, ProbeOptions(seed=1).digest, options.digest]
    weights.write_bytes(b'2')
    assert len({*digests, options.digest}) == 4
