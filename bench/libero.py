"""LIBERO in its environment: what the way into it costs, images included.

Needs the environment (`robotrials env create libero`) and the assets (ROBOTRIALS_LIBERO_ASSETS, or the shared ones).
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.measure import Result, against
from robotrials.errors import SetupError
from robotrials.run.environment import Environment, find_environment, read_recipe
from robotrials.run.environment.recipe import link_robotrials
from robotrials.worlds.libero import libero_host

STEPS = 80
SUITE, TASK, SIZE_PX = 'libero-object', 'task_0', 256
SHARED = Path(os.environ.get('ROBOTRIALS_SHARED', Path(__file__).resolve().parents[2] / 'shared'))
# The same loop beside the simulator; it waits for a line before every step, so that the two sides take turns.
INSIDE = f"""
import sys, time
import numpy as np
from robotrials.worlds.libero.host import LiberoHost
cameras, size = ['agentview', 'wrist'], [{SIZE_PX}, {SIZE_PX}]
host = LiberoHost(suite={SUITE!r}, cameras=cameras, image_size=size, assets=sys.argv[1])
host.reset({TASK!r}, seed=0)
action = np.array([0.1, 0.0, -0.1, 0.0, 0.0, 0.0, -1.0])
print('READY', flush=True)
for line in sys.stdin:
    started = time.perf_counter()
    host.step(action)
    host.outcome()
    host.signals()
    print('TOOK', time.perf_counter() - started, flush=True)
"""


def run() -> list[Result]:
    recipe = read_recipe('libero')
    try:
        environment = find_environment(recipe.name, recipe.digest)
    except SetupError as error:
        print(f'not measured: libero/isolated; {error}')
        return []
    with unpacked_assets() as assets:
        if not assets:
            print('not measured: libero/isolated; set ROBOTRIALS_LIBERO_ASSETS to the folder of its assets')
            return []
        return [isolated(environment, assets)]


@contextmanager
def unpacked_assets() -> Iterator[str]:
    """The folder of LIBERO's assets: the one that is named, or the shared ones unpacked; '' if there are none."""
    named, packed = os.environ.get('ROBOTRIALS_LIBERO_ASSETS', ''), SHARED / 'data' / 'libero' / 'libero-assets.tar.xz'
    if named or not packed.exists():
        yield named
        return
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(packed) as archive:
        archive.extractall(scratch, filter='data')
        yield str(Path(scratch, 'assets'))


def isolated(environment: Environment, assets: str) -> Result:
    """Control steps with two cameras and signals through the isolated host, and inside, taking turns."""
    variables = {**os.environ, 'PYTHONPATH': str(link_robotrials(environment.folder)), 'MUJOCO_GL': 'egl'}
    inner = subprocess.Popen(
        [str(environment.python), '-c', INSIDE, assets], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=variables,
    )  # fmt: skip
    host = libero_host(
        suite=SUITE, cameras=['agentview', 'wrist'], image_size=[SIZE_PX, SIZE_PX], assets=assets, timeout_s=300.0
    )
    try:
        assert inner.stdin is not None
        assert inner.stdout is not None
        while not inner.stdout.readline().startswith('READY'):
            pass
        host.reset(TASK, seed=0)
        action = np.array([0.1, 0.0, -0.1, 0.0, 0.0, 0.0, -1.0])
        ours_s, inside_s = [], []
        for _ in range(STEPS):
            started = time.perf_counter()
            host.step(action)
            host.outcome()
            host.signals()
            ours_s.append(time.perf_counter() - started)
            inner.stdin.write('go\n')
            inner.stdin.flush()
            inside_s.append(float(inner.stdout.readline().split()[1]))
    finally:
        host.close()
        inner.kill()
        inner.wait()
    work = f'a step of LIBERO-Object, two {SIZE_PX}x{SIZE_PX} cameras and all signals; medians of {STEPS}, by turns'
    return against(
        'libero/isolated', ours_s=float(np.median(ours_s)), peer='the same loop inside its environment (our own)',
        peer_s=float(np.median(inside_s)), target=0.95, work=work,
    )  # fmt: skip
