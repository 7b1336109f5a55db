"""Pictures with and without the geoms that lie outside them, in every suite, in and out of sight of mirrors."""

from __future__ import annotations

import json
import sys

import mujoco
import numpy as np

from robotrials.worlds.libero.host import LiberoHost

ASSETS = sys.argv[1]
TASKS = {'libero-spatial': 0, 'libero-goal': 7, 'libero-10': 2, 'libero-object': 0}  # the first three have a stove
STEPS, EVERY, CAMERAS = 48, 6, ('agentview', 'robot0_eye_in_hand')

rng, n_pictures, unequal, left_out = np.random.default_rng(0), 0, [], []
for (suite, number), size in zip(TASKS.items(), ([64, 64], [96, 128], [64, 64], [48, 80]), strict=True):
    host = LiberoHost(suite=suite, cameras=['agentview', 'wrist'], image_size=size, assets=ASSETS)
    host.reset(f'task_{number}', seed=0)
    env = host._env.env
    context, model = env.sim._render_context_offscreen, env.sim.model
    for step in range(STEPS):
        if step % EVERY == 0:
            action = rng.uniform(-1, 1, 7)
        host.expect_look(False)
        host.step(action)
        for camera in CAMERAS if step % EVERY == 0 else ():
            pictures = []
            for render in (context.render_whole, context.render):
                render(width=size[1], height=size[0], camera_id=model.camera_name2id(camera))
                pictures.append(context.read_pixels(size[1], size[0]))
            geoms = [context.scn.geoms[n].type for n in range(context.scn.ngeom)]
            left_out.append(geoms.count(mujoco.mjtGeom.mjGEOM_NONE) / len(geoms))
            n_pictures += 1
            if not np.array_equal(*pictures):
                unequal.append([suite, camera, step])
    host.close()
print('RESULT' + json.dumps({'n': n_pictures, 'unequal': unequal, 'left_out': float(np.mean(left_out))}))
