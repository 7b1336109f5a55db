"""A small store as the explorer and the review meet it: telemetry, events, films, and what is missing of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.measure.annotate.telemetries import Grip, telemetry_of

from robotrials.record import Camera, Episode, Event, EventKind, Outcome, Scene, Store, Trajectory
from robotrials.record.footage import encode_film

RATE_HZ = 20.0
FILM_STEPS = tuple(range(0, 401, 4))


def film_bytes(seed: int) -> bytes:
    """Frames that can be told apart: a bright bar that moves by one column a frame."""
    frames = []
    for n in range(len(FILM_STEPS)):
        frame = np.full((48, 112, 3), 20 + seed, dtype=np.uint8)
        frame[:, n : n + 8] = 230
        frames.append(frame)
    return encode_film(frames, FILM_STEPS, control_rate_hz=RATE_HZ)


def make_store(path: Path, *, policies: tuple[str, ...] = ('quick', 'slow'), n: int = 3, timed: bool = True) -> Store:
    store = Store.create(path)
    for policy, pace_s in zip(policies, (3.0, 7.0), strict=False):
        for number in range(n):
            store_one(store, policy, number, pace_s=pace_s, timed=timed)
    bare = Episode(policy=policies[0], task='pick', outcome=Outcome.TIMEOUT, duration_s=20.0, seed=99, instance=99,
                   time_cap_s=20.0)  # fmt: skip
    store.append([bare])
    return store


def store_one(store: Store, policy: str, number: int, *, pace_s: float, timed: bool) -> Episode:
    telemetry = telemetry_of(Grip(1, 2.5), Grip(1 + pace_s, 2.5 + pace_s), noise=0.003, seed=number)
    n = len(telemetry.time_s)
    pose = np.concatenate([telemetry.tool_m, np.tile([1.0, 0, 0, 0], (n, 1))], axis=1)
    placements = tuple(Event(t, EventKind.PLACEMENT) for t in (2.6, 2.6 + pace_s)) if timed else ()
    episode = Episode(
        policy=policy, task='pick', stratum='spoon', outcome=Outcome.TIMEOUT, duration_s=20.0, time_cap_s=20.0,
        items=4, items_placed=2, seed=number, instance=number, events=placements,
    )  # fmt: skip
    folder = f'episodes/{episode.episode_id}-0'
    camera = Camera(name='front', intrinsics_px=None, world_from_camera=None, width_px=112, height_px=48,
                    video=f'{folder}/front.mp4', video_steps=FILM_STEPS)  # fmt: skip
    trajectory = Trajectory(
        time_s=telemetry.time_s, ee_pose=pose, gripper_command=telemetry.command, gripper_position=telemetry.opening,
        scene=Scene(cameras=(camera,), control_rate_hz=RATE_HZ),
    )  # fmt: skip
    store.append([episode], trajectories={episode.key: trajectory}, media={f'{folder}/front.mp4': film_bytes(number)})
    return episode
