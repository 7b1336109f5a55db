"""What an analysis holds is what the scoring rooms say, and what a store cannot give is absent with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.run.plans import make_plan
from tests.verdict.analysis.stores import changed_store, item_store, rollout, safety_store, suite_store, timed_store

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.safety import score_pairs, store_pairs, summarize_safety
from robotrials.measure.timing import Scale, cohorts, rmst, score_cohort, success_curve
from robotrials.measure.timing.incidence import OperationEnd
from robotrials.record import Episode, Outcome, PolicyCard, Store, read_store
from robotrials.record.rows import ordered_rows
from robotrials.run import close_trial, run_trial
from robotrials.show.answer import compare_card, score_card
from robotrials.stats import wilson
from robotrials.stats.matching import fewest_for_claim
from robotrials.verdict.analysis import Absent, RobustnessPart, SafetyPart, analyse, present
from robotrials.verdict.analysis.endpoint_pairs import fewest_for_rates
from robotrials.verdict.analysis.selection import projected_episodes
from robotrials.verdict.planning.analysis_plan import AnalysisPlan

FEW = {'resamples': 200}


def test_scores_are_those_of_timing_with_the_stream_of_the_policy(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's')
    analysis = analyse(store, **FEW)
    for name, cohort in cohorts(store.episodes()).items():
        rng = analysis.stream('score', name)
        direct = score_cohort(cohort, scale=Scale(tau_s=60.0, thresholds_s=(30.0,)), n_resamples=200, rng=rng)
        assert present(analysis.ranking).scores[name].macro == direct.macro
        assert present(analysis.ranking).scores[name].cells == direct.cells


def test_mean_times_are_those_of_the_scores_without_their_resamples(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    lone = [rollout(p, 0, rng) for p in 'ab']  # one episode per stratum
    never = [rollout(p, i, rng, chance=0.0) for p in 'ab' for i in range(5)]  # all censored
    caps = {'block': 60.0, 'spoon': 45.0}
    apart = [rollout(p, i, rng, stratum=s, time_cap_s=c) for p in 'abc' for i in range(6) for s, c in caps.items()]
    again = [rollout(p, i, rng, repeat=r) for p in 'ab' for i in range(4) for r in range(3)]  # three to a unit
    for source in (timed_store(tmp_path / 's'), item_store(tmp_path / 'items'), lone, never, apart, again):
        ranking = present(analyse(source, **FEW).ranking)
        assert ranking.means_s.keys() == ranking.scores.keys()
        for policy, mean in ranking.means_s.items():
            assert mean == replace(ranking.scores[policy].macro['rmst_s'], percentile=None, bca=None)


@pytest.mark.parametrize('policies', [(), ('quick', 'slow')])
def test_no_card_draws_the_resamples_of_the_ranking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policies: tuple[str, ...]
) -> None:
    def refuse(*given: object, **options: object) -> None:
        raise AssertionError('resampled')

    analysis = analyse(timed_store(tmp_path / 's'), **FEW)
    for name in ('scalar_draws', 'curve_draws', 'auc_draws'):
        monkeypatch.setattr(f'robotrials.measure.timing.scalar.{name}', refuse)
    assert compare_card(analysis, policies).verdict
    assert score_card(analysis, policies).rows
    for resampled in ('scores', 'relative', 'areas'):
        with pytest.raises(AssertionError, match='resampled'):
            getattr(present(analysis.ranking), resampled)


def test_needed_units_are_those_of_the_contrast_searched_once_for_either_side(tmp_path: Path) -> None:
    for found in present(analyse(timed_store(tmp_path / 's'), **FEW).pairs).tested:
        for pair in found.pairs:
            needed = found.pair(pair.policy_b, pair.policy_a).needed
            assert needed is not None
            assert pair.needed is needed
            assert needed == pair.contrast.needed(n_tests=found.n_tests)


def test_a_reference_that_nobody_watched_gives_no_ranking() -> None:
    rng = np.random.default_rng(0)
    episodes = [rollout(p, i, rng) for p in 'ab' for i in range(6)]
    at_once = {'outcome': Outcome.TIMEOUT, 'success': False, 'duration_s': 0.0}
    unseen = [rollout('human', i, rng, is_reference=True).replace(**at_once) for i in range(6)]
    ranking = analyse([*episodes, *unseen], **FEW).ranking
    assert isinstance(ranking, Absent)
    assert ranking.reason == 'tau_s is 0.0, wanted a finite number of seconds > 0'


@pytest.mark.parametrize('arrange', [list, ordered_rows])
def test_a_seed_is_a_start_as_soon_as_one_episode_has_another(
    arrange: Callable[[list[Episode]], Sequence[Episode]],
) -> None:
    rng = np.random.default_rng(0)
    constant = [rollout('constant', 7, rng) for _ in range(40)]
    late = [rollout('late', 7 if i < 39 else 8, rng) for i in range(40)]
    broken = [e.replace(policy='broken') for e in late]
    broken[-1] = broken[-1].replace(outcome=Outcome.INVALID, success=None)  # its seed says nothing of starts
    repeated = [rollout('repeated', 7, rng, repeat=i) for i in range(40)]
    lone = [rollout('lone', 7, rng)]
    read = projected_episodes(arrange([*constant, *late, *broken, *repeated, *lone]), AnalysisPlan())
    assert {e.policy for e in read if e.seed is None} == {'constant', 'broken'}


def test_the_order_is_by_macro_rmst_without_the_reference(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's')
    ranking = present(analyse(store, **FEW).ranking)
    means = {}
    for name, cohort in cohorts(store.episodes()).items():
        means[name] = np.mean([rmst(success_curve(c.durations_s, c.observed), 60.0) for c in cohort.cells.values()])
    assert ranking.reference == 'human'
    assert list(ranking.order) == sorted(set(means) - {'human'}, key=lambda name: means[name])
    assert ranking.policies[0] == 'human'


def test_the_slow_policy_shares_no_letter_and_the_like_ones_do(tmp_path: Path) -> None:
    pairs = present(present(analyse(timed_store(tmp_path / 's'), **FEW).pairs).lead)
    assert not set(pairs.letters['slow']) & set(pairs.letters['quick'])
    assert set(pairs.letters['steady']) & set(pairs.letters['quick'])


def test_success_counts_are_the_hosts_own_with_wilson_intervals(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's')
    rates = present(analyse(store, **FEW).success)
    mine = [e for e in store.episodes() if e.policy == 'slow' and e.is_valid and e.stratum == 'spoon']
    count = rates.counts['slow', 'spoon']
    assert (count.count, count.n) == (sum(bool(e.success) for e in mine), len(mine))
    assert count.interval == wilson(count.count, count.n)
    assert rates.counts['slow', ''].n == 40


def test_curves_end_at_the_curves_of_timing(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's')
    curves = present(analyse(store, **FEW).curves)
    cell = cohorts(store.episodes())['slow'].cells['spoon']
    direct = success_curve(cell.durations_s, cell.observed)
    (found,) = (c for c in curves['spoon'] if c.policy == 'slow')
    np.testing.assert_allclose(found.chance, direct.at(found.times_s), rtol=1e-12)
    assert found.low is not None
    assert found.high is not None
    assert (found.low <= found.chance).all()
    assert (found.chance <= found.high).all()


def test_safety_is_that_of_the_safety_room(tmp_path: Path) -> None:
    store = safety_store(tmp_path / 's')
    part = analyse(store, **FEW).safety
    assert isinstance(part, SafetyPart)
    direct = summarize_safety(score_pairs(store_pairs(store)), n_resamples=10)
    for mine, theirs in zip(part.summary.cells, direct.cells, strict=True):
        assert (mine.policy, mine.table) == (theirs.policy, theirs.table)
    assert part.frontier == {'libero-10': ('gentle',)}


def test_robustness_finds_the_policy_that_minds(tmp_path: Path) -> None:
    part = analyse(changed_store(tmp_path / 's'), **FEW).robustness
    assert isinstance(part, RobustnessPart)
    assert not isinstance(part.drops, Absent)
    resolved = {(d.policy, d.condition) for d in part.drops if d.is_resolved()}
    assert ('seeing', 'chaos') in resolved
    assert not any(policy == 'blind' for policy, _ in resolved)
    assert not isinstance(part.doses, Absent)
    assert isinstance(part.swap, Absent)


def test_policies_are_ranked_by_the_baseline_condition_alone(tmp_path: Path) -> None:
    analysis = analyse(changed_store(tmp_path / 's', n=10), **FEW)
    assert present(analysis.frame).condition == 'nominal'
    assert present(analysis.success).counts['seeing', ''].n == 10


def test_conditions_without_a_baseline_are_pooled_and_it_is_said(tmp_path: Path) -> None:
    analysis = analyse(changed_store(tmp_path / 's', n=10), resamples=50, baseline='daylight')
    assert present(analysis.frame).condition == ''
    assert present(analysis.success).counts['seeing', ''].n == 40
    assert any('conditions are pooled' in text for text in analysis.cautions)


def test_a_table_has_no_safety_and_no_robustness_and_says_why(tmp_path: Path) -> None:
    found = analyse(suite_store(tmp_path / 's'), **FEW)
    assert isinstance(found.safety, Absent)
    assert 'no trajectory' in found.safety.reason
    assert isinstance(found.robustness, Absent)
    assert 'one condition (nominal)' in found.robustness.reason


def test_one_policy_is_scored_and_not_compared(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    store = Store.create(tmp_path / 's')
    store.append([rollout('alone', i, rng) for i in range(8)])
    analysis = analyse(store, **FEW)
    assert isinstance(analysis.pairs, Absent)
    assert present(analysis.ranking).order == ('alone',)


def test_policies_on_different_strata_are_not_compared(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    store = Store.create(tmp_path / 's')
    store.append([rollout(p, i, rng, stratum=p) for i in range(8) for p in ('a', 'b')])
    pairs = analyse(store, **FEW).pairs
    assert isinstance(pairs, Absent)
    assert 'shares no stratum' in pairs.reason


def test_nothing_valid_is_absent_and_an_empty_store_raises(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    with pytest.raises(NotEstimable, match='no episode in this store'):
        analyse(store)
    store.append([Episode(policy='a', task='t', outcome=Outcome.INVALID, duration_s=0.0, reason='power cut')])
    found = analyse(store, **FEW)
    for part in (found.ranking, found.success, found.pairs, found.incidences, found.stories, found.price):
        assert isinstance(part, Absent)
    assert found.quality.invalid_reasons == {'power cut': 1}


@pytest.mark.parametrize(('changes', 'tau_s'), [({'tau_s': 30.0}, 30.0), ({}, 60.0)])
def test_tau_is_as_asked_or_the_protocols(tmp_path: Path, changes: dict[str, float], tau_s: float) -> None:
    assert present(analyse(timed_store(tmp_path / 's', n=4), **changes).times).tau_s == tau_s


def test_without_caps_tau_is_the_largest_time_at_which_every_arm_is_observed() -> None:
    base = {'task': 't', 'stratum': 's'}
    episodes = [
        Episode(policy='a', outcome=Outcome.SUCCESS, duration_s=10.0, seed=0, **base),
        Episode(policy='a', outcome=Outcome.TIMEOUT, duration_s=64.05, seed=1, **base),
        Episode(policy='b', outcome=Outcome.SUCCESS, duration_s=90.0, seed=0, **base),
    ]
    times = present(analyse(episodes).times)
    assert times.tau_s == 64.0
    assert 'rounded down' in times.reason


def test_quality_counts_what_is_there(tmp_path: Path) -> None:
    quality = analyse(timed_store(tmp_path / 's'), **FEW).quality
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
    quality = analyse(store, **FEW).quality
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
    quality = analyse(store, **FEW).quality
    assert (quality.n_superseded, quality.n_dropped) == (1, 1)
    assert quality.arms[0].n_valid == 2


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's', n=8)
    first, again, other = (present(analyse(store, resamples=100, seed=s).ranking) for s in (1, 1, 2))
    assert first.scores['slow'].macro == again.scores['slow'].macro
    assert first.scores['slow'].macro['median_s'] != other.scores['slow'].macro['median_s']
    assert first.scores['slow'].macro['rmst_s'].interval == other.scores['slow'].macro['rmst_s'].interval


def test_items_give_operations_and_causes(tmp_path: Path) -> None:
    analysis = analyse(item_store(tmp_path / 's'), **FEW)
    modes = {m.policy: m for m in present(analysis.failures)}
    assert modes['deft'].n_operations == 18
    assert modes['clumsy'].drop_rate > 0
    incidence = present(present(analysis.incidences)['clumsy'])
    assert incidence.causes[OperationEnd.DROP].by_tau == pytest.approx(1 / 3)
    assert incidence.causes[OperationEnd.DROP].n_operations == 6


def test_incidences_are_the_mean_of_each_stratum_at_its_own_tau(tmp_path: Path) -> None:
    """By hand: no censoring, so an incidence is a share, and time lost the mean of tau less the time of the end."""
    episodes = [
        Episode(policy='a', task='t', stratum=s, seed=i, outcome=o, duration_s=d, time_cap_s=c)
        for s, c, ends in (('x', 20.0, (5.0, 8.0, 12.0, 16.0)), ('y', 60.0, (10.0, 20.0, 30.0, 40.0)))
        for i, d in enumerate(ends)
        for o in (Outcome.SUCCESS if i % 2 else Outcome.FAILURE,)
    ]
    found = present(present(analyse(episodes).incidences)['a'])
    failed, done = found.causes[OperationEnd.FAILURE], found.causes[OperationEnd.SUCCESS]
    assert (failed.by_tau, done.by_tau) == (pytest.approx(0.5), pytest.approx(0.5))
    lost = np.mean([np.mean([20 - 5, 20 - 12, 0, 0]), np.mean([60 - 10, 60 - 30, 0, 0])])
    assert failed.time_lost_s == pytest.approx(lost)
    assert found.under_way_at_tau == pytest.approx(0.0)
    assert failed.by_tau_interval is not None
    assert failed.by_tau_interval.low < 0.5 < failed.by_tau_interval.high


def test_the_price_of_a_claim_is_that_of_the_cheapest_endpoint(tmp_path: Path) -> None:
    price = present(analyse(timed_store(tmp_path / 's'), **FEW).price)
    assert price.n_tests == 6
    assert price.per_policy == min(fewest_for_rates(6, alpha=0.05, paired=True), fewest_for_claim(6))


@pytest.mark.parametrize('paired', [True, False])
def test_the_price_of_a_rate_is_where_the_exact_test_first_reaches_alpha(paired: bool) -> None:
    from scipy.stats import binomtest, fisher_exact

    for n_tests in (1, 6, 15):
        n = fewest_for_rates(n_tests, alpha=0.05, paired=paired)

        def p_value(n: int) -> float:
            found = binomtest(n, n).pvalue if paired else fisher_exact([[n, 0], [0, n]]).pvalue
            return float(found)

        assert p_value(n) <= 0.05 / n_tests < p_value(n - 1)


def test_reversed_orders_of_the_two_shares_are_found(tmp_path: Path) -> None:
    """`a` does most operations and no whole episode, `b` does whole episodes or nothing."""
    from robotrials.record import Event, EventKind, EventSource

    def run(policy: str, seed: int, placed: int) -> Episode:
        events = [Event(t_s=3.0 * (k + 1), kind=EventKind.PLACEMENT, source=EventSource.HOST) for k in range(placed)]
        outcome = Outcome.SUCCESS if placed == 4 else Outcome.TIMEOUT
        return Episode(
            policy=policy, task='t', seed=seed, items=4, items_placed=placed, outcome=outcome, events=tuple(events),
            duration_s=13.0 if placed == 4 else 60.0, time_cap_s=60.0,
        )  # fmt: skip

    episodes = [run('a', i, 3) for i in range(20)] + [run('b', i, 4 if i < 8 else 0) for i in range(20)]
    found = present(analyse(episodes).stories)
    assert found.reversed == (('a', 'b'),)
    assert found.apart == ()  # an episode is several operations: the two shares differ by definition
    assert found.is_divided


def test_a_filter_analyses_what_matches(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's', n=5)
    found = analyse(store, where={'policy': ['quick', 'slow'], 'stratum': 'spoon'}, **FEW)
    assert {e.policy for e in found.episodes} == {'quick', 'slow'}
    assert present(found.frame).strata == ('spoon',)
    with pytest.raises(NotEstimable, match='matches'):
        analyse(store, where={'policy': 'nobody'}, **FEW)


@pytest.mark.parametrize('changes', [{'alpha': 0.0}, {'alpha': 1.5}, {'resamples': 0}, {'tau_s': -1.0}])
def test_impossible_options_are_refused(tmp_path: Path, changes: dict[str, float]) -> None:
    with pytest.raises(InputError):
        analyse(timed_store(tmp_path / 's', n=2), **changes)


def test_cards_and_declarations_come_from_the_opened_plan(tmp_path: Path) -> None:
    card = {'checkpoint': 'step 30000', 'image_resolution_px': [224, 224]}
    policies = {
        'finch': {'use': 'seek', 'options': {'speed_m_s': 1.6}, 'card': card}, 'quokka': {'use': 'seek', 'execute': 1}
    }  # fmt: skip
    plan = make_plan(policies=policies, reference=None, episodes_per_cell=1)
    run_trial(plan, tmp_path / 's', workers=0)
    blinded = analyse(read_store(tmp_path / 's'), **FEW)
    assert blinded.quality.is_blinded
    assert not blinded.known_policies
    close_trial(plan, tmp_path / 's', by='ann')
    known = analyse(read_store(tmp_path / 's'), **FEW).known_policies
    assert known['finch'].card == PolicyCard(policy='finch', checkpoint='step 30000', image_resolution_px=(224, 224))
    assert known['finch'].declared == 'seek(speed_m_s=1.6)'
    assert known['quokka'].declared == 'seek(), 1 action a chunk'
