"""Random evaluations as tables that people send: two to five policies, and whatever makes arms hard to compare."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

TASKS = ('lift', 'pour', 'stack')
FIELDS = (
    'policy', 'task', 'seed', 'repeat', 'condition', 'outcome', 'duration_s', 'time_cap_s', 'items', 'placement_times',
    'drop_times',
)  # fmt: skip
Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a random evaluation looks like."""

    policies: tuple[str, ...]
    caps_s: dict[str, float]
    starts: str  # 'shared', 'half', 'apart' or 'none'
    n: int  # starts of a cell
    repeats: int
    conditions: tuple[str, ...]
    longer: str  # the policy that was given twice the time; '' where none was
    absent: str  # the policy that did not run the last task; '' where all did
    timed: str  # 'all', 'some' or 'none'
    form: str  # 'csv' or 'jsonl'
    items: int = 1  # of an episode


def shape_of(rng: random.Random, *, conditions: bool | None = None) -> Shape:
    policies = ('ant', 'bee', 'cat', 'dog', 'elk')[: rng.randint(2, 5)]
    tasks = TASKS[: rng.randint(1, 3)]
    timed = rng.choice(('all', 'all', 'all', 'some', 'none'))
    is_changed = rng.random() < 0.5 if conditions is None else conditions
    return Shape(
        policies=policies, caps_s={t: rng.choice((20.0, 60.0, 120.0)) for t in tasks},
        starts=rng.choice(('shared', 'shared', 'half', 'apart', 'none')), n=rng.randint(6, 12),
        repeats=rng.choice((1, 1, 1, 2)), conditions=('nominal', 'dim', 'far') if is_changed else ('nominal',),
        longer=policies[-1] if timed == 'all' and rng.random() < 0.4 else '',
        absent=policies[0] if len(tasks) > 1 and rng.random() < 0.3 else '',
        timed=timed, form=rng.choice(('csv', 'jsonl')),
    )  # fmt: skip


def rows_of(shape: Shape, rng: random.Random) -> list[Row]:
    """One row per episode, in order."""
    rows: list[Row] = []
    for place, policy in enumerate(shape.policies):
        first = {'shared': 0, 'half': place * shape.n // 2, 'apart': 1000 * place, 'none': 0}[shape.starts]
        for task, cap_s in shape.caps_s.items():
            if policy == shape.absent and task == [*shape.caps_s][-1]:
                continue
            for condition in shape.conditions:
                for k in range(shape.n):
                    for repeat in range(shape.repeats):
                        start = {} if shape.starts == 'none' else {'seed': first + k}
                        own_s = cap_s * (2 if policy == shape.longer else 1)
                        mean_s = cap_s * (0.25 + 0.2 * place) * (1 + (k % 3) / 3)
                        ease = {'nominal': 0.95, 'dim': 0.5, 'far': 0.8}[condition]
                        row = {'policy': policy, 'task': task, **start, 'repeat': repeat, 'condition': condition}
                        if shape.items > 1:
                            rows.append(row | _items_end(rng, mean_s / shape.items, ease, own_s, shape))
                        else:
                            rows.append(row | _end(rng, mean_s, ease, own_s, shape.timed))
    return rows


def _items_end(rng: random.Random, mean_s: float, ease: float, cap_s: float, shape: Shape) -> Row:
    """Item after item until all are placed or dropped, the time is up, or the rig stops the run."""
    placed: list[float] = []
    dropped: list[float] = []
    now_s, stop_s = 0.0, cap_s * (rng.random() if rng.random() < 0.1 else 1.0)
    while len(placed) + len(dropped) < shape.items:
        now_s += rng.expovariate(1 / mean_s)
        if now_s > stop_s:
            break
        (placed if rng.random() < ease * 0.9 else dropped).append(round(now_s, 3))
    is_done = len(placed) + len(dropped) == shape.items
    outcome = 'success' if len(placed) == shape.items else 'failure' if is_done or stop_s < cap_s else 'timeout'
    if rng.random() < 0.03:
        outcome = 'invalid'
    times: Row = {'placement_times': placed, 'drop_times': dropped}
    if shape.form == 'csv':
        times = {name: ';'.join(map(str, found)) for name, found in times.items()}  # type: ignore[attr-defined]
    ends_s = max((*placed, *dropped)) if is_done else round(stop_s, 3)
    return {'outcome': outcome, 'time_cap_s': cap_s, 'items': shape.items, 'duration_s': ends_s} | times


def _end(rng: random.Random, mean_s: float, ease: float, cap_s: float, timed: str) -> Row:
    lasts_s, is_able, luck = round(rng.expovariate(1 / mean_s), 3), rng.random() < ease, rng.random()
    outcome = 'invalid' if luck < 0.03 else 'success' if is_able and lasts_s < cap_s else 'timeout'
    row: Row = {'outcome': outcome, 'time_cap_s': cap_s}
    if timed == 'none' or (timed == 'some' and luck > 0.95):
        return row
    return row | {'duration_s': cap_s if outcome == 'timeout' else min(lasts_s, cap_s)}


def write_table(
    folder: Path, seed: int, *, conditions: bool | None = None, has_items: bool = False
) -> tuple[Path, Shape]:
    """A random table in a file, and what it looks like."""
    rng = random.Random(seed)
    shape = shape_of(rng, conditions=conditions)
    if has_items:
        shape = replace(shape, items=rng.randint(2, 5), timed='all')
    rows = rows_of(shape, rng)
    path = folder / f'table.{shape.form}'
    with path.open('w', encoding='utf-8', newline='') as file:
        if shape.form == 'jsonl':
            file.writelines(json.dumps(row) + '\n' for row in rows)
        else:
            writer = csv.DictWriter(file, [f for f in FIELDS if any(f in row for row in rows)])
            writer.writeheader()
            writer.writerows(rows)
    return path, shape
