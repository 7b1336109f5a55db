"""The public kits let good hosts and policies pass, and name what a bad one broke."""

from __future__ import annotations

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.run import Observation, check_policy
from robotrials.testing.policy import FaultyHost, FaultyPolicy, PointMassHost, SeekPolicy
from robotrials.worlds import check_host


def test_the_point_mass_and_the_seeker_conform() -> None:
    check_host(PointMassHost(noise_m=0.01, camera_px=6), task='reach')
    check_policy(SeekPolicy(chunk_length=3), host=PointMassHost(), task='reach', deterministic=True)


@pytest.mark.parametrize(
    ('fault', 'message'),
    [
        ('mutate', 'changed after it was handed out'),
        ('shape', 'state has shape'),
        ('nan', 'not finite'),
        ('crash', 'raised OSError: the arm does not answer'),
        ('hang', 'did not return within'),
    ],
)
def test_a_bad_host_is_caught(fault: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_host(FaultyHost(fault=fault, seconds=4.0), task='reach', limit_s=2.0 if fault == 'hang' else 60.0)


@pytest.mark.parametrize(
    ('fault', 'message'),
    [
        ('nan', 'not finite'),
        ('shape', r'\(1, 7\)'),
        ('crash', 'broken'),
        ('late', 'deadline'),
        ('hang', 'hangs or is too slow'),
        ('write', 'read-only'),
    ],
)
def test_a_bad_policy_is_caught(fault: str, message: str) -> None:
    policy = FaultyPolicy(fault=fault, seconds=0.9 if fault == 'late' else 6.0)
    deadline_s = 0.6 if fault == 'late' else None
    with pytest.raises(InputError, match=message):
        check_policy(
            policy, host=PointMassHost(), task='reach', limit_s=4.0 if fault == 'hang' else 60.0, deadline_s=deadline_s
        )


class Forgetful(PointMassHost):
    """Does not reset its random state."""

    def reset(self, task: str, *, seed: int) -> Observation:
        rng = getattr(self, '_rng', np.random.default_rng(seed))
        observation = super().reset(task, seed=seed)
        self._rng = rng
        return observation


class Jittery(PointMassHost):
    """Looking at its signals moves it."""

    def signals(self) -> dict[str, object]:
        self._x += 1e-6
        return dict(super().signals())


@pytest.mark.parametrize('host', [Forgetful(noise_m=0.01), Jittery()])
def test_a_host_that_does_not_repeat_is_caught(host: PointMassHost) -> None:
    with pytest.raises(InputError, match='differs between two runs'):
        check_host(host, task='reach')


def test_a_thing_without_the_methods_is_no_host_and_no_policy() -> None:
    with pytest.raises(InputError, match='has not all of spec, reset, step and outcome'):
        check_host(SeekPolicy(), task='reach')  # type: ignore[arg-type]
    with pytest.raises(InputError, match='has not both of spec and start'):
        check_policy(PointMassHost(), host=PointMassHost(), task='reach')  # type: ignore[arg-type]
