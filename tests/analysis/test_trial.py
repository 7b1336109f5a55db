"""What a report holds is what the scoring rooms say, and what a store can't give is absent with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.analysis.stores import changed_store, item_store, rollout, safety_store, suite_store, timed_store
from tests.run.plans import make_plan

from trialist.analysis import Absent, Ranking, ReportOptions, RobustnessPart, SafetyPart, build_report
from trialist.analysis.pairs import AllPairs
from trialist.analysis.ranking import choose_tau
from trialist.episodes import Episode, Outcome, PolicyCard, Store, read_store
from trialist.errors import InputError, NotEstimable
from trialist.run import close_trial, run_trial
from trialist.safety import score_pairs, store_pairs, summarize_safety
from trialist.stats import wilson
from trialist.timing import Scale, cohorts, rmst, score_cohort, success_curve

FEW = ReportOptions(n_resamples=200)


def ranked(store: Store, options: ReportOptions = FEW) -> Ranking:
    found = build_report(store, options).ranking
    assert isinstance(found, Ranking)
    return found


def test_scores_are_those_of_timing_with_the_same_seed(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's')
    ranking = ranked(store)
    rng = np.random.default_rng(0).spawn(3)[0]
    for name, cohort in cohorts(store.episodes()).items():
        direct = score_cohort(cohort, scale=Scale(tau_s=60.0, thresholds_s=(30.0,)), n_resamples=200, rng=rng)
        assert ranking.scores[name].macro == direct.macro
        assert ranking.scores[name].cells == direct.cells


def test_the_order_is_by_macro_rmst_without_the_reference(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's')
    ranking = ranked(store)
    means = {}
    for name, cohort in cohorts(store.episodes()).items():
        means[name] = np.mean([rmst(success_curve(c.durations_s, c.observed), 60.0) for c in cohort.cells.values()])
    assert ranking.reference == 'human'
    assert list(ranking.order) == sorted(set(means) - {'human'}, key=lambda name: means[name])
    assert ranking.policies[0] == 'human'


def test_the_slow_policy_is_told_apart_and_the_like_ones_are_not(tmp_path: Path) -> None:
    pairs = ranked(timed_store(tmp_path / 's')).pairs
    assert isinstance(pairs, AllPairs)
    assert not set(pairs.letters['slow']) & set(pairs.letters['quick'])
    assert set(pairs.letters['steady']) & set(pairs.letters['quick'])


def test_success_counts_are_the_hosts_own_with_wilson_intervals(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's')
    ranking = ranked(store)
    mine = [e for e in store.episodes() if e.policy == 'slow' and e.is_valid and e.stratum == 'spoon']
    count = ranking.successes['slow', 'spoon']
    assert (count.successes, count.n) == (sum(bool(e.success) for e in mine), len(mine))
    assert count.interval == wilson(count.successes, count.n)
    assert ranking.successes['slow', ''].n == 40


def test_curves_end_at_the_curves_of_timing(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's')
    ranking = ranked(store)
    cell = cohorts(store.episodes())['slow'].cells['spoon']
    direct = success_curve(cell.durations_s, cell.observed)
    (found,) = (c for c in ranking.curves['spoon'] if c.policy == 'slow')
    np.testing.assert_allclose(found.chance, direct.at(found.times_s), rtol=1e-12)
    assert found.low is not None
    assert found.high is not None
    assert (found.low <= found.chance).all()
    assert (found.chance <= found.high).all()


def test_safety_is_that_of_the_safety_room(tmp_path: Path) -> None:
    store = safety_store(tmp_path / 's')
    part = build_report(store, FEW).safety
    assert isinstance(part, SafetyPart)
    direct = summarize_safety(score_pairs(store_pairs(store)), n_resamples=10)
    for mine, theirs in zip(part.summary.cells, direct.cells, strict=True):
        assert (mine.policy, mine.table) == (theirs.policy, theirs.table)
    assert part.frontier == {'libero-10': ('gentle',)}


def test_robustness_finds_the_policy_that_minds(tmp_path: Path) -> None:
    part = build_report(changed_store(tmp_path / 's'), FEW).robustness
    assert isinstance(part, RobustnessPart)
    assert not isinstance(part.drops, Absent)
    resolved = {(d.policy, d.condition) for d in part.drops if d.is_resolved()}
    assert ('seeing', 'chaos') in resolved
    assert not any(policy == 'blind' for policy, _ in resolved)
    assert not isinstance(part.doses, Absent)
    assert isinstance(part.swap, Absent)


def test_policies_are_ranked_by_the_baseline_condition_alone(tmp_path: Path) -> None:
    ranking = ranked(changed_store(tmp_path / 's', n=10))
    assert ranking.condition == 'nominal'
    assert ranking.successes['seeing', ''].n == 10


def test_conditions_without_a_baseline_are_taken_together_and_said_so(tmp_path: Path) -> None:
    ranking = ranked(changed_store(tmp_path / 's', n=10), ReportOptions(n_resamples=50, baseline='daylight'))
    assert ranking.condition == ''
    assert ranking.successes['seeing', ''].n == 40


def test_a_table_has_no_safety_and_no_robustness_and_says_why(tmp_path: Path) -> None:
    found = build_report(suite_store(tmp_path / 's'), FEW)
    assert isinstance(found.safety, Absent)
    assert 'no trajectory' in found.safety.reason
    assert isinstance(found.robustness, Absent)
    assert 'one condition (nominal)' in found.robustness.reason


def test_one_policy_is_scored_and_not_compared(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    store = Store.create(tmp_path / 's')
    store.append([rollout('alone', i, rng) for i in range(8)])
    ranking = ranked(store)
    assert isinstance(ranking.pairs, Absent)
    assert ranking.order == ('alone',)


def test_policies_on_different_strata_are_not_compared(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    store = Store.create(tmp_path / 's')
    store.append([rollout(p, i, rng, stratum=p) for i in range(8) for p in ('a', 'b')])
    pairs = ranked(store).pairs
    assert isinstance(pairs, Absent)
    assert 'no two policies were tested in the same stratum' in pairs.reason


def test_nothing_valid_is_absent_and_an_empty_store_raises(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    with pytest.raises(NotEstimable, match='no episode in this store'):
        build_report(store)
    store.append([Episode(policy='a', task='t', outcome=Outcome.INVALID, duration_s=0.0, reason='power cut')])
    found = build_report(store, FEW)
    assert isinstance(found.ranking, Absent)
    assert found.quality.invalid_reasons == {'power cut': 1}


@pytest.mark.parametrize(('options', 'tau_s'), [(ReportOptions(tau_s=30.0), 30.0), (ReportOptions(), 60.0)])
def test_tau_is_as_asked_or_the_protocols(tmp_path: Path, options: ReportOptions, tau_s: float) -> None:
    found = cohorts(timed_store(tmp_path / 's').episodes()).values()
    assert choose_tau(found, options)[0] == tau_s


def test_without_caps_tau_is_how_long_everything_was_watched() -> None:
    base = {'task': 't', 'stratum': 's'}
    episodes = [
        Episode(policy='a', outcome=Outcome.SUCCESS, duration_s=10.0, seed=0, **base),
        Episode(policy='a', outcome=Outcome.TIMEOUT, duration_s=64.05, seed=1, **base),
        Episode(policy='b', outcome=Outcome.SUCCESS, duration_s=90.0, seed=0, **base),
    ]
    tau_s, why = choose_tau(cohorts(episodes).values(), ReportOptions())
    assert tau_s == 64.0
    assert 'rounded down' in why


def test_quality_counts_what_is_there(tmp_path: Path) -> None:
    quality = build_report(timed_store(tmp_path / 's'), FEW).quality
    arms = {arm.policy: arm for arm in quality.arms}
    assert (arms['slow'].n_valid, arms['slow'].n_invalid) == (40, 1)
    assert quality.is_balanced
    assert quality.invalid_reasons == {'camera fell off': 1}
    assert len(quality.edits) == 1
    assert (quality.n_scenes, quality.n_shared_scenes) == (20, 20)
    assert {f.name: f.n_present for f in quality.facts}['operator'] == 1


def test_the_order_test_agrees_with_scipy(tmp_path: Path) -> None:
    from scipy.stats import kruskal

    store = timed_store(tmp_path / 's', n=6)
    quality = build_report(store, FEW).quality
    valid = sorted((e for e in store.episodes() if e.is_valid), key=lambda e: e.started_at)
    places: dict[str, list[int]] = {}
    for place, episode in enumerate(valid):
        places.setdefault(episode.policy, []).append(place)
    assert quality.order_p_value == pytest.approx(kruskal(*places.values()).pvalue, rel=1e-9)
    assert all(
        arm.mean_position == pytest.approx(np.mean(places[arm.policy]) / (len(valid) - 1)) for arm in quality.arms
    )


def test_a_rerun_and_a_dropped_episode_are_counted_apart(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    store = Store.create(tmp_path / 's')
    first = rollout('a', 0, rng).replace(outcome=Outcome.INVALID, success=None)
    store.append([first])
    store.append([rollout('a', 0, rng).replace(attempt=1), rollout('a', 1, rng), rollout('a', 2, rng)])
    gone = next(e for e in store.episodes() if e.seed == 2)
    store.edit(gone.episode_id, 'drop', by='ann', why='doubled')
    quality = build_report(store, FEW).quality
    assert (quality.n_superseded, quality.n_dropped) == (1, 1)
    assert quality.arms[0].n_valid == 2


def test_the_same_seed_gives_the_same_report_and_another_does_not(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's', n=8)
    first, again, other = (ranked(store, ReportOptions(n_resamples=100, seed=s)) for s in (1, 1, 2))
    assert first.scores['slow'].macro == again.scores['slow'].macro
    assert first.scores['slow'].macro != other.scores['slow'].macro


def test_items_give_operations_and_causes(tmp_path: Path) -> None:
    ranking = ranked(item_store(tmp_path / 's'))
    modes = {m.policy: m for m in ranking.failures}
    assert modes['deft'].n_operations == 18
    assert modes['clumsy'].drop_rate > 0


def test_a_filter_reports_on_what_matches(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's', n=5)
    found = build_report(store, FEW, where={'policy': ['quick', 'slow'], 'stratum': 'spoon'})
    assert {e.policy for e in found.episodes} == {'quick', 'slow'}
    assert isinstance(found.ranking, Ranking)
    assert found.ranking.strata == ('spoon',)
    with pytest.raises(NotEstimable, match='matches'):
        build_report(store, FEW, where={'policy': 'nobody'})


@pytest.mark.parametrize('options', [{'alpha': 0.0}, {'alpha': 1.5}, {'n_resamples': 0}, {'tau_s': -1.0}])
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError):
        ReportOptions(**options)  # type: ignore[arg-type]


def test_cards_and_declarations_come_from_the_opened_plan(tmp_path: Path) -> None:
    card = {'checkpoint': 'step 30000', 'image_resolution_px': [224, 224]}
    policies = {
        'finch': {'use': 'seek', 'options': {'speed_m_s': 1.6}, 'card': card}, 'quokka': {'use': 'seek', 'execute': 1}
    }  # fmt: skip
    plan = make_plan(policies=policies, reference=None, episodes_per_cell=1)
    run_trial(plan, tmp_path / 's', workers=0)
    blinded = build_report(read_store(tmp_path / 's'), FEW)
    assert blinded.quality.is_blinded
    assert not blinded.known_policies
    close_trial(plan, tmp_path / 's', by='ann')
    known = build_report(read_store(tmp_path / 's'), FEW).known_policies
    assert known['finch'].card == PolicyCard(policy='finch', checkpoint='step 30000', image_resolution_px=(224, 224))
    assert known['finch'].declared == 'seek(speed_m_s=1.6)'
    assert known['quokka'].declared == 'seek(), 1 action a chunk'
