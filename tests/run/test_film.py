"""Filming in a run: by default, after the episode, and never to its harm."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.command import robotrials
from tests.run.drawn import DrawnHost, ShownHost
from tests.run.plans import FAST, make_plan

from robotrials.errors import InputError, UnknownName
from robotrials.record import Episode, Outcome, Store, Trajectory, trajectories_equal
from robotrials.record.footage import STATES_FILE, FilmStates, film_obstacle, film_times, read_states
from robotrials.run import TrialPlan, run_trial
from robotrials.run.component import open_policy
from robotrials.run.loop import Order, run_episode
from robotrials.run.plan import FilmOptions, RecordingOptions, plan_from_json
from robotrials.run.recording import SeenFrames, film_steps, thinned
from robotrials.run.seam import Footage, Setup
from robotrials.testing.policy import SeekPolicy
from robotrials.verdict.analysis import select_store
from robotrials.verdict.analysis.detail import find_films, leading_films
from robotrials.worlds import check_host

BEFORE_FILMS = '1e1d34029861241e3ba2ece026417702'  # of make_plan() before plans knew of films


def filmed_plan(host: str = 'DrawnHost', **changes: object) -> TrialPlan:
    return make_plan(host={'use': f'tests.run.drawn:{host}'}, episodes_per_cell=2, faults={'attempts': 1}, **changes)


def run(plan: TrialPlan, store: Path) -> list[tuple[Episode, Trajectory | None]]:
    run_trial(plan, store, workers=0)
    opened = Store.open(store)
    return [(e, opened.trajectory(e)) for e in sorted(opened.episodes(attempts='all'), key=lambda e: e.key)]


@given(n=st.integers(0, 3000), control_hz=st.floats(1, 200), rate_hz=st.floats(0.1, 200))
def test_a_film_begins_with_the_reset_ends_with_the_last_step_and_keeps_its_rate(
    n: int, control_hz: float, rate_hz: float
) -> None:
    steps = film_steps(n, control_rate_hz=control_hz, rate_hz=rate_hz)
    assert steps[0] == 0
    assert steps[-1] == n
    gaps = np.diff(steps)
    every = max(control_hz / rate_hz, 1.0)
    assert (gaps >= 1).all()
    assert (gaps <= every + 1).all()
    assert (gaps[:-1] >= every - 1).all()


def test_plans_without_films_keep_their_hash_and_off_is_one_word() -> None:
    plain = make_plan()
    assert plain.hash == BEFORE_FILMS
    assert plain.recording.filming is not None
    assert plain.recording.filming.rate_hz == 5.0
    words = [make_plan(recording={'film': word}) for word in ('off', False)]
    assert words[0].hash == words[1].hash != plain.hash
    assert words[0].recording.filming is None
    later = make_plan(recording={'film': 'later'}).recording.filming
    assert later is not None
    assert not later.draw
    table = make_plan(recording={'film': {'size_px': [320, 240], 'rate_hz': 10, 'cameras': ['top']}})
    assert plan_from_json(table.as_json()).hash == table.hash
    assert make_plan(recording={'trajectories': False}).recording.filming is None


@pytest.mark.parametrize(
    ('film', 'match'),
    [
        ('of', "film is 'of'.*off"),
        ({'size_px': [161, 120]}, 'size_px is .161, 120., wanted even'),
        ({'size_px': [160]}, 'size_px'),
        ({'rate_hz': 0}, 'rate_hz is 0'),
        ({'cameras': ['top', 'top']}, 'each once'),
        ({'fps': 5}, "no key 'fps'"),
    ],
)
def test_bad_film_options_are_named(film: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        make_plan(recording={'film': film})


def test_what_the_host_cannot_film_is_refused_before_the_first_episode(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='point-mass cannot draw'):
        run_trial(make_plan(recording={'film': 'on'}), tmp_path / 'a', workers=0)
    with pytest.raises(UnknownName, match="'wide'"):
        run_trial(filmed_plan(recording={'film': {'cameras': ['wid']}}), tmp_path / 'b', workers=0)


def test_every_episode_is_filmed_with_exact_times(tmp_path: Path) -> None:
    filmed = run(filmed_plan(), tmp_path / 'on')
    assert len(filmed) == 4
    for episode, trajectory in filmed:
        assert trajectory is not None
        assert [camera.name for camera in trajectory.scene.cameras] == ['film_top', 'film_wide']
        assert 'film' not in episode.labels
    films = find_films(select_store(Store.open(tmp_path / 'on')))
    assert len(films) == 8
    for film in films:
        times_s = film_times(film.path)
        np.testing.assert_allclose(film.steps / 20.0, film.times_s, rtol=0, atol=1e-12)
        np.testing.assert_allclose(times_s, film.times_s, rtol=0, atol=1e-12)
        assert film.times_s[-1] == pytest.approx(film.episode.duration_s, abs=1e-12)
        assert [film.frame_at(t) for t in film.times_s] == list(range(len(times_s)))
        assert [film.frame_of_step(int(step)) for step in film.steps] == list(range(len(times_s)))
    assert {film.camera for film in leading_films(films).values()} == {'film_wide'}


def test_filming_leaves_every_other_bit_of_a_trajectory() -> None:
    host, policy = DrawnHost(noise_m=0.002), open_policy(make_plan().policies[FAST])
    orders = [
        Order(time_cap_s=4.0, policy_seed=3, recording=RecordingOptions(film=film)) for film in (None, False, 'later')
    ]
    filmed, plain, later = (run_episode(host, policy, Setup(task='reach', seed=5), order=o) for o in orders)
    assert set(filmed.media) == {'film_top.mp4', 'film_wide.mp4', STATES_FILE}
    assert set(later.media) == {STATES_FILE}
    assert plain.media == {}
    assert filmed.trajectory is not None
    assert plain.trajectory is not None
    bare = dataclasses.replace(filmed.trajectory.scene, cameras=())
    assert trajectories_equal(dataclasses.replace(filmed.trajectory, scene=bare), plain.trajectory)


def test_a_faulty_episode_is_filmed_as_far_as_it_came(tmp_path: Path) -> None:
    for episode, trajectory in run(filmed_plan('DyingHost'), tmp_path / 's'):
        assert episode.outcome is Outcome.INVALID
        assert trajectory is not None
        film = trajectory.scene.cameras[0]
        assert film.video_steps == (0, 4, 7)
        assert film_times(tmp_path / 's' / 'media' / film.video).tolist() == [0.0, 0.2, 0.35]


def test_trouble_with_a_film_is_noted_without_names_and_harms_nothing(tmp_path: Path) -> None:
    for episode, trajectory in run(filmed_plan('TornHost'), tmp_path / 's'):
        assert episode.is_valid
        assert trajectory is not None
        assert trajectory.scene.cameras == ()
        assert episode.labels['film'].startswith('none: OSError: the lamp of ')
        assert FAST not in episode.labels['film']
        folder = tmp_path / 's' / 'media' / f'episodes/{episode.episode_id}-0'
        assert [p.name for p in folder.iterdir()] == [STATES_FILE]


def test_without_pyav_the_run_goes_on_says_so_and_keeps_the_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'av', None)
    film_obstacle.cache_clear()
    assert 'robotrials[video]' in film_obstacle()
    film_obstacle.cache_clear()
    for episode, trajectory in run(filmed_plan(), tmp_path / 's'):
        assert episode.is_valid
        assert 'PyAV' in episode.labels['film']
        assert trajectory is not None
        states = read_states(tmp_path / 's' / 'media' / f'episodes/{episode.episode_id}-0' / STATES_FILE)
        assert states.steps[-1] == trajectory.n_steps
    monkeypatch.undo()
    out = tmp_path / 'films'
    robotrials('store', 'film', tmp_path / 's', '--to', out, '--size', '320x240', '--camera', 'top')
    assert len(list(out.glob('*-top.mp4'))) == 4


def test_filming_again_gives_the_same_bytes(tmp_path: Path) -> None:
    recorded = run(filmed_plan(), tmp_path / 's')
    robotrials('store', 'film', tmp_path / 's', '--to', tmp_path / 'f', '--size', '160x120', '--rate-hz', '5')
    for episode, trajectory in recorded:
        assert trajectory is not None
        for camera in trajectory.scene.cameras:
            again = tmp_path / 'f' / f'{episode.episode_id}-0-{camera.name.removeprefix("film_")}.mp4'
            assert again.read_bytes() == (tmp_path / 's' / 'media' / camera.video).read_bytes()


def test_an_export_that_redraws_shows_the_state_of_every_step(tmp_path: Path) -> None:
    """The white square of each exported frame stands where the kept state of that step has the point."""
    from robotrials.formats.dataset import open_dataset

    host = DrawnHost()
    rate_hz = host.spec.control_rate_hz
    recorded = run(filmed_plan(recording={'film': {'rate_hz': rate_hz}}), tmp_path / 's')
    robotrials('export', tmp_path / 's', '--to', 'lerobot', '-o', tmp_path / 'redrawn', '--redraw')
    folder = tmp_path / 's' / 'media' / 'episodes'
    kept = [read_states(folder / f'{episode.episode_id}-0' / STATES_FILE).states for episode, _ in recorded]
    seen = []
    for exported in open_dataset(tmp_path / 'redrawn').episodes('train'):
        frames = [exported.observation(k).image('top') for k in range(exported.n_steps)]
        width_px = frames[0].shape[1]
        columns = [np.nonzero(frame[:, :, 0] > 128)[1].mean() for frame in frames]
        seen.append((np.array(columns) / width_px * 2 - 1) * host.table_m)
    for states in kept:
        x = states[1:, 0]
        assert any(len(path) == len(x) and np.abs(path - x).max() < 0.05 * host.table_m for path in seen)
    assert len(seen) == len(recorded)


def test_filming_again_says_what_it_lacks(tmp_path: Path) -> None:
    run(filmed_plan(recording={'film': 'off'}), tmp_path / 's')
    assert "film = 'off'" in robotrials('store', 'film', tmp_path / 's', '--to', tmp_path / 'f', code=2)
    assert 'wanted width and height' in robotrials('store', 'film', tmp_path / 's', '--size', 'big', code=2)
    run(make_plan(), tmp_path / 't')
    assert 'cannot draw' in robotrials('store', 'film', tmp_path / 't', '--to', tmp_path / 'f', code=2)


def test_kept_states_are_thinned_to_a_lower_rate_and_never_invented() -> None:
    states = FilmStates(np.array([0, 4, 8, 12, 16, 20, 23]), np.arange(7.0)[:, None])
    slow = thinned(states, control_rate_hz=20.0, rate_hz=2.5)
    assert slow.steps.tolist() == [0, 8, 16, 23]
    assert slow.states[:, 0].tolist() == [0, 2, 4, 6]
    assert thinned(states, control_rate_hz=20.0, rate_hz=20.0) is states


class FlippedHost(DrawnHost):
    """Height and width confused."""

    def film(self, options: FilmOptions, *, states: FilmStates | None = None) -> Footage:
        return super().film(dataclasses.replace(options, size_px=options.size_px[::-1]), states=states)


def test_the_conformance_kit_looks_at_films() -> None:
    check_host(DrawnHost(), task='reach', steps=5)
    with pytest.raises(InputError, match=r'camera top gave 3 frames of .*64, 48, 3.*wanted 3 of \(48, 64, 3\)'):
        check_host(FlippedHost(), task='reach', steps=5)


def test_a_host_that_only_shows_is_filmed_by_what_it_showed(tmp_path: Path) -> None:
    import av

    for episode, trajectory in run(filmed_plan('ShownHost'), tmp_path / 's'):
        assert trajectory is not None
        cameras = {c.name: c for c in trajectory.scene.cameras}
        assert list(cameras) == ['film_front', 'film_wrist']
        front = cameras['film_front']
        assert (front.height_px, front.width_px) == (32, 46)
        path = tmp_path / 's' / 'media' / front.video
        rate_hz = ShownHost().spec.control_rate_hz
        wanted = film_steps(trajectory.n_steps, control_rate_hz=rate_hz, rate_hz=5.0)
        assert front.video_steps == tuple(wanted)
        np.testing.assert_allclose(film_times(path), wanted / rate_hz, atol=1e-9)
        with av.open(str(path)) as container:
            seen = [frame.to_ndarray(format='rgb24')[:, :8].mean() for frame in container.decode(video=0)]
        np.testing.assert_allclose(seen, np.minimum(3 * wanted, 250), atol=6)
        assert 'film' not in episode.labels
    plan = filmed_plan('ShownHost', recording={'film': {'cameras': ['nothing']}})
    with pytest.raises(InputError, match='cannot draw'):
        run_trial(plan, tmp_path / 'refused', workers=0)


def test_a_film_of_pictures_that_are_upside_down_is_the_right_way_up() -> None:
    """As LIBERO gives them to policies; what the policy sees stays as it is."""
    import io

    import av

    spec = dataclasses.replace(ShownHost().spec, images={'front': (32, 46)}, shows_upside_down=True)
    picture = np.zeros((32, 46, 3), np.uint8)
    picture[:16] = 200  # the floor, given first
    frames = SeenFrames(spec, FilmOptions())
    for step in range(3):
        frames.see({'front': picture}, step=step)
    rollout = run_episode(
        ShownHost(), SeekPolicy(), Setup(task='reach', seed=0), order=Order(time_cap_s=0.2, policy_seed=0)
    )
    assert rollout.trajectory is not None
    (film,) = frames.film(rollout.trajectory, lambda: None).media.values()
    with av.open(io.BytesIO(film)) as container:
        shown = next(container.decode(video=0)).to_ndarray(format='rgb24')
    assert shown[:14].mean() < 10
    assert shown[-14:].mean() > 190
    assert picture[:16].min() == 200


def test_a_camera_named_like_a_topic_has_a_film_in_its_folder(tmp_path: Path) -> None:
    for episode, trajectory in run(filmed_plan('TopicHost'), tmp_path / 's'):
        assert episode.is_valid
        assert trajectory is not None
        videos = {c.name: c.video for c in trajectory.scene.cameras}
        folder = f'episodes/{episode.episode_id}-{episode.attempt}'
        assert videos == {
            'film_/camera/../../front': f'{folder}/film_camera-1.mp4',
            'film_wrist é': f'{folder}/film_camera-2.mp4',
        }
        assert all((tmp_path / 's' / 'media' / video).is_file() for video in videos.values())


def test_pictures_too_small_for_a_film_leave_the_episode_as_it_was(tmp_path: Path) -> None:
    for episode, trajectory in run(filmed_plan('SpeckHost'), tmp_path / 's'):
        assert episode.is_valid
        assert trajectory is not None
        assert 'too few for a film' in episode.labels['film']


@pytest.mark.parametrize('host', ['FloatHost', 'ListHost'])
def test_pictures_of_another_kind_than_declared_are_the_hosts_fault(tmp_path: Path, host: str) -> None:
    for episode, _ in run(filmed_plan(host), tmp_path / 's'):
        assert not episode.is_valid
        assert 'host' in episode.reason


def test_a_long_episode_of_large_pictures_is_filmed_more_rarely_and_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('robotrials.run.recording.MOST_SEEN_BYTES', 40 * 3 * (33 * 47 + 16 * 16))
    host = ShownHost()
    frames = SeenFrames(host.spec, FilmOptions(rate_hz=5.0))
    images = {name: np.zeros((*size, 3), np.uint8) for name, size in host.spec.images.items()}
    for step in range(10_001):
        frames.see(images, step=step)
        assert len(frames._kept) <= 40
    trajectory = Trajectory(time_s=np.arange(10_000) / 20.0)
    filmed = frames.film(trajectory, lambda: None)
    assert filmed.trajectory is not None
    steps = filmed.trajectory.scene.cameras[0].video_steps
    assert steps is not None
    assert 20 <= len(steps) <= 41
    assert (steps[0], steps[-1]) == (0, 10_000)
    assert len(set(np.diff(steps[:-1]))) == 1
