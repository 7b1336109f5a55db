"""A benchmark that is scored from cameras: what the board takes, what is refused, and what never raises a score."""

from __future__ import annotations

import io
import itertools
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.service.platform.service import PLAN, Service, WorkerMoves

from robotrials.errors import InputError
from robotrials.measure.geometry import camera_score, projection
from robotrials.measure.geometry.camera_score import CameraScore, GoalScore, unscored
from robotrials.measure.geometry.projection import OWN_SCORE, camera_scores, pack_own_score
from robotrials.measure.geometry.score import SCORE_KIND
from robotrials.record import Episode, Outcome, Store
from robotrials.record.footage import END, KNOWN, START, KnownScene, View, pack_views
from robotrials.record.trajectory import Camera
from robotrials.run.station import media_folder
from robotrials.service.platform.bundle import BUNDLE_LIMITS, pack_bundle, pack_fitting, unpack_bundle
from robotrials.wire import WireLimits

CAMERA_PLAN = PLAN.replace('[analysis]', '[analysis]\nsuccess = "reconstruction"').replace('= 2\n', '= 4\n', 1)
Judge = Callable[[int], CameraScore | None]


def seen(success: bool, iou: float = 0.8) -> CameraScore:
    return CameraScore(success, 0.9, goals=(GoalScore('block', success, 0.9, iou=iou),))


def views(seed: int = 0, size: int = 6) -> bytes:
    rng = np.random.default_rng(seed)
    camera = Camera('front', np.array([[9.0, 0, 3], [0, 9, 3], [0, 0, 1]]), np.eye(4), size, size)
    depth = rng.random((size, size)).astype(np.float32)
    return pack_views({'front': View(rng.integers(0, 255, (size, size, 3), dtype=np.uint8), depth, camera, 0.0)})


def rgbd(episode: Episode, score: CameraScore | None) -> dict[str, bytes]:
    files = {KNOWN: KnownScene(objects=()).as_json().encode(), START: views(1), END: views(2)}
    if score is not None:
        files[OWN_SCORE] = pack_own_score(episode, files, score, by='cell-1')
    return {f'{media_folder(episode)}/{name}': content for name, content in files.items()}


def run_all(
    service: Service,
    name: str,
    worker: WorkerMoves,
    judge: Judge,
    *,
    outcome: Outcome = Outcome.SUCCESS,
    reason: str = '',
) -> str:
    """Run a submission to its end; its cameras say what `judge` says of each episode by its number."""
    token = service.token('kim', 'submitter', 'reader')
    submission = service.submit(token, name)
    for number in itertools.count():
        answer = service.ask('POST', f'/submissions/{submission}/lease', token)
        if answer.status_code == 410:
            return submission
        lease_id = answer.json()['lease_id']
        is_success = outcome is Outcome.SUCCESS
        episode = worker.job(lease_id).planned(operator='cell-1').replace(
            outcome=outcome, duration_s=1.5, success=is_success, reason=reason, items_placed=2 if is_success else 0,
            score=0.9, max_score=1.0, labels={'score_kind': SCORE_KIND, 'score_source': 'host'},
        )  # fmt: skip
        data = pack_bundle(episode, media=rgbd(episode, judge(number)))
        assert worker.upload(lease_id, data).status_code == 200
        worker.beat()
    raise AssertionError


def board_of(service: Service) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    board = service.ok('GET', '/benchmarks/reach/leaderboard', service.token('kim', 'submitter', 'reader'))
    return {row['policy'].removeprefix('kim/'): row['values'] for row in board['rows']}, board


@pytest.fixture
def nothing_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server reads scores and makes none."""

    def forbidden(*_: object) -> CameraScore:
        raise AssertionError('the server scores views')

    monkeypatch.setattr(projection, 'score_episode', forbidden)
    monkeypatch.setattr(camera_score, 'score_episode', forbidden)


@pytest.fixture
def cell(service: Service, nothing_is_scored: None) -> WorkerMoves:
    service.benchmark(plan=CAMERA_PLAN)
    return service.worker()


def test_the_board_has_the_cameras_word_and_the_record_keeps_the_hosts(service: Service, cell: WorkerMoves) -> None:
    run_all(service, 'seen', cell, lambda _: seen(True))
    slow = run_all(service, 'unseen', cell, lambda _: seen(False))
    values, board = board_of(service)
    assert (values['seen']['success']['value'], values['unseen']['success']['value']) == (1.0, 0.0)
    assert values['seen']['expected_iou']['value'] == pytest.approx(0.8)  # and not 0.9, which the host has
    assert values['unseen']['expected_iou']['value'] == 0.0
    assert 'what RGB-D cameras show' in board['source']
    assert '4 of 8 as the host has it' in board['source']
    assert 'success by reconstruction' in board['statement']
    assert not any('poses' in caution for caution in board['cautions'])
    kim = service.token('kim', 'submitter')
    results = service.ok('GET', f'/submissions/{slow}/score', kim)['results']
    assert {r['outcome'] for r in results} == {'success'}


def test_unscored_ends_are_an_interval_and_no_rate_and_their_reason_is_told(
    service: Service, cell: WorkerMoves
) -> None:
    run_all(service, 'dim', cell, lambda n: unscored('too dark') if n == 0 else seen(True))
    run_all(service, 'unscored', cell, lambda _: None)
    values, board = board_of(service)
    for column in ('success', 'expected_iou'):
        dim = values['dim'][column]
        assert dim['value'] is None
        assert dim['low'] < 0.75 < dim['high']
        assert 'bounds' in dim['note']
    whole = values['unscored']['success']
    assert (whole['value'], whole['low'], whole['high']) == (None, 0.0, 1.0)
    assert 'not scored by reconstruction' in board['source']


def test_a_rate_is_corrected_where_the_truth_of_others_is_known(service: Service, cell: WorkerMoves) -> None:
    """The cameras miss a quarter of the successes of one submission, and say of another that 3 of 4 succeeded."""
    for name in ('a', 'b'):
        run_all(service, name, cell, lambda n: seen(n > 0))
        run_all(service, f'{name}-failing', cell, lambda _: seen(False), outcome=Outcome.TIMEOUT)
    values, board = board_of(service)
    assert values['a']['success']['value'] == pytest.approx(1.0)  # 0.75 said, and of true successes 0.75 are seen
    assert values['a']['success']['low'] < 0.75
    assert values['a']['expected_iou']['value'] == pytest.approx(0.9)  # 0.8 measured where the truth is 0.9
    assert values['a-failing']['success']['value'] == 0.0
    assert 'corrected for errors' in board['source']


@pytest.mark.parametrize(
    ('outcome', 'reason'),
    [(Outcome.FAILURE, 'policy crash: ValueError at step 3'), (Outcome.SAFETY_STOP, 'emergency stop')],
)
def test_a_policy_that_crashed_or_was_stopped_did_not_succeed_whatever_cameras_see(
    service: Service, cell: WorkerMoves, outcome: Outcome, reason: str
) -> None:
    told = (seen(True), unscored('too dark'), None, seen(False))
    run_all(service, 'broken', cell, lambda number: told[number], outcome=outcome, reason=reason)
    values, _ = board_of(service)
    assert values['broken']['success']['value'] == 0.0
    assert values['broken']['expected_iou']['value'] == 0.0


def test_a_submitter_downloads_the_views_once_blinding_ends(service: Service, cell: WorkerMoves) -> None:
    kim = service.token('kim', 'submitter')
    submission = run_all(service, 'mine', cell, lambda _: seen(True))
    episodes = service.ok('GET', f'/submissions/{submission}/episodes', kim)
    path = f'/submissions/{submission}/episodes/{episodes[0]["episode_id"]}/bundle'
    bundle = unpack_bundle(service.ask('GET', path, kim).content)
    files = {name.split('/', 2)[2]: content for name, content in bundle.media.items()}
    assert files.keys() == {KNOWN, START, END, OWN_SCORE}
    assert (files[START], files[END]) == (views(1), views(2))


@pytest.mark.parametrize(
    ('recording', 'told'), [("rgbd = 'off'", 'so that no view would be kept'), ('rgbd = 100.0', 'up to 2000 moments')]
)
def test_a_plan_that_could_not_be_scored_is_refused_when_it_is_declared(
    service: Service, recording: str, told: str
) -> None:
    plan = f'{CAMERA_PLAN.replace("= 4.0", "= 20.0")}\n[recording]\n{recording}\n'
    answer = service.ask('POST', '/benchmarks', service.admin, {'name': 'reach', 'plan': plan})
    assert answer.status_code == 422
    assert told in answer.json()['error']['message']


# --- uploads

EPISODE = Episode(policy='A', task='pick', outcome='success', duration_s=2.0)


def bomb() -> bytes:
    """A moment of 4096 x 4096 pixels in a few kilobytes."""
    whole = zipfile.ZipFile(io.BytesIO(views()))
    n, sink = 4096 * 4096, io.BytesIO()
    with zipfile.ZipFile(sink, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('views.json', whole.read('views.json').replace(b'_px": 6', b'_px": 4096'))
        archive.writestr('0.depth', bytes(4 * n))
        archive.writestr('0.rgb', bytes(3 * n))
    return sink.getvalue()


@pytest.mark.parametrize(
    ('name', 'content', 'told'),
    [
        (END, lambda: views()[:200], 'not a moment'),
        (END, bomb, 'unfolds into 117440512 bytes'),
        ('rgbd/at-000000100-ms.zip', lambda: b'', 'not a moment'),
        (KNOWN, lambda: b'{"objects": 3}', 'objects'),
        (OWN_SCORE, lambda: b'[' * 100_000, 'not a projection'),
        (OWN_SCORE, lambda: b'{"method": "reconstruction 4", "scores": [{}]}', 'not a projection'),
        (OWN_SCORE, lambda: bytes(2 << 20), 'wanted at most'),
    ],
)
def test_views_and_scores_that_cannot_be_read_are_refused(name: str, content: Callable[[], bytes], told: str) -> None:
    media = rgbd(EPISODE, None) | {f'{media_folder(EPISODE)}/{name}': content()}
    with pytest.raises(InputError, match=told):
        unpack_bundle(pack_bundle(EPISODE, media=media), limits=WireLimits(max_bytes=100 << 20))


def test_views_that_are_too_much_for_an_upload_are_left_out_and_the_episode_is_not(tmp_path: Any) -> None:
    noise = np.random.default_rng(0).bytes(40_000)
    own = f'{media_folder(EPISODE)}/rgbd'
    media = rgbd(EPISODE, seen(True)) | {f'{own}/at-{k:09d}-ms.zip': noise for k in range(20)}
    assert pack_fitting(EPISODE, trajectory=None, media=media, most_bytes=BUNDLE_LIMITS.max_bytes) == pack_bundle(
        EPISODE, media=media
    )
    fewer = unpack_bundle(pack_fitting(EPISODE, trajectory=None, media=media, most_bytes=100_000))
    assert fewer.media.keys() == {*rgbd(EPISODE, seen(True)), f'{own}/between.txt'}
    many = rgbd(EPISODE, None) | {f'{own}/at-{k:09d}-ms.zip': b'' for k in range(1000)}
    kept = unpack_bundle(pack_fitting(EPISODE, trajectory=None, media=many, most_bytes=100_000)).media
    assert f'{own}/between.txt' in kept
    none = unpack_bundle(pack_fitting(EPISODE, trajectory=None, media=media, most_bytes=100))
    assert none.media.keys() == {f'{own}/end.txt'}
    store = Store.create(tmp_path / 'store', trial_id='t')
    store.append([EPISODE], media=none.media)
    score = camera_scores(store, [EPISODE])[EPISODE.key]
    assert score.success is None
    assert 'too much for one upload' in score.reason


def test_a_kept_score_of_other_views_or_another_method_is_not_used(tmp_path: Any) -> None:
    other = replace(EPISODE, episode_id='other')
    for number, (episode, change) in enumerate(
        [(EPISODE, (b'"reconstruction 4"', b'"reconstruction 1"')), (other, (b'"views":"', b'"views":"0'))]
    ):
        media = rgbd(episode, seen(True))
        name = f'{media_folder(episode)}/{OWN_SCORE}'
        media[name] = media[name].replace(*change)
        store = Store.create(tmp_path / f'store{number}', trial_id='t')
        store.append([episode], media=media)
        score = camera_scores(store, [episode], rescoring=projection.Rescoring.NONE)[episode.key]
        assert score.success is None
        assert 'robotrials geometry score' in score.reason
