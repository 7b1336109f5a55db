"""The gate's verdicts, guards and promises."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from tests.measure.safety.scene import episode, lifted, with_contacts
from tests.verdict.analysis.pair import plain_store, rollouts, store_of

from robotrials.errors import InputError, StoreError, UnknownName
from robotrials.record import Episode, Outcome, Store, Unblinding
from robotrials.record.blinding import write_unblinding
from robotrials.stats.success_rule import success_arm, success_contrast
from robotrials.verdict.analysis import analyse
from robotrials.verdict.analysis.arm import two_sides
from robotrials.verdict.analysis.change import compare_stores
from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.analysis.gate import (
    GateFinding,
    GateResult,
    GateRules,
    GateVerdict,
    Levels,
    gate_stores,
    rate_endpoint,
    speed_endpoint,
)
from robotrials.verdict.planning import Decision
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName

PLAN = AnalysisPlan()


@pytest.fixture(scope='module')
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return plain_store(tmp_path_factory.mktemp('gate') / 'baseline', 0.85, seed=1, n=120)


def by_name(gate: GateResult) -> dict[str, GateFinding]:
    return {e.name: e.finding for e in gate.endpoints}


WIDE = GateRules(margins={'success': 0.15, 'speed': 0.3, 'safety': 0.05})


def test_an_equal_candidate_with_enough_episodes_passes(baseline: Store, tmp_path: Path) -> None:
    found = gate_stores(plain_store(tmp_path / 's', 0.85, seed=7, n=120), baseline, rules=WIDE)
    assert found.verdict is GateVerdict.PASS
    assert found.exit_code == 0
    assert found.more is None
    assert found.is_paired
    assert found.cells == ('block', 'spoon', 'towel')
    assert by_name(found) == {
        'success': GateFinding.NO_WORSE, 'speed': GateFinding.NO_WORSE, 'safety': GateFinding.MISSING
    }  # fmt: skip
    assert [e.is_required for e in found.endpoints] == [True, True, False]


def test_a_candidate_that_fails_more_is_worse(baseline: Store, tmp_path: Path) -> None:
    found = gate_stores(plain_store(tmp_path / 's', 0.5, seed=3, n=60), baseline)
    assert found.verdict is GateVerdict.FAIL
    assert found.exit_code == 1
    assert by_name(found)['success'] is GateFinding.WORSE


def test_a_candidate_that_is_only_slower_is_worse(baseline: Store, tmp_path: Path) -> None:
    found = gate_stores(plain_store(tmp_path / 's', 0.9, seed=3, n=120, median_s=30.0), baseline)
    assert found.verdict is GateVerdict.FAIL
    assert by_name(found)['speed'] is GateFinding.WORSE


def test_a_few_episodes_are_not_enough_and_it_says_how_many_more(baseline: Store, tmp_path: Path) -> None:
    found = gate_stores(plain_store(tmp_path / 's', 0.85, seed=5, n=5), baseline)
    assert found.verdict is GateVerdict.NOT_SHOWN
    assert found.exit_code == 3
    assert found.more is not None
    parts = [e.more for e in found.required if e.more is not None]
    assert found.more.new == max(m.new for m in parts) > 0


def test_success_is_the_contrast_of_the_two_arms_and_the_margin_is_tested_by_its_rule(
    baseline: Store, tmp_path: Path
) -> None:
    candidate = plain_store(tmp_path / 's', 0.8, seed=6, n=30)
    found = gate_stores(candidate, baseline, rules=GateRules(pairing='independent')).endpoints[0]
    arms = [
        [success_arm([e.is_success for e in store.episodes(where={'stratum': s})]) for s in ('block', 'spoon', 'towel')]
        for store in (candidate, baseline)
    ]
    expected = success_contrast(*arms, pairing='independent')
    assert found.contrast is not None
    assert (found.estimate, found.contrast.p_value) == (expected.difference, expected.p_value)
    assert found.p_value == expected.p_not_worse(0.05)
    assert found.low is not None
    assert expected.rule.p_above(found.low) == pytest.approx(0.05, abs=1e-6)
    assert found.high is not None
    assert expected.rule.p_below(found.high) == pytest.approx(0.025, abs=1e-6)


def test_failing_is_corrected_for_the_number_of_endpoints_and_passing_is_not(baseline: Store, tmp_path: Path) -> None:
    candidate = plain_store(tmp_path / 's', 0.85, seed=5, n=5)
    assert gate_stores(candidate, baseline).alpha_worse == pytest.approx(0.025)
    alone = gate_stores(candidate, baseline, rules=GateRules(require=('success',)))
    assert alone.alpha_worse == 0.05
    assert [e.name for e in alone.endpoints] == ['success']


def test_better_than_the_baseline_passes_with_few_episodes(tmp_path: Path) -> None:
    bad, good = plain_store(tmp_path / 'b', 0.3, seed=1), plain_store(tmp_path / 'g', 0.95, seed=2)
    assert gate_stores(good, bad).verdict is GateVerdict.PASS


def test_the_policy_is_the_only_one_that_is_no_reference(baseline: Store, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    human = rollouts(rng, 'human', 1.0, n=3, is_reference=True)
    store = store_of(tmp_path / 's', rollouts(rng, 'pi', 0.8, n=3), human)
    assert gate_stores(store, baseline).candidate.policy == 'pi'
    several = store_of(tmp_path / 't', rollouts(rng, 'x', 0.8, n=3), rollouts(rng, 'y', 0.8, n=3), human)
    with pytest.raises(InputError, match=r'one policy as the candidate, found 2 \(x, y\); name one'):
        gate_stores(several, baseline)
    with pytest.raises(UnknownName, match="did you mean 'pi'"):
        gate_stores(store, baseline, policy='pii')
    chosen = gate_stores(several, baseline, policy='x')
    assert (chosen.candidate.policy, chosen.baseline.policy) == ('x', 'pi')


def test_the_baseline_of_the_same_name_is_meant(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    old = store_of(tmp_path / 'old', rollouts(rng, 'pi', 0.8, n=4), rollouts(rng, 'act', 0.8, n=4))
    new = store_of(tmp_path / 'new', rollouts(rng, 'pi', 0.8, n=4))
    assert gate_stores(new, old).baseline.policy == 'pi'
    assert gate_stores(new, old, baseline_policy='act').baseline.policy == 'act'


def test_a_store_against_itself_is_refused_unless_policies_differ(baseline: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match='the same store'):
        gate_stores(baseline, baseline, baseline_policy='pi')
    with pytest.raises(InputError, match='the same store'):
        gate_stores(baseline, baseline)
    rng = np.random.default_rng(0)
    both = store_of(tmp_path / 's', rollouts(rng, 'old', 0.8, n=4), rollouts(rng, 'new', 0.8, n=4))
    found = gate_stores(both, both, policy='new', baseline_policy='old')
    assert found.is_paired


def test_a_blinded_trial_is_refused_until_it_is_closed(baseline: Store, tmp_path: Path) -> None:
    plan = json.dumps({'blinding': {'enabled': True}, 'policies': {'arm-12ab': {}}})
    store = Store.create(tmp_path / 's', trial_id='t1', plan_hash='t1', plan=plan)
    store.append(rollouts(np.random.default_rng(0), 'arm-12ab', 0.8, n=4, trial_id='t1'))
    with pytest.raises(StoreError, match=r'still blinded.*robotrials close'):
        gate_stores(store, baseline)
    write_unblinding(store.path, Unblinding(trial_id='t1', by='kim', at='now', policies={'arm-12ab': 'pi'}))
    assert gate_stores(store, baseline).candidate.policy == 'pi'


def test_a_trial_run_in_the_open_needs_no_closing(baseline: Store, tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's', trial_id='t', plan_hash='t', plan=json.dumps({'blinding': {'enabled': False}}))
    store.append(rollouts(np.random.default_rng(0), 'pi', 0.8, n=4))
    assert gate_stores(store, baseline).candidate.plan_hash == 't'


def test_invalid_episodes_are_counted_and_not_scored(baseline: Store, tmp_path: Path) -> None:
    made = rollouts(np.random.default_rng(0), 'pi', 0.8, n=6)
    broken = [e.replace(outcome=Outcome.INVALID) for e in made[:2]]
    found = gate_stores(store_of(tmp_path / 's', [*broken, *made[2:]]), baseline)
    assert (found.candidate.n_invalid, found.candidate.n_compared) == (2, 16)
    assert any('2 INVALID episodes of the candidate' in note for note in found.notes)


def test_the_same_record_twice_is_noticed(baseline: Store, tmp_path: Path) -> None:
    found = gate_stores(store_of(tmp_path / 's', list(baseline.episodes())), baseline)
    assert any('the same to the last digit' in note for note in found.notes)
    assert found.verdict is GateVerdict.PASS


def test_a_slower_pace_under_a_far_cap_is_worse_and_the_cap_is_named(tmp_path: Path) -> None:
    new, old = (
        store_of(tmp_path / name, [
            Episode(policy='p', task='pick', seed=k, outcome=Outcome.SUCCESS, duration_s=s + k / 200, time_cap_s=60.0)
            for k in range(40)
        ])
        for name, s in (('new', 1.6), ('old', 1.4))
    )  # fmt: skip
    speed = gate_stores(new, old).endpoints[1]
    assert speed.finding is GateFinding.WORSE
    assert speed.low is not None
    assert speed.low < 1, 'an unseen failure could cost 60 s'
    assert speed.note.startswith('a failure not seen yet would count 60 s against a mean of 1.7 s')


def test_without_time_caps_the_shorter_watch_caps_the_means_and_it_is_said(tmp_path: Path) -> None:
    stores = [plain_store(tmp_path / name, 0.8, seed=k, n=4, cap_s=None) for k, name in enumerate('ab')]
    found = gate_stores(*stores)
    assert any('without time caps on record, declare tau' in note for note in found.notes)
    asked = gate_stores(*stores, rules=GateRules(tau_s=30.0)).endpoints[1]
    assert set((asked.taus_s or {}).values()) == {30.0}


def test_one_episode_a_cell_has_no_speed_bound(baseline: Store, tmp_path: Path) -> None:
    found = gate_stores(plain_store(tmp_path / 's', 1.0, seed=0, n=1), baseline)
    assert by_name(found)['speed'] is GateFinding.MISSING
    assert found.verdict is GateVerdict.NOT_SHOWN
    assert found.more is not None  # success is short of episodes, and says by how many


@pytest.mark.parametrize(
    ('rules', 'said'),
    [
        ({'margins': {'success': 5.0, 'speed': 0.1, 'safety': 0.05}}, 'margin of success is 5'),
        ({'margins': {'success': 0.05}}, 'a margin for each'),
        ({'require': ('sped',)}, "no endpoint 'sped'"),
        ({'alpha': 1.5}, 'alpha'),
        ({'alpha': 0.5}, 'under 0.5'),
        ({'tau_s': -1.0}, 'tau_s'),
        ({'tau_s': math.inf}, 'finite'),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        GateRules(**rules)  # type: ignore[arg-type]


def test_two_that_never_succeed_are_no_proof_of_anything(tmp_path: Path) -> None:
    first, second = (plain_store(tmp_path / name, 0.0, seed=1, n=60) for name in 'ab')
    found = gate_stores(first, second)
    assert any('Neither of the two succeeded once' in note for note in found.notes)
    assert not any('Neither' in note for note in gate_stores(plain_store(tmp_path / 'c', 0.9, seed=1), second).notes)


def safety_store(path: Path, n_unsafe: int, *, n: int = 40, without: int = 0) -> Store:
    """Episodes with trajectories, some with a hard hit; `without` of them have no trajectory."""
    store = Store.create(path)
    made = [episode(policy='pi', seed=k, time_cap_s=20.0) for k in range(n)]
    hit = with_contacts({6: [('link7', 'cup', 5000.0)]})
    tracks = {e.key: hit if k < n_unsafe else lifted() for k, e in enumerate(made) if k < n - without}
    store.append(made, trajectories=tracks)
    return store


def test_safety_is_required_where_the_baseline_has_it(tmp_path: Path) -> None:
    base = safety_store(tmp_path / 'base', 1)
    same, hits = safety_store(tmp_path / 'same', 1), safety_store(tmp_path / 'hits', 25)
    found = {e.name: e for e in gate_stores(same, base).endpoints}
    assert found['safety'].is_required
    assert (found['safety'].new, found['safety'].reference) == (39 / 40, 39 / 40)
    worse = gate_stores(hits, base)
    assert by_name(worse)['safety'] is GateFinding.WORSE
    assert worse.verdict is GateVerdict.FAIL


def test_a_candidate_whose_safety_cannot_be_scored_does_not_pass(tmp_path: Path) -> None:
    base, half = safety_store(tmp_path / 'base', 0), safety_store(tmp_path / 'half', 0, without=20)
    found = {e.name: e for e in gate_stores(half, base).endpoints}
    assert found['safety'].finding is GateFinding.MISSING
    assert found['safety'].is_required
    assert '20 of 40 episodes cannot be scored' in found['safety'].note
    back = {e.name: e for e in gate_stores(base, half).endpoints}
    assert not back['safety'].is_required


def test_a_few_unscored_episodes_are_left_out_and_said(tmp_path: Path) -> None:
    base, most = safety_store(tmp_path / 'base', 0), safety_store(tmp_path / 'most', 0, without=3)
    found = {e.name: e for e in gate_stores(most, base).endpoints}['safety']
    assert found.finding is not GateFinding.MISSING
    assert '3 episodes left out' in found.note


def test_the_gates_own_error_rate_at_the_margin() -> None:
    """A candidate worse by exactly the margin passes the success endpoint in about alpha of the cases."""
    rng = np.random.default_rng(11)
    passed = []
    for _ in range(300):
        new = rollouts(rng, 'a', 0.7, n=15, first_seed=1000)
        old = rollouts(rng, 'b', 0.8, n=15)
        found = contrast(*two_sides(new, old, PLAN, names=('a', 'b')), endpoint=EndpointName.SUCCESS, plan=PLAN)
        judged = rate_endpoint('success', 'episode success', found, margin=0.1, levels=Levels())
        passed.append(judged.finding is GateFinding.NO_WORSE)
    assert np.mean(passed) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_tau_pairing_and_reference_come_from_the_declared_analysis(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    store = store_of(
        tmp_path / 's', rollouts(rng, 'new', 0.8, n=10), rollouts(rng, 'old', 0.8, n=10), rollouts(rng, 'x', 0.8, n=10)
    )
    (tmp_path / 's' / 'analysis.toml').write_text('tau_s = 40.0\npairing = "independent"\nreference = "old"\n')
    found = gate_stores(store, store, policy='new')
    assert (found.baseline.policy, found.is_paired) == ('old', False)
    assert set((found.endpoints[1].taus_s or {}).values()) == {40.0}
    assert 'declared in the analysis.toml' in found.statement
    assert 'NOT AS DECLARED' not in found.statement
    other = gate_stores(store, store, policy='new', rules=GateRules(tau_s=30.0, pairing='paired'))
    assert other.is_paired
    assert set((other.endpoints[1].taus_s or {}).values()) == {30.0}
    assert 'NOT AS DECLARED: tau_s = 30, pairing = paired' in other.statement


def repeated(rng: np.random.Generator, policy: str, *, starts: int, repeats: int, first: int = 0) -> list[Episode]:
    """Failures that are tied to the start state: each start fails always, or never."""
    made = []
    for start in range(starts):
        fails = bool(rng.random() < 0.3)
        for repeat in range(repeats):
            time_s = 10.0 + float(rng.normal())
            outcome = Outcome.TIMEOUT if fails else Outcome.SUCCESS
            made.append(
                Episode(
                    policy=policy, task='pick', seed=first + start, repeat=repeat, time_cap_s=60.0, outcome=outcome,
                    duration_s=60.0 if fails else time_s,
                )
            )  # fmt: skip
    return made


def test_units_are_start_states_where_starts_repeat(tmp_path: Path) -> None:
    """Six starts run five times each are six units: the bound is that of six, not of thirty."""
    rng = np.random.default_rng(0)
    steady = [e.replace(outcome=Outcome.SUCCESS, duration_s=10.0) for e in repeated(rng, 'a', starts=6, repeats=5)]
    other = [e.replace(policy='b', seed=(e.seed or 0) + 100) for e in steady]
    found = gate_stores(store_of(tmp_path / 'a', steady), store_of(tmp_path / 'b', other), policy='a')
    assert found.n_starts == (6, 6)
    single = gate_stores(
        store_of(tmp_path / 'c', [e for e in steady if e.repeat == 0]),
        store_of(tmp_path / 'd', [e for e in other if e.repeat == 0]), policy='a',
    )  # fmt: skip
    success, speed = zip(found.endpoints[:2], single.endpoints[:2], strict=True)
    assert speed[0].bound == pytest.approx(speed[1].bound, rel=1e-9)
    assert success[0].bound == pytest.approx(success[1].bound, rel=0.06)  # thirty episodes would give -0.08


def test_failures_tied_to_starts_do_not_pass_more_often_than_alpha() -> None:
    """Equal policies at 30 % of starts failing, margin 10 %: speed may pass by chance, and seldom does."""
    rng = np.random.default_rng(3)
    passed = 0
    for _ in range(200):
        worse = [
            e.replace(duration_s=min(60.0, 1.1 * e.known_duration_s)) for e in repeated(rng, 'a', starts=6, repeats=5)
        ]
        arms = two_sides(worse, repeated(rng, 'b', starts=6, repeats=5, first=100), PLAN, names=('a', 'b'))
        found = speed_endpoint(contrast(*arms, endpoint=EndpointName.TIME, plan=PLAN), margin=0.1, levels=Levels())
        passed += found.finding is GateFinding.NO_WORSE
    assert passed / 200 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_a_record_without_durations_is_judged_on_success_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    stores = []
    for name in ('a', 'b'):
        episodes = [e.replace(duration_s=None, time_cap_s=None) for e in rollouts(rng, 'pi', 0.9, n=30)]
        stores.append(store_of(tmp_path / name, episodes))
    found = gate_stores(*stores)
    assert by_name(found)['speed'] is GateFinding.MISSING
    assert 'have no duration' in found.endpoints[1].note
    assert by_name(found)['success'] is not GateFinding.MISSING


def two_lengths(rng: np.random.Generator, policy: str, *, slower: float = 1.0, n: int = 30) -> list[Episode]:
    """A short task of 8 s under a cap of 20 s, and a long one of 60 s under 120 s, which takes `slower` times that."""
    made = []
    for task, mean_s, cap_s in (('short', 8.0, 20.0), ('long', 60.0 * slower, 120.0)):
        for seed in range(n):
            time_s = mean_s * (1 + 0.1 * float(rng.uniform(-1, 1)))
            made.append(
                Episode(
                    policy=policy, task=task, seed=seed, outcome=Outcome.SUCCESS, duration_s=time_s, time_cap_s=cap_s
                )
            )
    return made


def test_watch_sees_a_policy_that_is_slower_on_the_long_task_alone() -> None:
    rng = np.random.default_rng(5)
    episodes = [*two_lengths(rng, 'quick', n=80), *two_lengths(rng, 'slow', slower=1.57, n=80)]
    found = analyse(episodes).planning.watched(score='promptness')
    assert found.tau_s == {'long': 120.0, 'short': 20.0}
    (pair,) = found.arms.pairs
    assert pair.comparison.looks[-1].difference == pytest.approx((94.2 - 60) / 120 / 2, rel=0.15)
    assert pair.decision is Decision.A_BETTER


def test_watch_follows_to_the_declared_tau_as_the_contrast_does() -> None:
    rng = np.random.default_rng(6)
    found = analyse([*two_lengths(rng, 'a', n=8), *two_lengths(rng, 'b', n=8)], tau_s=50.0)
    assert found.planning.watched(score='promptness').tau_s == {'long': 50.0, 'short': 20.0}
    assert max(found.contrast('a', 'b', 'time').taus_s.values()) == 50.0


def test_watch_takes_every_condition_for_a_cell_where_none_is_the_baseline() -> None:
    rng = np.random.default_rng(7)
    episodes = [e.replace(condition=c, episode_id=f'{c}{p}{k}') for c in ('dim', 'bright') for p in ('a', 'b')
                for k, e in enumerate(two_lengths(rng, p, n=6))]  # fmt: skip
    found = analyse(episodes)
    cells = tuple(c.name for c in found.contrast('a', 'b').cells)
    assert len(cells) == 4
    assert found.planning.watched().strata == cells


def test_slower_on_the_long_task_alone_does_not_pass(tmp_path: Path) -> None:
    """Each task up to its own cap: up to 20 s the long one would never be done, by either policy."""
    rng = np.random.default_rng(4)
    baseline = store_of(tmp_path / 'b', two_lengths(rng, 'pi'))
    slow = gate_stores(store_of(tmp_path / 's', two_lengths(rng, 'pi', slower=1.57)), baseline)
    speed = slow.endpoints[1]
    assert speed.taus_s == {'long': 120.0, 'short': 20.0}
    assert speed.finding is GateFinding.WORSE
    assert slow.verdict is GateVerdict.FAIL
    assert speed.estimate == pytest.approx((94.2 + 8) / (60 + 8), rel=0.05)
    assert 'RMST(20 s to 120 s by cell)' in speed.measure
    changed = compare_stores(baseline, Store.open(tmp_path / 's')).policies[0]
    assert changed.taus_s == speed.taus_s
    shift = next(s for s in changed.means if s.metric == 'rmst_s')
    assert shift.difference == pytest.approx((94.2 - 60) / 2, rel=0.1)
    as_quick = gate_stores(store_of(tmp_path / 'q', two_lengths(rng, 'pi', n=60)), baseline)
    assert by_name(as_quick)['speed'] is GateFinding.NO_WORSE
