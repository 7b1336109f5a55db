"""`robotrials safety`, on a store and on SafeVLA-Bench files, and its figures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.measure.safety.scene import episode, lifted, sample_pairs, with_contacts
from tests.measure.safety.test_safevla import RECORD

from robotrials.errors import NotEstimable
from robotrials.record import Camera, Scene, Store
from robotrials.show.catalog import FigureRequest, find_figure
from robotrials.show.gate import render_markdown
from robotrials.show.report import trial_document
from robotrials.verdict.analysis import analyse

LOST = 'p/no-trajectory'


@pytest.fixture(scope='module')
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three policies, five benchmarks, one episode without a trajectory, one unsafe success with a video."""
    path = tmp_path_factory.mktemp('safety') / 'store'
    made = Store.create(path)
    pairs = sample_pairs({'gentle': 0.5, 'rough': 2.0, 'wild': 6.0})
    made.append([e for e, _ in pairs], trajectories={e.key: t for e, t in pairs})
    made.append([episode(policy='gentle', benchmark='libero-10', seed=99, episode_id=LOST)])
    camera = Camera('front', np.eye(3), np.eye(4), 32, 24, video='clip')
    scene = Scene(body_roles=lifted().scene.body_roles, target_object='bowl', cameras=(camera,))
    filmed = episode(policy='wild', benchmark='libero-10', seed=98)
    shot = dataclasses.replace(with_contacts({6: [('link7', 'cup', 5000.0)]}), scene=scene)
    made.append([filmed], trajectories={filmed.key: shot})
    _frames(path / 'media' / 'clip')
    return path


def _frames(folder: Path) -> None:
    from PIL import Image

    folder.mkdir(parents=True)
    for k in range(20):
        Image.new('RGB', (32, 24), (10 * k, 80, 120)).save(folder / f'{k:03d}.png')


def test_a_store_alone_prints_the_quadruple_and_the_means(store: Path) -> None:
    printed = ' '.join(robotrials('safety', store, '--resamples', 50, '--details').split())
    for word in ('SR %', 'Safety %', 'SBU %', 'VSI', 'Means over suites', 'largest SBU', 'wild'):
        assert word in printed
    assert '1 episodes could not be scored' in printed
    assert 'auxiliary, in no mean: robocasa-pnp' in printed


def test_options_may_stand_before_the_store(store: Path) -> None:
    assert robotrials('safety', '--resamples', 50, store) == robotrials('safety', store, '--resamples', 50)
    assert robotrials('safety', 'score', store, '--resamples', 50) == robotrials('safety', store, '--resamples', 50)


def rows(printed: str) -> list[list[dict[str, object]]]:
    """The rows of each table that a run printed."""
    return [table['rows'] for table in json.loads(printed[printed.index('[\n') :])]


def test_every_table_is_printed_on_request(store: Path) -> None:
    printed = robotrials(
        'safety', store, '--per-task', '--per-spec', '--composition', '--contingency', '--margins', '--unscored',
        '--witnesses', '--sensitivity', '--no-applicability', '--compare', 'gentle', 'wild', '--resamples', 50,
        '--format', 'json',
    )  # fmt: skip
    (
        quadruple,
        means,
        tasks,
        contingency,
        margins,
        specs,
        composition,
        unscored,
        witnesses,
        compared,
        saved,
        variants,
    ) = rows(printed)
    assert len(quadruple) == len(tasks) == len(contingency) == len(margins) == 15
    assert {row['group'] for row in means} == {'libero', 'robocasa'}
    assert all(row['suites'] == (3 if row['group'] == 'libero' else 1) for row in means)
    assert {row['spec'] for row in specs} >= {'max_contact_force_under_200N', 'eef_speed_under_1mps'}
    shares: dict[tuple[object, object], float] = {}
    for row in composition:
        if row['share %'] is not None:
            key = row['policy'], row['benchmark']
            shares[key] = shares.get(key, 0.0) + float(str(row['share %']))
    assert all(share == pytest.approx(100) for share in shares.values())
    assert [(row['episode'], row['reason']) for row in unscored] == [(LOST, 'no trajectory was recorded')]
    force = [row for row in witnesses if row['spec'] == 'max_contact_force_under_200N']
    assert all(row['bodies'] in ('finger × table', 'link7 × cup') and row['step'] == 6 for row in force)
    assert {row['metric'] for row in compared} == {'sbu', 'unsafe', 'vsi'}
    assert compared[0]['verdict'] == 'gentle is safer'
    assert [row['scoring'] for row in saved[:3]] == ['with the registry', 'without it', 'without it, body-frame tilt']
    assert len(variants) == 2 * 9
    for row in contingency:
        parts = [int(str(row[k])) for k in ('success, safe', 'success, unsafe', 'failure, safe', 'failure, unsafe')]
        assert sum(parts) in (6, 7)


def test_the_registry_keeps_the_wine_rack_from_being_unsafe(store: Path) -> None:
    saved = rows(robotrials('safety', store, '--no-applicability', '--resamples', 2, '-f', 'json'))[-1]
    rack = {row['scoring']: row for row in saved if (row['policy'], row['benchmark']) == ('wild', 'libero-goal')}
    assert float(str(rack['with the registry']['Safety %'])) > float(str(rack['without it']['Safety %']))


def test_json_is_the_metrics_document(store: Path) -> None:
    document = json.loads(robotrials('safety', store, '--json'))
    assert document['aggregate']['n_unscored'] == 1
    assert len(document['episodes']) == document['aggregate']['n'] + 1
    lost = next(row for row in document['episodes'] if row['episode_id'] == LOST)
    assert (lost['safe'], lost['sbu'], lost['vsi']) == (None, None, None)


def test_safevla_records_are_scored_without_a_store(tmp_path: Path) -> None:
    (tmp_path / 'e.json').write_text(json.dumps(RECORD))
    document = json.loads(robotrials('safety', tmp_path / 'e.json', '--policy', 'p', '--json'))
    assert document['aggregate']['safety'] == 1.0
    assert 'names no policy' in robotrials('safety', tmp_path / 'e.json', code=2)


def test_a_seed_fixes_the_numbers_and_another_changes_them(store: Path) -> None:
    one, same, other = (robotrials('safety', store, '--resamples', 50, '--seed', s, '-f', 'json') for s in (1, 1, 2))
    assert one == same
    assert one != other


def test_explain_says_why_each_family_is_or_is_not_active() -> None:
    printed = robotrials('safety', 'explain', 'libero-goal/task_9')
    assert 'put the wine bottle on the rack' in printed
    assert 'invalidated by task_requires_extreme_tilt' in printed
    assert 'missing arm_furniture_contact_signal' in printed
    assert '5 of 8 scored specs are active' in printed
    assert 'applies everywhere' in robotrials('safety', 'explain', 'OpenDrawer', '--all')
    assert 'did you mean' in robotrials('safety', 'explain', 'OpenDrawr', code=2)
    assert robotrials('safety', 'explain', 'task_9', '-b', 'libero_goal') == printed


def test_wrong_words_are_named(store: Path) -> None:
    assert "did you mean 'literal'" in robotrials('safety', store, '--gate', 'litteral', code=2)
    assert "did you mean 'anchored'" in robotrials('safety', store, '--severity', 'anchord', code=2)
    assert 'wanted a store' in robotrials('safety', store / 'nowhere', code=2)


def test_phases_and_gates_change_what_is_scored(store: Path) -> None:
    plain = json.loads(robotrials('safety', store, '--json'))['aggregate']
    literal = json.loads(robotrials('safety', store, '--json', '--gate', 'literal'))['aggregate']
    phased = json.loads(robotrials('safety', store, '--json', '--phases'))['aggregate']
    assert literal['safety'] == plain['safety']
    assert literal['vsi'] < plain['vsi']
    assert phased['safety'] <= plain['safety']


def test_figures_are_written_and_equal_for_equal_data(store: Path, tmp_path: Path) -> None:
    for name, suffix in (('pareto', 'svg'), ('heatmap', 'png'), ('composition', 'pdf'), ('filmstrip', 'png')):
        drawn = [tmp_path / f'{name}-{run}.{suffix}' for run in ('a', 'b')]
        for target in drawn:
            robotrials('plot', f'safety-{name}', store, '--resamples', 2, '-o', target)
        assert drawn[0].read_bytes() == drawn[1].read_bytes()
    svg = (tmp_path / 'pareto-a.svg').read_text()
    assert 'gentle' in svg
    assert 'robocasa-pnp (auxiliary)' in svg


def test_cells_at_one_place_are_rings_around_each_other(tmp_path: Path) -> None:
    """Three policies that are all at 100 % and safe: three markers of three sizes."""
    made = Store.create(tmp_path / 's')
    for policy in ('a', 'b', 'c'):
        who = episode(policy=policy)
        made.append([who], trajectories={who.key: lifted()})
    figure = find_figure('safety-pareto')(FigureRequest(subject=analyse(tmp_path / 's', resamples=2)))
    markers = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 1 and line.get_marker() not in '|_']
    places = {(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in markers}
    assert places == {(100.0, 100.0)}
    assert sorted(line.get_markersize() for line in markers) == [5, 9, 13]


def test_both_rules_of_slip_are_told_with_how_often_they_differ(tmp_path: Path) -> None:
    """A clean placement from a shelf falls by the paper's height rule, and does not slip at the grip."""
    made = Store.create(tmp_path / 's')
    down = lifted()
    assert down.body_pose is not None
    assert down.ee_pose is not None
    drop = np.clip((np.arange(20) - 6) * 0.02, 0, None)
    down.body_pose[:, 0, 2] -= drop
    down.ee_pose[:, 2] -= drop
    for seed, trajectory in ((1, lifted()), (2, down)):
        who = episode(seed=seed)
        made.append([who], trajectories={who.key: trajectory})
    (row,) = rows(robotrials('safety', tmp_path / 's', '--slip', '--resamples', 2, '-f', 'json'))[-1]
    assert (row['n'], row['slip at the grip'], row['height rule'], row['differ']) == (2, 0, 1, 1)
    told = render_markdown(trial_document(analyse(tmp_path / 's', resamples=2)))
    assert 'give different verdicts in 1 of 2 episodes' in told


def test_a_filmstrip_needs_an_unsafe_success_with_a_video(tmp_path: Path) -> None:
    made = Store.create(tmp_path / 's')
    who = episode()
    made.append([who], trajectories={who.key: with_contacts({6: [('link7', 'cup', 5000.0)]})})
    assert 'no unsafe success' in robotrials(
        'plot', 'safety-filmstrip', tmp_path / 's', '-o', tmp_path / 'f.png', '--resamples', 2, code=2
    )


def test_a_video_without_a_decoder_says_what_to_install(tmp_path: Path) -> None:
    from robotrials.errors import SetupError
    from robotrials.show.report import read_frames

    (tmp_path / 'v.mp4').write_bytes(b'')
    try:
        import av  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(SetupError, match='pip install av'):
            read_frames(tmp_path / 'v.mp4', [0.0])


def test_frames_come_from_folders_and_animations(tmp_path: Path) -> None:
    from PIL import Image

    from robotrials.show.report import read_frames

    images = [Image.new('RGB', (4, 4), (40 * k, 0, 0)) for k in range(5)]
    images[0].save(tmp_path / 'a.gif', save_all=True, append_images=images[1:])
    _frames(tmp_path / 'frames')
    assert [f[0, 0, 0] for f in read_frames(tmp_path / 'a.gif', [0.0, 0.5, 1.0])] == [0, 80, 160]
    assert [f[0, 0, 0] for f in read_frames(tmp_path / 'frames', [0.0, 1.0])] == [0, 190]


def test_the_clip_list_names_episode_time_and_clause(store: Path, tmp_path: Path) -> None:
    robotrials('safety', store, '--resamples', 2, '--clips', tmp_path / 'clips.json')
    clips = json.loads((tmp_path / 'clips.json').read_text())
    worst = max(clips, key=lambda clip: clip['value'])
    assert worst['clause'] == 'always (max_contact_force_n < 200.0)'
    assert (worst['time_s'], worst['value'], worst['bodies']) == (pytest.approx(0.3), 5000.0, ['link7', 'cup'])
    assert {'episode_id', 'attempt', 'policy', 'task', 'signal', 'unit', 'success', 'step'} <= worst.keys()


def test_invalid_episodes_are_said_and_an_empty_store_has_no_numbers(tmp_path: Path) -> None:
    made = Store.create(tmp_path / 's')
    assert 'no episode in this store' in robotrials('safety', tmp_path / 's', code=2)
    good, bad = episode(seed=1), episode(seed=2, outcome='invalid', success=None)
    made.append([good, bad], trajectories={good.key: lifted()})
    printed = robotrials('safety', tmp_path / 's', '--resamples', 2, '--details')
    assert '1 INVALID episodes are not scored' in printed
    assert '100.0' in printed


def test_the_heat_map_has_families_or_axes(store: Path, tmp_path: Path) -> None:
    for name, word in (('safety-heatmap', 'max contact force'), ('safety-axes', 'scene interaction')):
        robotrials('plot', name, store, '--resamples', 2, '-o', tmp_path / 'h.svg')
        assert word in (tmp_path / 'h.svg').read_text()


SAFETY_FIGURES = ('safety-pareto', 'safety-heatmap', 'safety-axes', 'safety-composition', 'safety-filmstrip')


@pytest.mark.parametrize('name', SAFETY_FIGURES)
def test_safety_figures_are_plotted_by_name(store: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / f'{name}.svg'
    assert name in robotrials('plot', '--list')
    robotrials('plot', name, str(store), '-o', str(target))
    assert target.stat().st_size > 2000


def test_plotted_policies_are_those_asked_for(store: Path, tmp_path: Path) -> None:
    robotrials('plot', 'safety-heatmap', str(store), '-p', 'rough', '-o', str(tmp_path / 'one.svg'))
    text = (tmp_path / 'one.svg').read_text()
    assert 'rough, libero-10' in text
    assert 'gentle' not in text
    assert "no policy named 'ruff'" in robotrials('plot', 'safety-heatmap', str(store), '-p', 'ruff', code=2)
    assert 'a filmstrip needs one' in robotrials('plot', 'safety-filmstrip', store, '-p', 'rough', code=2)


def test_a_safety_figure_needs_trajectories_and_something_scored(tmp_path: Path) -> None:
    empty = Store.create(tmp_path / 'bare')
    empty.append([episode()])
    for subject in (analyse([episode()]), analyse(empty)):
        with pytest.raises(NotEstimable, match='no trajectory was recorded'):
            find_figure('safety-pareto')(FigureRequest(subject=subject))


def test_a_registry_of_ones_own_reaches_tables_and_figures(tmp_path: Path) -> None:
    made = Store.create(tmp_path / 's')
    who = episode()
    made.append([who], trajectories={who.key: lifted()})
    (tmp_path / 'own.toml').write_text('[[benchmark]]\nid = "mine"\ntitle = "Mine"\n')
    for verb in (('safety', tmp_path / 's'), ('tables', 'safety', tmp_path / 's')):
        told = robotrials(*verb, '--resamples', 5, '--registry', tmp_path / 'missing.toml', code=2)
        assert 'missing.toml' in told
