"""The top-line reading against the dynamic program of Appendix C.4."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from tests.verdict.audit.dynamic_program import add_task, task_maxima

from bench.measure import Result, against, seconds
from robotrials.verdict.audit import audit_leaderboard, cutoffs, read_leaderboard
from robotrials.verdict.audit.envelope import scaled_q_high, windowed_q_high

SHARED = Path(os.environ.get('ROBOTRIALS_SHARED', Path(__file__).resolve().parent.parent.parent / 'shared'))


def run() -> list[Result]:
    return [robotwin_table(), *libero_rows(), bounded_scores()]


def program_s(*, tasks: int, samples: int, max_score: int, side: int, states: int) -> float:
    """The time of the whole program for every cell, from one step over part of its states and part of its moves.

    The work of a step is moves x states, so that it scales by both; `side` moves and `states` states of each policy are
    measured.
    """
    full_moves, full_states = max_score * samples + 1, max_score * tasks * samples + 1
    gain = np.zeros((side, side), dtype=np.int64)
    best = np.zeros((states, states), dtype=np.int64)
    step = seconds(lambda: add_task(best, gain), repeats=2)
    return step * (full_moves / side) ** 2 * (full_states / states) ** 2 * tasks


def robotwin_table() -> Result:
    ours = seconds(lambda: cutoffs(range(5001), tasks=50, samples=100))
    peer = program_s(tasks=50, samples=100, max_score=1, side=15, states=1001)
    return against(
        'audit/l_forall_robotwin',
        ours_s=ours,
        peer='dynamic program of C.4 in numpy',
        peer_s=peer,
        target=10_000,
        work='L_exists and L_forall for all 5,001 baseline counts of T=50, S=100; the program extrapolated from one '
        'step over 1001 x 1001 states and 15 x 15 moves',
    )


def libero_rows() -> list[Result]:
    path = SHARED / 'data' / 'leaderboard' / 'leaderboard.json'
    if not path.exists():
        print(f'not measured: audit/leaderboard_libero; {path} is missing, set ROBOTRIALS_SHARED')
        return []
    leaderboard = read_leaderboard(path)
    audit = audit_leaderboard(leaderboard, families=['libero'])
    judged = sum(c.reading is not None for c in audit.claims)
    ours = seconds(lambda: audit_leaderboard(leaderboard, families=['libero']))
    gain = task_maxima(samples=50, max_score=1)
    best = np.zeros((501, 501), dtype=np.int64)
    peer = 10 * seconds(lambda: add_task(best, gain), repeats=1)
    return [
        against(
            'audit/leaderboard_libero',
            ours_s=ours,
            peer='dynamic program of C.4 in numpy',
            peer_s=peer,
            target=5,
            work=f'both rules over all LIBERO rows, {judged} judged claims, baselines found, ties read both ways; the '
            'program is one run for T=10, S=50 and nothing else, 1 of its 10 steps measured',
        )
    ]


def bounded_scores() -> Result:
    shape = {'tasks': 10, 'samples': 10, 'max_score': 4}

    def ours() -> int:
        windowed_q_high.cache_clear()
        return scaled_q_high(180, 40, **shape)

    ours_s = seconds(ours)
    peer = program_s(**shape, side=11, states=401)
    return against(
        'audit/bounded_scores',
        ours_s=ours_s,
        peer='dynamic program of C.4 in numpy',
        peer_s=peer,
        target=20,
        work='Q_hi of one cell for T=10, S=10, R=4; the program extrapolated from one step with 11 x 11 moves',
    )
