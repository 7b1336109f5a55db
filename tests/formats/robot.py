"""A small store of rollouts with trajectories and videos, for round trips through other formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robotrials.formats.video import encode_frames
from robotrials.record import Camera, Contacts, Episode, Event, EventKind, Outcome, Scene, Store, Trajectory

RATE_HZ = 20.0
HEIGHT, WIDTH = 48, 64


def made_trajectory(number: int, steps: int, *, video: str = '') -> Trajectory:
    rng = np.random.default_rng(number)
    time_s = np.arange(steps) / RATE_HZ
    pose = np.zeros((steps, 7), dtype=np.float32)
    pose[:, :3] = np.cumsum(rng.normal(0, 0.01, (steps, 3)), axis=0)
    pose[:, 3] = 1.0
    cube = np.tile(np.array([0.4, 0.1, 0.02, 1, 0, 0, 0]), (steps, 1))
    cameras = (Camera('front', None, None, WIDTH, HEIGHT, video=video),) if video else ()
    return Trajectory(
        time_s=time_s,
        ee_pose=pose,
        joint_position_rad=rng.normal(0, 1, (steps, 6)).astype(np.float32),
        joint_torque_nm=rng.normal(0, 3, (steps, 6)),
        joint_torque_limit_nm=np.full(6, 87.0),
        bodies=('cube/1',),
        body_pose=cube[:, None, :],
        contacts=Contacts.from_steps([[('finger', 'cube', 2.0)]] * steps),
        gripper_position=rng.uniform(0, 1, steps).astype(np.float32),
        action_raw=rng.normal(0, 1, (steps, 4)).astype(np.float32),
        reward=(np.arange(steps) == steps - 1).astype(np.float32),
        done=np.arange(steps) == steps - 1,
        extra={'phase': np.arange(steps), 'wrench': rng.normal(0, 1, (steps, 6))},
        scene=Scene(control_rate_hz=RATE_HZ, cameras=cameras, body_roles={'cube/1': 'target'}, target_object='cube/1'),
    )


def film(path: Path, steps: int, number: int) -> None:
    """A video whose brightness says which frame of which episode it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = (np.full((HEIGHT, WIDTH, 3), level(number, i), np.uint8) for i in range(steps))
    encode_frames(frames, path, fps=RATE_HZ)


def level(number: int, frame: int) -> int:
    return 20 + 50 * (number % 4) + 2 * frame


def made_store(path: Path, *, episodes: int = 4, videos: bool = True, policy: str = 'pi0') -> Store:
    """Episodes of 12 and more steps; every third one fails."""
    store = Store.create(path)
    batch, steps_of = [], {}
    for number in range(episodes):
        steps = 12 + number
        good = number % 3 != 2
        episode = Episode(
            policy=policy, task='stack', outcome=Outcome.SUCCESS if good else Outcome.FAILURE, success=good,
            duration_s=steps / RATE_HZ, steps=steps, seed=number, instruction=f'stack the cube {number % 2}',
            events=(Event(0.1, EventKind.PHASE, name='reach'), Event(0.3, EventKind.PHASE, name='lift')),
            labels={'camera_side': 'left'},
        )  # fmt: skip
        name = f'{episode.episode_id}/front.mp4' if videos else ''
        if videos:
            film(store.path / 'media' / name, steps, number)
        batch.append(episode)
        steps_of[episode.key] = made_trajectory(number, steps, video=name)
    store.append(batch, trajectories=steps_of)
    return store
