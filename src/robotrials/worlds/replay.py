"""A recording as a host: what was recorded is shown again, step by step, whatever is commanded.

For tests without a simulator, for policies that are to look at what another policy saw, and for recording again under
other options. What the world would have done under other actions no recording knows: `actions = "same"` refuses them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.formats.video import opened_video
from robotrials.record import Episode, Outcome, Scene, Store, Trajectory, read_store
from robotrials.record.folder import inside
from robotrials.record.trajectory import STEP_COLUMNS
from robotrials.run.host import HostLike, SteppedHost
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import HostEntry, RecordingOptions
from robotrials.run.recording import STATE
from robotrials.run.seam import (
    Action,
    ActionConvention,
    Chunk,
    FloatArray,
    HostReport,
    HostSpec,
    Observation,
    PolicySpec,
    ProtocolFacts,
    Session,
    Setup,
    setup_again,
)
from robotrials.value import read_table

# What the loop writes itself when a replay is recorded again.
LOOP_COLUMNS = frozenset(
    {'gripper_command', 'action_raw', 'action_processed', 'action_predicted'}
    | {f'{part}_latency_s' for part in ('network', 'inference', 'transport')}
)
SIGNALS = tuple(name for name in STEP_COLUMNS if name not in LOOP_COLUMNS)


class ReplayHost(SteppedHost):
    """Plays recorded episodes: for each start state the episode of `policy` with the same task, seed and condition.

    store: the record. convention: the action convention of the host that was recorded. actions: `ignored`, or `same`
    to refuse what was not recorded. cameras: show the recorded videos of these cameras; the last frame at or before
    each step.

    A record begins after the first action, so the reset shows the first recorded row, and so does the first step.
    """

    def __init__(
        self,
        *,
        store: str,
        policy: str,
        convention: Mapping[str, Any],
        actions: str = 'ignored',
        cameras: tuple[str, ...] | list[str] = (),
        state_layout: tuple[str, ...] | list[str] = (),
    ) -> None:
        if actions not in ('ignored', 'same'):
            raise InputError(f"actions is {actions!r}, wanted 'ignored' or 'same'")
        self._wants_same = actions == 'same'
        self._store, self._policy = read_store(store), policy
        self._tape: _Tape | None = None
        episode, trajectory = self._first()
        rate_hz = trajectory.scene.control_rate_hz
        if rate_hz is None:
            raise InputError(f'{self._where(episode)} has no control rate, so it cannot be played back')
        self._spec = HostSpec(
            name='replay',
            action=read_table(ActionConvention, convention, where='convention'),
            control_rate_hz=rate_hz,
            state_width=_states(trajectory).shape[1],
            state_layout=tuple(state_layout),
            images={name: _size(trajectory.scene, name, self._where(episode)) for name in cameras},
            conditions=tuple(sorted({e.condition for e in self._episodes({})} - {'nominal'})),
        )

    def prepare(self, setup: Setup) -> None:
        """Take stratum, condition and instance for the next reset."""
        self._setup = setup

    def reset(self, task: str, *, seed: int) -> Observation:
        setup = self._setup_for(task, seed=seed)
        where: dict[str, Any] = {'task': task, 'seed': seed, 'condition': setup.condition}
        if setup.stratum:
            where['stratum'] = setup.stratum
        chosen = next(iter(self._episodes(where)), None)
        if chosen is None:
            raise InputError(
                f'{self._store.path}: {self._policy} has no valid episode on {task} with seed {seed} '
                f'under {setup.condition}'
            )
        self._close_films()
        self._tape = _Tape(chosen, self._trajectory(chosen), self._spec, self._store.path)
        return self._tape.observation()

    def step(self, action: Action) -> Observation:
        tape = self._playing()
        tape.advance()
        if self._wants_same:
            tape.check_action(np.asarray(action, dtype=float))
        return tape.observation()

    def outcome(self) -> Outcome | None:
        tape = self._tape
        return tape.episode.outcome if tape is not None and tape.is_over else None

    def instruction(self) -> str:
        return self._playing().episode.instruction

    def report(self) -> HostReport:
        """The recorded account; before the recording's end nothing is known of success, and nothing is said."""
        tape = self._playing()
        e = tape.episode
        if not tape.is_over:
            return HostReport(instruction=e.instruction)
        return HostReport(
            success=e.success, score=e.score, max_score=e.max_score, items=e.items, items_placed=e.items_placed,
            items_lost=e.items_lost, is_unrecoverable=e.is_unrecoverable, reason=e.reason, instruction=e.instruction,
            labels=e.labels, events=e.events,
        )  # fmt: skip

    def signals(self) -> Mapping[str, Any]:
        return self._playing().signals()

    def scene(self) -> Scene:
        return self._playing().trajectory.scene

    def protocol(self) -> ProtocolFacts:
        """The rules of what was recorded, as far as its episodes agree on them; notes on assets are all kept."""
        ids = {e.provenance_id for e in self._episodes({}) if e.provenance_id}
        origins = [self._store.provenance(provenance_id) for provenance_id in sorted(ids)]

        def agreed(name: str) -> str:
            values = {origin.protocol.get(name, '') for origin in origins}
            return values.pop() if len(values) == 1 else ''

        def count(name: str) -> int | None:
            return int(agreed(name)) if agreed(name).isdecimal() else None

        notes = sorted({note for origin in origins if (note := origin.protocol.get('assets_note', ''))})
        simulators = sorted({origin.simulator for origin in origins if origin.simulator})
        return ProtocolFacts(
            benchmark=agreed('benchmark') or self._spec.name,
            control_rate_hz=self._spec.control_rate_hz,
            step_cap=count('step_cap'),
            settling_steps=count('settling_steps'),
            initial_states=_as_recorded(agreed('initial_states')),
            success_predicate=_as_recorded(agreed('success_predicate')),
            success_source=agreed('success_source'),
            success_at_reset=_as_recorded(agreed('success_at_reset')),
            assets=agreed('assets'),
            assets_note='; '.join(notes),
            simulator=f'a recording of {", ".join(simulators)}' if simulators else 'a recording',
        )

    def close(self) -> None:
        self._close_films()
        self._tape = None

    # --- inside

    def _playing(self) -> _Tape:
        if self._tape is None:
            raise InputError('nothing is being played; call reset(task, seed=...) first')
        return self._tape

    def _close_films(self) -> None:
        for film in self._tape.films.values() if self._tape is not None else ():
            film.close()

    def _episodes(self, where: Mapping[str, Any]) -> Iterator[Episode]:
        return (e for e in self._store.episodes(where={'policy': self._policy, **where}) if e.is_valid)

    def _first(self) -> tuple[Episode, Trajectory]:
        episode = next(self._episodes({}), None)
        if episode is None:
            known = {e.policy for e in self._store.episodes(events=False) if e.is_valid}
            raise UnknownName(f'policy with a valid episode in {self._store.path}', self._policy, known)
        return episode, self._trajectory(episode)

    def _trajectory(self, episode: Episode) -> Trajectory:
        trajectory = self._store.trajectory(episode)
        if trajectory is None:
            raise InputError(f'{self._where(episode)} has no trajectory; record trajectories to play them back')
        _states(trajectory, self._where(episode))
        return trajectory

    def _where(self, episode: Episode) -> str:
        return f'{self._store.path}: episode {episode.episode_id}'


class _Tape:
    """One recorded episode and how far it has been played."""

    def __init__(self, episode: Episode, trajectory: Trajectory, spec: HostSpec, store: Path) -> None:
        self.episode, self.trajectory = episode, trajectory
        self._states = _states(trajectory)
        self._next = 0
        if self._states.shape[1] != spec.state_width:
            raise InputError(
                f'episode {episode.episode_id}: its states have {self._states.shape[1]} numbers, the first episode of '
                f'{episode.policy} has {spec.state_width}'
            )
        videos = {camera.name: camera.video for camera in trajectory.scene.cameras}
        self.films = {}
        for name in spec.images:
            if not videos.get(name):
                raise InputError(f'episode {episode.episode_id}: no video of camera {name!r} was recorded')
            self.films[name] = _Film(inside(store, f'media/{videos[name]}'))

    @property
    def is_over(self) -> bool:
        return self._next == self.trajectory.n_steps

    @property
    def _row(self) -> int:
        return max(self._next - 1, 0)

    def advance(self) -> None:
        if self.is_over:
            raise InputError(f'episode {self.episode.episode_id}: the recording ends after {self._next} steps')
        self._next += 1

    def check_action(self, action: Action) -> None:
        recorded = self.trajectory.action_processed
        if recorded is None:
            raise InputError(f"episode {self.episode.episode_id}: no actions were recorded, so none can be the 'same'")
        if action.tobytes() != np.asarray(recorded[self._row], dtype=float).tobytes():
            raise InputError(
                f'step {self._row}: the action {action} is not the recorded {recorded[self._row]}, and a recording '
                'cannot say what it would have done'
            )

    def observation(self) -> Observation:
        t_s = float(self.trajectory.time_s[self._row]) if self._next else 0.0
        images = {name: film.frame_at(t_s) for name, film in self.films.items()}
        cameras = {c.name: c for c in self.trajectory.scene.cameras if c.name in images}
        return Observation(t_s, self._states[self._row].copy(), images=images, cameras=cameras)

    def signals(self) -> dict[str, Any]:
        t, row = self.trajectory, self._row
        values = {name: column[row] for name in SIGNALS if (column := getattr(t, name)) is not None}
        for name in ('gripper_contact', 'done'):
            if name in values:
                values[name] = bool(values[name])
        if t.body_pose is not None:
            values['body_pose'] = dict(zip(t.bodies, t.body_pose[row], strict=True))
        if t.contacts is not None:
            values['contacts'] = t.contacts.at(row)
            if t.contacts.point_m is not None:
                values['contact_point_m'] = t.contacts.point_m[t.contacts.offsets[row] : t.contacts.offsets[row + 1]]
        if t.joint_torque_limit_nm is not None:
            values['joint_torque_limit_nm'] = t.joint_torque_limit_nm
        return values | {name: column[row] for name, column in t.extra.items() if name != STATE}


class _Film:
    """A recorded video, read forward: the last frame at or before a time."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise InputError(f'{path}: missing; the record names this video')
        self._opened = opened_video(path)
        container = self._opened.__enter__()
        self._frames = container.decode(container.streams.video[0])
        self._shown: Any = next(self._frames, None)
        self._following: Any = self._shown
        if self._shown is None:
            raise InputError(f'{path}: a video without frames')

    def frame_at(self, t_s: float) -> NDArray[np.uint8]:
        while self._following is not None and float(self._following.time or 0.0) <= t_s + 1e-6:
            self._shown = self._following
            self._following = next(self._frames, None)
        pixels: NDArray[np.uint8] = self._shown.to_ndarray(format='rgb24')
        return pixels

    def close(self) -> None:
        self._opened.__exit__(None, None, None)


def _as_recorded(fact: str) -> str:
    return f'as recorded: {fact}' if fact else 'as recorded'


def _states(trajectory: Trajectory, where: str = 'the episode') -> NDArray[np.floating[Any]]:
    states = trajectory.extra.get(STATE)
    if states is None:
        raise InputError(f'{where} has no recorded {STATE}, so there is nothing to show')
    return states if states.ndim == 2 else states[:, None]


def _size(scene: Scene, name: str, where: str) -> tuple[int, int]:
    for camera in scene.cameras:
        if camera.name == name:
            return camera.height_px, camera.width_px
    known = ', '.join(camera.name for camera in scene.cameras) or 'none'
    raise InputError(f'{where} has no camera {name!r}; recorded: {known}')


# Recorded actions carried out again on the real host: does the world do the same once more?
# `carry_out_again` gives (episode, trajectory) pairs under the recorded ids, for `verdict.audit.compare_traces` as a
# run of its own. It is an open-loop replay: it grades the simulator, not a policy.

STEP_SLACK = 1e-6


def carry_out_again(
    store: Store | Path | str,
    host: HostLike,
    *,
    policies: Iterable[str] | None = None,
    most: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[Episode, Trajectory | None]]:
    """Every recorded valid episode that has actions, run again from its seed with these actions.

    most: the maximum number of episodes. An episode that breaks on the way is INVALID, with the reason.
    """
    opened = store if isinstance(store, Store) else read_store(store)
    wanted = set(policies) if policies is not None else None
    n_done = 0
    for episode, trajectory in opened.trajectories():
        if not episode.is_valid or (wanted is not None and episode.policy not in wanted):
            continue
        if most is not None and n_done >= most:
            return
        rollout = _again(host, episode, trajectory)
        n_done += 1
        if progress is not None:
            progress(n_done)
        yield _episode(episode, rollout), rollout.trajectory
    if not n_done:
        raise InputError(f'{opened.path}: no valid episode with recorded actions to carry out again')


def recorded_host(store: Store, *, use: str = '') -> HostEntry:
    """The host of a run's plan, or another by name with the plan's options where it is the same."""
    try:
        declared = read_table(HostEntry, json.loads(store.trial.plan)['host'], where=f'{store.path} plan host')
    except (ValueError, KeyError) as error:
        if use:
            return HostEntry(use=use)
        raise InputError(f'{store.path}: no plan says which host it was recorded on; name it with --host') from error
    return declared if use in ('', declared.use) else HostEntry(use=use)


def _again(host: HostLike, episode: Episode, trajectory: Trajectory) -> Rollout:
    actions = trajectory.action_processed
    width = host.spec.action.width
    if actions is None or actions.shape[1] != width:
        recorded = 'no actions' if actions is None else f'actions of {actions.shape[1]} numbers'
        raise InputError(f'episode {episode.episode_id}: {recorded} recorded, host {host.spec.name} takes {width}')
    if episode.seed is None:
        raise InputError(f'episode {episode.episode_id}: no seed was recorded, so its start cannot be made again')
    order = Order(
        time_cap_s=len(actions) / host.spec.control_rate_hz + STEP_SLACK,
        policy_seed=0,
        recording=RecordingOptions(
            simulator_state=trajectory.simulator_state is not None, frame_hashes=bool(trajectory.frame_hash)
        ),
    )
    labels = {k: v for k, v in episode.labels.items() if k != 'condition_applied'}
    setup = dataclasses.replace(setup_again(episode), labels=labels)
    return run_episode(host, _RecordedActions(host, np.asarray(actions, dtype=float)), setup, order=order)


def _episode(recorded: Episode, rollout: Rollout) -> Episode:
    """The episode as it came out now; a fault of the rig is INVALID."""
    if rollout.outcome is None:
        reason = rollout.fault.reason if rollout.fault is not None else ''
        return recorded.replace(outcome=Outcome.INVALID, success=None, reason=reason, events=())
    report = rollout.report
    return recorded.replace(
        outcome=rollout.outcome,
        success=report.success,
        score=report.score,
        duration_s=rollout.duration_s,
        reason=report.reason,
        events=report.events,
    )


class _RecordedActions:
    """A policy that gives the recorded actions of one episode one after another, and does not look."""

    def __init__(self, host: HostLike, actions: FloatArray) -> None:
        self._rest = iter(actions)
        self.spec = PolicySpec(name='recorded', action=host.spec.action)

    def start(self, setup: Setup, *, seed: int) -> Session:
        return self

    def act(self, observation: Observation) -> Chunk:
        return Chunk(np.array(next(self._rest))[None])
