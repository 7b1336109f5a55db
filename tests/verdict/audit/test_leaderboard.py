from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.verdict.audit import Classification, Rule, audit_leaderboard, read_leaderboard
from robotrials.verdict.audit.leaderboard import Leaderboard, LeaderboardAudit, Obstacle


def row(model: str, paper: str, score: Any, *, suite: str = 'libero_spatial', own: bool = True, **more: Any) -> dict:
    return {
        'model': model, 'benchmark': 'libero', 'reported_paper': f'https://arxiv.org/abs/{paper}',
        'model_paper': f'https://arxiv.org/abs/{paper}' if own else 'https://arxiv.org/abs/2001.00001',
        'suite_scores': {suite: score}, 'overall_score': None, 'notes': '', **more,
    }  # fmt: skip


def board(tmp_path: Path, rows: list[dict]) -> Leaderboard:
    path = tmp_path / 'board.json'
    path.write_text(json.dumps({'last_updated': '2026-08-10', 'results': rows}))
    return read_leaderboard(path)


def only(audit: LeaderboardAudit, rule: Rule) -> list:
    return [c for c in audit.claims if c.rule is rule]


def test_a_papers_best_own_score_meets_the_best_baseline_it_reports(tmp_path: Path) -> None:
    rows = [
        row('ours', '2502.00001', 96.6), row('ours-small', '2502.00001', 90.0),
        row('old__ours', '2502.00001', 95.3, own=False), row('older__ours', '2502.00001', 80.0, own=False),
        row('first', '2501.00001', 99.0),
    ]  # fmt: skip
    claims = only(audit_leaderboard(board(tmp_path, rows)), Rule.PAPER)
    judged = {c.paper: c for c in claims}
    assert (judged['2502.00001'].model, judged['2502.00001'].baseline_model) == ('ours', 'old__ours')
    assert judged['2502.00001'].classification == 'inconclusive'
    assert judged['2501.00001'].obstacle is Obstacle.NO_BASELINE


def test_chronology_meets_the_best_earlier_score_by_arxiv_order(tmp_path: Path) -> None:
    rows = [
        row('ours', '2502.00009', 96.6), row('old__ours', '2502.00009', 95.3, own=False),
        row('first', '2501.00001', 80), row('same-month', '2502.00002', 97.0), row('later', '2503.00001', 99.8),
    ]  # fmt: skip
    claims = {c.paper: c for c in only(audit_leaderboard(board(tmp_path, rows)), Rule.CHRONOLOGY)}
    assert claims['2502.00009'].baseline_model == 'same-month'
    assert claims['2502.00009'].classification == 'no_improvement'
    assert claims['2502.00002'].classification == 'guaranteed'
    assert claims['2501.00001'].obstacle is Obstacle.NO_BASELINE


def test_copied_scores_in_notes_are_baselines_of_the_copying_paper(tmp_path: Path) -> None:
    note = 'Same score also reported in: https://arxiv.org/abs/2502.00001, https://arxiv.org/abs/2502.00007.'
    rows = [row('ours', '2502.00001', 96.6), row('first', '2501.00001', 99.0, notes=note)]
    leaderboard = board(tmp_path, rows)
    with_copies = audit_leaderboard(leaderboard)
    claim = next(c for c in only(with_copies, Rule.PAPER) if c.paper == '2502.00001')
    assert claim.baseline_is_copied
    assert claim.classification == 'no_improvement'
    without = audit_leaderboard(leaderboard, copied_baselines=False)
    assert all(c.obstacle is Obstacle.NO_BASELINE for c in only(without, Rule.PAPER))
    assert (with_copies.coverage[0].with_baseline_row, with_copies.coverage[0].with_any_baseline) == (0, 1)


@pytest.mark.parametrize(
    ('note', 'problem'),
    [('20 rollouts per task', '20 a task'), ('Evaluated with 10 trials/task.', '10 a task'),
     ('200 episodes per suite', '200 a suite'), ('50 episodes per task (500 per suite)', None), ('', None)],
)  # fmt: skip
def test_notes_that_contradict_the_protocol_set_a_claim_aside(tmp_path: Path, note: str, problem: str | None) -> None:
    rows = [row('ours', '2502.00001', 96.6, notes=note), row('old__ours', '2502.00001', 90.0, own=False)]
    claim = only(audit_leaderboard(board(tmp_path, rows)), Rule.PAPER)[0]
    assert (claim.obstacle is Obstacle.SAMPLES) == (problem is not None)
    assert problem is None or problem in claim.detail


def test_ties_are_told_and_counted(tmp_path: Path) -> None:
    rows = [row('ours', '2502.00001', 99.9), row('old__ours', '2502.00001', 99.7, own=False)]
    audit = audit_leaderboard(board(tmp_path, rows))
    claim = only(audit, Rule.PAPER)[0]
    assert 'tie' in claim.detail
    assert 'no_improvement' in claim.detail
    assert audit.shares()[0].tie_decided == 1
    strict = audit_leaderboard(board(tmp_path, rows), require_realizable=True)
    assert only(strict, Rule.PAPER)[0].obstacle is Obstacle.NOT_REALIZABLE


def test_robotwin_protocols_and_calvin_splits_are_not_mixed(tmp_path: Path) -> None:
    def twin(model: str, score: float, notes: str, **more: Any) -> dict:
        return row(model, '2502.00001', score, suite='easy', benchmark='robotwin_v2', notes=notes, **more)

    rows = [
        twin('ours', 80.0, 'Protocol B (Motus-style)'), twin('a__x', 90.0, 'Protocol A, 50 tasks', own=False),
        twin('b__x', 40.0, 'Protocol B.', own=False),
        {**row('c', '2502.00002', 0, benchmark='calvin'), 'suite_scores': {}, 'overall_score': 4.4, 'notes': 'ABCD->D'},
        {**row('d__c', '2502.00002', 0, own=False, benchmark='calvin'), 'suite_scores': {}, 'overall_score': 4.6,
         'notes': 'ABC->D split'},
    ]  # fmt: skip
    claims = {c.model: c for c in only(audit_leaderboard(board(tmp_path, rows)), Rule.PAPER)}
    assert claims['ours'].baseline_model == 'b__x'
    assert claims['c'].obstacle is Obstacle.NO_BASELINE
    assert claims['c'].benchmark is not None
    assert claims['c'].benchmark.name == 'calvin-abcd-d'


@pytest.mark.parametrize(
    ('rows', 'error', 'message'),
    [
        ([row('a', '2502.00001', 'high')], InputError, "suite_scores.libero_spatial is 'high'"),
        ([row('a', '2502.00001', 90), row('a', '2502.00001', 91)], InputError, r'results\[0\] and results\[1\]'),
        ([{'benchmark': 'libero'}], InputError, r'results\[0\]: model is None'),
        ([3], InputError, 'wanted an object'),
        ([row('a', '2502.00001', 90, benchmark='other')], NotEstimable, 'no entries'),
    ],
)
def test_bad_files_are_clear_errors(tmp_path: Path, rows: list, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        audit_leaderboard(board(tmp_path, rows))


def test_a_score_over_100_is_listed_not_judged(tmp_path: Path) -> None:
    rows = [row('ours', '2502.00001', 966), row('old__ours', '2502.00001', 90.0, own=False)]
    assert only(audit_leaderboard(board(tmp_path, rows)), Rule.PAPER)[0].obstacle is Obstacle.OUT_OF_RANGE


def test_unknown_suites_and_benchmarks_suggest_the_near_one(tmp_path: Path) -> None:
    leaderboard = board(tmp_path, [row('a', '2502.00001', 90)])
    with pytest.raises(UnknownName, match="did you mean 'libero_spatial'"):
        audit_leaderboard(leaderboard, libero_suites=['libero_spatal'])
    with pytest.raises(UnknownName, match="did you mean 'libero'"):
        audit_leaderboard(leaderboard, families=['liberoo'])


def test_text_that_is_not_json_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / 'board.json'
    path.write_text('{\n"results": [}')
    with pytest.raises(InputError, match='line 2'):
        read_leaderboard(path)


@pytest.fixture(scope='module')
def public(shared: Any) -> LeaderboardAudit:
    return audit_leaderboard(read_leaderboard(shared('data', 'leaderboard', 'leaderboard.json')))


def test_public_file_coverage(public: LeaderboardAudit) -> None:
    """447 papers score their own model on LIBERO; 303 of them have a baseline row in the file."""
    assert public.entries == 3971
    libero = next(c for c in public.coverage if c.family == 'libero')
    assert (libero.own_papers, libero.with_baseline_row) == (447, 303)


def test_public_file_every_own_paper_is_judged_or_told_why(public: LeaderboardAudit, shared: Any) -> None:
    leaderboard = read_leaderboard(shared('data', 'leaderboard', 'leaderboard.json'))
    for coverage in public.coverage:
        own = {e.paper for e in leaderboard.entries if e.benchmark == coverage.family and e.is_own}
        for rule in Rule:
            claims = [c for c in public.claims if c.family == coverage.family and c.rule is rule]
            assert {c.paper for c in claims} == own
            assert all((c.reading is None) == (c.obstacle is not None) for c in claims)
            assert all(c.detail for c in claims if c.obstacle is not None)


def test_public_file_shares_add_up(public: LeaderboardAudit) -> None:
    for shares in public.shares():
        total = sum((shares.share(c) or Fraction(0) for c in Classification), Fraction(0))
        assert total == 1
        judged = [c for c in public.claims if (c.rule, c.family) == (shares.rule, shares.family) and c.reading]
        assert shares.judged == len(judged)


def test_public_file_gives_the_same_claims_when_recounted_by_hand(public: LeaderboardAudit, shared: Any) -> None:
    """An independent pass over the raw JSON for LIBERO-Goal, paper's rule without copied scores."""
    rows = json.loads(shared('data', 'leaderboard', 'leaderboard.json').read_text())['results']
    own: dict[str, float] = {}
    base: dict[str, float] = {}
    for entry in rows:
        score = (entry.get('suite_scores') or {}).get('libero_goal')
        if entry['benchmark'] != 'libero' or score is None:
            continue
        paper = entry['reported_paper'].rsplit('/', 1)[-1][:10]
        is_own = '__' not in entry['model'] and entry['model_paper'] == entry['reported_paper']
        side = own if is_own else base
        side[paper] = max(side.get(paper, 0.0), score)
    path = shared('data', 'leaderboard', 'leaderboard.json')
    audit = audit_leaderboard(
        read_leaderboard(path), families=['libero'], libero_suites=['libero_goal'], rules=[Rule.PAPER],
        copied_baselines=False,
    )  # fmt: skip
    claims = {c.paper: c for c in audit.claims if c.baseline_score is not None}
    assert claims.keys() == own.keys() & base.keys()
    for paper, claim in claims.items():
        assert claim.score is not None
        assert claim.baseline_score is not None
        assert (float(claim.score.value), float(claim.baseline_score.value)) == (own[paper], base[paper])
