"""What a notebook sees: a small door, names and episodes as values, one picture for a figure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import robotrials
from robotrials.errors import InputError, UnknownName
from robotrials.trial import Trial
from robotrials.verdict.planning.analysis_plan import EndpointName

ROWS = [
    {'policy': policy, 'task': task, 'seed': seed, 'success': seed % 5 > share, 'duration_s': 4.0 + seed}
    for policy, share in (('new', 0), ('old', 2))
    for task in ('pick', 'place')
    for seed in range(10)
]


@pytest.fixture(scope='module')
def trial() -> Trial:
    return robotrials.load(ROWS)


def test_the_door_is_the_door_also_after_use() -> None:
    script = (
        'import robotrials; door = dir(robotrials); '
        'robotrials.load([{"policy": "a", "task": "t", "success": True}]); '
        'assert dir(robotrials) == door; print(*door)'
    )
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == ['Comparison', 'Result', 'Trial', '__version__', 'load']


def test_names_and_episodes_are_values(trial: Trial) -> None:
    assert (trial.policies, trial.tasks) == (('new', 'old'), ('pick', 'place'))
    frame = trial.episodes
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == 40
    assert frame.groupby('policy')['success'].mean().to_dict() == {'new': 0.8, 'old': 0.4}
    assert frame['duration_s'].max() == 13.0


def test_tasks_of_two_benchmarks_keep_apart() -> None:
    rows = [{**row, 'benchmark': 'lab' if row['task'] == 'pick' else 'field', 'task': 'one'} for row in ROWS]
    assert robotrials.load(rows).tasks == ('field/one', 'lab/one')


def test_a_figure_shows_itself_once_and_without_magic(trial: Trial) -> None:
    import matplotlib.pyplot as plt

    figure = trial.plot('cdf')
    assert figure._repr_png_().startswith(b'\x89PNG')  # type: ignore[attr-defined]  # what IPython looks for
    assert plt.get_fignums() == []  # or the end of a cell would show it again


def test_a_result_is_shown_by_the_notebook_alone(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr('rich.console._is_jupyter', lambda: True)
    monkeypatch.setattr('rich.jupyter.display', lambda *parts: shown.append(parts))
    text = str(trial.success())
    assert 'Episode success' in text
    assert shown == []


def test_a_result_of_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / 'may.csv'
    pd.DataFrame(ROWS).to_csv(path, index=False)
    opened = robotrials.load(path)
    assert opened.analysis.source == str(path)
    assert opened.success().to_dict() == robotrials.load(ROWS).success().to_dict()


def test_a_comparison_is_values_that_agree_with_the_analysis(trial: Trial) -> None:
    answer = trial.compare('new', 'old')
    assert isinstance(answer, robotrials.Comparison)
    pair = trial.analysis.pairs.endpoints[EndpointName.SUCCESS].pair('new', 'old')  # type: ignore[union-attr]
    assert answer.difference == answer.success.difference == pytest.approx(0.4)
    assert answer.interval == tuple(pair.interval)
    assert answer.p_value == pair.p_corrected
    assert answer.success.p_uncorrected == pair.p_value
    assert answer.winner == 'new'
    assert answer.verdict.startswith('new is better than old')
    assert answer.time.unit == 's'
    assert answer.safety.difference is None
    assert 'not an endpoint' in answer.safety.reason


def test_a_comparison_turned_round_has_the_other_sign(trial: Trial) -> None:
    answer, turned = trial.compare('new', 'old'), trial.compare('old', 'new')
    assert isinstance(answer, robotrials.Comparison)
    assert isinstance(turned, robotrials.Comparison)
    assert turned.difference == pytest.approx(-(answer.difference or 0.0))
    assert (turned.winner, turned.p_value) == (answer.winner, answer.p_value)


def test_what_is_shown_is_the_card_once_with_its_tables_folded(trial: Trial) -> None:
    answer = trial.compare()
    card, _, tables = answer._repr_html_().partition('<details>')
    assert card.count('new is better than old') == str(answer).count('new is better than old') == 1
    assert '<table' in tables
    assert 'Used: primary endpoints' in tables
    assert len(str(answer).splitlines()) <= 24


def test_names_that_are_not_there_are_refused(trial: Trial) -> None:
    with pytest.raises(UnknownName, match='did you mean'):
        trial.compare('new', 'olf')
    with pytest.raises(InputError, match='itself'):
        trial.compare('new', 'new')
