"""The doctor finds what is amiss, says how to mend it, and finds nothing where nothing is."""

from __future__ import annotations

import json
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from typer.testing import CliRunner

from robotrials.cli.env import env_app
from robotrials.errors import UnknownName
from robotrials.run.environment import gl
from robotrials.run.environment.doctor import DoctorFinding, FindingState, examine
from robotrials.run.environment.recipe import RECORD, read_recipe

Usage = namedtuple('Usage', ['total', 'used', 'free'])


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / 'environments'
    folder.mkdir()
    monkeypatch.setenv('ROBOTRIALS_ENVIRONMENTS', str(folder))
    for name in ('MUJOCO_GL', 'PYOPENGL_PLATFORM'):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gl, '_PROBE', 'raise OSError("no {backend} here")')


def of(findings: tuple[DoctorFinding, ...], subject: str, item: str) -> DoctorFinding:
    return next(f for f in findings if f.subject == subject and f.item.startswith(item))


def made(root: Path, name: str, digest: str, packages: dict[str, str]) -> Path:
    """A folder that looks like an environment, with this interpreter."""
    folder = root / f'{name}-{digest}'
    (folder / 'bin').mkdir(parents=True)
    (folder / 'bin' / 'python').symlink_to(sys.executable)
    (folder / RECORD).write_text(json.dumps({'created_at': '2026', 'packages': packages}))
    return folder


def test_both_back_ends_really_draw_here(root: Path) -> None:
    findings = examine()
    assert of(findings, 'graphics', 'egl in robotrials').found == 'draws'
    assert of(findings, 'graphics', 'osmesa in robotrials').found == 'draws'
    assert not [f for f in findings if f.state is FindingState.PROBLEM]


def test_a_back_end_that_draws_nothing_but_black_does_not_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = gl._PROBE.replace('mujoco.mjr_render(rect, scene, context)', '')
    assert blind != gl._PROBE
    monkeypatch.setattr(gl, '_PROBE', blind)
    assert 'draws nothing' in gl.why_not_drawing(sys.executable, 'osmesa')


def test_a_back_end_that_takes_the_process_down_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gl, '_PROBE', 'import os; os.kill(os.getpid(), 11)')
    assert gl.why_not_drawing(sys.executable, 'egl') == 'it took the process down (signal 11)'
    assert 'does not run' in gl.why_not_drawing('/no/such/python', 'egl')


def test_no_back_end_at_all_is_a_problem_with_its_cure(root: Path, no_drawing: None) -> None:
    findings = examine()
    egl, osmesa = of(findings, 'graphics', 'egl'), of(findings, 'graphics', 'osmesa')
    assert egl.state is osmesa.state is FindingState.PROBLEM
    assert 'no egl here' in egl.found
    assert 'libegl1' in egl.mend
    assert 'libosmesa6' in osmesa.mend


def test_one_back_end_is_enough(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gl, '_PROBE', 'import os; os._exit(0 if {backend!r} == "osmesa" else 3)')
    findings = examine()
    assert of(findings, 'graphics', 'egl').state is FindingState.WARNING
    assert '(osmesa works)' in of(findings, 'graphics', 'egl').found


def test_a_variable_that_no_simulator_knows_is_a_problem(
    root: Path, no_drawing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('MUJOCO_GL', 'vulkan')
    found = of(examine(), 'variable', 'MUJOCO_GL')
    assert (found.state, found.mend) == (FindingState.PROBLEM, 'unset MUJOCO_GL')


def test_environments_are_tried_one_by_one(root: Path, no_drawing: None) -> None:
    made(root, 'gym-pusht', read_recipe('gym-pusht').digest, {'numpy': '0.1'})
    made(root, 'metaworld', '0' * 12, {'numpy': '2'})
    (root / 'lerobot-111111111111').mkdir()
    findings = examine()
    broken = of(findings, 'environment', 'gym-pusht')
    assert broken.state is FindingState.PROBLEM
    assert 'numpy was 0.1' in broken.found
    assert broken.mend == 'robotrials env create gym-pusht --anew'
    assert of(findings, 'environment', 'metaworld').mend == 'robotrials env remove metaworld --older'
    assert of(findings, 'environment', 'lerobot').state is not FindingState.OK


def test_only_what_was_asked_for_is_looked_at_and_must_be_there(root: Path, no_drawing: None) -> None:
    findings = examine(['metaworld'])
    missing = of(findings, 'environment', 'metaworld')
    assert (missing.state, missing.mend) == (FindingState.PROBLEM, 'robotrials env create metaworld')
    with pytest.raises(UnknownName, match='metaworld'):
        examine(['metawrld'])


def test_assets_are_looked_for_where_they_may_lie(
    root: Path, no_drawing: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(root, 'robocasa', '2' * 12, {'numpy': '2'})
    monkeypatch.delenv('ROBOCASA_ASSETS', raising=False)
    missing = of(examine(), 'assets', 'RoboCasa')
    assert missing.state is FindingState.PROBLEM
    assert missing.mend == f'{folder}/bin/python -m robocasa.scripts.download_kitchen_assets'
    (tmp_path / 'kitchens').mkdir()
    monkeypatch.setenv('ROBOCASA_ASSETS', str(tmp_path / 'kitchens'))
    assert of(examine(), 'assets', 'RoboCasa').state is FindingState.PROBLEM  # an empty folder holds no assets
    (tmp_path / 'kitchens' / 'mug.xml').write_text('')
    assert of(examine(), 'assets', 'RoboCasa').state is FindingState.OK


def test_a_full_disk_is_told_before_it_is_full(root: Path, no_drawing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: Usage(10, 10, 100 << 20))
    assert of(examine(), 'disk', 'environments').state is FindingState.PROBLEM
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: Usage(10, 10, 2 << 30))
    assert of(examine(), 'disk', 'environments').state is FindingState.WARNING


def test_the_verb_prints_json_and_fails_where_something_must_be_mended(root: Path, no_drawing: None) -> None:
    ran = CliRunner().invoke(env_app, ['doctor', '--format', 'json'])
    assert ran.exit_code == 1
    shown = json.loads(ran.stdout)
    rows = shown['rows'] if isinstance(shown, dict) else shown
    assert any('libosmesa6' in str(row) for row in rows)


def test_older_environments_can_be_removed_alone(root: Path) -> None:
    kept = made(root, 'metaworld', read_recipe('metaworld').digest, {'numpy': '2'})
    old = made(root, 'metaworld', '0' * 12, {'numpy': '2'})
    assert CliRunner().invoke(env_app, ['remove', 'metaworld', '--older']).exit_code == 0
    assert kept.exists()
    assert not old.exists()


def test_an_environment_of_ones_own_is_removed_by_its_recipe_and_a_wrong_name_is_told(root: Path) -> None:
    mine = made(root, 'mine', '0' * 12, {'numpy': '2'})
    with pytest.raises(UnknownName, match="no environment named 'metawrld': did you mean 'metaworld'"):
        CliRunner().invoke(env_app, ['remove', 'metawrld'], catch_exceptions=False)
    assert CliRunner().invoke(env_app, ['remove', 'folder/mine.toml']).exit_code == 0
    assert not mine.exists()
