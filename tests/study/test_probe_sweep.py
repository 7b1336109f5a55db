"""The probe's maker under a sweep: the smallest validation loss is taken, for the variants too, before any test.

Training is stood in for by a record of what was asked; what training does is tested with the probe itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robotrials.errors import InputError
from robotrials.policies.probe import ProbeOptions, TrainedProbe
from robotrials.policies.probe.train import ProbeCheckpoint
from robotrials.study import ShortcutPlan
from robotrials.study.probe_maker import ProbeMaker
from robotrials.value import read_table


def plan_of(probe: dict[str, Any], sweep: dict[str, Any]) -> ShortcutPlan:
    values = {'host': {'use': 'tabletop'}, 'demonstrations': ['held'], 'probe': probe, 'sweep': sweep}
    return read_table(ShortcutPlan, values, where='plan')


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ProbeOptions]]:
    """Folder and options of every training; the loss is smallest at a rate of 0.002 and falls with the steps."""
    asked: list[tuple[str, ProbeOptions]] = []

    def train(demonstrations: object, options: ProbeOptions, folder: Path, **_: object) -> TrainedProbe:
        asked.append((folder.name, options))
        loss = abs(options.learning_rate - 0.002) + 1 / options.steps
        kept = []
        for step in options.kept_steps:
            place = folder / f'step-{step:06d}'
            place.mkdir(parents=True, exist_ok=True)
            (place / 'probe.json').write_text('{}', encoding='utf-8')
            kept.append(ProbeCheckpoint(step, place, loss, loss))
        return TrainedProbe(folder, options, '', tuple(kept), (), {'total': 1}, 1.0, 1.0)

    monkeypatch.setattr('robotrials.policies.probe.train.train_probe', train)
    monkeypatch.setattr('robotrials.study.probe_maker.train_probe', train)
    monkeypatch.setattr(ProbeMaker, 'demonstrations', object())
    monkeypatch.setattr(ProbeMaker, '_check_host', lambda self: None)  # of demonstrations that are not there
    return asked


def test_the_smallest_validation_loss_is_taken_and_variants_share_its_settings(
    tmp_path: Path, trained: list[tuple[str, ProbeOptions]]
) -> None:
    plan = plan_of(
        {'steps': 50, 'checkpoints': [20]}, {'learning_rates': [0.001, 0.002], 'steps': [10, 100], 'augmentations': []}
    )
    maker = ProbeMaker(plan, tmp_path)
    assert [c.step for c in maker.train('full')] == [20, 100]
    assert [(o.learning_rate, o.steps, o.checkpoints) for _, o in trained] == [
        (0.001, 10, ()), (0.001, 100, (20,)), (0.002, 10, ()), (0.002, 100, (20,)),
    ]  # fmt: skip
    assert [c.step for c in maker.train('blind')] == [100]
    name, options = trained[-1]
    assert (name, options.uses_images) == ('blind', False)
    assert (options.learning_rate, options.steps, options.augmentation) == (0.002, 100, ProbeOptions().augmentation)


def test_a_variant_alone_waits_for_the_choice(tmp_path: Path, trained: list[tuple[str, ProbeOptions]]) -> None:
    ProbeMaker(plan_of({'steps': 10}, {'learning_rates': [0.001, 0.002]}), tmp_path).train('blind')
    assert [name for name, _ in trained] == [
        'rate-0.001-augmentation-0.25-steps-10', 'rate-0.002-augmentation-0.25-steps-10', 'blind',
    ]  # fmt: skip
    assert trained[-1][1].learning_rate == 0.002


@pytest.mark.parametrize(
    ('probe', 'sweep', 'said'),
    [
        ({'validation': 0.0}, {'steps': [10, 20]}, 'compared by the validation loss; hold some out'),
        ({}, {'learning_rates': [0.001, -1.0]}, 'learning_rate is -1.0, wanted > 0'),
        ({}, {'steps': [0, 10]}, 'steps is 0, wanted 1 to'),
    ],
)
def test_a_sweep_that_cannot_be_trained_is_refused_at_once(
    tmp_path: Path, probe: dict[str, Any], sweep: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        ProbeMaker(plan_of(probe, sweep), tmp_path)
    assert list(tmp_path.iterdir()) == []
