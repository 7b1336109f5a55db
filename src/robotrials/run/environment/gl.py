"""Drawing without a screen: whether EGL and OSMesa really draw, tried in a process of its own."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

from robotrials.errors import SetupError
from robotrials.run.environment.recipe import find_environment, read_recipe

BACKENDS = ('egl', 'osmesa')
PROBE_S = 120.0
MENDING = {
    'egl': 'apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri',
    'osmesa': 'apt-get install libosmesa6',
}
# A context that cannot be made may take the process down, and one that was made may draw nothing.
_PROBE = """
import os, sys
os.environ['MUJOCO_GL'] = os.environ['PYOPENGL_PLATFORM'] = {backend!r}
import mujoco, numpy
from mujoco.{backend} import GLContext
gl = GLContext(64, 64)
gl.make_current()
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 3"/><geom size=".3"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
camera, scene, option = mujoco.MjvCamera(), mujoco.MjvScene(model, 10), mujoco.MjvOption()
mujoco.mjv_defaultFreeCamera(model, camera)
mujoco.mjv_updateScene(model, data, option, None, camera, mujoco.mjtCatBit.mjCAT_ALL.value, scene)
rect = mujoco.MjrRect(0, 0, 64, 64)
mujoco.mjr_render(rect, scene, context)
pixels = numpy.zeros((64, 64, 3), dtype=numpy.uint8)
mujoco.mjr_readPixels(pixels, None, rect, context)
if pixels.max() == pixels.min():
    sys.stderr.write('it draws nothing: every pixel is the same\\n')
    sys.stderr.flush()
    os._exit(1)
os._exit(0)
"""


def why_not_drawing(python: Path | str, backend: str) -> str:
    """Why a back-end draws nothing with this Python and its MuJoCo; empty if it draws."""
    isolation = [] if str(python) == sys.executable else ['-I']  # our own packages may well come from PYTHONPATH
    try:
        ran = subprocess.run(
            [str(python), *isolation, '-c', _PROBE.format(backend=backend)],
            capture_output=True, text=True, timeout=PROBE_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f'it did not draw within {PROBE_S:g} s'
    except OSError as error:
        return f'{python} does not run ({error.strerror})'
    if ran.returncode == 0:
        return ''
    if ran.returncode < 0:
        return f'it took the process down (signal {-ran.returncode})'
    return (ran.stderr.strip().splitlines() or ['no message'])[-1][:300]


@functools.cache
def drawing_variables(recipe: str) -> dict[str, str]:
    """What makes MuJoCo draw in an environment: as the caller's own variables say, or the first back-end that draws."""
    wanted = os.environ.get('MUJOCO_GL', '').lower().strip()
    if wanted:
        return {'MUJOCO_GL': wanted, 'PYOPENGL_PLATFORM': wanted}
    read = read_recipe(recipe)
    environment = find_environment(read.name, read.digest)
    if 'mujoco' not in environment.packages:
        return {}
    for backend in BACKENDS:
        if not why_not_drawing(environment.python, backend):
            return {'MUJOCO_GL': backend, 'PYOPENGL_PLATFORM': backend}
    raise SetupError(f'neither EGL nor OSMesa draws in the environment {read.name!r}; see `robotrials env doctor`')
