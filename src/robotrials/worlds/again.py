"""Recorded actions carried out again on the real host: does the world do the same once more?

`carry_out_again` gives (episode, trajectory) pairs under the recorded ids, for `verdict.audit.compare_traces`
as a run of its own. It is an open-loop replay: it grades the simulator, not a policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from robotrials.declaration import read_table
from robotrials.errors import InputError
from robotrials.record import Episode, Outcome, Store, Trajectory, read_store
from robotrials.run.convention import PolicySpec
from robotrials.run.host import HostLike
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import HostEntry, RecordingOptions
from robotrials.run.seam import Chunk, FloatArray, Observation, Session, Setup

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

    most: at most so many episodes. An episode that breaks on the way is INVALID, with the reason.
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
        raise InputError(f'{store.path}: no plan says which host it was recorded on; name one') from error
    return declared if use in ('', declared.use) else HostEntry(use=use)


def _again(host: HostLike, episode: Episode, trajectory: Trajectory) -> Rollout:
    actions = trajectory.action_processed
    width = host.spec.action.width
    if actions is None or actions.shape[1] != width:
        found = 'no actions' if actions is None else f'actions of {actions.shape[1]} numbers'
        raise InputError(f'episode {episode.episode_id}: {found} recorded, host {host.spec.name} takes {width}')
    if episode.seed is None:
        raise InputError(f'episode {episode.episode_id}: no seed was recorded, so its start cannot be made again')
    order = Order(
        time_cap_s=len(actions) / host.spec.control_rate_hz + STEP_SLACK,
        policy_seed=0,
        recording=RecordingOptions(
            simulator_state=trajectory.simulator_state is not None, frame_hashes=bool(trajectory.frame_hash)
        ),
    )
    return run_episode(host, _Tape(host, np.asarray(actions, dtype=float)), _setup(episode), order=order)


def _setup(episode: Episode) -> Setup:
    return Setup(
        task=episode.task,
        seed=episode.seed or 0,
        instruction=episode.instruction,
        stratum=episode.stratum,
        condition=episode.condition,
        condition_parameters=episode.condition_parameters,
        instance=episode.instance or 0,
        labels={k: v for k, v in episode.labels.items() if k != 'condition_applied'},
        items=episode.items,
    )


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


class _Tape:
    """A policy that gives the recorded actions one after another, and does not look."""

    def __init__(self, host: HostLike, actions: FloatArray) -> None:
        self._actions = actions
        self._spec = PolicySpec(name='recorded', action=host.spec.action)

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> Session:
        return _TapeSession(self._actions)


class _TapeSession:
    def __init__(self, actions: FloatArray) -> None:
        self._rest = iter(actions)

    def act(self, observation: Observation) -> Chunk:
        return Chunk(np.array(next(self._rest))[None])
