"""Print, as Markdown, what each policy did with each object in a store of the tabletop cell."""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

from robotrials.measure.timing import operations, success_curve
from robotrials.record import EventKind, read_store
from robotrials.show.table import render, table

COLUMNS = [
    'policy',
    'object',
    'successes',
    'items placed',
    'lost',
    'stops',
    'median s/item',
    'peak N',
    'peak torque share',
]


def main(path: str) -> None:
    groups = defaultdict(list)
    for episode, trajectory in read_store(path).trajectories():
        groups[episode.policy, episode.stratum].append((episode, trajectory))
    rows = []
    for (policy, stratum), pairs in sorted(groups.items()):
        episodes = [e for e, _ in pairs]
        timed = operations(episodes)
        median = success_curve(timed.durations_s, timed.observed).median_s
        force = [float(t.extra['robot_force_n'].max()) for _, t in pairs]
        share = [float((np.abs(t.joint_torque_nm) / t.joint_torque_limit_nm).max()) for _, t in pairs]
        rows.append(
            [
                policy,
                stratum,
                f'{sum(e.success is True for e in episodes)} of {len(episodes)}',
                f'{sum(e.items_placed or 0 for e in episodes)} of {sum(e.items or 0 for e in episodes)}',
                sum(e.items_lost or 0 for e in episodes),
                sum(any(v.kind is EventKind.SAFETY_STOP for v in e.events) for e in episodes),
                None if median is None else round(median, 1),
                f'{np.median(force):.0f} (max {max(force):.0f})',
                f'{max(share):.2f}',
            ]
        )
    print(render(table('', COLUMNS, rows), 'markdown'))


if __name__ == '__main__':
    main(sys.argv[1])
