"""The recorder: what a host leaves out of a step is broken, never false and never an empty list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from robotrials.record import Trajectory
from robotrials.run.plan import RecordingOptions
from robotrials.run.recording import Recorder
from robotrials.run.seam import ActionConvention, ControlMode, Frame, Gripper, HostSpec, Observation, Rotation, Target

SPEC = HostSpec(
    name='h', control_rate_hz=20.0, state_width=1,
    action=ActionConvention(
        control_mode=ControlMode.SE3, target=Target.DELTA, frame=Frame.BASE, rotation=Rotation.AXIS_ANGLE,
        gripper=Gripper.OPEN_IS_ONE,
    ),
)  # fmt: skip


def recorded(rows: list[Mapping[str, Any]]) -> Trajectory:
    recorder = Recorder(SPEC, RecordingOptions(), most_steps=len(rows), with_latency=False, scene=None)
    for t, signals in enumerate(rows):
        observation = Observation(t * 0.05, np.zeros(1))
        recorder.record(t * 0.05, observation, raw=None, sent=np.zeros(7), delay=None, signals=signals)
    made = recorder.trajectory()
    assert made is not None
    return made


FULL: dict[str, Any] = {'gripper_contact': True, 'contacts': [('a', 'b', 1.0)]}


def test_a_host_that_says_all_has_nothing_broken() -> None:
    made = recorded([FULL, {**FULL, 'contacts': []}, FULL])
    assert made.broken == {}
    assert made.gripper_contact is not None
    assert made.gripper_contact.tolist() == [True, True, True]
    assert made.contacts is not None


@pytest.mark.parametrize('step', [0, 1, 2])
@pytest.mark.parametrize('name', ['gripper_contact', 'contacts'])
@pytest.mark.parametrize('how', ['left out', 'None'])
def test_a_step_without_a_reading_breaks_its_column(step: int, name: str, how: str) -> None:
    rows = [dict(FULL) for _ in range(3)]
    if how == 'None':
        rows[step][name] = None
    else:
        del rows[step][name]
    made = recorded(rows)
    assert made.broken == {name: f'not recorded at step {step}'}
    assert getattr(made, name) is None


@pytest.mark.parametrize('value', ['false', 0.5, float('nan'), [True]])
def test_a_truth_value_that_is_none_breaks_its_column(value: Any) -> None:
    made = recorded([FULL, {**FULL, 'gripper_contact': value}, FULL])
    assert 'wanted true or false' in made.broken['gripper_contact']
    assert made.gripper_contact is None


def test_points_of_contacts_are_those_of_their_rows_or_broken() -> None:
    rows = [{**FULL, 'contact_point_m': np.array([[1.0, 2.0, 3.0]])}, {**FULL, 'contacts': [], 'contact_point_m': []}]
    made = recorded([*rows, rows[0]])
    assert made.contacts is not None
    assert made.contacts.point_m is not None
    assert made.contacts.point_m.tolist() == [[1, 2, 3], [1, 2, 3]]
    for wrong in ({}, {'contact_point_m': []}):
        made = recorded([rows[0], FULL | wrong, rows[0]])
        assert list(made.broken) == ['contact_point_m']
        assert made.contacts is not None
        assert made.contacts.point_m is None


def test_what_a_host_never_says_is_absent() -> None:
    made = recorded([{}, {}])
    assert (made.broken, made.contacts, made.gripper_contact) == ({}, None, None)
