"""Small deterministic inputs of every kind, so that each named figure and table can be made without a robot.

Four simulated policies and a human reference, as in `cohort`; everything is drawn from fixed seeds.
"""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.measure.geometry import Box
from robotrials.record import Camera, Contacts, Episode, Outcome, Scene, Store, Trajectory
from robotrials.show.catalog import ShowRequest, input_of
from robotrials.testing.scene import (
    PAPER_LIKE,
    PaintedBox,
    look_at,
    paper_like_cohort,
    render_view,
    write_datasource_case,
    write_mix_case,
    write_shortcut,
)
from robotrials.verdict.analysis import Analysis, analyse
from robotrials.verdict.analysis.subject import Input, read_subject

POLICIES = ('act', 'groot', 'openpi', 'smolvla')
SKILL = {'act': 0.80, 'groot': 0.86, 'openpi': 0.92, 'smolvla': 0.55}
ROUGHNESS = {'act': 1.4, 'groot': 2.2, 'openpi': 0.8, 'smolvla': 3.0}
SUITES = (
    ('libero-spatial', 'task_6'), ('libero-object', 'task_0'), ('libero-goal', 'task_9'), ('libero-10', 'task_4'),
)  # fmt: skip
OBJECTS = ('red', 'blue', 'green')
ROLES = {
    'link7': 'robot', 'finger': 'gripper', 'bowl': 'target', 'plate': 'bystander', 'cup': 'bystander',
    'table': 'furniture',
}  # fmt: skip
STEPS = 40
BOX_M = (0.06, 0.06, 0.05)
GOAL_M = (0.62, 0.1, 0.025)


@dataclass(frozen=True, slots=True)
class Showcase:
    """Where each input lies."""

    trial: Path  # times, events and labels of four policies and a human reference
    conditions: Path  # a changed world: ladders of severity, a compound, swaps, starts
    splits: Path  # placements in four splits under eight conditions
    safety: Path  # trajectories with contacts, videos and target boxes
    runs: tuple[Path, Path]  # two recorded runs of one plan
    predictions: Path
    leaderboard: Path
    candidates: Path
    shortcut: Path
    datasource: Path
    mix: Path

    def sources(self, name: str, wanted: str) -> tuple[str, ...]:
        """What to give after `robotrials plot NAME` or `robotrials tables NAME`."""
        by_kind: Mapping[str, tuple[object, ...]] = {
            'two stores': self.runs, 'predictions': (self.predictions,), 'leaderboard': (self.leaderboard,),
            'candidates': (self.candidates,), 'benchmark': ('libero-spatial',), 'shortcut': (self.shortcut,),
            'datasource': (self.datasource,), 'mix': (self.mix,), 'registry': (), 'nothing': (),
        }  # fmt: skip
        return tuple(str(s) for s in by_kind.get(wanted, (self.store(name),)))

    def store(self, name: str) -> Path:
        """The store that has what this name shows."""
        if name.startswith('splits'):
            return self.splits
        if name.startswith(('safety', 'placement', 'success-film', 'failure-film')):
            return self.safety
        if name.startswith(('camera', 'iou-over-time')):
            return watched_trial(self.trial.parent / 'cameras')
        if name == 'start-states':
            return moved_trial(self.trial.parent / 'starts')
        changed = ('condition', 'drop', 'dose', 'compound', 'swap', 'start', 'spatial', 'task-success')
        return self.conditions if name.startswith(changed) else self.trial


def watched_trial(folder: Path) -> Path:
    """A short trial in the cell that RGB-D cameras watch; made when it is first asked for, as it has to be drawn."""
    if not folder.exists():
        from robotrials.run import TrialPlan, run_trial
        from robotrials.value import read_table

        host = {'state': 'privileged', 'watchers': ['front', 'side'], 'watcher_size': [120, 160]}
        plan = {
            'seed': 1, 'episodes_per_cell': 1, 'time_cap_s': 5.0, 'tasks': [{'name': 'single_block'}],
            'host': {'use': 'tabletop', 'options': host}, 'benchmark': 'tabletop',
            'policies': {t: {'use': 'scripted', 'options': {'temper': t}} for t in ('careful', 'hasty')},
            'blinding': {'enabled': False}, 'recording': {'rgbd': 1.0, 'film': 'off'}, 'analysis': {'success': 'both'},
        }  # fmt: skip
        run_trial(read_table(TrialPlan, plan, where='showcase'), folder, workers=0)
    return folder


def moved_trial(folder: Path) -> Path:
    """Recorded episodes whose target starts elsewhere under one condition; made when it is first asked for."""
    if not folder.exists():
        store = Store.create(folder)
        for condition, shift_m in (('nominal', 0.0), ('layout', 0.03)):
            for seed in range(4):
                episode = Episode(
                    policy='openpi',
                    task='stack',
                    outcome=Outcome.SUCCESS,
                    duration_s=1.0,
                    seed=seed,
                    condition=condition,
                )
                pose = np.tile([shift_m + 0.001 * seed, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], (2, 1, 1))
                scene = Scene(body_roles={'red': 'target'}, target_object='red')
                steps = Trajectory(
                    time_s=np.arange(2.0), bodies=('red',), body_pose=pose, ee_pose=pose[:, 0], scene=scene
                )
                store.append([episode], trajectories={episode.key: steps})
    return folder


def make_showcase(folder: Path) -> Showcase:
    """Write every input under a folder."""
    made = Showcase(
        trial=folder / 'trial', conditions=folder / 'conditions', splits=folder / 'splits', safety=folder / 'safety',
        runs=(folder / 'run-a', folder / 'run-b'), predictions=folder / 'predictions',
        leaderboard=folder / 'leaderboard.json', candidates=folder / 'papers.csv', shortcut=folder / 'shortcut.json',
        datasource=folder / 'datasource.json', mix=folder / 'mix.json',
    )  # fmt: skip
    Store.create(made.trial).append(trial_episodes())
    Store.create(made.conditions).append(condition_episodes())
    Store.create(made.splits).append(split_episodes())
    write_safety(made.safety)
    write_runs(*made.runs)
    write_predictions(made.predictions, data=folder / 'data')
    made.leaderboard.write_text(json.dumps({'last_updated': '2026-08-10', 'results': leaderboard_rows()}))
    write_candidates(made.candidates)
    write_shortcut(made.shortcut)
    write_datasource_case(made.datasource)
    write_mix_case(made.mix)
    return made


def trial_episodes() -> list[Episode]:
    """A trial of four policies against a human reference, about twenty episodes per cell."""
    profiles = [replace(p, episodes_per_cell=(18, 24), items=4) for p in PAPER_LIKE]
    return paper_like_cohort(np.random.default_rng(11), profiles=profiles)


def condition_episodes() -> list[Episode]:
    """Policies that mind the light and the background to different degrees; same scenes under every condition."""
    rng = np.random.default_rng(5)
    ladder = (
        ('nominal', 0.0), ('light', 0.3), ('light', 0.6), ('light', 1.0), ('background', 0.5), ('background', 1.0),
        ('chaos', 1.0),
    )  # fmt: skip
    cost = {'light': 0.5, 'background': 0.3, 'chaos': 0.9, 'nominal': 0.0}
    episodes = []
    for policy, care in zip(POLICIES, (0.4, 1.0, 0.7, 1.2), strict=True):
        for condition, severity in ladder:
            chance = SKILL[policy] - care * severity * cost[condition]
            for scene in range(12):
                for asked in OBJECTS[:2]:
                    place = np.random.default_rng([3, scene, OBJECTS.index(asked)]).uniform(-0.2, 0.2, 2)
                    episodes.append(_asked_episode(policy, condition, severity, chance, scene, place, asked, rng))
    return episodes


def _asked_episode(
    policy: str, condition: str, severity: float, chance: float, scene: int, place: Any, asked: str,
    rng: np.random.Generator,
) -> Episode:  # fmt: skip
    salient = OBJECTS[scene % 3]
    hears = policy != 'smolvla'
    near = 0.12 - float(np.hypot(*place))
    good = bool(rng.random() < chance + near)
    labels = {
        'asked_object': asked, 'chosen_object': asked if hears else salient, 'candidate_objects': ','.join(OBJECTS),
        'salient_object': salient, 'start_x_m': repr(float(place[0])), 'start_y_m': repr(float(place[1])),
    }  # fmt: skip
    return Episode(
        policy=policy, task=('stack', 'sort')[scene % 2], stratum=('stack', 'sort')[scene % 2], condition=condition,
        condition_parameters={'severity': severity} if severity else {}, seed=scene, repeat=OBJECTS.index(asked),
        instruction=f'pick up the {asked} block', labels=labels, duration_s=float(rng.uniform(8, 30)),
        outcome=Outcome.SUCCESS if good else Outcome.FAILURE,
    )  # fmt: skip


def split_episodes() -> list[Episode]:
    """RADAR's splits: a policy in the paper's eight conditions, and three more under the nominal one."""
    rng = np.random.default_rng(7)
    episodes = radar_episodes('openpi')
    nominal = [e for e in episodes if e.condition == 'nominal']
    for policy in ('act', 'groot', 'smolvla'):
        for e in nominal:
            if e.outcome is Outcome.SUCCESS and rng.random() > SKILL[policy]:
                labels = {k: v for k, v in e.labels.items() if k not in ('score_kind', 'translation_error_m')}
                e = e.replace(outcome=Outcome.FAILURE, score=None, max_score=None, labels=labels)
            episodes.append(e.replace(policy=policy, episode_id=f'{policy}-{e.task}-{e.seed}'))
    return episodes


# --- trajectories


def write_safety(path: Path) -> None:
    """Four policies on four LIBERO suites from the same starts; one success and one failure of each are filmed."""
    store = Store.create(path)
    pairs = []
    for benchmark, task in SUITES:
        for policy in POLICIES:
            for k in range(8):
                rng = np.random.default_rng([17, k, POLICIES.index(policy), SUITES.index((benchmark, task))])
                good = bool(rng.random() < SKILL[policy])
                video = f'{policy}-{benchmark}-{k}' if k < 2 and benchmark == 'libero-spatial' else ''
                episode = Episode(
                    policy=policy, benchmark=benchmark, task=task, stratum=benchmark, seed=k, success=good,
                    outcome=Outcome.SUCCESS if good else Outcome.FAILURE, duration_s=(STEPS - 1) * 0.05,
                    instruction='put the bowl on the plate',
                )  # fmt: skip
                trajectory = handled(ROUGHNESS[policy], good=good, video=video, rng=rng)
                pairs.append((episode, trajectory))
                if video:
                    write_frames(path / 'media' / video, trajectory)
    unfilmed = pairs[0][0].replace(seed=8, episode_id='unfilmed')  # nothing to score its safety by
    store.append([*(e for e, _ in pairs), unfilmed], trajectories={e.key: t for e, t in pairs})


def handled(rough: float, *, good: bool, video: str, rng: np.random.Generator) -> Trajectory:
    """A bowl carried to its target (or dropped on the way) by a hand that is more or less rough."""
    share = np.clip((np.arange(STEPS) - 8) / 24, 0, 1)
    if not good:
        share = np.minimum(share, 0.55)
    bowl, plate, cup = (
        np.tile([*at, 1.0, 0.0, 0.0, 0.0], (STEPS, 1)) for at in ((0.4, -0.1, 0.025), GOAL_M, (0.5, 0.2, 0.03))
    )
    bowl[:, 0] += share * (GOAL_M[0] - 0.4)
    bowl[:, 1] += share * (GOAL_M[1] + 0.1)
    bowl[:, 2] += 0.12 * np.sin(np.pi * share)
    bowl[-1, :2] += rng.normal(0, 0.006, 2)
    bowl[-1, 2] = 0.025
    half = np.radians(rough * rng.exponential(6.0)) / 2 * (share > 0) * (share < 1)
    bowl[:, 3], bowl[:, 4] = np.cos(half), np.sin(half)
    cup[12:, 1] += rough * rng.exponential(0.002)
    steps: list[list[tuple[str, str, float]]] = [[] for _ in range(STEPS)]
    steps[10] = [('finger', 'table', float(rough * rng.exponential(70.0))), ('link7', 'cup', 4.0)]
    time_s = np.arange(STEPS) * 0.05
    above = np.array([0, 0, 0.1, 0, 0, 0, 0])
    cameras = (Camera('front', np.eye(3), np.eye(4), 96, 72, video=video),) if video else ()
    return Trajectory(
        time_s=time_s, ee_pose=bowl + above, joint_torque_nm=np.full((STEPS, 7), 3.0),
        bodies=('bowl', 'cup', 'plate'), body_pose=np.stack([bowl, cup, plate], axis=1),
        contacts=Contacts.from_steps(steps), gripper_contact=(share > 0) & (share < 1),
        scene=Scene(
            body_roles=ROLES, target_object='bowl', target_center_m=GOAL_M, target_size_m=BOX_M, target_threshold=0.3,
            cameras=cameras,
        ),
    )  # fmt: skip


def write_frames(folder: Path, trajectory: Trajectory, *, every: int = 4) -> None:
    """What a camera sees of the moving box, ray-cast, as PNG files."""
    from PIL import Image

    folder.mkdir(parents=True)
    eye = look_at((1.05, -0.55, 0.55), (0.5, 0.03, 0.02))
    for step in range(0, STEPS, every):
        at = trajectory.body('bowl')[step, :3]
        cup = trajectory.body('cup')[step, :3]
        boxes = [
            PaintedBox(Box(at, BOX_M, np.eye(3)), (200, 60, 50)),
            PaintedBox(Box((GOAL_M[0], GOAL_M[1], 0.002), (0.12, 0.12, 0.004), np.eye(3)), (235, 235, 235)),
            PaintedBox(Box(cup, (0.05, 0.05, 0.06), np.eye(3)), (60, 110, 190)),
        ]
        seen = render_view('front', eye, boxes=boxes, width_px=96, height_px=72, field_of_view_deg=30.0)
        Image.fromarray(seen.rgb).save(folder / f'{step:03d}.png')


def write_runs(first: Path, second: Path) -> None:
    """Two runs of one plan: the state differs from the first step, images and actions later, the end last."""
    for path, is_other in ((first, False), (second, True)):
        store = Store.create(path)
        for task in range(3):
            good = not (is_other and task == 1)
            episode = Episode(
                policy='openpi', task=f'task_{task}', seed=task, outcome=Outcome.SUCCESS if good else Outcome.FAILURE,
                duration_s=5.0, success=good,
            )  # fmt: skip
            store.append([episode], trajectories={episode.key: _trace(task, is_other=is_other)})


def _trace(task: int, *, is_other: bool) -> Trajectory:
    steps = np.arange(100, dtype=float)
    state = np.stack([np.sin(steps / 9), np.cos(steps / 7)], axis=1)
    action = np.tile(np.sin(steps / 5)[:, None], (1, 7))
    hashes = np.arange(100, dtype=np.uint64)
    if is_other:
        wander = np.abs(np.random.default_rng(task).normal(1, 0.3, 100))
        state[task:] += (1e-13 * 10 ** (steps[task:] / 9) * wander[task:])[:, None]
        action[58:] += (1e-5 * 10 ** ((steps[58:] - 58) / 12) * wander[58:])[:, None]
        hashes[54:] += np.uint64(1000)
    done = steps >= (88 if is_other else 96)
    return Trajectory(
        time_s=steps * 0.05, simulator_state=state, frame_hash={'front': hashes}, action_raw=action,
        action_processed=action * 0.5, reward=np.zeros(100), done=done,
    )  # fmt: skip


# --- files


def write_predictions(path: Path, *, data: Path) -> None:
    """Two small datasets of a smooth controller, predicted by the training mean, a nearest neighbour and a clone."""
    from robotrials.formats.dataset import open_dataset
    from robotrials.measure.actions.evaluate import prepare, run_actions
    from robotrials.measure.actions.split import make_split

    for number, name in enumerate(('jaco_play', 'toto')):
        dataset = open_dataset(_write_dataset(data / name, name, seed=100 * number))
        split = make_split(dataset, test_share=0.3)
        for spec in ('mean', 'nearest', 'clone,epochs=20'):
            predictor, statistics = prepare(dataset, split, spec)
            run_actions(dataset, predictor, path, split=split, statistics=statistics, control_rate_hz=10.0)


def _write_dataset(path: Path, name: str, *, seed: int) -> Path:
    from robotrials.formats.feature import Feature
    from robotrials.formats.rlds import write_rlds

    def number(dtype: str, *shape: int) -> Feature:
        return Feature('tensor', dtype=dtype, shape=shape, encoding='none')

    observation = {'state': number('float32', 3), 'natural_language_instruction': Feature('text', dtype='string')}
    action = {'world_vector': number('float32', 3), 'gripper_closedness_action': number('float32', 1)}
    step = {'observation': Feature('dict', observation), 'action': Feature('dict', action),
            'is_first': number('bool'), 'is_last': number('bool')}  # fmt: skip
    steps = Feature('sequence', inner=Feature('dict', step), is_dataset=True)
    features = Feature('dict', {'steps': steps})
    return write_rlds(path, {'train': [_demonstration(seed + k) for k in range(16)]}, name=name, features=features)


def _demonstration(seed: int, length: int = 10) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    state, states, moves = rng.uniform(-1, 1, 3), [], []
    for _ in range(length):
        move = -0.5 * np.tanh(state) + rng.normal(0, 0.02, 3)
        states.append(state)
        moves.append(move)
        state = state + move
    at = np.array(states, dtype=np.float32)
    return {
        'steps': {
            'observation': {'state': at, 'natural_language_instruction': ['go to the middle'] * length},
            'action': {
                'world_vector': np.array(moves, dtype=np.float32),
                'gripper_closedness_action': (at[:, 2:] > 0).astype(np.float32),
            },
            'is_first': np.arange(length) == 0,
            'is_last': np.arange(length) == length - 1,
        }
    }  # fmt: skip


def leaderboard_rows() -> list[dict[str, Any]]:
    """Made-up papers on four benchmarks, each with its own score and a baseline that it repeats."""
    rng = np.random.default_rng(2)
    suites = (
        ('libero', 'libero_spatial', 91.0, 0.9), ('libero', 'libero_10', 82.0, 2.2),
        ('simpler_env', 'widowx_vm', 60.0, 3.0), ('robocasa', 'panda', 50.0, 4.0), ('calvin', 'overall', 3.2, 0.2),
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    for benchmark, suite, start, gain in suites:
        score = start
        for k in range(8):
            paper = f'25{k + 1:02d}.{10000 + 100 * len(rows) % 9000:05d}'
            old = score
            score = min(99.6, score + float(rng.normal(gain, 1.2 * gain)) * (1 - score / 105))
            for model, value, own in ((f'new-{k}', score, True), (f'old-{k}', old, False)):
                rows.append(_row(f'{model}-{benchmark}', paper, benchmark, suite, round(value, 1), own=own))
    return rows


def _row(model: str, paper: str, benchmark: str, suite: str, score: float, *, own: bool) -> dict[str, Any]:
    is_overall = suite == 'overall'
    return {
        'model': model, 'benchmark': benchmark, 'reported_paper': f'https://arxiv.org/abs/{paper}',
        'model_paper': f'https://arxiv.org/abs/{paper if own else "2001.00001"}',
        'suite_scores': {} if is_overall else {suite: score}, 'overall_score': score if is_overall else None,
        'notes': 'ABC->D split' if benchmark == 'calvin' else '',
    }  # fmt: skip


def write_candidates(path: Path) -> None:
    """Made-up papers by month: three benchmarks that catch on at different times."""
    rng = np.random.default_rng(4)
    rows = []
    for benchmark, first, pace in (('LIBERO', 0, 1.3), ('CALVIN', 2, 0.5), ('SimplerEnv', 8, 0.7)):
        for month in range(first, 24):
            for k in range(int(rng.poisson(pace * (month - first) / 4))):
                year, number = divmod(month, 12)
                posted = f'{24 + year}{number + 1:02d}'
                index = 1000 * ('LIBERO', 'CALVIN', 'SimplerEnv').index(benchmark) + 10 * month + k
                rows.append((f'{posted}.{10000 + index}', benchmark))
    with path.open('w', newline='', encoding='utf-8') as file:
        writer = csv.writer(file)
        writer.writerow(['arxiv id', 'benchmark', 'usage', 'evidence'])
        writer.writerows((arxiv, name, 'reports-results', 'Table 1') for arxiv, name in rows)


def showcase_request(
    case: Showcase, name: str, made: Callable[..., object], *, n_resamples: int = 40, **more: Any
) -> ShowRequest:
    """A request for a named figure or table from the showcase, as the command line would make it."""
    wanted = input_of(made)
    sources = case.sources(name, wanted)
    if wanted is not Input.STORE:
        return ShowRequest(subject=read_subject(wanted, sources, n_resamples=n_resamples), **more)
    label = 'camera_side=tote_side' if name == 'labels' else None
    return ShowRequest(**{'subject': _analysis(sources[0], n_resamples), 'label': label, **more})


@functools.lru_cache(maxsize=8)
def _analysis(source: str, n_resamples: int) -> Analysis:
    return analyse(source, resamples=n_resamples)


# Episodes with the counts of RADAR's Table 3: what a store of that trial would hold, as far as the table tells.

SPLITS = (('SingleBlock', 4), ('TwoBlock', 10), ('ThreeBlock', 10), ('Spatial', 8))
Cell = tuple[int, float | None, float | None]  # successes, mean IoU and mean translational error (cm) of successes
NONE: Cell = (0, None, None)
TABLE_3: dict[str, tuple[Cell, ...]] = {
    'nominal': ((4, 0.5216, 1.08), (4, 0.4608, 1.88), (6, 0.4816, 1.67), (3, 0.1261, 3.8)),
    'light': ((2, 0.5676, 0.97), NONE, (2, 0.4365, 1.95), NONE),
    'robot_state': ((4, 0.5145, 1.13), (3, 0.5072, 1.33), (5, 0.4584, 1.74), NONE),
    'instruction': ((3, 0.3351, 2.26), (2, 0.3849, 2.85), NONE, NONE),
    'background': (NONE, NONE, NONE, NONE),
    'sensor_noise': ((2, 0.3677, 1.93), (1, 0.3972, 1.52), (1, 0.4713, 1.68), NONE),
    'exposure+': ((1, 0.5409, 1.02), NONE, (1, 0.4411, 1.92), NONE),
    'exposure-': ((1, 0.5743, 0.76), NONE, (1, 0.4027, 2.36), NONE),
}


def radar_episodes(policy: str = 'pi0.5') -> list[Episode]:
    """Every success has its split's mean IoU; failures have none, as in the paper. Scenes are not shared."""
    episodes = []
    for number, (condition, cells) in enumerate(TABLE_3.items()):
        for (split, n), (successes, iou, error_cm) in zip(SPLITS, cells, strict=True):
            for i in range(n):
                is_good = i < successes
                labels = {}
                if is_good and error_cm is not None:
                    labels = {'score_kind': 'iou_3d', 'translation_error_m': repr(error_cm / 100)}
                episodes.append(
                    Episode(
                        policy=policy,
                        task=split,
                        stratum=split,
                        outcome=Outcome.SUCCESS if is_good else Outcome.FAILURE,
                        duration_s=30.0,
                        condition=condition,
                        condition_parameters={} if condition == 'nominal' else {'severity': 1.0},
                        seed=100 * number + i,
                        score=iou if is_good else None,
                        max_score=1.0 if is_good else None,
                        labels=labels,
                    )
                )
    return episodes


if __name__ == '__main__':  # python -m robotrials.testing.showcase FOLDER, as the how-to pages do
    import sys

    make_showcase(Path(sys.argv[1]))
