"""The kept rows as Markdown that also reads well in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

HEADER = ('row', 'ours', 'beside', 'its', 'ratio', 'target', '')
SCALES = {'s': (('s', 1.0), ('ms', 1e-3), ('us', 1e-6)), 'B': (('GB', 1e9), ('MB', 1e6), ('kB', 1e3), ('B', 1.0))}


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """A table of each area, its rows by name, and what was done in each row below it."""
    low = sum(is_low(row) for row in rows)
    lines = [
        f'{len(rows)} rows, {low} of them below target. Times are medians with their spread; a larger ratio is better.'
    ]
    for origin, measured in _by(rows, lambda row: f'commit {row["commit"][:10]}, {row["machine"]}'):
        lines.append(f'Measured at {origin}: {", ".join(area for area, _ in _by(measured, _area))}.')
    for area, every in _by(rows, _area):
        cells = [HEADER, *map(_cells, every)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        padded = [f'| {" | ".join(map(str.ljust, row, widths))} |' for row in cells]
        rule = f'|{"|".join("-" * (width + 2) for width in widths)}|'
        lines += ['', f'## {area}', '', padded[0], rule, *padded[1:], '']
        for work, same in groupby(every, key=lambda row: row['work']):
            lines.append(f'- {", ".join(f"`{_short(row)}`" for row in same)}: {work}')
    return '\n'.join(lines)


def is_low(row: dict[str, Any]) -> bool:
    return bool(row['ratio'] < row['target'])


def times(ratio: float) -> str:
    return f'{ratio:,.0f}' if ratio >= 100 else f'{ratio:.1f}' if ratio >= 1 else f'{ratio:.3f}'


def amount(value: float, unit: str, spread: float | None = None) -> str:
    """'12.3 ms (0.4 ms)', '412 MB' or '3.1e-15'."""
    if unit not in SCALES:
        return f'{value:.3g}'
    name, scale = next((pair for pair in SCALES[unit] if abs(value) >= pair[1]), SCALES[unit][-1])
    text = f'{value / scale:,.0f}' if value >= 100 * scale else f'{value / scale:.3g}'
    return f'{text} {name}' if spread is None else f'{text} {name} ({amount(spread, unit)})'


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    ours, peer = (amount(row[f'{side}_s'], row['unit'], row[f'{side}_spread_s']) for side in ('ours', 'peer'))
    marks = 'LOW' if is_low(row) else 'ok'
    return _short(row), ours, row['peer'].replace('|', '/'), peer, times(row['ratio']), times(row['target']), marks


def _short(row: dict[str, Any]) -> str:
    return str(row['name'].partition('/')[2])


def _area(row: dict[str, Any]) -> str:
    return str(row['name'].partition('/')[0])


def _by(rows: Sequence[dict[str, Any]], key: Any) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    by_key: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_key.setdefault(key(row), []).append(row)
    return by_key.items()
