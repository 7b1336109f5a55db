"""Python functions and classes as policies, by module:attribute."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robotrials.errors import AnswerError, InputError
from robotrials.policies.plain import FunctionPolicy
from robotrials.run import Setup, check_policy
from robotrials.testing.policy import PointMassHost

MODULE = """
import numpy as np

def seek(question):
    gap = question['state'][2:4] - question['state'][:2]
    step = gap / max(1.0, float(np.hypot(*gap)) / 0.08)
    return np.array([[step[0], step[1], 0.0]])

class Seeker:
    n_resets = 0
    def reset(self):
        Seeker.n_resets += 1
    def __call__(self, question):
        return {'actions': seek(question)}

def ragged(question):
    return [[1.0, 2.0], [3.0]]

def wordy(question):
    return {'action': 1}

number = 3
class Mute:
    pass
"""
OPTIONS: dict[str, Any] = {
    'observation': {'state': {'state': [0, 4]}},
    'action': {'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}},
}


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'my_policies.py').write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop('my_policies', None)


@pytest.mark.parametrize('name', ['seek', 'Seeker'])
def test_a_function_or_a_class_is_a_policy(name: str) -> None:
    policy = FunctionPolicy(function=f'my_policies:{name}', **OPTIONS)
    check_policy(policy, host=PointMassHost(), task='reach', deterministic=True)
    if name == 'Seeker':
        assert sys.modules['my_policies'].Seeker.n_resets == 2


@pytest.mark.parametrize('name', ['ragged', 'wordy'])
def test_odd_answers_are_the_functions_fault(name: str) -> None:
    policy = FunctionPolicy(function=f'my_policies:{name}', **OPTIONS)
    host = PointMassHost()
    policy.fit(host.spec)
    with pytest.raises(AnswerError):
        policy.start(Setup(task='t', seed=0), seed=0).act(host.reset('reach', seed=0))


@pytest.mark.parametrize(
    ('target', 'told'),
    [
        ('os:system', 'of the standard library'),
        ('subprocess:run', 'of the standard library'),
        ('builtins:eval', 'of the standard library'),
        ('my_policies:number', 'wanted something to call'),
        ('my_policies:Mute', 'no __call__'),
        ('my_policies:sek', "did you mean 'seek'"),
        ('nowhere:x', 'no module named'),
    ],
)
def test_what_is_no_policy_is_never_called(target: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        FunctionPolicy(function=target, **OPTIONS)


def test_an_unfitted_policy_says_what_to_do() -> None:
    policy = FunctionPolicy(function='my_policies:seek', **OPTIONS)
    with pytest.raises(InputError, match=r'call fit\(host\.spec\) first'):
        policy.start(Setup(task='t', seed=0), seed=0)
    assert np.isfinite(policy.spec.chunk_length)
