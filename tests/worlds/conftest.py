"""What tests of real benchmarks need: environments, made where missing, and LIBERO's assets, unpacked once."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import shared_path

from robotrials.errors import SetupError
from robotrials.run.environment import Environment, environments_folder, read_recipe
from robotrials.run.environment.create import create_environment
from robotrials.run.environment.process import kept_variables
from robotrials.run.environment.recipe import link_robotrials

RUN_S = 600.0
SCRIPTS = Path(__file__).parent / 'inside'
RunInside = Callable[..., str]


def made(name: str) -> Environment:
    """The environment of a recipe; without a package index the test is skipped, or fails under CI."""
    try:
        return create_environment(read_recipe(name), progress=lambda line: print(line, file=sys.stderr, flush=True))
    except SetupError as error:
        if os.environ.get('CI') == 'true':
            raise
        pytest.skip(f'the environment {name} cannot be made: {error}')


@pytest.fixture(scope='session')
def libero_assets() -> Path:
    """The shared assets, unpacked beside the environments."""
    packed = shared_path('data', 'libero', 'libero-assets.tar.xz')
    folder = environments_folder().parent / f'libero-assets-{packed.stat().st_size}'
    if not (folder / 'whole').exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter='data')
        (folder / 'whole').touch()
    return folder / 'assets'


@pytest.fixture(scope='session')
def libero(libero_assets: Path) -> RunInside:
    """Runs a script of tests/worlds/inside in LIBERO's environment, with the assets' path as its first argument."""
    environment = made('libero')

    def run(script: str, *given: str) -> str:
        variables = {
            **kept_variables(), 'PYTHONPATH': str(link_robotrials(environment.folder)), 'MUJOCO_GL': 'egl',
            'OMP_NUM_THREADS': '1', 'PYTHONWARNINGS': 'ignore',
        }  # fmt: skip
        command = [str(environment.python), str(SCRIPTS / f'{script}.py'), str(libero_assets), *given]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_S, env=variables, stdin=subprocess.DEVNULL, check=False
        )
        assert ran.returncode == 0, ran.stderr[-4000:]
        return ran.stdout

    return run
