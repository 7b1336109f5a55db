"""`--format json` prints one document, whatever the verb and however many tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from robotrials.cli import full_app
from robotrials.record import Event, EventKind, Outcome, Store
from robotrials.show.table import render_all, table
from robotrials.testing import paper_like_cohort

app = full_app()


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp('json')
    episodes = paper_like_cohort(np.random.default_rng(1), objects=['cup', 'towel'])
    for name, kept in (('s', episodes), ('t', episodes[::2])):
        Store.create(made / name).append(kept)
    (made / 'r.csv').write_text('policy,task,success,time\nact,pick,1,12\nact,pick,0,30\npi,pick,1,8\n')
    (made / 'a.csv').write_text('task,sample,score\n' + ''.join(f't{k % 3},{k},{k % 2}\n' for k in range(12)))
    (made / 'b.csv').write_text('task,sample,score\n' + ''.join(f't{k % 3},{k},1\n' for k in range(13)))
    return made


LISTS = [
    'score S --resamples 20',
    'tables scalars-by-stratum S --resamples 20',
    'tables labels S --label camera_side --resamples 20',
    'tables stratum-differences S --resamples 20',
    'compare S act groot --resamples 20',
    'compare S --resamples 20',
    'store tables S',
    'import R --to X',
    'import R --to X --dry-run',
    'audit topline -b libero-spatial 95.3 96.6',
    'audit topline -b libero-spatial 95.3 96.6 --table',
    'audit topline -b libero-spatial --table',
    'audit paired A B',
    'audit drop 60/288 28/288',
    'actions report --published',
    'power size --rate 0.7 --difference 0.05 --survey',
    'power detect S --n 5 --trials 4 --resamples 20 --pair act:groot',
    'watch S --policy act --policy groot --once --looks',
]
SINGLES = ['calibrate S --trials 4 --resamples 5', 'store ls S', 'store verify S']


def run(line: str, folder: Path, target: Path) -> Any:
    paths = {
        'S': folder / 's', 'T': folder / 't', 'R': folder / 'r.csv', 'A': folder / 'a.csv', 'B': folder / 'b.csv',
        'X': target / 'new',
    }  # fmt: skip
    arguments = [str(paths.get(word, word)) for word in line.split()]
    result = CliRunner().invoke(app, [*arguments, '-f', 'json'], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize('line', LISTS)
def test_a_verb_that_may_print_several_tables_prints_one_list(line: str, folder: Path, tmp_path: Path) -> None:
    document = run(line, folder, tmp_path)
    assert isinstance(document, list)
    assert document
    assert all({'title', 'columns', 'rows', 'note'} <= shown.keys() for shown in document)


@pytest.mark.parametrize('line', ['score S --resamples 20', 'compare S', 'tables failures S', 'watch S --once'])
def test_the_analysis_is_a_field_of_every_table(line: str, folder: Path, tmp_path: Path) -> None:
    assert all(shown['analysis'].startswith('Analysis: none was declared') for shown in run(line, folder, tmp_path))


@pytest.mark.parametrize('line', SINGLES)
def test_a_verb_of_one_table_prints_it(line: str, folder: Path, tmp_path: Path) -> None:
    assert 'rows' in run(line, folder, tmp_path)


def test_every_attempt_of_an_episode_is_in_one_document(folder: Path, tmp_path: Path) -> None:
    first = paper_like_cohort(np.random.default_rng(2), objects=['cup'])[0]
    store = Store.create(tmp_path / 's')
    broken = first.replace(outcome=Outcome.INVALID, events=(Event(0.0, EventKind.ASSIST),))
    store.append([broken, first.replace(attempt=1)])
    result = CliRunner().invoke(app, ['store', 'show', str(tmp_path / 's'), first.episode_id], catch_exceptions=False)
    assert [attempt['outcome'] for attempt in json.loads(result.stdout)] == ['invalid', first.outcome.value]


def test_other_forms_put_an_empty_line_between_tables() -> None:
    shown = [table(name, ['x'], [[k]]) for k, name in enumerate('ab')]
    assert render_all(shown, 'csv') == 'x\n0\n\nx\n1\n'
    assert '\n\n**b**' in render_all(shown, 'markdown')
    assert render_all([], 'text') == ''
    assert json.loads(render_all([], 'json')) == []
