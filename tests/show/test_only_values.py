"""`show` draws and writes values: it makes no random generator, calls no scoring function, and opens no store."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SHOW = Path(__file__).resolve().parents[2] / 'src' / 'robotrials' / 'show'
MODULES = sorted(SHOW.rglob('*.py'))
SCORING = ('stats', 'measure', 'verdict', 'record', 'formats')
# Functions of the very values that are shown, or of static tables: nothing is scored in them. `contrast_values` and
# `design_word` spell out the fields of a finished Contrast; `write_durably` puts given bytes on the disk, and
# `opened_video` opens a film whose pictures are drawn.
OF_VALUES = {
    'best_marks', 'contrast_values', 'design_word', 'distinct', 'half_up_percent', 'load_datasets', 'pareto_frontier',
    'opened_video', 'present', 'read_survey', 'scalar_label', 'write_durably',
}  # fmt: skip
FORBIDDEN = {'default_rng', 'Generator', 'read_store', 'Store', 'analyse'}


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of everything that is imported, type-checking blocks left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def offences(source: str) -> list[str]:
    """What a module of `show` must not have."""
    tree = ast.parse(source)
    found = [f'{module}.{name}' for module, name in imported(tree) if name in FORBIDDEN]
    for module, name in imported(tree):
        parts = module.split('.')
        is_ours = parts[0] == 'robotrials' and len(parts) > 1 and parts[1] in SCORING
        if is_ours and name.islower() and name not in OF_VALUES and not is_module(module, name):
            found.append(f'{module}.{name}')
    used = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and _is_numpy(n.value)]
    return found + [f'np.{n.attr}' for n in used if n.attr in ('default_rng', 'random')]


def is_module(module: str, name: str) -> bool:
    base = SHOW.parent.joinpath(*module.split('.')[1:])
    return (base / f'{name}.py').exists() or (base / name).is_dir()


def _is_numpy(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ('np', 'numpy')


@pytest.mark.parametrize('path', MODULES, ids=lambda p: str(p.relative_to(SHOW)))
def test_show_only_reads_values(path: Path) -> None:
    assert offences(path.read_text(encoding='utf-8')) == []


def test_the_contract_can_be_broken() -> None:
    assert offences('import numpy as np\nrng = np.random.default_rng(0)') != []
    assert offences('from robotrials.measure.timing import score_cohort') == ['robotrials.measure.timing.score_cohort']
    assert offences('from robotrials.record import read_store') != []
    assert offences('from robotrials.measure.timing import CohortScore, scalar_label') == []
