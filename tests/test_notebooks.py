"""The notebooks of the documentation, run from their first cell to their last in an empty folder, and rendered."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor

BOOKS = Path(__file__).parents[1] / 'docs' / 'notebooks'
SECONDS_EACH = 600
# What each has to show: texts of its cards, and how many figures.
SHOWN = {
    'csv-results': (('pi0 is better than act', 'pi0 vs act'), 1),
    'libero-episodes': (('pi0-libero vs oft-joint', '470 matched starts', 'R on paired differences'), 1),
    'plan-run-report': (('hasty is better than careful', '8 matched starts', 'No success was unsafe'), 1),
}


def run(name: str, folder: Path) -> Any:
    book = nbformat.read(BOOKS / f'{name}.ipynb', as_version=4)
    settings = {'metadata': {'path': str(folder)}}
    ExecutePreprocessor(timeout=SECONDS_EACH, kernel_name='python3').preprocess(book, settings)
    return book


@pytest.mark.parametrize('name', SHOWN)
def test_it_runs_and_shows_each_answer_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Callable[..., Path]
) -> None:
    monkeypatch.setenv('LIBERO_EPISODES', str(shared('data', 'libero-episodes')))
    book = run(name, tmp_path)
    texts, n_figures = SHOWN[name]
    cells = [cell for cell in book.cells if cell.cell_type == 'code']
    for cell in cells:
        assert not [output for output in cell.outputs if output.output_type == 'error']
        assert sum(output.output_type in ('execute_result', 'display_data') for output in cell.outputs) <= 1
        assert not [output for output in cell.outputs if output.get('name') == 'stderr'], cell.source
    assert sum('image/png' in output.get('data', {}) for cell in cells for output in cell.outputs) == n_figures
    page, _ = HTMLExporter().from_notebook_node(book)
    words = ' '.join(re.sub(r'<[^>]+>', ' ', page).split())
    assert all(text in words for text in texts)
    if name != 'libero-episodes':
        assert len(list(tmp_path.glob('*.html'))) == 1


def test_every_notebook_is_run_and_kept_without_outputs() -> None:
    assert sorted(SHOWN) == sorted(path.stem for path in BOOKS.glob('*.ipynb'))
    for path in BOOKS.glob('*.ipynb'):
        cells = nbformat.read(path, as_version=4).cells
        assert not [cell for cell in cells if cell.get('outputs') or cell.get('execution_count')], path.name
