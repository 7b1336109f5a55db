"""A document with every block and every chart, for tests of what renders documents."""

from __future__ import annotations

import math
import random

from robotrials.show.document import (
    Chart,
    Definition,
    Document,
    Missing,
    Passage,
    TableBlock,
    Words,
    paragraph,
    section,
)
from robotrials.show.plot import Axis, Bar, Curve, GuideLine, Plot, Point, Tile, facets, policy_colors
from robotrials.show.plot_page import paint_page
from robotrials.show.table import Cell, Column, table

POLICIES = ('teleop', 'act', 'diffusion', 'pi05', 'smolvla')
STRATA = ('pick cube', 'stack bowls', 'open drawer', 'pour water')
HORIZON_S = 60.0


def fake_step(policy: str, rng: random.Random, *, n: int = 40, rate: float = 0.7) -> Curve:
    """A curve that rises to about `rate`, with a band."""
    times = sorted(rng.uniform(2, HORIZON_S) for _ in range(n))
    chance = [rate * (k + 1) / n for k in range(n)]
    low = [max(0.0, c - 0.12 * math.sqrt(c + 0.05)) for c in chance]
    high = [min(1.0, c + 0.12 * math.sqrt(c + 0.05)) for c in chance]
    return Curve(policy, times, chance, low, high, is_step=True, censored=[t + 0.1 for t in times[::9]])


def step_block(policies: tuple[str, ...], strata: tuple[str, ...], *, n: int = 40) -> Chart:
    rng = random.Random(1)
    rates = {p: 0.98 - 0.45 * i / max(1, len(policies) - 1) for i, p in enumerate(policies)}
    curves = {
        name: [fake_step(p, rng, n=n, rate=rates[p]) for p in policies] for name in ('all strata', *strata)
    }  # fmt: skip
    return paint_page(
        Plot(
            'cdf', 'Chance of success by time', facets(curves), Axis('time (s)', (0.0, HORIZON_S)),
            Axis('operations done by then'), note='Shaded: 95 % bands. Ticks: episodes that ended without success.',
        ),
        policy_colors(policies, reference=policies[0]),
    )  # fmt: skip


def ranking_block(policies: tuple[str, ...]) -> TableBlock:
    rows: list[list[Cell]] = [
        [p, 100.0 / 3 - 2.1 * i, 100.0 / 3 - 2.1 * i - 3, 100.0 / 3 - 2.1 * i + 4, 'abcdefgh'[i % 8], 24 + i]
        for i, p in enumerate(policies)
    ]
    rows[-1][1:4] = [None, None, None]
    shown = table(
        'Ranking by speed',
        ['policy', Column('units per hour', '.1f'), Column('low', '.1f'), Column('high', '.1f'), 'letters', 'episodes'],
        rows,
        note='Policies that share a letter are not significantly different.',
    )
    return TableBlock(
        'ranking',
        shown,
        definitions={'units per hour': 'uph', 'letters': 'letters'},
        episodes=tuple({'policy': (p,)} for p in policies),
        policy_column='policy',
    )


def cell_block(policies: tuple[str, ...], strata: tuple[str, ...]) -> TableBlock:
    rng = random.Random(2)
    rows = [[p, s, rng.random(), rng.randint(5, 30)] for p in policies for s in strata]
    shown = table('Success per cell', ['policy', 'stratum', Column('success rate', '.2f'), 'n'], rows)
    return TableBlock(
        'cells',
        shown,
        definitions={'success rate': 'success'},
        policy_column='policy',
        stratum_column='stratum',
        episodes=tuple({'policy': (str(r[0]),), 'stratum': (str(r[1]),)} for r in rows),
        is_folded=True,
    )


def chart_blocks(policies: tuple[str, ...], strata: tuple[str, ...]) -> list[Chart]:
    colors = policy_colors(policies, reference=policies[0])
    return [paint_page(plot, colors) for plot in plots(policies, strata)]


def plots(policies: tuple[str, ...], strata: tuple[str, ...]) -> list[Plot]:
    """A plot of every kind but curves in steps."""
    rng = random.Random(3)
    rows = [
        Point(
            p, 0.9 - 0.05 * i, None, 0.8 - 0.06 * i, 0.95 - 0.04 * i, letters='ab' if i % 2 else 'a',
            group='one' if i < 3 else 'two',
        )
        for i, p in enumerate(policies)
    ]  # fmt: skip
    rows += [
        Point(policies[0], 0.7, None, 0.5, math.inf, name='open at the right'),
        Point(policies[-1], None, name='without an estimate'),
    ]
    places = [(0.4 + 0.5 * rng.random(), 0.5 + 0.45 * rng.random()) for _ in policies]
    points = [
        Point(p, x, y, x - 0.08, x + 0.06, y - 0.07, y + 0.04, is_front=i < 3)
        for i, (p, (x, y)) in enumerate(zip(policies, places, strict=True))
    ]
    causes = ('dropped', 'missed the grasp', 'timed out', 'collided', 'wrong object', 'stuck')
    bars = []
    for p in policies:
        weights = [rng.random() for _ in causes]
        bars += [Bar(p, p, w / sum(weights), c, round(20 * w)) for c, w in zip(causes, weights, strict=True)]
    tiles = [
        Tile(p, s, rng.random() if rng.random() > 0.1 else None, detail='n = 12') for p in policies for s in strata
    ]
    lines = [
        Curve(
            p, range(4), *([top - 0.15 * x - 0.03 * i for x in range(4)] for top in (0.9, 0.8, 0.95)), has_whiskers=True
        )
        for i, p in enumerate(policies)
    ]  # fmt: skip
    return [
        Plot('forest', 'Success rate with 95 % intervals', facets([*rows, GuideLine(x=0.8)]), Axis('success rate')),
        Plot('pareto', 'Success against safety', facets(points), Axis('success rate', (0, 1)),
             Axis('safety rate', (0, 1)), note='Ringed: no other policy is better on both.'),
        Plot('modes', 'How failures came about', facets(bars), Axis('share of failures')),
        Plot('grid', 'Success rate per cell', facets(tiles), value=Axis('success rate', (0, 1))),
        Plot('dose', 'Success by severity', facets(lines),
             Axis('severity', names={0: 'none', 1: 'mild', 2: 'medium', 3: 'severe'}), Axis('success rate', (0, 1))),
    ]  # fmt: skip


def episode_table(policies: tuple[str, ...], strata: tuple[str, ...], *, n: int) -> object:
    rng = random.Random(4)
    rows = [
        [
            f'ep-{i:05d}',
            policies[i % len(policies)],
            strata[(i // len(policies)) % len(strata)],
            rng.choice(['success', 'failure', 'timeout']),
            rng.uniform(2, 60),
            None if i % 7 == 0 else rng.uniform(0, 9),
            i,
        ]
        for i in range(n)
    ]
    return table(
        'Episodes',
        ['episode_id', 'policy', 'stratum', 'outcome', Column('duration_s', '.2f'), Column('force_n', '.1f'), 'seed'],
        rows,
    )


GLOSSARY = {
    'uph': Definition(
        'Units per hour', 'Operations that one robot would finish in an hour of work.', '3600 / E[T]', 'phail'
    ),
    'success': Definition('Success rate', 'Share of valid episodes that reached the goal within the horizon.', 'k / n'),
    'letters': Definition('Letters', 'Policies sharing a letter are not significantly different.', '', 'phail'),
}


def gallery(
    policies: tuple[str, ...] = POLICIES,
    strata: tuple[str, ...] = STRATA,
    *,
    n_episodes: int = 260,
    n_steps: int = 40,
    source: str = 'runs/may',
    explorer_url: str = '',
) -> Document:
    """Everything a document can hold."""
    best = policies[min(1, len(policies) - 1)]
    shown = episode_table(policies, strata, n=n_episodes)
    return Document(
        title='Trial of five policies',
        subtitle='table-top cell, May; 260 episodes',
        lead=(
            paragraph(
                Words(best, episodes={'policy': (best,)}),
                ' is the fastest at ',
                Words('31.2 units per hour', 'uph', {'policy': (best,)}, 31.23333333333333),
                ', and is told apart from all others.',
            ),
            paragraph(
                'No policy is safer than any other at this number of episodes; ',
                Words('120', value=120.0),
                ' more a policy would tell.',
            ),
            paragraph('Pouring is where all of them fail.'),
        ),
        sections=(
            section(
                'speed',
                'Ranking',
                [
                    ranking_block(policies),
                    paragraph('The ', Words('success rate', 'success'), ' is another matter.'),
                    step_block(policies, strata, n=n_steps),
                ],
            ),
            section('figures', 'Figures', chart_blocks(policies, strata)),
            section('detail', 'Per-task tables', [cell_block(policies, strata)]),
            section(
                'quality',
                'Data quality',
                [
                    Missing(
                        'Contact forces',
                        'No episode of this store records contact forces.',
                        'Record force_n and run the report again.',
                    )
                ],
            ),
            section(
                'methods',
                'Methods',
                [
                    Passage(
                        'We ran 260 episodes and compared policies by a stratified permutation test.',
                        label='Methods paragraph',
                    ),
                    Passage(
                        'robotrials report runs/may -o report.html\n# then open it', language='sh', label='Command'
                    ),
                ],
            ),
        ),
        glossary=GLOSSARY,
        references={'phail': 'PhAIL: evaluating robot policies by time to success. 2025.'},
        colors=policy_colors(policies, reference=policies[0]),
        reference_policy=policies[0],
        episodes=shown,
        source=source,
        explorer_url=explorer_url,
        footer='Made by robotrials from runs/may.',
    )
