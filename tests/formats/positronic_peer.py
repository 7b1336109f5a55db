"""Runs in positronic's own environment: a release in PhAIL's layout, by positronic's own writer and edit log.

python positronic_peer.py FOLDER [EPISODES_PER_CELL]      prints what was written as JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from pimm.time import Time
from positronic.dataset.local_dataset import LocalDatasetWriter, load_all_datasets, load_dataset

RATE_HZ, START_NS = 15, 1_780_000_000_000_000_000
SOURCE, TARGET = np.array([0.45, -0.2]), np.array([0.45, 0.2])
PACE_S = {'teleop': 4.0, 'openpi': 8.0, 'groot': 11.0}
ITEMS = 3


def telemetry(model: str, placed: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rounds of reach, grasp, carry and release; how many of them a model takes differs by its pace."""
    rounds = []
    for _ in range(placed):
        n = int(RATE_HZ * PACE_S[model] * rng.uniform(0.8, 1.2))
        grasp, release, settle = int(0.35 * n), int(0.85 * n), max(int(0.95 * n), int(0.85 * n) + 1)
        target = np.zeros(n)
        target[grasp:release] = 1.0
        measured = np.clip(np.convolve(target * 0.6, np.ones(4) / 4)[:n], 0, 1)
        at = np.where((np.arange(n) < (grasp + release) // 2)[:, None], SOURCE, TARGET)
        height = 0.25 - 0.15 * ((np.abs(np.arange(n) - grasp) < 5) | (np.abs(np.arange(n) - release) < 5))
        rounds.append((target, measured, at + rng.normal(0, 0.002, at.shape), height, settle))
    tail = int(RATE_HZ * 3)
    rounds.append((np.zeros(tail), np.zeros(tail), np.tile(SOURCE, (tail, 1)), np.full(tail, 0.3), 0))
    target, measured, at, height = (np.concatenate([r[k] for r in rounds]) for k in range(4))
    pose = np.concatenate([at, height[:, None], np.tile([0.0, 1.0, 0.0, 0.0], (len(at), 1))], axis=1)
    return {'target': target, 'grip': measured, 'pose': pose}


def write_episode(episode, model: str, number: int, outcome: str, placed: int, *, has_verdict: bool) -> None:
    rng = np.random.default_rng([number, len(model)])
    told = telemetry(model, placed, rng)
    is_teleop = model == 'teleop'
    facts = {'task': 'Pick all the items one by one and place them into the large grey tote.', 'model': model,
             'variant': '' if is_teleop else '270226-ee:150000', 'eval.object': 'Towels' if number % 2 else 'Spoons',
             'eval.total_items': ITEMS, 'eval.successful_items': placed, 'eval.tote_placement': 'left',
             'eval.outcome': outcome}  # fmt: skip
    if not is_teleop:
        facts |= {'eval.cap_per_item': 30, 'eval.notes': '' if outcome == 'Success' else 'seen'}
    for name, value in facts.items():
        if has_verdict or name != 'eval.outcome':
            episode.set_static(name, value)
    begin = START_NS + (number + (0 if is_teleop else 1000)) * 120 * 10**9
    for step in range(len(told['target'])):
        ns = begin + step * 10**9 // RATE_HZ
        both = Time(**{'received.world': ns - begin + 5 * 10**9, 'received.wall': ns})
        episode.append('robot_state.ee_pose', told['pose'][step], both)
        episode.append('robot_state.q', np.linspace(-1, 1, 7) + 0.01 * step, both)
        episode.append('grip', float(told['grip'][step]), both)
        if step:  # the first command follows the first observation
            episode.append('target_grip', float(told['target'][step]), both)
            episode.append('robot_command.pose', told['pose'][step], both)
        if step % 5 == 0:
            shade = np.uint8(40 + 3 * (step % 50))
            episode.append('image.exterior', np.full((48, 64, 3), shade, np.uint8), both)


def main() -> None:
    root, per_cell = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 6
    outcomes = ['Success', 'Success', 'Success', 'Ran out of time', 'Safety', 'Stalled', 'Fail', 'System', 'Discarded']
    counts: dict[str, int] = {}
    for part, models in (('rollouts', ('openpi', 'groot')), ('teleoperation', ('teleop',))):
        with LocalDatasetWriter(root / 'v1.0' / 'dataset' / part) as writer:
            for model in models:
                for number in range(2 * per_cell):
                    outcome = 'Success' if part == 'teleoperation' else outcomes[number % len(outcomes)]
                    placed = ITEMS if outcome == 'Success' else 1
                    with writer.new_episode() as episode:
                        write_episode(episode, model, number, outcome, placed, has_verdict=True)
                    counts[f'{model} {outcome}'] = counts.get(f'{model} {outcome}', 0) + 1
    rollouts = load_all_datasets(root / 'v1.0' / 'dataset' / 'rollouts')
    first = rollouts[0].meta['uid']
    rollouts = rollouts.set_static(first, {'eval.outcome': 'Ran out of time', 'eval.successful_items': 2})
    seen = load_dataset(root / 'v1.0' / 'dataset' / 'teleoperation')
    bounds = [seen[k].bounds('received.world') for k in range(len(seen))]
    durations = {seen[k].meta['uid']: (b.finish - b.start) / 1e9 for k, b in enumerate(bounds)}
    print(json.dumps({'counts': counts, 'edited': first, 'teleop_durations_s': durations}))


if __name__ == '__main__':
    main()
