"""Every verb that asks answers with a card of at most 24 lines and 80 columns, the verdict first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import robotrials as here

import robotrials
from robotrials.show.answer import Card
from robotrials.show.table import Column, display_width, mark, render, table, wrap
from robotrials.stats import Interval
from robotrials.verdict.analysis.endpoint_pairs import flips_to_undo

POLICIES = {'pi0-base': 9, 'act': 4, 'openvla-oft-with-a-long-checkpoint-name-20260401': 7, 'groot': 8}
MORE = {**POLICIES, 'diffusion-policy-unet': 5, '/runs/smolvla/checkpoints/100000/pretrained_model': 6}
ROWS = [
    f'{policy},{task},{seed},{int((seed * 7 + len(task)) % 10 < share)},{5 + (seed * 3 + share) % 17}.5,{condition}'
    for policy, share in MORE.items() for task in ('pick', 'place', 'plug in') for seed in range(12)
    for condition in ('nominal', 'dark')
]  # fmt: skip
VERBS: tuple[tuple[str, ...], ...] = (
    ('compare', 'four'), ('compare', 'four', 'pi0-base', 'act'),
    ('score', 'four'), ('score', 'four', '--policy', 'act'),
    ('robustness', 'four', '--resamples', '50'), ('watch', 'four', '--once'),
    ('gate', 'four', '-b', 'four', '--policy', 'groot', '--baseline-policy', 'act'),
    ('audit', 'paired', 'four', 'four', '--old-policy', 'act', '--new-policy', 'pi0-base', '--condition', 'nominal'),
    ('audit', 'drop', 'four', 'four', '--policy', 'act', '--calibration-condition', 'nominal', '--altered-condition',
     'dark', '--paired'),
    ('audit', 'drop', '172/288', '90/288'), ('audit', 'topline', '84.7', '88.2', '--benchmark', 'libero-spatial'),
    ('power', 'size', '--policies', '4', '--tasks', '10'),
    ('power', 'bridge', 'four', 'groot', 'act', '--bridges', '100', '--n', '5,10'),
    *((verb, store, *more) for store in ('two', 'three', 'six') for verb, *more in (
        ('compare',), ('score',), ('robustness', '--set', 'resamples=50'), ('watch', '--once'),
        ('gate', '-b', store, '--policy', 'act', '--baseline-policy', 'pi0-base'))),
)  # fmt: skip
SIZES = {'two': 2, 'three': 3, 'six': 6}
SCRIPT = """
import contextlib, io, json, sys
from robotrials.cli import main
answers = []
for words in json.loads(sys.argv[1]):
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ['robotrials', *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    answers.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""


@pytest.fixture(scope='module')
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('lab')
    for name, size in {'four': 4, **SIZES}.items():
        rows = ROWS[: size * len(ROWS) // len(MORE)]  # a block per policy, in order
        csv = '\n'.join(['policy,task,seed,success,duration_s,condition', *rows]) + '\n'
        (folder / f'{name}.csv').write_text(csv)
        here('import', folder / f'{name}.csv', '--to', folder / name)
    return folder


@pytest.fixture(scope='module')
def answers(lab: Path) -> dict[tuple[str, ...], tuple[int, str, str]]:
    """Every verb in a new process of 80 columns, on a store that `import` made."""
    done = subprocess.run(
        [sys.executable, '-c', SCRIPT, json.dumps(VERBS)], cwd=lab, env={**os.environ, 'COLUMNS': '80'},
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return {verb: tuple(told) for verb, told in zip(VERBS, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize('verb', VERBS, ids=' '.join)
def test_an_answer_fits_a_terminal(answers: dict[tuple[str, ...], tuple[int, str, str]], verb: tuple[str, ...]) -> None:
    code, out, err = answers[verb]
    assert code in ((0, 1, 3) if verb[0] == 'gate' else (0,)), err
    lines = out.splitlines()
    assert 3 < len(lines) <= 24
    assert [line for line in (*lines, *err.splitlines()) if display_width(line) > 80] == []
    assert lines[-1].startswith('More: ')
    assert lines[1].startswith('  ')
    assert lines[1][2] != ' '  # the verdict, before any number


@pytest.mark.parametrize('length', range(30, 41))
def test_a_title_and_its_scope_fit_a_line_or_are_wrapped(length: int) -> None:
    head = (
        Card(title='a' * length, scope='50 and 50 episodes, paired by start state', verdict=('PASS',))
        .text(80)
        .splitlines()
    )
    assert max(map(display_width, head)) <= 80
    assert head[0].startswith('a' * length + ('    50' if length + 4 + 41 <= 80 else ': 50'))


def test_the_card_of_two_says_what_would_change_it(answers: dict[tuple[str, ...], tuple[int, str, str]]) -> None:
    _, out, _ = answers['compare', 'four', 'pi0-base', 'act']
    assert out.startswith('pi0-base vs act    72 episodes, 36 matched starts, 3 tasks')
    assert 'What would change it: ' in out
    assert 'safety' in out


def test_details_add_the_tables_that_the_other_forms_have(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab)
    monkeypatch.setenv('COLUMNS', '80')
    text = here('compare', 'four', '--details', '--per-task', '--methods')
    printed = here('compare', 'four', '-f', 'json')
    titles = [found['title'] for found in json.loads(printed[printed.index('\n[') :])]
    assert titles
    for title in (*titles, 'Episode success by task', 'We evaluated 4 policies'):
        assert title in text
    assert max(map(display_width, text.splitlines())) <= 80


@pytest.mark.parametrize('store', SIZES)
@pytest.mark.parametrize('verb', ['compare', 'score', 'robustness'])
def test_tables_behind_a_card_fit_a_terminal(lab: Path, store: str, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab)
    monkeypatch.setenv('COLUMNS', '80')
    text = here(verb, store, '--details', '--set', 'resamples=50')
    assert [line for line in text.splitlines() if display_width(line) > 80] == []


def test_a_wrong_name_or_form_is_refused_before_any_work(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab)
    assert "did you mean 'json'" in here('compare', 'nothing-here', '-f', 'jsn', code=2)
    assert "no policy named 'grot'" in here('score', 'four', '--policy', 'grot', code=2)


def test_a_card_that_is_too_long_says_how_many_rows_are_left_out() -> None:
    card = Card(
        'title', verdict=('verdict.',), rows=tuple((f'row {k}', 'text') for k in range(60)), notes=('n ' * 200,)
    )
    lines = card.text(80).splitlines()
    assert len(lines) <= 24
    assert any('more: --details' in line for line in lines)


def test_a_wide_table_is_split_and_repeats_who_its_rows_are_about() -> None:
    columns = ['policy', *(Column(f'measure number {k}', '.3f') for k in range(14)), 'empty', 'same']
    rows = [[name, *(size * k for k in range(1, 15)), None, 'yes'] for name, size in (('first', 0.1), ('second', 0.2))]
    text = render(table('Wide', columns, rows), width=80)
    lines = text.splitlines()
    assert max(map(display_width, lines)) <= 80
    assert sum(line.startswith('first') for line in lines) > 1
    assert 'In every row: same yes.' in text
    assert 'empty' not in text


def test_an_estimate_has_the_digits_that_its_interval_supports() -> None:
    columns = ['policy', Column('rate', '.4f'), Column('low', '.4f'), Column('high', '.4f')]
    wide = render(table('', columns, [['a', 31.6667, 15.6612, 46.3781]]))
    narrow = render(table('', columns, [['a', 0.31667, 0.31613, 0.31781]]))
    assert '31.7  15.7  46.4' in wide
    assert '0.3167  0.3161  0.3178' in narrow


def test_wrapped_lines_and_marks_keep_their_width() -> None:
    assert all(display_width(line) <= 20 for line in wrap('指令 ' * 30 + 'a' * 90, 20))
    assert mark(0.5, Interval(0.25, 0.75), cells=8) == '──━━●━━─'
    assert mark(1.0) == '───────────●'


def test_the_flips_that_undo_a_claim_undo_it_in_the_data() -> None:
    rows = [
        {'policy': p, 'task': 'pick', 'seed': k, 'success': k < share}
        for p, share in (('new', 30), ('old', 14)) for k in range(40)
    ]  # fmt: skip
    trial = robotrials.load(rows)
    n = flips_to_undo(trial.analysis, 'new', 'old')
    assert n is not None

    def winner(flips: int) -> str | None:
        turned = [dict(row) for row in rows]
        for row in [r for r in turned if r['policy'] == 'new' and 14 <= r['seed'] < 30][:flips]:  # type: ignore[operator]
            row['success'] = False
        answer = robotrials.load(turned).compare('new', 'old')
        assert isinstance(answer, robotrials.Comparison)
        return answer.success.winner

    assert (winner(n - 1), winner(n)) == ('new', None)


@pytest.fixture(scope='module')
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two policies on two tasks with half of their starts shared, and two more on one task alone."""
    runs = [(p, t, k) for p, first in (('a', 0), ('b', 4)) for t in ('pick', 'place') for k in range(first, first + 8)]
    runs += [(p, 'pick', k) for p in ('c', 'd') for k in range(8)]
    path = tmp_path_factory.mktemp('uneven') / 'uneven.csv'
    path.write_text('policy,task,seed,success\n' + ''.join(f'{p},{t},{k},{int(k % 3 > 0)}\n' for p, t, k in runs))
    return path


def test_several_policies_that_lack_a_task_are_named_in_one_sentence(uneven: Path) -> None:
    printed = ' '.join(here('compare', uneven).split())
    assert 'c, d are not ranked: not run on 1 of 2 strata (place).' in printed


def test_a_running_trial_does_not_deny_the_ranks_that_it_prints(uneven: Path) -> None:
    printed = here('watch', uneven, '--once')
    assert 'Ranking, with letters:' in printed
    assert 'not ranked' not in printed


def test_the_pairs_of_a_running_trial_stand_in_columns(uneven: Path) -> None:
    lines = [line for line in here('watch', uneven, '--once').splitlines() if ' points [' in line]
    assert len(lines) == 6
    assert len({len(line) - len(line.partition(' p ')[2]) for line in lines}) == 1


def test_a_gate_of_partly_shared_starts_says_so(uneven: Path) -> None:
    printed = here('gate', uneven, '-b', uneven, '--policy', 'a', '--baseline-policy', 'b', code=3)
    assert '8 shared starts paired, the others independent' in ' '.join(printed.split('NOT SHOWN')[0].split())


def test_no_card_is_silent_about_invalid_episodes(tmp_path: Path) -> None:
    rows = [f'{p},pick,{k},{"invalid" if p == "a" and k % 3 == 0 else "success"}\n' for p in 'ab' for k in range(12)]
    path = tmp_path / 'r.csv'
    path.write_text('policy,task,seed,outcome\n' + ''.join(rows))
    for words in (('compare', path), ('score', path), ('watch', path, '--once')):
        assert '20 valid episodes, 4 invalid' in ' '.join(here(*words).split())
    printed = ' '.join(here('gate', path, '-b', path, '--policy', 'a', '--baseline-policy', 'b', code=3).split())
    assert '4 INVALID episodes of the candidate and 0 of the baseline tested no policy' in printed
    assert 'Left out of b' in printed
