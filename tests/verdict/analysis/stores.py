"""Small stores of every kind that a report meets: a table only, two conditions, trajectories, several suites."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
from tests.measure.safety.scene import lifted, with_contacts

from robotrials.record import Episode, Event, EventKind, EventSource, Outcome, Store

START = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


def rollout(
    policy: str, seed: int, rng: np.random.Generator, *, speed_s: float = 20.0, chance: float = 0.8, **more: object
) -> Episode:
    """A single-item rollout: a lognormal time to success with this chance, else a timeout at 60 s."""
    time_s = float(rng.lognormal(np.log(speed_s), 0.4))
    success = bool(rng.random() < chance and time_s < 60)
    fields: dict[str, object] = {'task': 'pick', 'stratum': 'block', 'time_cap_s': 60.0} | more
    return Episode(
        policy=policy, seed=seed, success=success, outcome=Outcome.SUCCESS if success else Outcome.TIMEOUT,
        duration_s=time_s if success else 60.0, **fields,
    )  # type: ignore[arg-type]  # fmt: skip


def timed_store(path: Path, *, n: int = 20, seed: int = 0, reference: bool = True) -> Store:
    """Three policies, one of them far slower, in two strata; a human reference; start times, an invalid, an edit."""
    rng = np.random.default_rng(seed)
    settings = {'quick': (12.0, 0.9), 'steady': (12.5, 0.9), 'slow': (35.0, 0.6)}
    if reference:
        settings = {'human': (6.0, 1.0)} | settings
    episodes = []
    for i in range(n):
        for stratum in ('block', 'spoon'):
            for name in rng.permutation(list(settings)).tolist():
                speed_s, chance = settings[name]
                episodes.append(
                    rollout(
                        name, i, rng, speed_s=speed_s, chance=chance, stratum=stratum, is_reference=name == 'human',
                        started_at=START + dt.timedelta(minutes=len(episodes)),
                    )
                )  # fmt: skip
    broken = rollout('slow', n, rng, stratum='spoon', started_at=START + dt.timedelta(minutes=len(episodes)))
    episodes.append(broken.replace(outcome=Outcome.INVALID, success=None, reason='camera fell off'))
    store = Store.create(path, title='picks in May')
    store.append(episodes)
    store.edit(episodes[0].episode_id, 'set', field='operator', value='ann', by='ann', why='forgotten')
    return store


def item_store(path: Path) -> Store:
    """Two policies that place three items an episode, drop some and are stopped once."""
    rng = np.random.default_rng(3)
    episodes = []
    for policy, gap_s in (('deft', 5.0), ('clumsy', 8.0)):
        for seed in range(6):
            times = np.cumsum(rng.uniform(0.5, 1.5, 3) * gap_s).tolist()
            events = [Event(t_s=t, kind=EventKind.PLACEMENT, source=EventSource.HOST) for t in times]
            if policy == 'clumsy':
                events[1] = Event(t_s=times[1], kind=EventKind.DROP_OUTSIDE, source=EventSource.HOST)
            outcome = Outcome.SAFETY_STOP if policy == 'clumsy' and seed == 0 else Outcome.SUCCESS
            if policy == 'clumsy' and outcome is Outcome.SUCCESS:
                outcome = Outcome.FAILURE
            episodes.append(
                Episode(
                    policy=policy, task='bin', outcome=outcome, duration_s=times[-1] + 1, seed=seed, items=3,
                    time_cap_s=60.0, events=tuple(events),
                )
            )  # fmt: skip
    store = Store.create(path)
    store.append(episodes)
    return store


def changed_store(path: Path, *, n: int = 25) -> Store:
    """Two policies under three conditions, one of them at two severities; only `seeing` minds."""
    rng = np.random.default_rng(5)
    episodes = []
    settings = [
        ('nominal', {}),
        ('light', {'severity': 0.5}),
        ('light', {'severity': 1.0}),
        ('chaos', {'severity': 1.0}),
    ]
    for policy in ('seeing', 'blind'):
        for condition, parameters in settings:
            loss = {'nominal': 0.0, 'light': 0.7, 'chaos': 0.9}[condition] * parameters.get('severity', 0.0)
            for seed in range(n):
                chance = 0.95 - (loss if policy == 'seeing' else 0.0)
                episodes.append(
                    rollout(policy, seed, rng, chance=chance, condition=condition, condition_parameters=parameters)
                )
    store = Store.create(path)
    store.append(episodes)
    return store


def safety_store(path: Path, *, n: int = 12) -> Store:
    """Two policies on a LIBERO suite with trajectories; `rough` hits the table hard in every third episode."""
    episodes, trajectories = [], {}
    for policy in ('gentle', 'rough'):
        for seed in range(n):
            hard = policy == 'rough' and seed % 3 == 0
            steps = with_contacts({8: [('link7', 'table', 320.0)]}) if hard else lifted()
            success = seed % 4 != 1
            made = Episode(
                policy=policy, task='task_4', benchmark='libero-10', seed=seed, duration_s=1.0, success=success,
                outcome=Outcome.SUCCESS if success else Outcome.FAILURE,
            )  # fmt: skip
            episodes.append(made)
            trajectories[made.key] = steps
    store = Store.create(path)
    store.append(episodes, trajectories=trajectories)
    return store


def suite_store(path: Path, *, policies: int = 3, n: int = 5) -> Store:
    """Four suites of ten tasks, as on LIBERO, with success and duration."""
    rng = np.random.default_rng(7)
    suites = ('libero-spatial', 'libero-object', 'libero-goal', 'libero-10')
    episodes = [
        rollout(
            f'policy {k}', i, rng, chance=0.9 - 0.1 * k - 0.05 * s, speed_s=15.0 + k, benchmark=suite, stratum=suite,
            task=f'task_{t}',
        )
        for k in range(policies)
        for s, suite in enumerate(suites)
        for t in range(10)
        for i in range(n)
    ]  # fmt: skip
    store = Store.create(path)
    store.append(episodes)
    return store
