"""Stores with a film in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robotrials.formats.video import encode_frames
from robotrials.record import Episode, Outcome, Scene, Store, Trajectory
from robotrials.record.trajectory import Camera

SIZE_PX = 32


def store_with_film(folder: Path, *, rate_hz: float, fps: float, steps: int) -> tuple[Path, list[NDArray[np.uint8]]]:
    """A store of one episode with a video whose frames are flat greys, each far from the others."""
    n_frames = int(steps * fps / rate_hz) + 1
    frames = [np.full((SIZE_PX, SIZE_PX, 3), 20 + 40 * i, np.uint8) for i in range(n_frames)]
    encode_frames(frames, folder / 'top.mp4', fps=fps)
    episode = Episode(policy='p', task='t', outcome=Outcome.FAILURE, duration_s=steps / rate_hz, seed=1)
    camera = Camera('top', None, None, SIZE_PX, SIZE_PX, video='top.mp4')
    trajectory = Trajectory(
        time_s=np.arange(1, steps + 1) / rate_hz,
        extra={'observation_state': np.zeros((steps, 4))},
        scene=Scene(control_rate_hz=rate_hz, cameras=(camera,)),
    )
    store = Store.create(folder / 'store')
    store.append([episode], trajectories={episode.key: trajectory})
    store.add_media('top.mp4', folder / 'top.mp4')
    return store.path, frames
