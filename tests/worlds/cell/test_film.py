"""The cell's films: drawn from states after the episode, the same for any workers, and drawn again at any size."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import av
import numpy as np
import pytest
from tests.cli.command import robotrials

from robotrials.errors import InputError, UnknownName
from robotrials.record import Store, trajectories_equal
from robotrials.record.footage import FilmStates
from robotrials.run import read_plan, run_trial
from robotrials.run.host import Ability
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import FilmOptions, RecordingOptions
from robotrials.run.seam import Setup
from robotrials.show.page import render_html
from robotrials.show.report import trial_document
from robotrials.verdict.analysis import analyse, select_store
from robotrials.verdict.analysis.detail import find_films
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.camera import FILM_CAMERAS, Pictures
from robotrials.worlds.cell.scripted import ScriptedPolicy

PLAN = """
seed = 3
episodes_per_cell = 1
time_cap_s = 5
tasks = ["single_block"]
conditions = ["nominal", {name = "distractor", severity = 0.5}]
host = {use = "tabletop", options = {state = "privileged"}}
blinding = {enabled = false}
analysis = {primary = ["success"], resamples = 100}
[policies.careful]
use = "scripted"
options = {temper = "careful"}
[policies.hasty]
use = "scripted"
options = {temper = "hasty"}
"""
SETUP = Setup(task='single_block', seed=4)


def rollout(host: TabletopHost, film: FilmOptions | bool, *, cap_s: float = 2.0) -> Rollout:
    order = Order(time_cap_s=cap_s, policy_seed=1, recording=RecordingOptions(film=film))
    return run_episode(host, ScriptedPolicy(temper='hasty'), SETUP, order=order)


@pytest.fixture(scope='module')
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One plan, run by two workers and by none."""
    folder = tmp_path_factory.mktemp('film')
    (folder / 'trial.toml').write_text(PLAN, encoding='utf-8')
    plan = read_plan(folder / 'trial.toml')
    for workers in (2, 0):
        run_trial(plan, folder / f'store{workers}', workers=workers)
    return folder / 'store2', folder / 'store0'


def test_physics_is_bit_equal_filmed_or_not() -> None:
    host = TabletopHost(state='privileged')
    assert Ability.FILM in host.abilities
    plain, filmed, again = (rollout(host, film) for film in (False, True, False))
    assert set(filmed.media) == {'film_front.mp4', 'film_gallery.mp4', 'states.npz'}
    assert filmed.trajectory is not None
    assert plain.trajectory is not None
    assert again.trajectory is not None
    scene = dataclasses.replace(filmed.trajectory.scene, cameras=plain.trajectory.scene.cameras)
    assert trajectories_equal(dataclasses.replace(filmed.trajectory, scene=scene), plain.trajectory)
    assert trajectories_equal(plain.trajectory, again.trajectory)
    host.close()


def test_a_frame_is_what_a_camera_sees_of_that_state() -> None:
    """Against the cell's own cameras at the last step, which draw the world itself and not a state."""
    host = TabletopHost(state='privileged', shadows=False)
    done = rollout(host, FilmOptions(cameras=FILM_CAMERAS, size_px=(96, 64)))
    start = host._start
    assert start is not None
    pictures = Pictures(FILM_CAMERAS, height_px=64, width_px=96, has_shadows=False)
    for name, picture in pictures.take(start.scene, start.data).items():
        with av.open(io.BytesIO(done.media[f'film_{name}.mp4'])) as container:
            last = [frame.to_ndarray(format='rgb24') for frame in container.decode(video=0)][-1]
        assert np.abs(last.astype(int) - picture.rgb).mean() < 5
    pictures.close()
    host.close()


def test_films_are_the_same_bytes_for_any_workers(stores: tuple[Path, Path]) -> None:
    names = [sorted(p.relative_to(s) for p in (s / 'media').rglob('*') if p.is_file()) for s in stores]
    assert names[0] == names[1]
    assert len(names[0]) == 4 * 3
    for name in names[0]:
        assert (stores[0] / name).read_bytes() == (stores[1] / name).read_bytes()


def test_films_hold_no_name_of_a_policy(stores: tuple[Path, Path]) -> None:
    for path in (p for p in (stores[0] / 'media').rglob('*') if p.is_file()):
        assert not any(name in path.read_bytes() or name.decode() in path.name for name in (b'careful', b'hasty'))


def test_a_film_can_be_made_again_also_under_a_condition(stores: tuple[Path, Path], tmp_path: Path) -> None:
    robotrials('store', 'film', stores[0], '--to', tmp_path, '--size', '160x120', '--rate-hz', '5')
    films = find_films(select_store(Store.open(stores[0])))
    assert {f.episode.condition for f in films} == {'nominal', 'distractor'}
    for film in films:
        again = tmp_path / f'{film.episode.episode_id}-0-{film.camera.removeprefix("film_")}.mp4'
        assert again.read_bytes() == film.path.read_bytes()


def test_a_film_can_be_made_larger_and_with_other_cameras(stores: tuple[Path, Path], tmp_path: Path) -> None:
    episode = find_films(select_store(Store.open(stores[0])))[0].episode
    out = robotrials(
        'store', 'film', stores[0], episode.episode_id, '--to', tmp_path, '--size', '320x240', '--camera', 'side'
    )
    assert 'camera side' in out
    with av.open(str(tmp_path / f'{episode.episode_id}-0-side.mp4')) as container:
        assert (container.streams.video[0].width, container.streams.video[0].height) == (320, 240)


def test_states_of_another_scene_are_refused() -> None:
    host = TabletopHost()
    host.reset('single_block', seed=1)
    with pytest.raises(InputError, match='do not begin where this reset does'):
        host.film(FilmOptions(), states=FilmStates(np.array([0]), np.zeros((1, 90))))
    with pytest.raises(InputError, match='another scene'):
        host.film(FilmOptions(), states=FilmStates(np.array([3]), np.zeros((1, 4))))
    with pytest.raises(UnknownName, match="'gallery'"):
        host.film(FilmOptions(cameras=('galery',)))


def test_the_report_shows_strips_that_lead_to_the_films(stores: tuple[Path, Path], tmp_path: Path) -> None:
    page = render_html(trial_document(analyse(Store.open(stores[0])), folder=tmp_path / 'pages'))
    assert 'id="films"' in page
    assert page.count('data:image/jpeg;base64,') in (2, 3, 4)  # a strip per policy and way to end
    links = [part.split('"')[0] for part in page.split('<a href="')[1:] if '.mp4' in part.split('"')[0]]
    assert links
    for link in links:
        assert (tmp_path / 'pages' / link).resolve().is_file()
