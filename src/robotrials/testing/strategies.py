"""Hypothesis strategies for the record's types. Needs hypothesis, which the `dev` extra installs."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
from hypothesis import strategies as st

from robotrials.record import Contacts, Episode, Event, EventKind, EventSource, Outcome, Scene, Trajectory

NAMES = st.text(alphabet=st.characters(codec='utf-8', exclude_categories=('Cs', 'Cc')), min_size=1, max_size=12).filter(
    lambda text: text == text.strip()
)
SECONDS = st.floats(0, 600, allow_nan=False).map(lambda x: round(x, 6))


@st.composite
def episodes(draw: st.DrawFn, /, *, is_untimed: bool = False, **fixed: Any) -> Episode:
    """Any valid episode, with consistent counts and events; `fixed` sets fields; `is_untimed`: some lack a duration."""
    duration_s = draw(SECONDS)
    items = draw(st.one_of(st.none(), st.integers(0, 8)))
    placed = draw(st.integers(0, items if items is not None else 8))
    lost = draw(st.integers(0, items - placed)) if items is not None else draw(st.integers(0, 3))
    times = draw(st.lists(st.floats(0, 1), max_size=placed))
    kinds = st.sampled_from([k for k in EventKind if k not in (EventKind.PLACEMENT, EventKind.PHASE)])
    moment, source = st.floats(0, duration_s), st.sampled_from(EventSource)
    others = draw(st.lists(st.builds(Event, moment, kinds, source), max_size=3))
    phases = st.builds(Event, moment, st.just(EventKind.PHASE), source, name=NAMES)
    others += draw(st.lists(phases, max_size=2))
    values: dict[str, Any] = {
        'policy': draw(NAMES),
        'task': draw(NAMES),
        'outcome': draw(st.sampled_from(Outcome)),
        'duration_s': draw(st.sampled_from([duration_s, None])) if is_untimed else duration_s,
        'steps': draw(st.one_of(st.none(), st.integers(0, 1000))),
        'benchmark': draw(st.sampled_from(['', 'libero-spatial', 'phail'])),
        'stratum': draw(st.sampled_from(['', 'towels', 'batteries'])),
        'condition_parameters': draw(
            st.dictionaries(NAMES, st.one_of(st.integers(-9, 9), st.booleans(), NAMES), max_size=2)
        ),
        'seed': draw(st.one_of(st.none(), st.integers(0, 2**62))),
        'instance': draw(st.one_of(st.none(), st.integers(0, 50))),
        'repeat': draw(st.integers(0, 3)),
        'started_at': draw(st.one_of(st.none(), st.datetimes(dt.datetime(2020, 1, 1), timezones=st.just(dt.UTC)))),
        'time_cap_s': draw(st.one_of(st.none(), st.floats(1, 600))),
        'items': items,
        'items_placed': placed,
        'items_lost': lost,
        'success': draw(st.one_of(st.none(), st.booleans())),
        'score': draw(st.one_of(st.none(), st.floats(0, 5))),
        'max_score': 5.0,
        'reason': draw(st.one_of(st.just(''), NAMES)),
        'labels': draw(st.dictionaries(NAMES, NAMES, max_size=2)),
        'events': tuple(Event(t * duration_s, EventKind.PLACEMENT) for t in times) + tuple(others),
    }
    return Episode(**{**values, **fixed})


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """Any valid trajectory of a few steps, with some columns absent."""
    steps, joints, bodies = (
        draw(st.integers(1, 5)),
        draw(st.integers(0, 3)),
        draw(st.lists(NAMES, unique=True, max_size=3)),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))

    def maybe(*shape: int) -> Any:
        return rng.normal(size=(steps, *shape)).astype(dtype) if draw(st.booleans()) else None

    contacts = None
    if draw(st.booleans()):
        names = ['hand', 'cube', 'table']
        rows = [[(*rng.choice(names, 2), float(rng.exponential(5)))] * int(rng.integers(0, 3)) for _ in range(steps)]
        points = [rng.normal(size=(len(row), 3)) for row in rows] if draw(st.booleans()) else None
        contacts = Contacts.from_steps([[(str(a), str(b), f) for a, b, f in row] for row in rows], points_m=points)
    return Trajectory(
        time_s=np.cumsum(rng.uniform(0.01, 0.1, steps)),
        ee_pose=maybe(7),
        joint_position_rad=maybe(joints),
        joint_torque_nm=maybe(joints),
        bodies=tuple(bodies),
        body_pose=maybe(len(bodies), 7),
        contacts=contacts,
        gripper_contact=rng.random(steps) > 0.5 if draw(st.booleans()) else None,
        action_raw=maybe(joints + 1),
        reward=maybe(),
        simulator_state=maybe(4),
        frame_hash={'wrist': rng.integers(0, 2**64, steps, dtype=np.uint64)} if draw(st.booleans()) else {},
        extra={name: rng.normal(size=(steps, 2)) for name in draw(st.lists(NAMES, unique=True, max_size=2))},
        scene=Scene(body_roles=dict.fromkeys(bodies, 'furniture'), target_object=bodies[0] if bodies else ''),
    )
