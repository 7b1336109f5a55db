"""The verbs of a trial: plan, run, close."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from robotrials.cli import full_app
from robotrials.errors import InputError, NotEstimable, StoreError
from robotrials.record import read_store

app = full_app()

TRIAL = """
title = "two seekers"
seed = 3
host = "point-mass"
tasks = [{name = "reach", items = 2}]
strata = ["towels", "spoons"]
episodes_per_cell = 2
time_cap_s = 60
turnaround_s = 30
reference = "b"
[policies]
a = {use = "seek", options = {speed_m_s = 1.0}}
b = "seek"
[blinding]
secret = "0123456789abcdef"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / 'trial.toml').write_text(TRIAL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_plan_prints_cells_duration_and_precision(folder: Path) -> None:
    shown = invoke('plan', 'trial.toml', '--check', '--format', 'csv')
    assert 'reach,towels,nominal,2,2,60' in shown
    assert 'takes at most,0 h 12 min' in shown or 'takes at most,12 min 0 s' in shown  # 8 x (60 + 30) s
    assert 'at most +-0.405' in shown  # Wilson at 1 of 2
    assert 'fit together' in shown
    document = CliRunner().invoke(app, ['plan', 'trial.toml', '--check', '-f', 'json'], catch_exceptions=False).stdout
    assert [shown['title'] for shown in json.loads(document)][1:] == ['what it amounts to']


def test_run_and_close_go_through_one_default_store(folder: Path) -> None:
    assert '4 of 8 episodes valid, 4 run now' in invoke('run', 'trial.toml', '--workers', '0', '--stop-after', '4')
    done = invoke('run', 'trial.toml', '--workers', '0', '--operator', 'kim')
    assert '8 of 8 episodes valid, 4 run now' in done
    assert 'complete; unblind with: robotrials close trial.toml' in done
    shown = invoke('close', 'trial.toml', '--by', 'kim', '--format', 'csv')
    assert ',b,yes,4,0,0,0' in shown
    store = next((folder / 'runs').iterdir())
    assert {e.policy for e in read_store(store).episodes()} == {'a', 'b'}
    invoke('annotate', 'robustness', str(store))
    assert read_store(store).looks() == (), 'a look at a closed trial is no interim look'
    with pytest.raises(StoreError, match='closed by kim'):
        invoke('close', 'trial.toml')


def test_an_open_trial_is_not_compared_but_told_to_be_closed(folder: Path) -> None:
    invoke('run', 'trial.toml', '--workers', '0', '--store', 's')
    with pytest.raises(NotEstimable, match=r'still blinded.*robotrials close'):
        invoke('compare', 's')


def test_a_mistake_in_the_plan_is_one_clear_error(folder: Path) -> None:
    (folder / 'trial.toml').write_text(TRIAL.replace('turnaround_s', 'turnround_s'))
    with pytest.raises(InputError, match="no key 'turnround_s': did you mean 'turnaround_s'"):
        invoke('plan', 'trial.toml')


def test_a_secret_that_can_be_guessed_is_told_its_length(folder: Path) -> None:
    (folder / 'trial.toml').write_text(TRIAL.replace('0123456789abcdef', 'word'))
    with pytest.raises(InputError, match=r'needs a secret \(found 4 characters, wanted 8 or more\)'):
        invoke('run', 'trial.toml', '--workers', '0')


@pytest.mark.parametrize(
    ('change', 'told'),
    [
        (('"spoon"', '"fork"'), "no object of task bin_to_bin named 'fork': known: battery, block, scissors, spoon"),
        (('items = 2', 'items = 9'), 'items is 9 in task bin_to_bin, wanted 1 to 6'),
    ],
)
def test_a_cell_that_could_never_be_reset_is_refused_before_the_first_episode(
    folder: Path, change: tuple[str, str], told: str
) -> None:
    pytest.importorskip('mujoco')
    declared = """
        seed = 5
        episodes_per_cell = 2
        time_cap_s = 12
        host = {use = "tabletop", options = {state = "privileged"}}
        tasks = [{name = "bin_to_bin", items = 2}]
        strata = ["block", "spoon"]
        policies = {hasty = {use = "scripted", options = {temper = "hasty"}}}
        blinding = {secret = "0123456789abcdef"}
    """
    (folder / 'trial.toml').write_text(declared.replace(*change))
    for command in (['plan', 'trial.toml', '--check'], ['run', 'trial.toml', '--workers', '0', '--store', 'runs/s']):
        with pytest.raises(InputError, match=told):
            invoke(*command)
    assert list(read_store(folder / 'runs' / 's').episodes(attempts='all')) == []
