"""Unscored ends in verdicts, the gate and changes: what they could turn is not claimed, what they could not is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.verdict.analysis.pair import plain_store

from robotrials.measure.geometry.camera_score import CameraScore, unscored
from robotrials.record import Episode, Outcome, Store
from robotrials.verdict.analysis import cameras as camera_extreme
from robotrials.verdict.analysis.arm import two_sides
from robotrials.verdict.analysis.cameras import extreme_contrast
from robotrials.verdict.analysis.change import compare_stores
from robotrials.verdict.analysis.contrast import Contrast
from robotrials.verdict.analysis.gate import GateFinding, GateRules, gate_stores
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, SuccessSource

PLAN = AnalysisPlan(success=SuccessSource.RECONSTRUCTION)
WIDE = GateRules(margins={'success': 0.15, 'speed': 0.3, 'safety': 0.05}, require=('success',))
Silence = Callable[[Episode], bool]


def pair(n_good: int, n_bad: int, silent: int, *, n: int = 40) -> Contrast:
    """Policy a succeeds in n_good of n, b in n_bad; the last `silent` episodes of both are unscored."""
    episodes = [
        Episode(policy=p, task='t', outcome=Outcome.TIMEOUT, duration_s=1.0, success=k < good, seed=k)
        for p, good in (('a', n_good), ('b', n_bad))
        for k in range(n)
    ]
    keys = {e.key for e in episodes if e.seed is not None and e.seed >= n - silent}
    arms = ([e for e in episodes if e.policy == p] for p in 'ab')
    return extreme_contrast(*two_sides(*arms, PLAN, names=('a', 'b')), PLAN, unscored=(keys, keys))


def test_few_unscored_ends_weaken_a_clear_difference_and_many_withhold_it() -> None:
    whole, few, many = pair(36, 8, 0), pair(36, 8, 3), pair(36, 8, 30)
    assert whole.p_value is not None
    assert few.p_value is not None
    assert whole.estimate == pytest.approx(0.7)
    assert few.estimate == pytest.approx((36 - 8 - 3) / 40)
    assert few.p_value > whole.p_value
    assert many.p_value is None
    assert '60 unscored' in many.withheld
    assert many.interval is not None
    assert many.interval.low < 0 < many.interval.high


def silenced(monkeypatch: pytest.MonkeyPatch, silence: Silence) -> None:
    """Cameras that repeat the host's word, and say nothing where `silence` holds."""

    def scores(_: Store, episodes: Iterable[Episode]) -> dict[tuple[str, int], CameraScore]:
        return {e.key: unscored('dark') if silence(e) else CameraScore(e.is_success, 0.9) for e in episodes}

    monkeypatch.setattr(camera_extreme, 'camera_scores', scores)


def test_a_gate_counts_silence_against_the_candidate_but_fails_nobody_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline = plain_store(tmp_path / 'old', 0.85, seed=1, n=120)
    equal, poor = plain_store(tmp_path / 'new', 0.85, seed=7, n=120), plain_store(tmp_path / 'bad', 0.4, seed=3, n=120)

    def found(store: Store, silence: Silence) -> tuple[GateFinding, str]:
        silenced(monkeypatch, silence)
        endpoint = gate_stores(store, baseline, rules=WIDE, success=SuccessSource.RECONSTRUCTION).endpoints[0]
        return endpoint.finding, endpoint.note

    assert found(equal, lambda e: False)[0] is GateFinding.NO_WORSE
    assert found(poor, lambda e: e.seed == 0)[0] is GateFinding.WORSE
    finding, note = found(equal, lambda e: (e.seed or 0) % 2 == 0)
    assert finding is GateFinding.MISSING
    assert 'unscored ends of the candidate' in note
    host = gate_stores(equal, baseline, rules=WIDE).endpoints[0]
    assert host.finding is GateFinding.NO_WORSE
    assert 'cameras' not in host.note


def test_a_change_by_cameras_is_given_only_where_its_sign_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = plain_store(tmp_path / 'old', 0.9, seed=1), plain_store(tmp_path / 'new', 0.3, seed=2)

    def shift(silence: Silence) -> tuple[float | None, float | None, str]:
        silenced(monkeypatch, silence)
        change = compare_stores(before, after, success=SuccessSource.RECONSTRUCTION)
        found = next(s for s in change.means if s.metric == 'success')
        return found.difference, found.p_value, found.note

    clear, p_clear, _ = shift(lambda e: False)
    weak, p_weak, note = shift(lambda e: e.seed == 0)
    assert clear is not None
    assert weak is not None
    assert clear < weak < 0
    assert p_clear is not None
    assert p_weak is not None
    assert p_clear <= p_weak
    assert 'unscored' in note
    assert shift(lambda e: True)[0] is None
