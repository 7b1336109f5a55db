from __future__ import annotations

import pytest

from robotrials.errors import NotEstimable
from robotrials.record import Episode, Outcome
from robotrials.record.episode import conditions_by_severity
from robotrials.stats import wilson
from robotrials.verdict.analysis import analyse, present


def episode(outcome: Outcome, **more: object) -> Episode:
    fields: dict[str, object] = {'policy': 'p', 'task': 'stack', 'duration_s': 30.0, 'condition': 'nominal', **more}
    return Episode(outcome=outcome, **fields)  # type: ignore[arg-type]


def test_successes_are_counted_by_policy_task_and_condition_without_broken_rigs() -> None:
    rows = [episode(Outcome.SUCCESS, seed=k) for k in range(24)]
    rows += [episode(Outcome.FAILURE, task='spoon', seed=k) for k in range(3)]
    rows += [episode(Outcome.SUCCESS, task='spoon', seed=k + 3) for k in range(21)]
    rows.append(episode(Outcome.INVALID, seed=99))
    found = {c.task: c for c in present(analyse(rows).detail.task_success)}
    assert (found['stack'].rate.count, found['stack'].rate.n) == (24, 24)
    assert (found['spoon'].rate.count, found['spoon'].rate.n) == (21, 24)  # 87.5 %, as in the audit's Table 9
    assert found['spoon'].rate.interval == wilson(21, 24)


def test_recorded_time_adds_up_by_stratum() -> None:
    rows = [episode(Outcome.SUCCESS, stratum='towels', seed=1), episode(Outcome.TIMEOUT, stratum='towels', seed=2)]
    (found,) = analyse([*rows, episode(Outcome.INVALID, seed=3)], stratify_by=('stratum',)).detail.recorded
    assert (found.stratum, found.n_episodes, found.duration_s) == ('towels', 2, 60.0)


def test_no_valid_episodes_raises() -> None:
    broken = [episode(Outcome.INVALID)]
    with pytest.raises(NotEstimable):
        present(analyse(broken).detail.task_success)
    assert analyse(broken).detail.recorded == ()


def test_only_a_ladder_is_named_by_its_rungs() -> None:
    rows = [
        episode(Outcome.SUCCESS, condition=name, condition_parameters={'severity': severity})
        for name, severity in (('light', 0.5), ('light', 1.0), ('chaos', 1.0))
    ]
    assert list(map(conditions_by_severity(rows), rows)) == ['light at 0.5', 'light at 1', 'chaos']
