from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from robotrials.cli import full_app
from robotrials.errors import InputError, NotEstimable, RobotrialsError, UnknownName
from robotrials.record import Episode, Outcome, Store, Trajectory
from robotrials.verdict.audit import outcomes_of

app = full_app()


def run(line: str) -> str:
    """Standard output of `robotrials <line>`; our own errors are raised."""
    result = CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def documents(text: str) -> list[dict[str, Any]]:
    """The JSON tables that a verb printed: one document, a list."""
    tables: list[dict[str, Any]] = json.loads(text)
    return tables


def fails(line: str, error: type[RobotrialsError], message: str) -> None:
    with pytest.raises(error, match=message):
        CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)


def test_topline_answers_in_plain_words() -> None:
    said = ' '.join(run('audit topline --benchmark libero-spatial 95.3 96.6').split())
    for words in ('Inconclusive', '483 - 477 = 6 successes (1.20 percentage points)', 'halfway between 476 and 477',
                  'could be significant from 3 successes (0.60 percentage points) on',
                  'must be significant from 10 successes (2.00 percentage points) on',
                  'What would change it', 'paired Q is below 13.04'):  # fmt: skip
        assert words in said


@pytest.mark.parametrize(
    ('scores', 'word'),
    [('95.2 95.2', 'No improvement'), ('95.2 95.4', 'Impossible'), ('50 80', 'Significant')],
)
def test_topline_says_each_class(scores: str, word: str) -> None:
    assert word in run(f'audit topline -b libero-goal {scores}')


def test_topline_in_json_holds_the_numbers() -> None:
    rows = documents(run('audit topline -b calvin 4.17 4.28 -f json'))[0]['rows']
    values = {row['quantity']: row['value'] for row in rows}
    assert (values['gap'], values['S Q low'], values['tasks'], values['max score']) == (110, 110 * 890, 1, 5)


def test_topline_table_and_figure(tmp_path: Path) -> None:
    out = tmp_path / 'gaps.svg'
    table = run(f'audit topline -b robotwin2 --table --baselines 50,90 --figure {out} -f csv')
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [(row['count'], row['must: gap']) for row in rows] == [('2500', '116'), ('4500', '51')]
    assert out.read_text().startswith('<?xml')


def test_topline_presets_are_overridable() -> None:
    said = run('audit topline -b libero-goal 95 96 --samples 20 --tasks 5')
    assert '5 tasks x 20 samples' in said
    assert '5 tasks x 20 samples' in run('audit topline 95 96 --samples 20 --tasks 5')


def test_topline_mistakes_are_told() -> None:
    fails('audit topline 95 96', InputError, 'missing: --tasks, --samples')
    fails('audit topline 95 96 --tasks 10', InputError, 'missing: --samples')
    fails('audit topline -b libero-spacial 95 96', UnknownName, "did you mean 'libero-spatial'")
    fails('audit topline -b libero-goal 95 105', InputError, 'outside 0..100')
    fails('audit topline -b libero-goal 0.95 0.96', InputError, 'look like fractions')
    fails('audit topline -b libero-goal 95 96 --unit fraction', InputError, "unit='percent'")
    fails('audit topline -b libero-goal 95', InputError, 'found 1')
    fails('audit topline -b libero-goal', InputError, 'wanted two scores')
    assert 'Impossible' in run('audit topline -b libero-goal 0.4 0.8 --unit percent')


def test_leaderboard_prints_shares_coverage_and_reasons(tmp_path: Path, shared: Any) -> None:
    file = shared('data', 'leaderboard', 'leaderboard.json')
    claims, pies = tmp_path / 'claims.csv', tmp_path / 'pies.png'
    said = run(
        f'audit leaderboard {file} -b simplerenv -b robocasa --csv {claims} --figure {pies} --set-aside --details'
    )
    for words in ('Shares of judged claims', 'Coverage', 'cannot be reproduced', 'could not be judged', 'Set aside'):
        assert words in said
    rows = list(csv.DictReader(io.StringIO(claims.read_text())))
    assert all(row['class'] or row['set aside'] for row in rows)
    assert {row['benchmark'] for row in rows} == {'SimplerEnv', 'RoboCasa'}
    assert pies.stat().st_size > 5_000


def test_leaderboard_mistakes_are_told(tmp_path: Path) -> None:
    fails(f'audit leaderboard {tmp_path / "none.json"}', InputError, 'cannot be read')
    board = tmp_path / 'board.json'
    board.write_text('{"results": []}')
    fails(f'audit leaderboard {board}', NotEstimable, 'no entries')
    fails(f'audit leaderboard {board} --rule papr', UnknownName, "did you mean 'paper'")
    fails(f'audit leaderboard {board} -b librero', UnknownName, "did you mean 'libero'")


def test_paired_reads_two_csvs_and_names_the_unmatched(tmp_path: Path) -> None:
    for name, scores in (('old', [0, 0, 1, 0, 1, 0]), ('new', [1, 1, 1, 1, 1, 0])):
        rows = [f't{i % 2},{i // 2},{s}' for i, s in enumerate(scores)]
        extra = ['t9,7,1'] if name == 'new' else []
        (tmp_path / f'{name}.csv').write_text('\n'.join(['task,sample,success', *rows, *extra]))
    asked = f'audit paired {tmp_path / "old.csv"} {tmp_path / "new.csv"}'
    card = run(asked)
    for words in ('+50 points [-34, 87]   p 0.13', 'Left out of new: 1 in cells that old did not run (t9)'):
        assert words in card
    said = run(f'{asked} --details')
    for words in ('The verdict', 'does new improve on old?', 'exact McNemar', '1 only in new (t9/7)'):
        assert words in said


def test_paired_tells_a_significant_reverse_and_lists_no_thousand_rows(tmp_path: Path) -> None:
    for name, n, good in (('old', 40, 36), ('new', 1540, 8)):
        rows = [f't,{i},{int(i < good)}' for i in range(n)]
        (tmp_path / f'{name}.csv').write_text('\n'.join(['task,sample,success', *rows]))
    asked = f'audit paired {tmp_path / "old.csv"} {tmp_path / "new.csv"}'
    card, said = (' '.join(run(line).split()) for line in (asked, f'{asked} --details'))
    assert 'old succeeds more often than new' in card
    assert 'Left out of new: 1500 without a partner.' in card
    assert '1,500 only in new (t/100, t/1000, ' in said
    assert ' and 1,495 more)' in said


def test_drop_takes_counts_rows_and_files(tmp_path: Path) -> None:
    stacked = 'audit drop 172/288 90/288 --label stacked'
    assert '+28.5 points [20.5, 36.0]' in run(stacked)
    assert next(csv.DictReader(io.StringIO(run(f'{stacked} -f csv'))))['drop (points)'].startswith('28.47')
    table, forest = tmp_path / 'rows.csv', tmp_path / 'forest.pdf'
    table.write_text('label,calibration,altered,discordant\nX-VLA,709/1000,459/1000,420\nreverse,60/288,28/288,\n')
    rows = list(csv.DictReader(io.StringIO(run(f'audit drop --rows {table} --figure {forest} -f csv'))))
    assert [row['interval'] for row in rows] == ['paired wald', 'newcombe']
    assert float(rows[0]['low']) == pytest.approx(21.29, abs=0.005)
    assert forest.read_bytes().startswith(b'%PDF')
    for name, shift in (('cal', 0), ('alt', 1)):
        lines = [f'{i},{max(0, i % 6 - shift)},s{i % 8}' for i in range(48)]
        (tmp_path / f'{name}.csv').write_text('\n'.join(['sequence,score,start', *lines]))
    both = f'{tmp_path / "cal.csv"} {tmp_path / "alt.csv"}'
    verdict, atc = documents(run(f'audit drop {both} --paired -f json'))
    assert atc['rows'][0]['drop (score)'] == pytest.approx(40 / 48, abs=1e-5)
    assert verdict['rows'][0]['units a'] == 8  # starts that repeat are one unit
    assert verdict['rows'][0]['a - b (points)'] == pytest.approx(100 * 40 / 48 / 5)  # a share of the largest score
    chains = documents(run(f'audit drop {both} --full-score 5 -f json'))[1]
    assert chains['rows'][0]['calibration'].startswith('8/48')


def test_drop_mistakes_are_told(tmp_path: Path) -> None:
    fails('audit drop', InputError, 'wanted the calibration')
    fails('audit drop 300/288 1/288', InputError, 'at most')
    fails('audit drop 3/28 nothere.csv', InputError, 'no such file')
    table = tmp_path / 'rows.csv'
    table.write_text('label,calibration,altered\nx,60 of 288,28/288\n')
    fails(f'audit drop --rows {table}', InputError, 'line 2, calibration')


@pytest.fixture
def stores(tmp_path: Path) -> list[Path]:
    paths = []
    for name, shift in (('a', 0.0), ('b', 1e-9), ('again', 0.0)):
        store = Store.create(tmp_path / name)
        steps = np.arange(20.0)
        episodes = [
            Episode(policy='p', task=f't{i}', seed=i, outcome=Outcome.SUCCESS, duration_s=1.0, success=True)
            for i in range(2)
        ]
        trace = Trajectory(time_s=steps, simulator_state=np.where(steps[:, None] > 4, shift, 0.0) + np.ones((20, 2)))
        store.append(episodes, trajectories={e.key: trace for e in episodes})
        paths.append(store.path)
    return paths


def test_traces_prints_table_10_and_the_four_targets(stores: list[Path], tmp_path: Path) -> None:
    a, b, again = stores
    growth = tmp_path / 'growth.svg'
    said = run(f'audit traces {a} {b} --name LIBERO --episodes --details --figure {growth}')
    for words in ('observed', 'Control missing', 'per-episode outcome agreement', 'Missing: checkpoint'):
        assert words in said
    assert growth.exists()
    assert 'is bitwise identical' in run(f'audit traces {a} {b} --control {again} --closed-loop')
    rows = documents(run(f'audit traces {a} {b} -f json'))[1]['rows']
    assert next(r for r in rows if r['channel'] == 'simulator state')['earliest step'] == 5


def test_citations_counts_tables_bibtex_and_leaderboards(tmp_path: Path, shared: Any) -> None:
    bib, table, figure = tmp_path / 'a.bib', tmp_path / 'a.csv', tmp_path / 'counts.svg'
    bib.write_text('@article{x, title={One}, eprint={2603.00001}, archiveprefix={arXiv}}')
    table.write_text('title,arxiv id,LIBERO usage,LIBERO evidence\nOne,2603.00001,reports-results,Table 1\n')
    said = run(f'audit citations {table} --bibtex {bib} -b LIBERO --months --figure {figure} -f csv')
    counts = {row[0]: row[1] for row in csv.reader(io.StringIO(said)) if row}
    assert (counts['candidate rows'], counts['papers'], counts['reports-results']) == ('2', '1', '1')
    assert figure.exists()
    fails(f'audit citations --bibtex {bib}', InputError, 'add --benchmark')
    fails('audit citations', InputError, 'found none')
    board = shared('data', 'leaderboard', 'leaderboard.json')
    assert 'RoboTwin 2.0' in run(f'audit citations --leaderboard {board}')


def test_help_of_every_verb_carries_an_example() -> None:
    for verb in ('topline', 'leaderboard', 'paired', 'drop', 'traces', 'citations'):
        assert f'robotrials audit {verb}' in run(f'audit {verb} --help')


def test_drops_of_a_store_are_plotted_by_name(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 'runs')
    store.append([
        Episode(policy=policy, task=f'task_{i % 2}', benchmark=suite, condition=condition, seed=i, duration_s=1.0,
                outcome=Outcome.SUCCESS if (i + len(condition)) % 3 else Outcome.FAILURE)
        for policy in ('a', 'b') for suite in ('goal', 'spatial') for i in range(12)
        for condition in ('nominal', 'dark', 'moved')
    ])  # fmt: skip
    target = tmp_path / 'drops.svg'
    run(f'plot drop-forest {store.path} -o {target} -p b')
    text = target.read_text()
    assert 'b, dark' in text
    assert 'b, moved' in text
    assert 'a, dark' not in text
    fails(f'plot drop-forest {store.path} --where condition=dark -o {target}', NotEstimable, 'under one condition')


def test_suites_that_share_task_names_are_told_apart() -> None:
    episodes = [
        Episode(policy='p', task='task_0', benchmark=suite, seed=i, duration_s=1.0, outcome=Outcome.SUCCESS)
        for suite in ('libero-goal', 'libero-spatial') for i in range(2)
    ]  # fmt: skip
    assert {o.task for o in outcomes_of(episodes)} == {'libero-goal/task_0', 'libero-spatial/task_0'}
    assert {o.task for o in outcomes_of(episodes[:2])} == {'task_0'}
    assert len({o.start for o in outcomes_of(episodes)}) == 4
