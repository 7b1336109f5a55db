"""What a report says of stores that are empty, lopsided, tied, unfinished or cut: every sentence has to stay true."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.analysis.stores import changed_store, rollout, safety_store, timed_store

from trialist.analysis import Absent, Ranking, ReportOptions, TrialReport, build_report
from trialist.episodes import Episode, Outcome, Provenance, Store
from trialist.episodes.unblinding import Unblinding, write_unblinding
from trialist.errors import StoreError
from trialist.show.document_json import render_json
from trialist.show.latex import render_latex
from trialist.show.markdown import render_markdown
from trialist.show.page import render_html
from trialist.show.report import trial_document
from trialist.show.report_method import methods_text

FEW = ReportOptions(n_resamples=60)


def report_of(path: Path, episodes: Sequence[Episode], options: ReportOptions = FEW) -> TrialReport:
    store = Store.create(path / 's')
    store.append(episodes)
    return build_report(store, options)


def lead_of(report: TrialReport) -> list[str]:
    return [p.text for p in trial_document(report).lead]


def ended(policy: str, seed: int, outcome: str, duration_s: float, **more: object) -> Episode:
    fields: dict[str, object] = {'task': 'pick'} | more
    return Episode(
        policy=policy, seed=seed, outcome=Outcome(outcome), duration_s=duration_s, **fields  # type: ignore[arg-type]
    )  # fmt: skip


def quality_text(report: TrialReport) -> str:
    return next(s for s in render_markdown(trial_document(report)).split('\n## ') if s.startswith('Data quality'))


def test_failures_that_took_no_time_make_a_report(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended(p, i, 'failure', 0.0) for p in 'ab' for i in range(4)])
    assert isinstance(report.ranking, Ranking)
    assert report.ranking.tau_s == 1.0
    assert (
        lead_of(report)[0]
        == 'Of 2 policies in 8 valid episodes, no policy succeeded once: there is nothing to rank by.'
    )


def test_one_episode_is_told_in_the_singular(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended('a', 0, 'success', 10.0)])
    document = trial_document(report)
    for text in (render_markdown(document), render_html(document), render_latex(document), render_json(document)):
        for slip in ('1 valid episodes', 'The 1 episodes', '1 cells', '1 start states', '1 pairs'):
            assert slip not in text


def test_a_single_pair_and_a_single_invalid_episode_are_told_in_the_singular(tmp_path: Path) -> None:
    slow = [ended('b', i, 'success', 50.0 + i / 10) for i in range(8)]
    quick = [ended('a', i, 'success', 5.0 + i / 10) for i in range(8)]
    report = report_of(tmp_path, [*quick, *slow, ended('b', 9, 'invalid', 0.0)])
    text = render_markdown(trial_document(report))
    assert "The data resolve the only pair after Holm's correction, with a winner." in text.replace('’', "'")
    assert 'The pair is told apart' in text
    assert '1 further episode was invalid' in methods_text(report)
    assert 'over 1 pair at' in methods_text(report)


def test_equal_policies_share_the_first_place(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended(p, i, 'success', 10.0) for p in 'ab' for i in range(6)])
    first = lead_of(report)[0]
    assert 'a and b have the same, shortest restricted mean time to success, 10.0 s with' in first
    assert '[10.0, 10.0]' not in first
    assert 'interval of no width' in render_markdown(trial_document(report))


def test_policies_without_a_common_stratum_are_not_ranked(tmp_path: Path) -> None:
    episodes = [ended(p, i, 'success', 5.0 + i, stratum=f'only {p}') for p in 'ab' for i in range(5)]
    report = report_of(tmp_path, episodes)
    assert isinstance(report.ranking, Ranking)
    assert isinstance(report.ranking.pairs, Absent)
    assert lead_of(report)[0] == (
        'The 2 policies in 10 valid episodes are not ranked: no two policies were tested in the same stratum.'
    )


def test_one_policy_elsewhere_does_not_keep_the_others_from_being_compared(tmp_path: Path) -> None:
    both = [ended(p, i, 'success', 5.0 + i, stratum='desk') for p in 'ab' for i in range(5)]
    away = [ended('c', i, 'success', 1.0, stratum='floor') for i in range(5)]
    report = report_of(tmp_path, [*both, *away])
    assert isinstance(report.ranking, Ranking)
    assert not isinstance(report.ranking.pairs, Absent)
    assert report.ranking.apart == ('c',)
    assert report.ranking.order[-1] == 'c'  # its times are of other work, however short
    lead = ' '.join(lead_of(report))
    assert 'not every policy was run in every stratum' in lead
    assert 'Comparisons of c' in render_markdown(trial_document(report))


def test_what_is_taken_together_is_said_beside_the_ranking(tmp_path: Path) -> None:
    episodes = [
        ended(p, i, 'success', 5.0 + i, condition=c, benchmark=b)
        for p, c, b in (('a', 'dark', 'x'), ('a', 'bright', 'y'), ('b', 'dark', 'x')) for i in range(5)
    ]  # fmt: skip
    caution = lead_of(report_of(tmp_path, episodes))[1]
    assert '2 conditions are taken together' in caution
    assert 'strata of one name in several benchmarks are taken together (pick)' in caution


def test_the_reference_alone_is_not_a_tested_policy(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended('human', i, 'success', 5.0, is_reference=True) for i in range(3)])
    assert lead_of(report)[-1] == 'No policies are compared: only the reference was tested.'


def test_mixed_time_caps_compare_at_the_cap_that_all_had(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    long = [rollout('a', i, rng) for i in range(6)]
    short = [ended('b', i, 'timeout', 20.0, time_cap_s=20.0, stratum='block') for i in range(6)]
    report = report_of(tmp_path, [*long, *short])
    assert isinstance(report.ranking, Ranking)
    assert (report.ranking.tau_s, report.ranking.tau_reason) == (20.0, 'the largest time cap that every policy had')


def test_too_few_permutations_for_any_pair_is_no_finding_about_the_policies(tmp_path: Path) -> None:
    slow = [ended('b', i, 'success', 50.0 + i / 10) for i in range(8)]
    quick = [ended('a', i, 'success', 5.0 + i / 10) for i in range(8)]
    last = lead_of(report_of(tmp_path, [*quick, *slow], ReportOptions(n_resamples=10)))[-1]
    assert '10 permutations can not resolve any of 1 pair' in last
    assert '--resamples 19' in last
    again = lead_of(report_of(tmp_path / 'again', [*quick, *slow], ReportOptions(n_resamples=19)))[-1]
    assert 'can not resolve' not in again


@pytest.mark.parametrize(('every_s', 'has_order'), [(0, False), (60, True)])
def test_starts_at_one_time_have_no_order(tmp_path: Path, every_s: int, has_order: bool) -> None:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    episodes = [
        ended(p, i, 'success', 5.0, started_at=at + dt.timedelta(seconds=every_s * i)) for p in 'ab' for i in range(8)
    ]
    quality = report_of(tmp_path, episodes).quality
    assert (quality.order_p_value is not None) is has_order
    if has_order:
        assert quality.order_p_value == pytest.approx(1.0)
        assert {arm.mean_position for arm in quality.arms} == {0.5}


def test_tied_starts_agree_with_scipy(tmp_path: Path) -> None:
    from scipy.stats import kruskal

    rng = np.random.default_rng(3)
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    days = {p: rng.integers(0, 4, 12).tolist() for p in 'abc'}
    episodes = [
        ended(p, i, 'success', 5.0, started_at=at + dt.timedelta(days=day))
        for p in 'abc'
        for i, day in enumerate(days[p])
    ]
    quality = report_of(tmp_path, episodes).quality
    assert quality.order_p_value == pytest.approx(kruskal(*days.values()).pvalue, rel=1e-9)


def test_a_part_of_a_store_counts_its_own_attempts_and_edits_and_says_so(tmp_path: Path) -> None:
    store = timed_store(tmp_path / 's', n=6)
    report = build_report(store, FEW, where={'policy': ['slow']})
    assert (report.quality.n_superseded, report.quality.n_dropped, len(report.quality.edits)) == (
        0, 0, sum(e.policy == 'slow' for e in store.episodes() if e.operator)
    )  # fmt: skip
    document = trial_document(report)
    assert document.subtitle.endswith('only policy slow')
    assert 'only those with policy slow' in methods_text(report)
    assert '--where policy=slow --limit 0' in render_markdown(document)
    assert '--where policy=slow' in render_html(document)


@pytest.mark.parametrize('is_blinded', [True, False])
def test_blinding_is_claimed_where_there_was_any(tmp_path: Path, is_blinded: bool) -> None:
    store = Store.create(
        tmp_path / 's',
        trial_id='abc',
        plan_hash='abc',
        plan=f'{{"blinding": {{"enabled": {str(is_blinded).lower()}}}}}',
    )
    names = {'arm-1': 'a', 'arm-2': 'b'} if is_blinded else {'a': 'a', 'b': 'b'}
    store.append([ended(code, i, 'success', 5.0 + i, trial_id='abc') for code in names for i in range(4)])
    before = build_report(store, FEW)
    assert 'not closed' in lead_of(before)[0]
    assert ('under codes' in lead_of(before)[0]) is is_blinded
    assert 'in a trial that was not yet closed' in methods_text(before)
    write_unblinding(store.path, Unblinding(trial_id='abc', by='ann', at='2026-01-01', policies=names))
    after = build_report(store, FEW)
    assert 'not closed' not in lead_of(after)[0]
    assert ('blinded until the trial was closed' in methods_text(after)) is is_blinded


def test_only_invalid_episodes_are_not_called_balanced(tmp_path: Path) -> None:
    report = report_of(tmp_path, [ended('a', i, 'invalid', 0.0) for i in range(3)])
    assert 'No policy has a valid episode.' in quality_text(report)


def test_an_uneven_level_is_not_rounded(tmp_path: Path) -> None:
    report = report_of(
        tmp_path, [ended('a', i, 'success', 5.0 + i) for i in range(4)], ReportOptions(alpha=0.025, n_resamples=50)
    )
    assert 'with 97.5 % percentile intervals' in methods_text(report)


@pytest.mark.parametrize('text', ['{oops', '[]', '{"policy_cards": [1]}'])
def test_a_damaged_provenance_file_is_named(tmp_path: Path, text: str) -> None:
    store = Store.create(tmp_path / 's')
    name = store.write_provenance(Provenance())
    store.append([ended('a', 0, 'success', 5.0, provenance_id=name)])
    (found,) = (store.path / 'provenance').glob('*.json')
    found.write_text(text)
    with pytest.raises(StoreError, match=found.name):
        build_report(store, FEW)


@pytest.mark.parametrize(
    'policies', ['[1]', '{"a": {"use": "seek", "card": {"color": "red", "checkpoint": "step 1"}}}']
)
def test_a_plan_of_another_version_does_not_stop_a_report(tmp_path: Path, policies: str) -> None:
    store = Store.create(tmp_path / 's', trial_id='t')
    store.append([ended('arm-1', 0, 'success', 5.0, trial_id='t')])
    write_unblinding(
        store.path,
        Unblinding(
            trial_id='t', by='ann', at='2026-01-01', policies={'arm-1': 'a'}, plan=f'{{"policies": {policies}}}'
        ),
    )
    known = build_report(store, FEW).known_policies
    assert [k.card.checkpoint for k in known.values()] == (['step 1'] if 'step 1' in policies else [])


def test_another_level_is_said_wherever_it_is_used(tmp_path: Path) -> None:
    loose = ReportOptions(alpha=0.2, n_resamples=50)
    safety = build_report(safety_store(tmp_path / 'safety'), loose)
    changed = build_report(changed_store(tmp_path / 'changed'), loose)
    for report in (safety, changed):
        text = render_markdown(trial_document(report)).split('## Definitions')[0]
        assert 'pointwise 80 % bands' in text
        assert '95 %' not in text
    assert '80 % of Safety' in render_markdown(trial_document(safety))
    assert 'resolved at 0.2' in render_markdown(trial_document(changed))
