"""What an episode takes is measured where it is spent."""

from __future__ import annotations

import pytest
from tests.run.plans import FAST, SLOW, make_plan

from robotrials.errors import InputError
from robotrials.run.size import measure_demand


def test_a_policy_that_thinks_is_seen_in_the_inferences() -> None:
    policies = {name: {'use': 'seek', 'options': {'speed_m_s': 1.6, 'think_s': 0.004}} for name in (FAST, SLOW)}
    found = measure_demand(make_plan(policies=policies), episodes=2)
    assert found.inferences >= 2
    assert found.inference_s >= 0.003  # it sleeps for 4 ms, and clocks differ
    assert found.store_s > 0
    assert found.start_s > 0


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(InputError, match='at least 1'):
        measure_demand(make_plan(), episodes=0)
