"""How operations end: Aalen-Johansen against lifelines, a brute-force jackknife, and what episodes become."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import AalenJohansenFitter

from robotrials.errors import NotEstimable
from robotrials.measure.timing import (
    Endings,
    OperationEnd,
    cumulative_incidence,
    endings,
    endings_by_stratum,
    rmst,
    success_curve,
)
from robotrials.measure.timing.incidence import CAUSES, CENSORED, Curves
from robotrials.record import Episode, Event, EventKind


def drawn(seed: int, n: int = 60, n_units: int = 20) -> Endings:
    rng = np.random.default_rng(seed)
    unit = np.concatenate([np.arange(n_units), rng.integers(0, n_units, n - n_units)])
    return Endings(rng.exponential(30, n), rng.integers(-1, len(CAUSES), n), unit, n_units)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_incidences_are_those_of_lifelines(seed: int) -> None:
    cell = drawn(seed)
    asked = [3.0, 20.0, 55.0, 90.0]
    found = cumulative_incidence(cell, times_s=asked, tau_s=80.0)
    for code, end in enumerate(CAUSES):
        fitted = AalenJohansenFitter(calculate_variance=False).fit(
            cell.times_s, cell.cause + 1, event_of_interest=code + 1
        )
        np.testing.assert_allclose(found.causes[end].chance, fitted.predict(asked).to_numpy(), atol=1e-12)
    total = np.sum([found.causes[end].chance for end in CAUSES], axis=0) + found.under_way
    np.testing.assert_allclose(total, 1.0)


def test_without_censoring_incidences_are_shares() -> None:
    """Freireich's 21 remissions of the placebo arm (1963), taken as one cause of two by parity: plain proportions."""
    weeks = np.array([1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23], dtype=np.float64)
    cause = np.array([k % 2 for k in range(21)])
    found = cumulative_incidence(Endings(weeks, cause, np.arange(21), 21), times_s=[8.0, 23.0], tau_s=23.0)
    assert found.causes[OperationEnd.SUCCESS].chance == pytest.approx((7 / 21, 11 / 21))
    assert found.causes[OperationEnd.DROP].chance == pytest.approx((6 / 21, 10 / 21))
    lost = sum(found.causes[end].time_lost_s for end in CAUSES)
    assert 23.0 - lost == pytest.approx(weeks.mean())


def test_one_cause_with_censoring_is_kaplan_meier() -> None:
    """Freireich's 6-MP arm: S(10) = 0.7529, S(22) = 0.5378, S(23) = 0.4482 as printed in Kalbfleisch and Prentice."""
    weeks = np.array([6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35], dtype=np.float64)
    ended = np.array([1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0], dtype=bool)
    cell = Endings(weeks, np.where(ended, 0, CENSORED), np.arange(21), 21)
    found = cumulative_incidence(cell, times_s=[10.0, 22.0, 23.0], tau_s=30.0)
    assert np.round(1 - np.array(found.causes[OperationEnd.SUCCESS].chance), 4).tolist() == [0.7529, 0.5378, 0.4482]
    assert 30.0 - found.causes[OperationEnd.SUCCESS].time_lost_s == pytest.approx(
        rmst(success_curve(weeks, ended), 30.0)
    )


def test_influences_are_near_the_brute_force_jackknife_over_units() -> None:
    cell = drawn(3, n=160, n_units=40)
    asked = np.array([10.0, 40.0])
    for code, end in enumerate(CAUSES):
        moved = Curves.of(cell).influence(code, cell, asked, 60.0)
        left = []
        for unit in range(40):
            keep = cell.unit != unit
            units = np.unique(cell.unit[keep], return_inverse=True)[1]
            part = Endings(cell.times_s[keep], cell.cause[keep], units, 39)
            rest = cumulative_incidence(part, times_s=asked.tolist(), tau_s=60.0).causes[end]
            left.append([*rest.chance, rest.time_lost_s])
        table = np.array(left)
        wanted = 39 / 40 * ((table - table.mean(axis=0)) ** 2).sum(axis=0)
        np.testing.assert_allclose((moved**2).sum(axis=0) * 40 / 39, wanted, rtol=0.06)


def test_influences_are_the_same_some_operations_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = drawn(4, n=160, n_units=40)
    asked = np.array([10.0, 40.0])
    whole = [Curves.of(cell).influence(code, cell, asked, 60.0) for code in range(len(CAUSES))]
    monkeypatch.setattr('robotrials.measure.timing.curve.MOST_NUMBERS', 1000)
    for code, expected in enumerate(whole):
        moved = Curves.of(cell).influence(code, cell, asked, 60.0)
        np.testing.assert_allclose(moved, expected, rtol=1e-12, atol=1e-15)


def test_no_band_is_without_width_and_few_units_have_none() -> None:
    sure = Endings(np.full(20, 5.0), np.zeros(20, dtype=np.int64), np.arange(20), 20)
    found = cumulative_incidence(sure, times_s=[10.0], tau_s=30.0)
    for end in CAUSES:
        assert found.causes[end].band[0] is not None
        assert found.causes[end].band[0].width > 0.1
    few = Endings(np.full(2, 5.0), np.zeros(2, dtype=np.int64), np.arange(2), 2)
    thin = cumulative_incidence(few, times_s=[10.0], tau_s=30.0)
    assert thin.causes[OperationEnd.SUCCESS].band == (None,)
    assert '2 units in a cell' in thin.withheld
    with pytest.raises(NotEstimable, match='no operation'):
        cumulative_incidence({}, times_s=[1.0], tau_s=2.0)


def episode(outcome: str, duration_s: float, *events: tuple[float, str], **more: Any) -> Episode:
    made = tuple(Event(t, EventKind(kind)) for t, kind in events)
    return Episode(policy='p', task='t', outcome=outcome, duration_s=duration_s, events=made, time_cap_s=100.0, **more)  # type: ignore[arg-type]


def test_every_operation_has_one_end() -> None:
    cell = endings(
        [
            episode('timeout', 100, (10, 'placement'), (30, 'drop_outside'), (40, 'placement'), items=5),
            episode('failure', 12, items=1),
            episode('failure', 100, items=1),
            episode('safety_stop', 7, (7, 'safety_stop'), items=1),
            episode('success', 9, items=1),
            episode('timeout', 50, items=1),
            episode('failure', 30, is_unrecoverable=False, items=1),
            episode('invalid', 3),
        ]
    )
    named = [OperationEnd.LOST if c == CENSORED else CAUSES[c] for c in cell.cause]
    assert list(zip(cell.times_s.tolist(), named, strict=True)) == [
        (10.0, OperationEnd.SUCCESS), (20.0, OperationEnd.DROP), (30.0, OperationEnd.SUCCESS), (60.0,
        OperationEnd.TIME_OUT), (12.0, OperationEnd.FAILURE),
        (100.0, OperationEnd.TIME_OUT), (7.0, OperationEnd.SAFETY_STOP), (9.0, OperationEnd.SUCCESS), (50.0,
        OperationEnd.LOST), (30.0, OperationEnd.LOST),
    ]  # fmt: skip
    assert cell.n_units == 7
    assert cell.count(OperationEnd.LOST) == 2


def test_strata_count_the_same_and_repeats_are_one_unit() -> None:
    episodes = [episode('success', 10.0 + k, stratum='x', seed=k % 4) for k in range(12)]
    episodes += [episode('failure', 5.0 + k, stratum='y', seed=k) for k in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        cells = endings_by_stratum(episodes)
        found = cumulative_incidence(cells, times_s=[50.0], tau_s=60.0)
    assert {s: c.n_units for s, c in cells.items()} == {'x': 4, 'y': 4}
    assert found.causes[OperationEnd.SUCCESS].chance == pytest.approx((0.5,))
    assert found.causes[OperationEnd.FAILURE].chance == pytest.approx((0.5,))
