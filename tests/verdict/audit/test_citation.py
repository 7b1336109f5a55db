from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError, NotEstimable
from robotrials.verdict.audit import (
    BenchmarkUsage,
    BenchmarkUse,
    HarvestedPaper,
    candidates_from_bibtex,
    candidates_from_leaderboard,
    citation_counts,
    read_candidates,
    read_leaderboard,
)
from robotrials.verdict.audit.citation import parse_bibtex, plain_text

RESULTS = BenchmarkUse(BenchmarkUsage.REPORTS_RESULTS, 'Table 2, LIBERO-Spatial 95.3')


def paper(arxiv_id: str = '', use: BenchmarkUse = RESULTS, **more: Any) -> HarvestedPaper:
    return HarvestedPaper(arxiv_id=arxiv_id, uses={'LIBERO': use}, **more)


def test_the_headline_count_of_d5() -> None:
    """1,053 candidates, 551 of them reporting, 79 of those in March 2026 out of 117 candidates of that month."""
    rows = [
        paper(f'2603.{n:05d}', RESULTS if n < 79 else BenchmarkUse(BenchmarkUsage.CITATION_ONLY, 'cited'))
        for n in range(117)
    ]
    rows += [paper(f'2602.{n:05d}', RESULTS if n < 472 else BenchmarkUse(BenchmarkUsage.TERM_ONLY)) for n in range(936)]
    tracker = citation_counts(rows)['LIBERO']
    march = next(m for m in tracker.months if m.month == '2026-03')
    assert (tracker.papers, tracker.reported) == (1053, 551)
    assert (march.reported, march.candidates, march.cumulative) == (79, 117, 551)


def test_one_paper_found_five_ways_is_one_paper_with_every_source() -> None:
    rows = [
        paper('2603.00001', title='A Fine Policy', found_via=('arXiv',)),
        paper(doi='https://doi.org/10.48550/arXiv.2603.00001', found_via=('DataCite',)),
        paper(title='A fine  policy!', semantic_scholar_id='S1', found_via=('Semantic Scholar citations',)),
        paper(semantic_scholar_id='s1', openalex_id='https://openalex.org/W9', found_via=('OpenAlex',)),
        paper(openalex_id='W9', doi='10.1/xyz', found_via=('Crossref',)),
        paper(doi='doi:10.1/XYZ', found_via=('arXiv', 'DBLP')),
    ]
    for seed in range(6):
        random.Random(seed).shuffle(rows)
        counts = citation_counts(rows)
        assert len(counts.papers) == 1
        assert set(counts.papers[0].candidate.found_via) == {
            'arXiv', 'DataCite', 'Semantic Scholar citations', 'OpenAlex', 'Crossref', 'DBLP',
        }  # fmt: skip
        assert (counts['LIBERO'].rows, counts['LIBERO'].papers, counts['LIBERO'].reported) == (6, 1, 1)


def test_one_title_with_two_arxiv_ids_stays_two_papers_and_is_told() -> None:
    counts = citation_counts([paper('2603.00001', title='Same'), paper('2603.00002', title='same')])
    assert counts['LIBERO'].papers == 2
    assert len(counts.conflicts) == 1


def test_results_are_never_inferred_from_a_citation_or_a_name() -> None:
    bare = BenchmarkUse(BenchmarkUsage.REPORTS_RESULTS)
    rows = [
        paper('2603.00001', bare, found_via=('Semantic Scholar citations',)),
        paper('2603.00002', bare, found_via=('arXiv term search',)),
        paper('2603.00003'),
    ]
    tracker = citation_counts(rows)['LIBERO']
    assert tracker.by_usage == {
        BenchmarkUsage.CITATION_ONLY: 1,
        BenchmarkUsage.TERM_ONLY: 1,
        BenchmarkUsage.REPORTS_RESULTS: 1,
    }
    assert tracker.held_back == 2


def test_promotion_goes_one_way() -> None:
    """Evidence in one row promotes the paper; a lower class in another row does not take it back."""
    low = BenchmarkUse(BenchmarkUsage.TERM_ONLY)
    for rows in ([paper('2603.00001'), paper('2603.00001', low)], [paper('2603.00001', low), paper('2603.00001')]):
        assert citation_counts(rows)['LIBERO'].reported == 1


def test_collision_prone_names_wait_for_evidence() -> None:
    use = BenchmarkUse(BenchmarkUsage.USES_DATA)
    rows = [
        HarvestedPaper(arxiv_id='2603.00001', uses={'CALVIN': use, 'RoboCasa': use}, found_via=('arXiv term search',)),
        HarvestedPaper(arxiv_id='2603.00002', uses={'CALVIN': use}, found_via=('OpenCitations citation graph',)),
    ]
    counts = citation_counts(rows)
    assert counts['CALVIN'].by_usage == {BenchmarkUsage.TERM_ONLY: 1, BenchmarkUsage.USES_DATA: 1}
    assert counts['RoboCasa'].by_usage == {BenchmarkUsage.USES_DATA: 1}


def test_a_paper_on_two_benchmarks_counts_once_for_each() -> None:
    both = HarvestedPaper(arxiv_id='2603.00001', uses={'LIBERO': RESULTS, 'RoboCasa': RESULTS})
    counts = citation_counts([both])
    assert [counts[name].reported for name in ('LIBERO', 'RoboCasa')] == [1, 1]


def test_months_follow_the_first_posting_and_leave_out_rows_without_an_id() -> None:
    rows = [
        paper('2603.00001', first_arxiv_date='2026-02-28'),
        paper('2603.00002'),
        paper(title='Venue only', first_arxiv_date=''),
        paper('2512.00001'),
    ]
    tracker = citation_counts(rows, since='2025-12', until='2026-03')['LIBERO']
    assert [(m.month, m.reported, m.cumulative) for m in tracker.months] == [
        ('2025-12', 1, 1), ('2026-01', 0, 1), ('2026-02', 1, 2), ('2026-03', 1, 3),
    ]  # fmt: skip
    assert (tracker.without_arxiv_id, tracker.reported_without_arxiv_id, tracker.dated_by_id) == (1, 1, 2)
    assert tracker.reported == 4


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from(list(BenchmarkUsage))), min_size=1, max_size=25
    )
)
def test_counts_do_not_depend_on_the_order_of_rows(rows: list[tuple[int, int, BenchmarkUsage]]) -> None:
    table = [
        paper('', BenchmarkUse(usage, 'seen'), semantic_scholar_id=f's{s}', openalex_id=f'w{w}') for s, w, usage in rows
    ]
    counted = [citation_counts(order)['LIBERO'] for order in (table, table[::-1])]
    assert counted[0].papers == counted[1].papers
    assert dict(counted[0].by_usage) == dict(counted[1].by_usage)
    assert sum(counted[0].by_usage.values()) == counted[0].papers


def test_tables_are_read_wide_or_long(tmp_path: Path) -> None:
    wide = tmp_path / 'wide.csv'
    wide.write_text(
        'Title,arXiv id,First arXiv date,Found via,LIBERO usage,LIBERO evidence\n'
        'One,arXiv:2603.00001v2,2026-03-02,arXiv; OpenAlex,reports-results,Table 1\n'
        'Two,,,CORE,full-text-unavailable,\n'
    )
    long = tmp_path / 'long.jsonl'
    row = {
        'title': 'One',
        'arxiv_id': '2603.00001',
        'benchmark': 'LIBERO',
        'usage': 'citation-only',
        'found_via': ['x'],
    }
    long.write_text(json.dumps(row) + '\n\n')
    counts = citation_counts([*read_candidates(wide), *read_candidates(long)])
    assert counts['LIBERO'].by_usage[BenchmarkUsage.REPORTS_RESULTS] == 1
    assert counts['LIBERO'].papers == 2
    assert counts.papers[0].candidate.found_via == ('arXiv', 'OpenAlex', 'x')


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('title,LIBERO usage\nA,report-results\n', "line 2: usage 'report-results': did you mean 'reports-results'"),
        ('title,arxiv id,LIBERO usage\nA,xx,citation-only\n', "line 2: arxiv_id is 'xx'"),
        ('title,first arxiv date,LIBERO usage\nA,March 2026,citation-only\n', 'YYYY-MM'),
        ('title,LIBERO usage\n,citation-only\n', 'title or an id'),
    ],
)
def test_bad_rows_name_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / 'bad.csv'
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_candidates(path)


def test_a_benchmark_that_no_one_classified_is_not_estimable() -> None:
    with pytest.raises(NotEstimable, match='classified: LIBERO'):
        citation_counts([paper('2603.00001')], benchmarks=['RoboCasa'])


BIB = r"""
Anything outside is a comment, even 50% of it.
% @article{gone, title={switched off}}
@string{corl = "Conference on " # {Robot Learning}}
@comment{ @misc is not read here }
@inproceedings{liu2023libero,
  title = {{LIBERO}: Benchmarking Knowledge Transfer for Lifelong Robot Learning},
  author = "Liu, Bo and M{\"u}ller, Ren\'e",
  booktitle = corl # ", " # 2023,
  month = jun,
  doi = {10.48550/arXiv.2306.03310},
}
@article(mees2022calvin, title = "{CALVIN} a {\"o}dd ti{tl}e",
  journal = {arXiv preprint arXiv:2112.03227}, year = 2022)
@misc{only, title={No id}, trialist_usage={reports-results}, trialist_evidence={Table 4}}
"""


def test_bibtex_is_read_whole(tmp_path: Path) -> None:
    entries = parse_bibtex(BIB)
    assert [(e.kind, e.key, e.line) for e in entries] == [
        ('inproceedings', 'liu2023libero', 6), ('article', 'mees2022calvin', 13), ('misc', 'only', 15),
    ]  # fmt: skip
    assert entries[0].fields['booktitle'] == 'Conference on Robot Learning, 2023'
    assert entries[0].fields['month'] == 'jun'
    assert plain_text(entries[0].fields['author']) == 'Liu, Bo and Müller, René'
    assert plain_text(entries[1].fields['title']) == 'CALVIN a ödd title'
    path = tmp_path / 'papers.bib'
    path.write_text(BIB)
    found = candidates_from_bibtex(path, benchmark='LIBERO')
    assert [c.arxiv_id for c in found] == ['2306.03310', '2112.03227', '']
    counts = citation_counts(found)['LIBERO']
    assert counts.by_usage == {BenchmarkUsage.TERM_ONLY: 2, BenchmarkUsage.REPORTS_RESULTS: 1}
    cited = candidates_from_bibtex(path, benchmark='LIBERO', usage=BenchmarkUsage.CITATION_ONLY)
    assert citation_counts(cited)['LIBERO'].by_usage == {
        BenchmarkUsage.CITATION_ONLY: 2,
        BenchmarkUsage.REPORTS_RESULTS: 1,
    }


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('@article{a,\n title = {never ends', 'line 2.*never ends'),
        ('@article{a,\n title {x}}', "line 2: wanted '='"),
        ('@article{a, title = nothere}', "no @string named 'nothere'"),
        ('@article{a, title={x}}\n@book{a, title={y}}', "line 2: citation key 'a' again, first on line 1"),
        ('@article{a, title={x}, Title={y}}', 'twice'),
        ('@article{a, title={x}\n\n@book{b, title={y}}', "line 3: wanted '}'"),
        ('@article a', 'wanted { or \\('),
        ('@article{a, title = "un}balanced"}', 'closing brace'),
    ],
)
def test_damaged_bibtex_names_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_bibtex(text)


def test_the_public_leaderboard_is_a_tracker_of_reporting_papers(shared: Any) -> None:
    leaderboard = read_leaderboard(shared('data', 'leaderboard', 'leaderboard.json'))
    counts = citation_counts(candidates_from_leaderboard(leaderboard))
    assert set(counts.trackers) == {'LIBERO', 'CALVIN', 'SimplerEnv', 'RoboCasa', 'RoboTwin 2.0'}
    for name, family in (('LIBERO', 'libero'), ('RoboCasa', 'robocasa')):
        papers = {e.paper for e in leaderboard.entries if e.benchmark == family}
        assert counts[name].papers == len(papers)
        assert counts[name].months[-1].cumulative == counts[name].reported


def test_counts_come_from_candidates_rows_or_a_file(tmp_path: Path) -> None:
    row = {
        'title': 'A',
        'arxiv_id': '2603.00001',
        'benchmark': 'LIBERO',
        'usage': 'reports-results',
        'evidence': 'T. 2',
    }
    table = tmp_path / 'rows.csv'
    table.write_text(','.join(row) + '\n' + ','.join(row.values()) + '\n')
    for source in ([row], table, str(table)):
        assert citation_counts(source)['LIBERO'].reported == 1
    with pytest.raises(InputError, match='candidate 0 is of type int'):
        citation_counts([3])  # type: ignore[list-item]


def test_an_arxiv_id_of_no_month_is_refused() -> None:
    with pytest.raises(InputError, match='13 is not a month'):
        HarvestedPaper(arxiv_id='2313.00001')
