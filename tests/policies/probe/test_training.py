"""Small trainings in the real environment: what is learnt, what is told, what is bit-equal, what is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.policies.probe.build import TASKS, make_demonstrations

from robotrials.errors import InputError
from robotrials.policies.probe import (
    Demonstrations,
    ProbeOptions,
    ProbePolicy,
    TrainedProbe,
    read_trained,
    sweep_probe,
    train_probe,
    variants,
)
from robotrials.policies.probe.option import TaskInput
from robotrials.policies.probe.train import TrainingProgress
from robotrials.run import Observation, Setup
from robotrials.run.environment import Environment
from robotrials.run.environment.recipe import link_robotrials

pytestmark = [pytest.mark.training, pytest.mark.usefixtures('probe_environment')]
SMALL = ProbeOptions(
    chunk_length=3, execute=2, hidden=(32,), channels=(4, 4, 8), batch=32, steps=150, learning_rate=5e-3,
    average_decay=0.9, checkpoints=(50,),
)  # fmt: skip


@pytest.fixture(scope='module')
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Demonstrations:
    return make_demonstrations(tmp_path_factory.mktemp('made') / 'demos', episodes=40)


@pytest.fixture(scope='module')
def trained(demonstrations: Demonstrations, tmp_path_factory: pytest.TempPathFactory) -> TrainedProbe:
    return train_probe(demonstrations, SMALL, tmp_path_factory.mktemp('full') / 'probe')


def seen(row: int, side_px: int = 24) -> Observation:
    image = np.zeros((side_px, side_px, 3), np.uint8)
    image[row - 1 : row + 2, 4:7] = 255
    return Observation(0.0, np.zeros(3), {'top': image})


Acting = Callable[..., np.ndarray]


@pytest.fixture(scope='module')
def act() -> Iterator[Acting]:
    """The mean action of one chunk; every checkpoint is loaded once."""
    policies: dict[tuple[Path, int | None], ProbePolicy] = {}

    def mean_action(
        folder: Path, task: str, row: int = 12, *, words: str = '', shuffle: int | None = None
    ) -> np.ndarray:
        key = (folder, shuffle)
        policy = policies[key] = policies.get(key) or ProbePolicy(path=str(folder), shuffle_tasks=shuffle)
        session = policy.start(Setup(task=task, seed=0, instruction=words), seed=0)
        return np.asarray(session.act(seen(row)).actions.mean(axis=0))

    yield mean_action
    for policy in policies.values():
        policy.close()


def test_the_loss_falls_and_everything_is_kept(trained: TrainedProbe) -> None:
    first, last = trained.loss_curve[0], trained.loss_curve[-1]
    assert last.training_loss < 0.5 * first.training_loss
    assert last.validation_loss < 0.5 * first.validation_loss
    assert [c.step for c in trained.checkpoints] == [50, 150]
    assert trained.parameters['total'] == trained.parameters['encoder'] + trained.parameters['head']
    assert read_trained(trained.folder) == trained
    for checkpoint in trained.checkpoints:
        card = json.loads((checkpoint.folder / 'probe.json').read_text())
        assert card['validation_loss'] == checkpoint.validation_loss


def test_the_probe_goes_where_its_task_says(trained: TrainedProbe, act: Acting) -> None:
    left, right = (act(trained.last.folder, task) for task in TASKS)
    assert left[0] == pytest.approx(-0.01, abs=0.003)
    assert right[0] == pytest.approx(0.01, abs=0.003)
    by_words = act(trained.last.folder, 'elsewhere', words='Please go right.')
    np.testing.assert_array_equal(by_words, right)


def test_the_probe_sees(trained: TrainedProbe, act: Acting) -> None:
    up, down = (act(trained.last.folder, TASKS[0], row)[1] for row in (3, 20))
    assert down - up > 0.003  # of 0.0071 in the demonstrations


def test_a_shuffled_probe_is_told_the_other_task(trained: TrainedProbe, act: Acting) -> None:
    told = act(trained.last.folder, TASKS[0], shuffle=1)
    np.testing.assert_array_equal(told, act(trained.last.folder, TASKS[1]))


def test_a_probe_told_wrongly_at_times_leans_on_its_task_only_where_that_says_more(
    demonstrations: Demonstrations, tmp_path: Path, act: Acting
) -> None:
    needed = train_probe(demonstrations, noisy(0.2), tmp_path / 'needed').last.folder
    assert act(needed, TASKS[0])[0] < -0.006
    assert act(needed, TASKS[1])[0] > 0.006  # of 0.01
    shown = make_demonstrations(tmp_path / 'shown', episodes=40, shows_task=True)
    trained = {noise: train_probe(shown, noisy(noise), tmp_path / f'{noise}').last.folder for noise in (0.0, 0.2)}
    way = {noise: [float(act(folder, task)[0]) for task in TASKS] for noise, folder in trained.items()}
    assert way[0.2] == pytest.approx([-0.01, -0.01], abs=0.003)  # a white spot: the left, whatever it is told
    assert abs(way[0.0][1] - way[0.0][0]) > 0.01  # it had believed the number


def noisy(noise: float) -> ProbeOptions:
    return dataclasses.replace(SMALL, task_noise=noise)


def test_variants_do_without(demonstrations: Demonstrations, tmp_path: Path, act: Acting) -> None:
    made = variants(SMALL)
    blind = train_probe(demonstrations, made['blind'], tmp_path / 'blind').last.folder
    np.testing.assert_array_equal(act(blind, TASKS[0], 3), act(blind, TASKS[0], 20))
    assert act(blind, TASKS[0])[0] < 0 < act(blind, TASKS[1])[0]
    no_task = train_probe(demonstrations, made['no_task'], tmp_path / 'no_task').last.folder
    np.testing.assert_array_equal(act(no_task, TASKS[0]), act(no_task, 'anything'))
    own = train_probe(demonstrations, made['proprioception'], tmp_path / 'own').last.folder
    np.testing.assert_array_equal(act(own, TASKS[0], 3), act(own, 'anything', 20))


@pytest.mark.parametrize('change', [{'per_task': True}, {'task_input': TaskInput.TEXT}])
def test_a_model_per_task_and_words_tell_tasks_apart(
    demonstrations: Demonstrations, tmp_path: Path, act: Acting, change: dict[str, object]
) -> None:
    options = dataclasses.replace(SMALL, **change)  # type: ignore[arg-type]
    folder = train_probe(demonstrations, options, tmp_path / 'probe').last.folder
    left, right = (act(folder, task, words=f'please {task}')[0] for task in TASKS)
    assert left < -0.005 < 0.005 < right


def test_an_unknown_task_is_refused(trained: TrainedProbe, act: Acting) -> None:
    with pytest.raises(InputError, match='go left'):
        act(trained.last.folder, 'go up')


def test_a_stopped_training_resumes_to_the_same_bits(
    demonstrations: Demonstrations, trained: TrainedProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('robotrials.policies.probe.train.SLICE_S', 0.01)

    class Stop(Exception):  # noqa: N818 - it is no error
        pass

    def stop(at: TrainingProgress) -> None:
        if at.step > 60:
            raise Stop

    with pytest.raises(Stop):
        train_probe(demonstrations, SMALL, tmp_path / 'probe', progress=stop)
    with pytest.raises(InputError, match='was stopped'):
        read_trained(tmp_path / 'probe')
    steps: list[int] = []
    resumed = train_probe(demonstrations, SMALL, tmp_path / 'probe', progress=lambda at: steps.append(at.step))
    assert 50 < steps[0] < 150
    assert resumed.loss_curve == trained.loss_curve
    weights = [(probe.last.folder / 'model.safetensors').read_bytes() for probe in (resumed, trained)]
    assert weights[0] == weights[1]


def test_the_seed_changes_the_weights(demonstrations: Demonstrations, trained: TrainedProbe, tmp_path: Path) -> None:
    other = train_probe(demonstrations, dataclasses.replace(SMALL, seed=1), tmp_path / 'probe')
    weights = [(probe.last.folder / 'model.safetensors').read_bytes() for probe in (other, trained)]
    assert weights[0] != weights[1]


def test_another_training_in_the_folder_is_refused(
    demonstrations: Demonstrations, trained: TrainedProbe, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match='other options'):
        train_probe(demonstrations, dataclasses.replace(SMALL, seed=2), trained.folder)
    with pytest.raises(InputError, match='other demonstrations'):
        train_probe(make_demonstrations(tmp_path / 'others', seed=9), SMALL, trained.folder)
    assert train_probe(demonstrations, SMALL, trained.folder) == trained


def test_a_sweep_trains_the_grid_and_names_the_best(demonstrations: Demonstrations, tmp_path: Path) -> None:
    blind = dataclasses.replace(variants(SMALL)['blind'], checkpoints=())
    found = sweep_probe(demonstrations, blind, tmp_path, learning_rates=(1e-6, 5e-3), steps=(20, 60))
    assert len(found.trained) == 4
    assert (found.best.options.learning_rate, found.best.options.steps) == (5e-3, 60)


DINO = """
import json, sys
import torch
from safetensors.torch import save_file
from robotrials.policies.probe.network import ConvEncoder, DinoEncoder, count_parameters
torch.manual_seed(0)
made = DinoEncoder(sys.argv[1], (64, 64))
save_file(made.model.state_dict(), sys.argv[2])
torch.manual_seed(1)
read = DinoEncoder(sys.argv[1], (64, 64))
pictures = torch.rand(1, 3, 64, 64)
made.eval(), read.eval()
differs = not torch.equal(made(pictures), read(pictures))
read.load_weights(sys.argv[2])
print(json.dumps([count_parameters(made), made.width, differs, torch.equal(made(pictures), read(pictures))]))
"""


@pytest.mark.parametrize(('name', 'millions', 'width'), [('dinov2-s14', 22, 384), ('dinov2-b14', 86, 768)])
def test_dinov2_has_its_published_size_and_takes_local_weights(
    probe_environment: Environment, tmp_path: Path, name: str, millions: int, width: int
) -> None:
    """ViT-S/14: 21 M and ViT-B/14: 86 M parameters (Oquab et al. 2024, model card). The weights here are random."""
    ran = subprocess.run(
        [str(probe_environment.python), '-c', DINO, name, str(tmp_path / 'w.safetensors')],
        check=True, capture_output=True, text=True, timeout=300,
        env={'PYTHONPATH': str(link_robotrials(probe_environment.folder))},
    )  # fmt: skip
    n, found_width, differs, is_same = json.loads(ran.stdout)
    assert n / 1e6 == pytest.approx(millions, abs=1)
    assert (found_width, differs, is_same) == (width, True, True)


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        (lambda folder: (folder / 'probe.json').write_text('{}'), 'not the card of a probe'),
        (lambda folder: (folder / 'model.safetensors').unlink(), r'no model\.safetensors'),
    ],
)
def test_a_damaged_checkpoint_is_refused(
    demonstrations: Demonstrations, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    options = dataclasses.replace(variants(SMALL)['blind'], steps=2, checkpoints=())
    folder = train_probe(demonstrations, options, tmp_path / 'probe').last.folder
    damage(folder)
    with pytest.raises(InputError, match=message):
        ProbePolicy(path=str(folder))
