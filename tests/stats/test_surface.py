"""The room's surface: light to import, its names exported, its documents true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import robotrials.stats

DOCS = Path(__file__).resolve().parents[2] / 'docs'
MODULES = sorted(
    m.name
    for m in pkgutil.iter_modules(robotrials.stats.__path__, 'robotrials.stats.')
    if not m.name.endswith('._kernel')
)


def test_stats_imports_neither_scipy_nor_pandas() -> None:
    code = 'import sys, robotrials.stats; print([m for m in ("scipy", "pandas") if m in sys.modules])'
    assert subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout == '[]\n'


def test_public_names_of_the_design_are_exported() -> None:
    fixed = {
        'wilson', 'newcombe', 'wilson_sample_size', 'mcnemar_sample_size', 'paired_wald', 'two_sample_wald',
        'cluster_bootstrap',
    }  # fmt: skip
    assert fixed <= set(robotrials.stats.__all__)
    assert all(hasattr(robotrials.stats, name) for name in robotrials.stats.__all__)


@pytest.mark.parametrize('name', MODULES)
def test_examples_in_docstrings_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize(
    'page',
    [
        'concepts/verdicts.md',
        'concepts/intervals-and-tests.md',
        'concepts/sequential.md',
        'how-to/choose-a-sample-size.md',
    ],
)
def test_examples_in_documents_are_true(page: str) -> None:
    result = doctest.testfile(str(DOCS / page), module_relative=False, encoding='utf-8')
    assert result.attempted > 0
    assert result.failed == 0
