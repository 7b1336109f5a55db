"""Every door by which SafeVLA-Bench records can be scored, as functions from records to verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.cli.command import robotrials as run

import robotrials
from robotrials.verdict.analysis import present

Record = Mapping[str, Any]
Verdict = tuple[bool | None, float | None, Mapping[str, float | str | None]]
Verdicts = dict[tuple[str, str], Verdict]  # (policy, the record's own id) -> safe, VSI and margins


def arrays_of(record: Record) -> dict[str, np.ndarray]:
    """A record as an archive of arrays; steps must be complete."""
    steps: list[dict[str, Any]] = record['steps']
    plain = {k: np.array(v) for k, v in record.items() if k not in ('steps', 'body_roles')}
    rows = [(t, c['a'], c['b'], c['force_n']) for t, step in enumerate(steps) for c in step['contacts']]
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    kinds = ('int64', 'str', 'str', 'float64')
    names = ('contact_step', 'contact_a', 'contact_b', 'contact_force_n')
    return {
        **plain, 'body_roles': np.array(json.dumps(record['body_roles'])),
        **{k: np.array([s[k] for s in steps])
           for k in ('eef_pos_m', 'eef_quat_wxyz', 'joint_torque_nm', 'gripper_contact', 'gripper_command')
           if k in steps[0]},
        **{f'{kind}.{b}': np.array([s[kind][b] for s in steps])
           for kind in ('body_pos_m', 'body_quat_wxyz') for b in steps[0].get(kind, {})},
        **{n: np.array(c, dtype=k) for n, c, k in zip(names, columns, kinds, strict=True)},
        **_points_of(steps),
    }  # fmt: skip


def _points_of(steps: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    rows = [c for step in steps for c in step['contacts']]
    if not rows or 'point_m' not in rows[0]:
        return {}
    return {'contact_point_m': np.array([c['point_m'] for c in rows])}


def lines(records: Sequence[Record], folder: Path) -> Path:
    (folder / 'records.jsonl').write_text('\n'.join(map(json.dumps, records)))
    return folder / 'records.jsonl'


def document(records: Sequence[Record], folder: Path) -> Path:
    (folder / 'records.json').write_text(json.dumps(list(records)))
    return folder / 'records.json'


def files(records: Sequence[Record], folder: Path) -> Path:
    """A folder per policy, a file per record."""
    for number, record in enumerate(records):
        place = folder / 'tree' / record['policy']
        place.mkdir(parents=True, exist_ok=True)
        (place / f'{number}.json').write_text(json.dumps(record))
    return folder / 'tree'


def archives(records: Sequence[Record], folder: Path) -> Path:
    place = folder / 'archives'
    place.mkdir()
    for number, record in enumerate(records):
        np.savez(place / f'{number}.npz', **arrays_of(record))
    return place


LAYOUTS: Mapping[str, Callable[[Sequence[Record], Path], Path]] = {
    'lines': lines, 'document': document, 'folder': files, 'archive of arrays': archives,
}  # fmt: skip


def of_verb(path: Path, policy: str) -> Verdicts:
    """`robotrials safety PATH --json`."""
    printed = run('safety', path, '--json', '--resamples', 2)
    rows = json.loads(printed[printed.index('{\n') :])['episodes']
    return {(r.get('policy', policy), r['episode_id']): (r['safe'], r['vsi'], _scored(r['robustness'])) for r in rows}


def _scored(margins: Mapping[str, float | str | None]) -> dict[str, float]:
    return {name: float(margin) for name, margin in margins.items() if margin is not None}


def of_store(path: Path, policy: str) -> Verdicts:
    """`robotrials import PATH --to STORE`, then the verb on the store."""
    store = path.parent / 'store'
    run('import', path, '--to', store)
    return of_verb(store, policy)


def of_notebook(path: Path, policy: str) -> Verdicts:
    """`robotrials.load(PATH)`."""
    part = present(robotrials.load(path).analysis.safety)
    return {(s.policy, s.name): (s.safe, s.vsi, dict(s.robustness)) for s in part.scores}


DOORS: Mapping[str, Callable[[Path, str], Verdicts]] = {
    'verb': of_verb, 'import and store': of_store, 'notebook': of_notebook,
}  # fmt: skip
