"""A policy's offline error beside its closed-loop success, and whether both order policies alike."""

from __future__ import annotations

from robotrials.measure.actions.agreement import OfflineOnline
from robotrials.show.table import Cell, Column, Table, table


def agreement_table(found: OfflineOnline) -> Table:
    """One line per policy that has both numbers; the agreement in the note."""
    columns: list[str | Column] = [
        'policy', Column('AMSE', '.4g'), 'recorded episodes', Column('success', '.3f'), 'interval', 'episodes',
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            p.policy, p.offline_error, p.n_offline, p.success,
            None if p.success_interval is None else f'[{p.success_interval.low:.3f}, {p.success_interval.high:.3f}]',
            p.n_closed_loop,
        ]
        for p in sorted(found.pairs, key=lambda pair: pair.offline_error)
    ]  # fmt: skip
    notes = [_agreement(found)]
    for names, what in ((found.offline_only, 'offline only'), (found.closed_loop_only, 'in closed loop only')):
        if names:
            notes.append(f'{what}: {", ".join(names)}')
    return table(f'Offline on {found.dataset} and in closed loop', columns, rows, note='; '.join(notes))


def _agreement(found: OfflineOnline) -> str:
    agreement = found.agreement
    if agreement is None:
        return found.why_no_agreement
    ends = '' if agreement.interval is None else f' [{agreement.interval.low:.2f}, {agreement.interval.high:.2f}]'
    return (
        f"Kendall's tau-b of the two orders: {agreement.tau:.2f}{ends} at {100 * agreement.level:g} %, over episodes "
        f'of these {agreement.n_policies} policies'
    )
