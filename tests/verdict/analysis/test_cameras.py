"""Success by cameras in an analysis: counts, bounds and corrections, and what an unscored end may never do."""

from __future__ import annotations

import pytest

from robotrials.measure.geometry.camera_score import CameraScore, unscored
from robotrials.record import Episode, Outcome
from robotrials.verdict.analysis import Absent, present
from robotrials.verdict.analysis.cameras import CameraPart, camera_part
from robotrials.verdict.analysis.selection import build_frame, select_episodes
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, SuccessSource

Scores = dict[tuple[str, int], CameraScore]


def trial(words: dict[str, list[tuple[bool | None, bool | None]]]) -> tuple[list[Episode], Scores]:
    """Policy -> (host, cameras) of each episode."""
    episodes, scores = [], {}
    for policy, said in words.items():
        for seed, (host, cameras) in enumerate(said):
            outcome = Outcome.SUCCESS if host else Outcome.TIMEOUT
            episode = Episode(policy=policy, task='t', outcome=outcome, duration_s=1.0, success=host, seed=seed)
            episodes.append(episode)
            scores[episode.key] = unscored('dark 3') if cameras is None else CameraScore(cameras, 0.9)
    return episodes, scores


def part_of(words: dict[str, list[tuple[bool | None, bool | None]]]) -> object:
    episodes, scores = trial(words)
    frame = present(build_frame(select_episodes(episodes), AnalysisPlan()))
    return camera_part(frame, scores, {e.key: e for e in episodes}, level=0.95)


GOOD = [(True, True)] * 8 + [(False, False)] * 6 + [(True, False), (False, True), (True, None), (False, None)]


def test_counts_agreement_and_bias() -> None:
    part = present(part_of({'a': GOOD, 'b': GOOD}))  # type: ignore[arg-type]
    c = part.confusion
    assert (c.both_success, c.only_host, c.only_cameras, c.both_failure) == (16, 2, 2, 12)
    assert (c.unscored_success, c.unscored_failure) == (2, 2)
    assert (part.agreement.count, part.agreement.n) == (28, 32)
    assert part.bias.value == 0
    assert part.unscored_reasons == {'dark #': 4}


def test_unscored_ends_widen_the_bounds_and_raise_no_rate() -> None:
    """Turning scored ends of one policy into unscored ones moves the low end down or not at all, the high end up."""
    before = present(part_of({'a': GOOD, 'b': GOOD})).policies[0]  # type: ignore[arg-type]
    dark = [(host, None if k < 5 else said) for k, (host, said) in enumerate(GOOD)]
    after = present(part_of({'a': dark, 'b': GOOD})).policies[0]  # type: ignore[arg-type]
    assert after.bounds.low < before.bounds.low
    assert after.bounds.high >= before.bounds.high
    assert after.corrected.value is not None
    assert before.corrected.value is not None
    assert after.corrected.value < before.corrected.value


def test_the_corrections_come_from_the_other_policies() -> None:
    """The cameras see every success of b and half of those of a: a is corrected as if they saw all."""
    half = [(True, True), (True, False)] * 5 + [(False, False)] * 10
    clear = [(True, True)] * 10 + [(False, False)] * 10
    a, b = present(part_of({'a': half, 'b': clear})).policies  # type: ignore[arg-type]
    assert a.corrected.value == pytest.approx(0.25)
    assert b.corrected.value == pytest.approx(1.0)
    assert a.host is not None
    assert a.host.count == 10


def test_a_stratum_that_cameras_hardly_see_gives_bounds_and_no_rate() -> None:
    """Blocks are seen, spoons are not: pooled, their silence would be corrected by what holds for blocks."""
    seen = [(True, True)] * 5 + [(False, False)] * 5
    dark = [(True, None)] * 4 + [(False, None)] * 4 + [(True, True)] + [(False, False)]
    words = {p: {'block': seen, 'spoon': dark} for p in 'abc'}
    a = present(strata_part(words)).policies[0]
    assert a.corrected.value is None
    assert 'spoon' in a.corrected.note
    assert a.corrected.interval is not None
    assert a.corrected.interval.low <= a.bounds.low
    assert a.corrected.interval.high >= 0.7
    clear = present(strata_part({p: {'block': seen, 'spoon': seen} for p in 'abc'})).policies[0]
    assert clear.corrected.value == pytest.approx(0.5)


def strata_part(words: dict[str, dict[str, list[tuple[bool | None, bool | None]]]]) -> CameraPart | Absent:
    episodes, scores = [], {}
    for policy, strata in words.items():
        for stratum, said in strata.items():
            for seed, (host, cameras) in enumerate(said):
                episode = Episode(
                    policy=policy, task='t', stratum=stratum, outcome=Outcome.SUCCESS if host else Outcome.TIMEOUT,
                    duration_s=1.0, success=host, seed=seed,
                )  # fmt: skip
                episodes.append(episode)
                scores[episode.key] = unscored('dark') if cameras is None else CameraScore(cameras, 0.9)
    frame = present(build_frame(select_episodes(episodes), AnalysisPlan(stratify_by=('stratum',))))
    return camera_part(frame, scores, {e.key: e for e in episodes}, level=0.95)


def test_strata_seen_unlike_are_corrected_apart() -> None:
    """Half of the spoons' successes are unscored, for every policy; a is bad at spoons, the others are not."""
    block = [(True, True)] * 9 + [(False, False)] * 3
    good = [(True, True)] * 4 + [(True, None)] * 4 + [(False, False)] * 4
    poor = [(True, True)] + [(True, None)] + [(False, False)] * 10
    part = present(
        strata_part({'a': {'block': block, 'spoon': poor}, 'b': {'block': block, 'spoon': good},
                     'c': {'block': block, 'spoon': good}})
    )  # fmt: skip
    a = part.policies[0]
    assert a.corrected.value == pytest.approx((9 + 2) / 24)  # its true rate
    assert a.host is not None
    assert a.host.value == pytest.approx(11 / 24)


def test_episodes_without_truth_are_powered_by_predictions() -> None:
    known = [(True, True)] * 6 + [(False, False)] * 4
    part = present(part_of({'a': [*known, *[(None, True)] * 30], 'b': known}))  # type: ignore[arg-type]
    a = part.policies[0]
    assert a.host is None
    assert a.powered.value is not None
    assert a.powered.value > 0.6
    assert part.confusion.n == 20


def test_nothing_scored_is_absent_with_the_reason() -> None:
    part = part_of({'a': [(True, None)] * 3, 'b': [(False, None)] * 3})
    assert isinstance(part, Absent)
    assert 'dark' in part.reason


def test_an_analysis_takes_the_cameras_word_only_where_asked() -> None:
    episodes, scores = trial({'a': [(True, False)] * 3})
    said = {key: s.success for key, s in scores.items() if s.success is not None}
    plan = AnalysisPlan(success=SuccessSource.RECONSTRUCTION)
    frame = present(build_frame(select_episodes(episodes), plan, said))
    assert not any(e.is_success for e in frame.cells['a']['t'])
    assert all(e.outcome is Outcome.SUCCESS for e in frame.cells['a']['t'])
    plain = present(build_frame(select_episodes(episodes), AnalysisPlan()))
    assert all(e.is_success for e in plain.cells['a']['t'])
