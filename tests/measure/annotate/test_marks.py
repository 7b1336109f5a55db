"""Matching, calibration, the trained classifier, scales and agreement."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measure.annotate.telemetries import BETWEEN, SOURCE, ZONES, Grip, telemetry_of

from robotrials.errors import InputError
from robotrials.measure.annotate import (
    Labelled,
    ScaleOptions,
    Settings,
    assess,
    assess_settings,
    calibrate,
    classifier_from_json,
    cohen_kappa,
    detect_releases,
    match_marks,
    train_classifier,
    weigh,
    weight_steps,
)
from robotrials.measure.annotate.calibrate import is_placement, read_settings, settings_text
from robotrials.record import Episode, Event, EventKind, Outcome

marks = st.lists(st.floats(0, 20), max_size=5)


@given(marks, marks)
def test_matching_is_the_best_of_all_one_to_one_matchings(true: list[float], found: list[float]) -> None:
    got = match_marks(true, found)
    best = (0, 0.0)
    few, many = sorted((true, found), key=len)
    for order in itertools.permutations(many, len(few)):
        gaps = [abs(a - b) for a, b in zip(few, order, strict=True) if abs(a - b) <= 1.0]
        best = max(best, (len(gaps), -sum(gaps)))
    assert len(got.errors_s) == best[0]
    assert np.abs(got.errors_s).sum() == pytest.approx(-best[1], abs=1e-9)


def episode_of(*placements: float, number: int = 0, items: int = 4) -> Episode:
    return Episode(
        policy='p', task='pick', outcome=Outcome.TIMEOUT, duration_s=20.0, items=items, items_placed=len(placements),
        seed=number, instance=number, events=tuple(Event(t, EventKind.PLACEMENT) for t in placements),
    )  # fmt: skip


def labelled(n: int, *, grip: float = 0.3, noise: float = 0.003) -> list[Labelled]:
    """Episodes with two placements, an item put back and a loss."""
    found = []
    for number in range(n):
        grips = (
            Grip(1, 2.5, width=grip), Grip(4, 5.5, width=grip, release=SOURCE), Grip(7, 8.5, width=grip),
            Grip(10, 11.5, width=grip, release=BETWEEN),
        )  # fmt: skip
        telemetry = telemetry_of(*grips, noise=noise, seed=number)
        found.append(Labelled(episode_of(2.6, 8.7, number=number), telemetry, ZONES))
    return found


def test_calibration_finds_a_threshold_that_the_defaults_miss() -> None:
    thin = labelled(6, grip=0.04)  # items as thin as what the default calls closed
    found = calibrate(thin)
    assert assess(assess_settings(Settings(), thin)).n_matched == 0
    assert found.before.n_matched == 0
    assert found.held_out.f1 == 1.0
    assert found.settings.detector.closed_band < 0.04
    with pytest.raises(InputError, match='wanted at least 4'):
        calibrate(thin[:3])


def test_settings_survive_their_file(tmp_path) -> None:
    found = calibrate(labelled(12), learn=True)
    classifier = found.settings.classifier
    assert classifier is not None
    (tmp_path / 'c.json').write_text(classifier.as_json())
    (tmp_path / 's.toml').write_text(settings_text(ZONES, found.settings, classifier='c.json'))
    zones, settings = read_settings(tmp_path / 's.toml')
    assert zones == ZONES
    assert settings == found.settings
    assert found.held_out.f1 == 1.0
    (tmp_path / 's.toml').write_text('[detector]\nclosed_bnd = 0.1\n')
    with pytest.raises(InputError, match='closed_b'):
        read_settings(tmp_path / 's.toml')
    with pytest.raises(InputError, match='other features'):
        classifier_from_json('{"features": ["x"]}', where='c.json')


def test_the_classifier_agrees_with_statsmodels() -> None:
    sm = pytest.importorskip('statsmodels.api')
    rng = np.random.default_rng(0)
    candidates = [c for e in labelled(20, noise=0.01) for c in detect_releases(e.telemetry, ZONES)]
    truth = [bool(t ^ (rng.random() < 0.1)) for e in labelled(20, noise=0.01)
             for t in is_placement(detect_releases(e.telemetry, ZONES), e.truth_s)]  # fmt: skip
    ours = train_classifier(candidates, truth, ridge=1.0)
    from robotrials.measure.annotate.calibrate import features_of

    values = features_of(candidates)
    kept = values.std(axis=0) > 1e-9
    design = np.column_stack([((values - values.mean(axis=0)) / np.where(kept, values.std(axis=0), 1))[:, kept],
                              np.ones(len(values))])  # fmt: skip
    penalty = np.append(np.full(kept.sum(), 1.0), 0.0)
    model = sm.Logit(np.array(truth, float), design)

    point = np.append(np.array(ours.weights)[kept], ours.bias)
    assert np.abs(model.score(point) - penalty * point).max() < 1e-2  # no better point nearby, by their gradient
    with pytest.raises(InputError, match='at least 10 of either'):
        train_classifier(candidates[:12], [True] * 12)


def test_a_scale_times_what_stays(tmp_path) -> None:
    time_s = np.arange(0, 20, 0.05)
    weight = 0.035 * ((time_s >= 3) + 2 * (time_s >= 7) - 1 * (time_s >= 12))
    weight = weight + np.random.default_rng(0).normal(0, 0.001, len(time_s))
    weight[np.searchsorted(time_s, 3.0)] += 0.2  # the item's fall
    options = ScaleOptions(item_kg=0.035)
    steps = weight_steps(time_s.tolist(), weight.tolist(), options)
    assert [s.items for s in steps] == [1, 2, -1]
    assert [s.t_s for s in steps] == pytest.approx([3, 7, 12], abs=0.11)
    account = weigh(episode_of(), time_s.tolist(), weight.tolist(), options)
    assert account.count == 2
    assert sum(e.count for e in account.events) == 2
    with pytest.raises(InputError, match='items; check item_kg'):
        weight_steps(time_s.tolist(), (weight * 1.5).tolist(), options)


def test_kappa_by_hand() -> None:
    pairs = [(2, 2), (2, 2), (3, 3), (3, 2)]  # p_o = 3/4, p_e = (2*3 + 2*1)/16 = 1/2
    assert cohen_kappa(pairs) == pytest.approx(0.5)
    assert cohen_kappa([(1, 1), (1, 1)]) is None
    assert math.isclose(cohen_kappa([(0, 1), (1, 0)]) or 0.0, -1.0)
