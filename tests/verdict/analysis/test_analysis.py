"""One analysis: the same digits in any order, the declared plan, comparable policies, answers that are right."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.record import Episode, Outcome, Store
from robotrials.stats import Interval, holm, success_arm, success_contrast, win_arm, win_contrast
from robotrials.stats.dominance import PairVerdict as Overall
from robotrials.stats.matching import UnseenRule, unseen_reach
from robotrials.verdict.analysis import Absent, Analysis, analyse, present
from robotrials.verdict.analysis.contrast import needed_units
from robotrials.verdict.analysis.endpoint_pairs import Standing
from robotrials.verdict.analysis.selection import comparable, stratum_names, stream
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, DeclaredAnalysis, EndpointName


def rollouts(
    policy: str, *, mean_s: float, fails: float, n: int = 20, tasks: tuple[str, ...] = ('pick', 'place'), seed: int = 0,
    cap_s: float | None = 60.0, first: int = 0, **fields: Any,
) -> list[Episode]:  # fmt: skip
    """Exponential times to success with a share of early failures."""
    rng = np.random.default_rng(seed)
    found = []
    for task in tasks:
        for start in range(first, first + n):
            lasts, failed = float(rng.exponential(mean_s)), rng.random() < fails
            is_cut = cap_s is not None and lasts >= cap_s
            outcome = Outcome.FAILURE if failed else Outcome.TIMEOUT if is_cut else Outcome.SUCCESS
            duration_s = lasts if cap_s is None else min(lasts, cap_s)
            found.append(
                Episode(
                    policy=policy, task=task, outcome=outcome, duration_s=duration_s / (4 if failed else 1),
                    time_cap_s=cap_s, seed=start, **fields,
                )
            )  # fmt: skip
    return found


@pytest.fixture
def three() -> list[Episode]:
    return [
        *rollouts('slow', mean_s=30, fails=0.1, seed=1), *rollouts('fast', mean_s=8, fails=0.05, seed=2),
        *rollouts('middle', mean_s=15, fails=0.1, seed=3),
    ]  # fmt: skip


def digits(analysis: Analysis) -> dict[str, Any]:
    """Every headline number."""
    ranking, pairs, success = present(analysis.ranking), present(analysis.pairs), present(analysis.success)
    told: dict[str, Any] = {}
    for policy, score in ranking.scores.items():
        told[f'rmst {policy}'] = (score.macro['rmst_s'].value, score.macro['rmst_s'].interval)
        told[f'percentile {policy}'] = score.macro['rmst_s'].percentile
        told[f'success {policy}'] = (success.macro[policy].value, success.macro[policy].interval)
    for name, found in pairs.endpoints.items():
        assert not isinstance(found, Absent)
        told[f'letters {name}'] = dict(found.letters)
        for pair in found.pairs:
            told[f'{name} {pair.policy_a} {pair.policy_b}'] = (
                pair.difference, pair.interval, pair.p_value, pair.p_corrected, pair.standing, pair.ahead, pair.needed,
            )  # fmt: skip
    for time in pairs.times:
        assert not isinstance(time.ks, Absent)
        told[f'ks {time.policy_a} {time.policy_b}'] = (time.ks.statistic, time.ks.p_value, time.p_different)
    return told


def test_shuffled_rows_and_another_order_of_policies_change_no_digit(three: list[Episode]) -> None:
    before = digits(analyse(three, resamples=200))
    shuffled = list(three)
    random.Random(3).shuffle(shuffled)
    assert digits(analyse(shuffled, resamples=200)) == before
    assert digits(analyse(three[::-1], resamples=200)) == before


def test_the_seed_changes_what_is_resampled_and_nothing_else(three: list[Episode]) -> None:
    first, second = (digits(analyse(three, resamples=200, seed=s)) for s in (0, 1))
    moved = {name for name in first if first[name] != second[name]}
    assert moved
    assert all(name.startswith(('ks', 'percentile')) for name in moved)


def test_a_pair_told_from_the_other_side_has_the_same_digits_with_signs_turned(three: list[Episode]) -> None:
    lead = present(analyse(three, resamples=100).pairs).lead
    assert not isinstance(lead, Absent)
    one, other = lead.pair('fast', 'slow'), lead.pair('slow', 'fast')
    assert one.difference == -other.difference
    assert one.interval is not None
    assert other.interval is not None
    assert (one.interval.low, one.interval.high) == (-other.interval.high, -other.interval.low)
    assert (one.p_value, one.p_corrected, one.ahead) == (other.p_value, other.p_corrected, other.ahead)


def test_streams_depend_on_seed_quantity_and_names() -> None:
    draws = {
        key: stream(*key).random()
        for key in ((0, 'ks', 'a', 'b'), (0, 'ks', 'a', 'c'), (0, 'auc', 'a'), (1, 'auc', 'a'))
    }
    assert len(set(draws.values())) == 4
    assert stream(0, 'ks', 'a', 'b').random() == draws[0, 'ks', 'a', 'b']


# --- the declared plan


def test_changes_after_the_data_are_marked_and_equal_values_are_not() -> None:
    declared = DeclaredAnalysis(AnalysisPlan(tau_s=60.0, alpha=0.1), 'trial plan')
    assert declared.changed_by(tau_s=60.0, alpha=None).changed == ()
    changed = declared.changed_by(tau_s=30.0, seed=4)
    assert changed.changed == ('tau_s', 'seed')
    assert 'NOT AS DECLARED: tau_s = 30, seed = 4' in changed.standing
    assert changed.changed_by(seed=5).changed == ('tau_s', 'seed')


def test_an_undeclared_analysis_says_so(three: list[Episode]) -> None:
    assert 'none was declared' in analyse(three).statement
    asked = analyse(three, tau_s=20.0).statement
    assert 'the documented defaults apply, but for tau_s = 20.' in asked
    assert 'NOT AS DECLARED' not in asked


def test_a_file_in_the_store_declares_the_analysis(tmp_path: Path, three: list[Episode]) -> None:
    store = Store.create(tmp_path / 's')
    store.append(three)
    (tmp_path / 's' / 'analysis.toml').write_text('[analysis]\nprimary = "success"\nalpha = 0.1\n')
    found = analyse(tmp_path / 's')
    assert found.primary == (EndpointName.SUCCESS,)
    assert found.plan.alpha == 0.1
    assert 'declared in the analysis.toml, which names no rule of verdicts and is judged by rule 2.' in found.statement
    (tmp_path / 's' / 'analysis.toml').write_text('[analysis]\nrule = 2\nprimary = "success"\n')
    assert 'declared in the analysis.toml. Used' in analyse(tmp_path / 's').statement
    (tmp_path / 's' / 'analysis.toml').write_text('[analysis]\nrule = 1\nprimary = "success"\n')
    older = analyse(tmp_path / 's').statement
    assert 'declared in the analysis.toml under rule 1 of verdicts, and judged by rule 2' in older
    assert 'NOT AS DECLARED' not in older
    (tmp_path / 's' / 'analysis.toml').write_text('[analysis]\nprimary = "sucess"\n')
    with pytest.raises(InputError, match=r"sucess.*did you mean 'success'"):
        analyse(tmp_path / 's')


def test_the_plan_of_a_trial_declares_the_analysis(tmp_path: Path, three: list[Episode]) -> None:
    plan = json.dumps({'analysis': {'primary': ['time'], 'tau_s': {'pick': 20.0, 'place': 40.0}}})
    store = Store.create(tmp_path / 's', trial_id='t', plan_hash='h', plan=plan)
    store.append([e.replace(trial_id='t') for e in three])
    times = present(analyse(store).times)
    assert times.taus_s == {'pick': 20.0, 'place': 40.0}
    assert times.tau_text == '20 s to 40 s by stratum'


@pytest.mark.parametrize(
    ('fields', 'said'),
    [
        ({'alpha': 1.5}, 'alpha is 1.5'), ({'tau_s': -1.0}, 'tau_s is -1'), ({'resamples': 0}, 'resamples is 0'),
        ({'primary': (EndpointName.TIME,), 'secondary': (EndpointName.TIME,)}, 'both primary and secondary'),
        ({'margins': {EndpointName.TIME: 0.0}}, 'margin of time is 0'), ({'unit': 'robot'}, "unit is 'robot'"),
        ({'stratify_by': ('colour',)}, "names 'colour'"), ({'seed': -1}, 'seed is -1'),
    ],
)  # fmt: skip
def test_a_plan_that_makes_no_sense_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        AnalysisPlan(**fields)


# --- comparable, or not ranked


def test_a_policy_without_all_strata_stands_apart_and_never_leads() -> None:
    episodes = [
        *rollouts('a', mean_s=20, fails=0.2, seed=1), *rollouts('b', mean_s=25, fails=0.2, seed=2),
        *rollouts('easy', mean_s=2, fails=0.0, tasks=('pick',), seed=3),
    ]  # fmt: skip
    found = analyse(episodes, resamples=50)
    assert present(found.ranking).order == ('a', 'b') or present(found.ranking).order == ('b', 'a')
    assert set(present(found.ranking).apart) == {'easy'}
    assert 'not run on 1 of 2 strata (place)' in present(found.frame).apart['easy']
    assert present(found.ranking).scores['easy'].n_episodes == 20
    assert any('easy is not ranked' in caution for caution in found.cautions)


@pytest.mark.parametrize(
    ('strata_of', 'ranked', 'strata', 'apart'),
    [
        ({'a': 'xy', 'b': 'xy', 'c': 'x'}, ('a', 'b'), ('x', 'y'), {'c'}),
        ({'a': 'xy', 'b': 'xz', 'c': 'x'}, ('a', 'b', 'c'), ('x',), set()),
        ({'a': 'x', 'b': 'y'}, (), (), {'a', 'b'}),
        ({'a': 'xy'}, ('a',), ('x', 'y'), set()),
    ],
)
def test_who_may_be_ranked_on_what(
    strata_of: dict[str, str], ranked: tuple[str, ...], strata: tuple[str, ...], apart: set[str]
) -> None:
    found = comparable({p: tuple(s) for p, s in strata_of.items()}, (), ())
    assert (found[0], found[1], set(found[2])) == (ranked, strata, apart)


def test_declared_strata_and_policies_that_do_not_exist_are_named() -> None:
    with pytest.raises(UnknownName, match='picks'):
        comparable({'a': ('pick',)}, (), ('picks',))
    with pytest.raises(UnknownName, match='b'):
        comparable({'a': ('pick',)}, ('b',), ())


def test_strata_are_named_by_what_varies() -> None:
    def episode(benchmark: str, task: str, stratum: str) -> Episode:
        return Episode(policy='p', task=task, benchmark=benchmark, stratum=stratum, outcome=Outcome.SUCCESS)

    fields = ('benchmark', 'task', 'stratum')
    objects = [episode('', 'bin', 'spoons'), episode('', 'bin', 'towels')]
    assert set(stratum_names(objects, fields).values()) == {'spoons', 'towels'}
    two = [episode('x', 'pick', ''), episode('y', 'pick', '')]
    assert set(stratum_names(two, fields).values()) == {'x', 'y'}
    assert set(stratum_names(two, ('task',)).values()) == {'pick'}
    both = [episode('x', 'pick', 'a'), episode('x', 'place', 'a')]
    assert set(stratum_names(both, fields).values()) == {'pick', 'place'}


def test_two_benchmarks_with_one_task_name_are_not_pooled() -> None:
    episodes = [
        e for k, p in enumerate(('a', 'b')) for bench in ('x', 'y')
        for e in rollouts(p, mean_s=10, fails=0.1, tasks=('pick',), benchmark=bench, seed=k)
    ]  # fmt: skip
    assert present(analyse(episodes).frame).strata == ('x', 'y')
    pooled = analyse(episodes, stratify_by=('task',))
    assert present(pooled.frame).strata == ('pick',)
    assert any('different benchmark are pooled' in caution for caution in pooled.cautions)


# --- the data's design decides the test


def test_matched_starts_are_paired_and_unrecorded_ones_never_are(three: list[Episode]) -> None:
    assert all(t.better.is_paired for t in present(analyse(three, resamples=50).pairs).times)
    unknown = [e.replace(seed=None, episode_id=str(k)) for k, e in enumerate(three)]
    assert not any(t.better.is_paired for t in present(analyse(unknown, resamples=50).pairs).times)
    apart = [*rollouts('a', mean_s=9, fails=0.1), *rollouts('b', mean_s=9, fails=0.1, first=100, seed=1)]
    assert not present(analyse(apart, resamples=50).pairs).times[0].better.is_paired


def test_paired_success_is_mcnemars_mid_p_test() -> None:
    wins, losses, both, neither = 14, 4, 20, 12
    episodes = []
    for policy, flags in (
        ('a', [1] * wins + [0] * losses + [1] * both + [0] * neither),
        ('b', [0] * wins + [1] * losses + [1] * both + [0] * neither),
    ):
        episodes += [
            Episode(policy=policy, task='t', seed=k, outcome=Outcome.SUCCESS if f else Outcome.FAILURE)
            for k, f in enumerate(flags)
        ]
    lead = present(analyse(episodes).pairs).lead
    assert not isinstance(lead, Absent)
    pair = lead.pair('a', 'b')
    assert pair.test == 'McNemar mid-p'
    level = binom.pmf(losses, wins + losses, 0.5)
    assert pair.p_value == pytest.approx(binomtest(wins, wins + losses).pvalue - level)
    assert pair.difference == pytest.approx((wins - losses) / 50)


def test_starts_that_repeat_are_units(three: list[Episode]) -> None:
    repeated = [e.replace(repeat=r, episode_id='') for e in three for r in range(3) if (e.seed or 0) < 6]
    time = present(analyse(repeated, resamples=50).pairs).times[0]
    assert time.better.n_units == (12, 12)
    lead = present(analyse(repeated, resamples=50, primary=(EndpointName.SUCCESS,)).pairs).lead
    assert not isinstance(lead, Absent)
    assert lead.pairs[0].unit == 'start state'


# --- answers that were wrong


def test_failing_fast_is_not_rewarded() -> None:
    def policy(name: str, share: float, lasts_s: float) -> list[Episode]:
        n = 40
        return [
            Episode(
                policy=name, task='t', seed=k, time_cap_s=60.0, duration_s=20.0 if k < share * n else lasts_s,
                outcome=Outcome.SUCCESS if k < share * n else Outcome.FAILURE,
            )
            for k in range(n)
        ]  # fmt: skip

    found = analyse([*policy('half', 0.5, 1.0), *policy('most', 0.8, 50.0)], resamples=50)
    assert present(found.ranking).order == ('most', 'half')
    assert present(found.pairs).decision('half', 'most').winner == 'most'
    success = present(present(found.pairs).endpoints[EndpointName.SUCCESS])
    assert success.pair('half', 'most').ahead == 'most'
    lenient = analyse([*policy('half', 0.5, 1.0), *policy('most', 0.8, 50.0)], resamples=50, failure='censored')
    assert present(lenient.ranking).order == ('half', 'most')


def test_one_store_has_one_tau_at_every_question() -> None:
    episodes = [*rollouts('a', mean_s=40, fails=0), *rollouts('b', mean_s=40, fails=0, seed=1)]
    found = analyse(episodes, resamples=50)
    assert present(found.times).taus_s == {'pick': 60.0, 'place': 60.0}
    assert present(found.ranking).tau_s == 60.0
    assert set(present(found.pairs).times[0].better.tau_s.values()) == {60.0}


def test_policies_under_different_caps_are_judged_to_the_smaller_one() -> None:
    episodes = [*rollouts('a', mean_s=50, fails=0, cap_s=60.0), *rollouts('b', mean_s=50, fails=0, cap_s=120.0, seed=1)]
    assert set(present(analyse(episodes, resamples=50).times).taus_s.values()) == {60.0}
    declared = analyse(episodes, resamples=50, tau_s=100.0)
    assert set(present(declared.times).taus_s.values()) == {60.0}
    assert any('judged less far than declared' in caution for caution in declared.cautions)


def test_twenty_of_twenty_has_an_interval_with_width() -> None:
    found = analyse(rollouts('a', mean_s=5, fails=0, n=20, tasks=('t',)), resamples=100)
    chance = present(found.ranking).scores['a'].macro['completion']
    assert chance.value == 1.0
    assert chance.interval is not None
    assert chance.interval.low < 0.95
    assert present(found.success).macro['a'].interval is not None


def test_time_between_failures_is_a_ratio_of_means() -> None:
    episodes = [
        *rollouts('a', mean_s=5, fails=0, tasks=('clean',)),
        *rollouts('a', mean_s=5, fails=0.5, tasks=('lossy',), seed=5),
    ]  # fmt: skip
    value = present(analyse(episodes, resamples=50).ranking).scores['a'].macro['mtbf_s'].value
    assert value is not None
    assert math.isfinite(value)


def test_data_without_times_lead_with_success_and_say_why() -> None:
    episodes = [e.replace(duration_s=None, time_cap_s=None) for e in rollouts('a', mean_s=5, fails=0.5)]
    episodes += [e.replace(duration_s=None, time_cap_s=None) for e in rollouts('b', mean_s=5, fails=0.1, seed=1)]
    found = analyse(episodes)
    assert found.primary == (EndpointName.SUCCESS,)
    assert isinstance(found.ranking, Absent)
    assert '80 of 80 valid episodes have no duration' in found.ranking.reason
    assert not isinstance(present(found.pairs).lead, Absent)
    with pytest.raises(NotEstimable, match='no duration'):
        present(found.curves)


# --- several claims


def test_primary_claims_are_corrected_in_one_list_and_secondary_ones_are_exploratory(three: list[Episode]) -> None:
    pairs = present(analyse(three, resamples=50).pairs)
    assert pairs.primary == (EndpointName.SUCCESS, EndpointName.TIME)  # success is told first, whatever columns exist
    time, success = (present(pairs.endpoints[n]) for n in (EndpointName.TIME, EndpointName.SUCCESS))
    assert time.n_tests == success.n_tests == 6
    every = [p for e in (time, success) for p in e.pairs]
    expected = holm([p.p_value or 1.0 for p in every])
    assert [p.p_corrected for p in every] == pytest.approx(expected.tolist())
    alone = present(analyse(three, resamples=50, primary=(EndpointName.TIME,), secondary=(EndpointName.SUCCESS,)).pairs)
    after = present(alone.endpoints[EndpointName.SUCCESS])
    assert not any(pair.is_confirmatory for pair in after.pairs)
    assert present(alone.endpoints[EndpointName.TIME]).n_tests == 3


def test_equivalence_is_a_verdict_of_times_and_of_rates() -> None:
    episodes = [*rollouts('a', mean_s=6, fails=0, n=150), *rollouts('b', mean_s=6, fails=0, n=150, seed=1)]
    margins = {EndpointName.TIME: 8.0, EndpointName.SUCCESS: 0.1}
    pairs = present(analyse(episodes, resamples=50, margins=margins).pairs)
    for name in (EndpointName.TIME, EndpointName.SUCCESS):
        assert present(pairs.endpoints[name]).pairs[0].standing is Standing.SAME
    assert pairs.decision('a', 'b').verdict is Overall.SAME
    plain = present(analyse(episodes, resamples=50).pairs)
    assert plain.decision('a', 'b').verdict is Overall.UNRESOLVED


def test_a_score_is_compared_as_a_share_of_its_largest() -> None:
    rng = np.random.default_rng(0)
    episodes = [
        Episode(
            policy=p, task=t, seed=k, outcome=Outcome.FAILURE, score=float(rng.integers(low, 6)), max_score=5.0
        )
        for p, low in (('a', 3), ('b', 0)) for t in ('x', 'y') for k in range(20)
    ]  # fmt: skip
    lead = present(analyse(episodes, primary=(EndpointName.SCORE,)).pairs).lead
    assert not isinstance(lead, Absent)
    assert lead.pair('a', 'b').ahead == 'a'
    means = [np.mean([e.score / 5 for e in episodes if e.policy == p]) for p in ('a', 'b')]  # type: ignore[operator]
    assert lead.pair('a', 'b').difference == pytest.approx(means[0] - means[1])


# --- needed units


def test_needed_units_solve_the_rule_and_are_infinite_without_a_difference() -> None:
    """Free starts are judged by R: n is the smallest even trial whose gap clears R by the power's quantile."""
    spread = (np.arange(10) + 0.5) / 10
    fast, slow = ([win_arm(base * (1 + spread))] * 4 for base in (40, 44))
    level, ahead = win_contrast(fast, fast), win_contrast(fast, slow)
    chosen = {'n_cells': 4, 'alpha': 0.05}
    assert math.isinf(needed_units(level, interval=Interval(-0.2, 0.2), **chosen).n)
    found = needed_units(ahead, interval=Interval(-0.05, 0.45), **chosen)
    rule = ahead.evidence
    assert isinstance(rule, UnseenRule)
    assert (rule.gap, rule.n_star) == (pytest.approx(0.14), 40.0)

    def reach(n: float) -> float:
        times = n / 10
        variance = rule.spread.variance / times
        own = unseen_reach(variance, rule.degrees * times, rule.n_star * times, 0.05)
        return float(own) + norm.ppf(0.8) * math.sqrt(variance)

    assert reach(found.n) <= rule.gap < reach(found.n - 1)
    assert found.low < found.n < found.high
    assert math.isinf(found.high)
    assert needed_units(ahead, interval=Interval(0.05, 0.45), **chosen).high < math.inf


def test_needed_units_of_matched_starts_have_the_power_of_their_own_test() -> None:
    """Matched rates are judged by McNemar's mid-p: n has its power by enumeration, a tenth less has not."""
    done_a, done_b = np.arange(100) < 25, np.arange(100) >= 95  # 25 ahead, 5 behind
    pair = success_contrast([success_arm(done_a, range(100))], [success_arm(done_b, range(100))])
    n = int(needed_units(pair, interval=None, n_cells=1, alpha=0.05).n)

    def power(n: int) -> float:
        total = 0.0
        for discordant in range(1, n + 1):
            wins = np.arange(discordant + 1)
            tail = binom.cdf(np.minimum(wins, discordant - wins), discordant, 0.5)
            mid = 2 * tail - binom.pmf(wins, discordant, 0.5)
            claims = (mid <= 0.05) & (2 * wins > discordant)
            total += binom.pmf(discordant, n, 0.3) * binom.pmf(wins, discordant, 25 / 30)[claims].sum()
        return total

    assert power(n) >= 0.8 > power(round(0.9 * n))
    none = success_contrast([success_arm(done_a, range(100))], [success_arm(done_a[::-1], range(100))])
    assert math.isinf(needed_units(none, interval=None, n_cells=1, alpha=0.05).n)


def test_the_public_evaluation_of_libero_is_ranked_on_what_is_comparable(shared: Any) -> None:
    from robotrials.formats.catalog import open_source
    from robotrials.formats.imported import ImportOptions

    source = open_source(shared('data', 'libero-episodes'), ImportOptions())
    found = analyse([recording.episode for recording in source.recordings()], resamples=100)
    frame = present(found.frame)
    assert len(frame.strata) == 40
    assert len(frame.policies) == 3
    assert [name for name in frame.apart if name.startswith('oft-joint')]
    pair = present(found.pairs).endpoints[EndpointName.SUCCESS]
    assert not isinstance(pair, Absent)
    assert pair.pair('pi0-libero', 'oft-joint').is_paired


def test_a_duration_that_no_trial_has_is_named_and_success_still_counts() -> None:
    episodes = [e.replace(time_cap_s=None) for p in ('a', 'b') for e in rollouts(p, mean_s=5, fails=0.2, n=6)]
    episodes[3] = episodes[3].replace(duration_s=1e300, outcome=Outcome.SUCCESS)
    found = analyse(episodes, resamples=20)
    assert isinstance(found.times, Absent)
    assert 'lasted 1e+300 s, which no trial does' in found.times.reason
    assert not isinstance(present(found.pairs).lead, Absent)


def test_the_lead_of_the_public_libero_report_tells_both_readings_of_its_unknown_timeouts(shared: Any) -> None:
    """30 episodes of pi0 were given up without steps or reason: set aside it leads, counted as failures it is last."""
    from robotrials.formats.catalog import open_source
    from robotrials.formats.imported import ImportOptions
    from robotrials.show.report_lead import lead

    source = open_source(shared('data', 'libero-episodes'), ImportOptions())
    assert [q.key for q in source.questions] == ['runs', 'faults']
    found = analyse([recording.episode for recording in source.recordings()], resamples=20)
    told = present(found.pairs).readings
    assert told is not None
    assert told.n_invalid == {'pi0-libero': 30}
    assert (told.order[0], told.order_counted[-1]) == ('pi0-libero', 'pi0-libero')
    assert told.turned
    text = ' '.join(p.text for p in lead(found))
    assert (
        'pi0-libero has 30 invalid episodes (success between 96.4 and 98.0 %, whichever way they would have ended)'
        in text
    )
    assert 'counting them as failures, xvla-libero, oft-joint, pi0-libero.' in text
    assert 'hangs on this choice: a trade-off with them left out, oft-joint is better with them counted' in text
    counted = open_source(shared('data', 'libero-episodes'), ImportOptions(answers={'faults': 'failures'}))
    failed = [r.episode for r in counted.recordings() if r.episode.policy == 'pi0-libero' and not r.episode.is_success]
    assert sum(e.reason == 'timeout' for e in failed) == 30
    assert all(e.is_valid for e in failed)


def test_invalid_episodes_that_turn_nothing_are_not_in_the_lead(three: list[Episode]) -> None:
    first = next(e for e in three if e.policy == 'fast' and e.is_success)
    broken = [e.replace(outcome=Outcome.INVALID) if e is first else e for e in three]
    readings = present(analyse(broken, resamples=20).pairs).readings
    assert readings is not None
    assert not readings.matters
    assert present(analyse(three, resamples=20).pairs).readings is None
