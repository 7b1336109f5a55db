"""Demonstrations from what there is: robomimic and LIBERO files, LeRobot datasets, and stores of our own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.policies.plain import ReplaySession
from robotrials.policies.probe.collect import (
    Collected,
    CollectOptions,
    Collector,
    CollectProgress,
    DemonstrationWriter,
    check_task_key,
    digested,
    using_host,
)
from robotrials.policies.probe.demonstration import Demonstrations, EpisodeFacts, file_digest
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.run.component import declared_host
from robotrials.run.plan import HostEntry
from robotrials.run.seam import ActionConvention, ControlMode, Frame, Gripper, Rotation, Setup, Target, setup_again

ROBOSUITE = ActionConvention(
    control_mode=ControlMode.SE3,
    target=Target.DELTA,
    frame=Frame.BASE,
    rotation=Rotation.AXIS_ANGLE,
    gripper=Gripper.CLOSED_IS_PLUS_ONE,
)
# What LIBERO's and robosuite's hosts show, and where their files keep it.
HDF5_CAMERAS = {
    'agentview': ('obs/agentview_rgb', 'obs/agentview_image'),
    'wrist': ('obs/eye_in_hand_rgb', 'obs/robot0_eye_in_hand_image'),
}
HDF5_STATES = (
    ('obs/ee_states', 'obs/gripper_states'),
    ('obs/robot0_eef_pos', 'obs/robot0_eef_quat', 'obs/robot0_gripper_qpos'),
)
LIBERO_LAYOUT = (
    'eef_x_m', 'eef_y_m', 'eef_z_m', 'eef_rx_rad', 'eef_ry_rad', 'eef_rz_rad', 'finger_left_m', 'finger_right_m',
)  # fmt: skip


def demonstrations_from_hdf5(
    paths: Sequence[Path | str],
    folder: Path | str,
    *,
    action: ActionConvention = ROBOSUITE,
    cameras: Mapping[str, str] | None = None,
    state: Sequence[str] | None = None,
    phrasings: Mapping[str, str] | None = None,
    only_successes: bool = False,
    control_rate_hz: float | None = None,
) -> Demonstrations:
    """LIBERO or robomimic files, one task each, by the demonstrations' numbers.

    cameras: the probe's name for a camera -> dataset; state: datasets, joined. Pictures stay as they are stored, which
    for LIBERO is as its benchmark shows them: upside down. phrasings: further words -> the task's name in the file.
    """
    from robotrials.formats.hdf5_format import demo_numbers, file_facts, opened, task_name

    files = [Path(path) for path in paths]
    if not files:
        raise InputError('no file of demonstrations was named')
    names = [path.name for path in files]
    if twice := next((name for name in names if names.count(name) > 1), ''):
        raise InputError(f'two files are named {twice}; wanted each once, as a demonstration is known by its file')
    rates = set()
    for path in files:
        with opened(path) as file:
            rates.add(control_rate_hz or file_facts(file, path).control_rate_hz or 20.0)  # robosuite's own
    if len(rates) > 1:
        raise InputError(f'the files have control rates of {sorted(rates)} Hz, wanted one; control_rate_hz says which')
    source = {'kind': 'hdf5', 'files': {path.name: file_digest(path) for path in files}}
    layout = LIBERO_LAYOUT if _has(files[0], HDF5_STATES[0]) and state is None else ()
    writer = DemonstrationWriter(
        folder, action=action, control_rate_hz=rates.pop(), source=digested(source), state_layout=layout
    )
    with writer:
        for path in files:
            with opened(path) as file:
                numbers = demo_numbers(file, path)
                facts = file_facts(file, path)
                task = task_name(facts, path)
                words = [w for w, name in (phrasings or {}).items() if name == task]
                for number in numbers:
                    demo, where = file[f'data/demo_{number}'], f'{path}: data/demo_{number}'
                    if not hasattr(demo, 'keys'):
                        raise InputError(f'{where} is an array, wanted a group with actions and obs')
                    success = bool((_dataset(demo, 'rewards', where) >= 1).any()) if 'rewards' in demo else None
                    if only_successes and not success:
                        continue
                    actions = _dataset(demo, 'actions', where)
                    start = _first(demo, where) if 'states' in demo else None
                    writer.append(
                        EpisodeFacts(
                            task=task,
                            instruction=facts.instruction,
                            success=success,
                            instance=number,
                            layout=f'{task}/{number}',
                            id=f'{path.name}/demo_{number}',
                        ),
                        images=_pictures(demo, cameras, where),
                        state=_joined(demo, state, len(actions), where),
                        action=actions,
                        start_state=start,
                        phrasings=words,
                    )
        return writer.finish()


def demonstrations_from_lerobot(
    path: Path | str,
    folder: Path | str,
    *,
    action: ActionConvention,
    split: str = 'train',
    cameras: Mapping[str, str] | None = None,
    state: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
    phrasings: Mapping[str, str] | None = None,
) -> Demonstrations:
    """A LeRobotDataset. What its actions mean it does not say itself: `action` does.

    cameras: the probe's name -> the dataset's; state: parts of the dataset's state, joined; all of both unless given.
    An instruction is a task of its own unless `phrasings` maps it to one. Whether episodes succeeded is not known.
    """
    from robotrials.formats.lerobot import LeRobotDataset

    dataset = LeRobotDataset.open(path, names=names)
    source = {'kind': 'lerobot', 'name': dataset.name, 'version': dataset.version, 'split': split}
    info = dataset.path / 'meta' / 'info.json'
    source['info'] = hashlib.sha256(info.read_bytes()).hexdigest()
    with DemonstrationWriter(
        folder, action=action, control_rate_hz=dataset.layout.fps, source=digested(source)
    ) as writer:
        for episode in dataset.episodes(split):
            words = episode.instruction()
            if len(set(episode.instructions)) > 1:
                raise InputError(f'{episode.episode_id}: the instruction changes on the way; wanted one per episode')
            wanted = cameras or {name: name for name in episode.images}
            for name in (*wanted.values(), *(state or ())):
                if name not in (*episode.images, *episode.state):
                    raise UnknownName(f'camera or state of {dataset.name}', name, [*episode.images, *episode.state])
            frames = {
                ours: np.stack([episode.observation(step).image(theirs) for step in range(episode.n_steps)])
                for ours, theirs in wanted.items()
            }
            parts = [episode.state[name] for name in (state if state is not None else episode.state)]
            task = (phrasings or {}).get(words, words) or dataset.name
            writer.append(
                EpisodeFacts(task=task, instruction=words, id=episode.episode_id),
                images=frames,
                state=np.concatenate(parts, axis=1) if parts else np.zeros((episode.n_steps, 0)),
                action=episode.actions,
            )
        return writer.finish()


def demonstrations_from_store(
    store: Store | Path | str,
    folder: Path | str,
    *,
    policy: str,
    host: HostEntry | None = None,
    state_width: int | None = None,
    only_successes: bool = True,
    task_key: str = 'task',
    column: str = 'action_raw',
    progress: Callable[[CollectProgress], None] | None = None,
) -> Demonstrations:
    """A policy's recorded episodes, played again on their host, which shows what it saw; the outcomes must agree.

    host: with the cameras and the state that the probe is to have; as in the plan unless given. A record holds no
    pictures at the control rate: films are compressed, and drawn at a rate of their own.
    """
    store = read_store(store) if not isinstance(store, Store) else store
    entry = host or declared_host(store, 'to replay on; give host')
    chosen = [e for e in store.episodes(where={'policy': policy}) if e.is_valid]
    chosen = [e for e in chosen if e.outcome is Outcome.SUCCESS or not only_successes]
    if not chosen:
        raise InputError(f'{store.path}: no {"successful" if only_successes else "valid"} episode of {policy}')
    check_task_key(task_key)
    source = digested({'kind': 'store', 'trial': store.trial.trial_id, 'policy': policy, 'head': store.head()})
    with using_host(entry) as live:
        collector = Collector(live, CollectOptions(state_width=state_width))
        with collector.writer(folder, source) as writer:
            for number, episode in enumerate(chosen, start=1):
                made = _replayed(store, episode, collector, column, live.spec.action)
                made.append_to(writer, task_key=task_key, identity=episode.episode_id)
                if progress is not None:
                    progress(CollectProgress(number, writer.n_episodes, len(chosen)))
            return writer.finish()


def _replayed(
    store: Store, episode: Episode, collector: Collector, column: str, convention: ActionConvention
) -> Collected:
    if episode.seed is None:
        raise InputError(f'{store.path}: episode {episode.episode_id} has no seed, so its start cannot be made again')
    setup = setup_again(episode)
    trajectory = store.trajectory(episode, signals=[column])
    actions = None if trajectory is None else getattr(trajectory, column)
    if actions is None or not np.isfinite(actions).all():
        raise InputError(f'{store.path}: episode {episode.episode_id} has no whole {column}; record trajectories')

    def start(setup: Setup, *, seed: int) -> ReplaySession:
        return ReplaySession(actions, convention=convention)

    made = collector.run(setup, start, most_steps=len(actions))
    if made.outcome is not episode.outcome and episode.outcome is not Outcome.TIMEOUT:
        raise InputError(
            f'{store.path}: episode {episode.episode_id} ended in {episode.outcome.value} and its replay in '
            f'{made.outcome.value if made.outcome else "nothing"}; the host is not the one it was recorded on, or '
            'its answers came late: try column = "action_processed"'
        )
    return made


def _dataset(demo: Any, key: str, where: str) -> NDArray[Any]:
    if key not in demo:
        obs = demo.get('obs')
        inside = [f'obs/{name}' for name in obs] if hasattr(obs, 'keys') else []
        raise UnknownName(f'dataset of {where}', key, [*demo, *inside])
    if not hasattr(demo[key], 'dtype') or demo[key].dtype.kind not in 'fiub':
        raise InputError(f'{where}/{key}: not an array of numbers')
    return np.asarray(demo[key])


def _first(demo: Any, where: str) -> NDArray[Any]:
    states = _dataset(demo, 'states', where)
    if states.ndim != 2 or not len(states):
        raise InputError(f'{where}/states has shape {states.shape}, wanted (steps, numbers)')
    return np.asarray(states[0])


def _pictures(demo: Any, cameras: Mapping[str, str] | None, where: str) -> dict[str, NDArray[np.uint8]]:
    if cameras is not None:
        return {name: _dataset(demo, key, where) for name, key in cameras.items()}
    known = {name: next((k for k in keys if k in demo), '') for name, keys in HDF5_CAMERAS.items()}
    return {name: _dataset(demo, key, where) for name, key in known.items() if key}


def _joined(demo: Any, state: Sequence[str] | None, steps: int, where: str) -> NDArray[Any]:
    keys = state if state is not None else next((s for s in HDF5_STATES if all(k in demo for k in s)), ())
    parts = []
    for key in keys:
        array = _dataset(demo, key, where)
        if array.ndim < 1 or len(array) != steps:  # reshaped, it would be another state at each step
            raise InputError(f'{where}/{key} has shape {array.shape}, wanted {steps} steps as in actions')
        parts.append(array.reshape(steps, -1))
    return np.concatenate(parts, axis=1) if parts else np.zeros((steps, 0))


def _has(path: Path, keys: Sequence[str]) -> bool:
    from robotrials.formats.hdf5_format import demo_numbers, opened

    with opened(path) as file:
        demo = file[f'data/demo_{demo_numbers(file, path)[0]}']
        return hasattr(demo, 'keys') and all(key in demo for key in keys)
