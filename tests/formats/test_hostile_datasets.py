"""Metadata that nobody should write: every reader refuses them in its own words, and none breaks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.formats.build import make_lerobot

from robotrials.errors import RobotrialsError
from robotrials.formats.imported import ImportOptions
from robotrials.formats.lerobot import LEROBOT

ODD: tuple[Any, ...] = (None, -1, 0, 1e300, 'text', '', [], {}, [None], {'a': None}, True, [['x']], 'a/{nobody}', '{')


def changed(value: Any, rng: np.random.Generator) -> Any:
    """The same value with one part of it, at any depth, replaced by something odd or taken out."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = list(value)[rng.integers(len(value))]
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = int(rng.integers(len(value)))
        return [*value[:at], changed(value[at], rng), *value[at + 1 :]]
    return ODD[rng.integers(len(ODD))]


def read_all(root: Path) -> None:
    options = ImportOptions(defaults={'policy': 'x', 'outcome': 'success'}, answers={'cameras': 'leave'})
    for recording in LEROBOT.read(root, options).recordings():
        assert recording.trajectory is not None


@pytest.mark.parametrize('version', ['v2.1', 'v3.0'])
def test_odd_info_is_read_or_refused(tmp_path: Path, version: str) -> None:
    root = make_lerobot(tmp_path / 'toy', version, episodes=2)
    path = root / 'meta' / 'info.json'
    info = json.loads(path.read_text())
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(150):
        path.write_text(json.dumps(changed(info, rng)))
        try:
            read_all(root)
        except RobotrialsError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize('name', ['episodes.jsonl', 'tasks.jsonl'])
def test_odd_lines_are_read_or_refused(tmp_path: Path, name: str) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v2.1', episodes=2)
    path = root / 'meta' / name
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rng = np.random.default_rng(8)
    for _ in range(60):
        odd = changed(rows, rng)
        path.write_text(''.join(json.dumps(row) + '\n' for row in (odd if isinstance(odd, list) else [odd])))
        try:
            read_all(root)
        except RobotrialsError:
            continue


def test_odd_tables_are_read_or_refused(tmp_path: Path) -> None:
    """Every column of every table, in turn: gone, null, of another type, of no rows."""
    kept = make_lerobot(tmp_path / 'kept', 'v3.0', episodes=2)
    root = tmp_path / 'toy'
    for source in sorted(kept.rglob('*.parquet')):
        table = pq.read_table(source)
        for at, name in enumerate(table.column_names):
            odd = [pa.nulls(table.num_rows), pa.array(['x'] * table.num_rows), pa.array([[1.0]] * table.num_rows),
                   pa.array([-5] * table.num_rows)]  # fmt: skip
            for table_now in [table.drop_columns([name]), *(table.set_column(at, name, column) for column in odd)]:
                shutil.rmtree(root, ignore_errors=True)
                shutil.copytree(kept, root)
                pq.write_table(table_now, root / source.relative_to(kept))
                try:
                    read_all(root)
                except RobotrialsError:
                    continue
