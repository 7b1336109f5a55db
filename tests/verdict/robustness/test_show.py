from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials

from robotrials.measure.geometry import Box, score_placement
from robotrials.record import Episode, Scene, Store, Trajectory
from robotrials.show.figure import save_figure
from robotrials.show.geometry import placement_figure
from robotrials.show.plot_paper import paint_paper
from robotrials.show.robustness import dose_plot, drop_plot, estimate_table, split_table, start_plot
from robotrials.show.table import render
from robotrials.testing.showcase import radar_episodes
from robotrials.verdict.analysis import analyse
from robotrials.verdict.analysis.condition_drop import condition_drops
from robotrials.verdict.planning.analysis_plan import AnalysisPlan
from robotrials.verdict.robustness import StartTrial, condition_rows, condition_trials, dose_responses

OBJECTS = ('red', 'blue', 'green')


def trial_episodes() -> list[Episode]:
    """A policy that dims with the light and one that does not look; ladders, chaos, swaps and starts."""
    rng = np.random.default_rng(0)
    found = []
    for policy, slope in (('looks', 0.8), ('blind', 0.0)):
        for condition, severity in (('nominal', 0.0), ('light', 0.5), ('light', 1.0), ('chaos', 1.0)):
            for scene in range(24):
                for asked in OBJECTS[:2]:
                    salient = OBJECTS[scene % 3]
                    good = rng.random() < 0.95 - slope * severity
                    labels = {
                        'asked_object': asked, 'chosen_object': asked if policy == 'looks' else salient,
                        'candidate_objects': ','.join(OBJECTS), 'salient_object': salient,
                        'start_x_m': repr(rng.uniform(-0.2, 0.2)), 'start_y_m': repr(rng.uniform(-0.2, 0.2)),
                    }  # fmt: skip
                    parameters = {'severity': severity} if severity else {}
                    found.append(Episode(
                        policy=policy, task='blocks', stratum='TwoBlock', condition=condition, seed=scene,
                        condition_parameters=parameters, outcome='success' if good else 'failure', duration_s=2.0,
                        instruction=f'pick up the {asked} block', labels=labels, repeat=OBJECTS.index(asked),
                    ))  # fmt: skip
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    Store.create(tmp_path / 'store').append(trial_episodes())
    return tmp_path / 'store'


def test_table_3_has_the_papers_layout() -> None:
    rows = condition_rows(condition_trials(radar_episodes()), n_resamples=10, rng=np.random.default_rng(0))
    text = render(split_table(rows), 'markdown')
    assert (
        '| nominal | 4/4 | 0.5216 | 1.08 | 4/10 | 0.4608 | 1.88 | 6/10 | 0.4816 | 1.67 | 3/8 | 0.1261 | 3.80 |' in text
    )
    assert '| background | 0/4 | — | — |' in text


def test_table_1_has_a_line_a_policy() -> None:
    episodes = [e.replace(policy='pi0' if e.condition == 'light' else 'pi0.5', condition='nominal')
                for e in radar_episodes() if e.condition in ('nominal', 'light')]  # fmt: skip
    rows = condition_rows(condition_trials(episodes), n_resamples=10, rng=np.random.default_rng(0))
    lines = render(split_table(rows, by='policy'), 'markdown').splitlines()
    (first,) = (line for line in lines if line.startswith('| pi0.5 '))
    (second,) = (line for line in lines if line.startswith('| pi0 '))
    assert first.endswith('| 3/8 | 0.1261 | 3.80 | 17/32 | 0.2605 |')
    assert second.endswith('| 0/8 | — | — | 4/32 | 0.0928 |')


def test_estimates_have_intervals_for_every_split_too(store: Path) -> None:
    rows = condition_rows(condition_trials(radar_episodes()), n_resamples=50, rng=np.random.default_rng(0))
    shown = estimate_table(rows[:1])
    quantities = [row[2] for row in shown.rows]
    assert 'SingleBlock: IoU of successes' in quantities
    assert 'Spatial: e_trans of successes, cm' in quantities
    assert all(row[4] is None or row[4] <= row[3] <= row[5] for row in shown.rows)


@pytest.mark.parametrize('name', ['condition-drops', 'doses', 'starts'])
def test_figures_are_drawn_from_a_store_by_name(store: Path, tmp_path: Path, name: str) -> None:
    robotrials('plot', name, store, '--resamples', 50, '-o', tmp_path / 'f.svg')
    assert 'looks' in (tmp_path / 'f.svg').read_text()


def test_a_placement_is_drawn_from_a_store_by_name(store: Path, tmp_path: Path) -> None:
    assert 'has a trajectory' in robotrials('plot', 'placement', store, '-o', tmp_path / 'f.svg', code=2)
    pose = np.tile([0.1, 0, 0.02, 1, 0, 0, 0], (2, 1, 1)).astype(float)
    scene = Scene(
        target_object='red', target_center_m=(0.12, 0, 0.02), target_size_m=(0.04,) * 3, target_threshold=0.25
    )
    made = Store.create(tmp_path / 'placed')
    for seed in range(3):
        pose[1, 0, 0] = 0.1 + 0.01 * seed
        episode = Episode(policy='p', task='place', outcome='success', duration_s=1.0, seed=seed)
        moved = Trajectory(time_s=np.arange(2.0), bodies=('red',), body_pose=pose.copy(), scene=scene)
        made.append([episode], trajectories={episode.key: moved})
    robotrials('plot', 'placement', tmp_path / 'placed', '-o', tmp_path / 'p.svg')
    assert 'IoU 0.600' in (tmp_path / 'p.svg').read_text()  # of 1/3, 0.6 and 1 the middle one


def test_the_command_prints_every_part_and_says_what_the_data_lack(store: Path) -> None:
    printed = robotrials('robustness', store, '--resamples', 200, '--details')
    for title in ('Placement, policy', 'Drops from', 'Dose-response', 'Compound against', 'Swap test', 'Spatial'):
        assert title in printed
    assert 'most salient object' in printed


def test_a_condition_hurts_only_the_policy_that_reads_it(store: Path) -> None:
    printed = robotrials('robustness', store, '--show', 'drops', '--resamples', 200, '-f', 'json')
    (document,) = json.loads(printed[printed.index('[\n') :])
    resolved = {(r['policy'], r['condition']): r['resolved'] for r in document['rows']}
    assert resolved == {
        ('looks', 'light at 0.5'): True, ('looks', 'light at 1'): True, ('looks', 'chaos'): True,
        ('blind', 'light at 0.5'): False, ('blind', 'light at 1'): False, ('blind', 'chaos'): False,
    }  # fmt: skip


def test_unknown_parts_layouts_and_baselines_are_named(store: Path) -> None:
    assert 'did you mean' in robotrials('robustness', store, '--show', 'drop', code=2)
    assert 'baseline' in robotrials('robustness', store, '--show', 'drops', '--baseline', 'clean', code=2)


def test_figures_are_drawn_and_repeat_byte_for_byte(tmp_path: Path) -> None:
    trials = condition_trials(trial_episodes())
    drops = condition_drops(trial_episodes(), AnalysisPlan(resamples=100), rng=np.random.default_rng(0))
    starts = [StartTrial('p', 0.1 * i, 0.0, bool(i % 2)) for i in range(5)]
    for plot in (drop_plot(drops), dose_plot(dose_responses(trials)), start_plot(starts)):
        files = [save_figure(paint_paper(plot), tmp_path / f'{i}.svg').read_bytes() for i in range(2)]
        assert files[0] == files[1]


def test_a_placement_is_drawn_in_voxels(tmp_path: Path) -> None:
    a, b = Box((0, 0, 0.02), (0.04, 0.04, 0.04)), Box((0.01, 0.005, 0.02), (0.04, 0.04, 0.04))
    figure = placement_figure(a, b, score=score_placement(a, b, threshold=0.3))
    assert save_figure(figure, tmp_path / 'p.png').stat().st_size > 10_000
    assert any('IoU' in text.get_text() for text in figure.texts)


def test_only_a_store_without_its_baseline_pools_conditions_and_says_so(store: Path) -> None:
    assert not any('pooled' in caution for caution in analyse(store).cautions)
    assert any('conditions are pooled' in caution for caution in analyse(store, baseline='clean').cautions)
