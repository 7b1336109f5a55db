"""The explorer: the table, one episode's data, what it refuses; and in a real browser, by keyboard."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.browser import DESK_PX, PHONE_PX, Browser, Opened, new_page
from tests.run.plans import make_plan
from tests.service.serving import served
from tests.service.stores import make_store

from robotrials.record import (
    Camera,
    Episode,
    Event,
    EventKind,
    Outcome,
    Scene,
    Store,
    Trajectory,
    read_store,
)
from robotrials.record.episode import episode_id_of
from robotrials.run import close_trial, run_trial
from robotrials.run.blinding import seal_trial
from robotrials.service.explorer import create_explorer
from robotrials.service.explorer.index import LiveIndex
from robotrials.service.explorer.pages import store_figures
from robotrials.service.review import create_review
from robotrials.verdict.analysis import analyse, present
from robotrials.verdict.analysis.ranking import curve_points

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope='module')
def store(tmp_path_factory) -> Store:
    return make_store(tmp_path_factory.mktemp('explore') / 's')


@pytest.fixture(scope='module')
def client(store: Store) -> TestClient:
    return TestClient(create_explorer(store))


def rows(text: str) -> int:
    return len(re.findall(r'href="/episode/', text))


def test_filters_narrow_and_say_how_many(client: TestClient) -> None:
    assert rows(client.get('/').text) == 7
    narrowed = client.get('/', params={'policy': 'slow', 'stratum': 'spoon'}).text
    assert rows(narrowed) == 3
    assert '1 to 3 of 3 episodes, of 7 in the store' in narrowed
    assert rows(client.get('/', params={'policy': ['slow', 'quick']}).text) == 7
    assert 'No episode matches' in client.get('/', params={'policy': 'nobody'}).text
    assert '<html' not in client.get('/', headers={'hx-request': 'true'}).text


def test_filters_agree_with_the_store(store: Store) -> None:
    index = LiveIndex(store).now()
    for where in ({'policy': 'slow'}, {'stratum': ''}, {'outcome': 'timeout', 'policy': 'quick'}):
        found = {index.key(int(n)) for n in index.matching({k: [v] for k, v in where.items()})}
        assert found == {e.key for e in store.episodes() if all(str(getattr(e, k)) == v for k, v in where.items())}


@pytest.mark.parametrize('query', ['sort=nonsense', 'page=-1', 'page=x', 'page=99999999999999999999'])
def test_a_bad_question_gets_an_answer(client: TestClient, query: str) -> None:
    answer = client.get(f'/?{query}')
    assert answer.status_code == 400
    assert 'This cannot be shown' in answer.text


def test_an_episode_is_given_whole(client: TestClient, store: Store) -> None:
    episode = next(e for e in store.episodes() if e.policy == 'slow')
    data = client.get(f'/data/episode/{episode.episode_id}/0').json()
    assert [e['t_s'] for e in data['events']] == [2.6, 9.6]
    assert len(data['time_s']) == 400
    assert {lane['title'] for lane in data['lanes']} == {'gripper', 'tool'}
    (film,) = data['films']
    assert film['times_s'][:3] == [0.0, 0.2, 0.4]
    assert client.get(f'/media/{film["name"]}', headers={'range': 'bytes=0-99'}).status_code == 206
    assert len(data['path']['tool']) == 400


def test_opening_an_episode_reads_nothing_of_the_others(tmp_path: Path) -> None:
    """With every file of the tables gone that cannot hold it, and all other films, a fresh explorer opens it as before;
    also when the store has grown since. Only who asks for its neighbours or the list needs the other parts."""
    store = make_store(tmp_path / 's')
    wanted = next(e for e in store.episodes() if e.policy == 'slow')
    addresses = [f'/episode/{wanted.episode_id}/0?policy=slow', f'/data/episode/{wanted.episode_id}/0',
                 f'/media/episodes/{wanted.episode_id}-0/front.mp4']  # fmt: skip
    before = [TestClient(create_explorer(store)).get(address).content for address in addresses]
    (own,) = [p for p in store.parts() if wanted.episode_id in {e.episode_id for e in store.recorded(p)}]
    needed = {own.path.name, own.events, *own.trajectories}
    for file in store.path.glob('*/**/*'):
        if (
            file.is_file()
            and file.parent.name != 'log'
            and file.name not in needed
            and wanted.episode_id not in str(file)
        ):
            file.unlink()
    for where in (None, {'policy': 'slow'}):
        client = TestClient(create_explorer(Store.open(store.path), where=where))
        assert [client.get(address).content for address in addresses] == before
        store.append([Episode(policy='slow', task='new', seed=1000 if where else 2000, outcome=Outcome.SUCCESS)])
        assert [client.get(address).content for address in addresses] == before
        for address in ('/', f'/episode/{wanted.episode_id}/0/after'):
            answer = client.get(address)
            assert (answer.status_code, 'missing, though the store names it' in answer.text) == (400, True)


def test_neighbours_are_those_of_the_list_that_was_filtered(client: TestClient, store: Store) -> None:
    slow = [e.key for e in store.episodes(where={'policy': 'slow'})]
    query = '?policy=slow&sort=-place'

    def page(key: tuple[str, int], side: str) -> str:
        return str(client.get(f'/episode/{key[0]}/{key[1]}/{side}{query}').url).removeprefix('http://testserver')

    assert page(slow[1], 'after') == f'/episode/{slow[0][0]}/0{query}'
    assert page(slow[1], 'before') == f'/episode/{slow[2][0]}/0{query}'
    assert page(slow[0], 'after') == f'/episode/{slow[0][0]}/0{query}&end=after'
    assert 'the last of the list' in client.get(page(slow[0], 'after')).text
    assert 'the last of the list' not in client.get(page(slow[0], 'before')).text
    other = next(e for e in store.episodes() if e.policy == 'quick')
    assert client.get(f'/episode/{other.episode_id}/0/after{query}').status_code == 400
    assert client.get(f'/episode/{slow[0][0]}/0/above').status_code == 422


def test_what_is_missing_is_named(client: TestClient, store: Store) -> None:
    bare = next(e for e in store.episodes() if e.seed == 99)
    data = client.get(f'/data/episode/{bare.episode_id}/0').json()
    assert data['missing'] == ['no trajectory was recorded: no path, no telemetry, no films']
    assert client.get(f'/episode/{bare.episode_id}/0').status_code == 200


@pytest.mark.parametrize(
    'name', ['../trial.json', '..%2ftrial.json', '../../../../etc/passwd', 'episodes', 'nothing.mp4', '']
)
def test_only_films_of_the_store_are_served(client: TestClient, name: str) -> None:
    assert client.get(f'/media/{name}').status_code in (400, 404)


@pytest.mark.parametrize('path', ['/episode/nobody/0', '/episode/nobody/x', '/data/episode/nobody/0'])
def test_an_unknown_episode_is_refused(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (400, 422)


def test_the_explorers_curve_is_that_of_the_report(store: Store) -> None:
    """The chance at every mark is the report's curve at that time, to the last digit; each placement is there once."""
    analysis = analyse(store)
    for curve, points in present(curve_points(analysis)):
        known = dict(zip(curve.times_s.tolist(), curve.chance.tolist(), strict=True))
        assert [p.chance for p in points] == [known[p.took_s] for p in points]
        ends = sorted((e.episode_id, v.t_s) for e in analysis.episodes if e.policy == curve.policy for v in e.events)
        assert sorted((p.episode.episode_id, round(p.at_s, 9)) for p in points) == ends


def test_every_step_of_a_curve_leads_to_its_moment(client: TestClient) -> None:
    page = client.get('/figures').text
    assert 'Witnesses of violations' in page
    moments = {float(t) for t in re.findall(r'/episode/\w+/0\?t=([\d.]+)', page)}
    assert {2.6, 5.6, 9.6} <= moments


def everything_shown(store: Store) -> dict[str, str]:
    """Every answer of the explorer, with what its headers say, by address: lists, figures, episodes and their data."""
    view = TestClient(create_explorer(store), follow_redirects=False)
    waiting = ['/', '/?sort=-policy', '/figures', '/report', *(f'/figures/{name}' for name, _ in store_figures())]
    found: dict[str, str] = {}
    while waiting:
        address = waiting.pop()
        answer = view.get(address)
        found[address] = f'{address}\n{answer.headers}\n{answer.text}'
        episodes = set(re.findall(r'href="(/episode/\w+/\d+)["?]', answer.text)) if address == '/' else set()
        waiting += [f'{kind}{e}{side}' for e in episodes for kind, side in
                    (('', ''), ('/data', ''), ('', '/before'), ('', '/after'))]  # fmt: skip
    return found


def arms_worked_out(store: Path, shown: Mapping[str, str], *, names: Iterable[str] = ()) -> dict[str, str]:
    """Episodes whose arm follows from the pages, for someone who knows the trial's hash and its codes.

    An id is a hash over these and the seed: every number that is shown of an episode is tried as its seed.
    """
    recorded = {e.episode_id: e for e in Store.open(store).episodes()}
    codes = sorted(names) or sorted(json.loads(Store.open(store).trial.plan)['policies'])
    told = {}
    for episode_id, e in recorded.items():
        pages = '\n'.join(text for address, text in shown.items() if episode_id in address)
        for number in {None, *map(int, re.findall(r'(?<![\w.])\d{1,10}(?![\w.])', pages))}:
            for code in codes:
                if episode_id_of(e.replace(policy=code, seed=number)) == episode_id:
                    told[episode_id] = code
    return told


@pytest.mark.parametrize('scenes', ['matched', 'independent'])
def test_nothing_tells_an_arm_before_the_trial_is_closed(tmp_path: Path, scenes: str) -> None:
    plan = make_plan(episodes_per_cell=2, scenes=scenes)
    sealed = seal_trial(plan, tmp_path / 'sealed')
    path = tmp_path / 's'
    run_trial(sealed.operator_plan, path, workers=0, arms=tmp_path / 'sealed' / 'arms.json')
    shown = everything_shown(read_store(path))
    assert len([a for a in shown if a.startswith('/episode')]) == 12
    words = (*plan.policies, *sealed.codes.values(), sealed.operator_plan.hash)
    assert not [(word, address) for address, text in shown.items() for word in words if word in text]
    assert 'results stay shut until the trial is closed' in shown['/figures']
    assert arms_worked_out(path, shown) == {}
    # The same search finds every name where seeds and names are shown: it can see what it looks for.
    recorded = {e.episode_id: e.policy for e in Store.open(path).episodes()}
    unhidden = TestClient(create_explorer(Store.open(path)))
    told = {e: unhidden.get(f'/data/episode/{e}/0').text for e in recorded}
    assert arms_worked_out(path, told) == {}, 'codes lead nowhere even with the seeds'
    assert arms_worked_out(path, told, names=recorded.values()) == recorded
    view = TestClient(create_explorer(read_store(path)))
    for code in sealed.codes.values():
        assert 'No episode matches' in view.get('/', params={'policy': code}).text
    assert 'blinded trial' in view.get('/').text
    close_trial(sealed.operator_plan, path, by='kim', allocation=sealed)
    assert 'blinded trial' not in view.get('/').text, 'an explorer that was open before'
    assert all(name in view.get('/').text for name in plan.policies)


def test_the_explorer_by_keyboard_in_a_browser(browser: Browser, store: Store) -> None:
    episode = next(e for e in store.episodes() if e.policy == 'slow')
    with served(create_explorer(store)) as address:
        page = new_page(browser)
        trouble: list[str] = []
        page.on('console', lambda m: trouble.append(m.text) if m.type == 'error' else None)
        page.on('pageerror', lambda e: trouble.append(str(e)))
        asked: list[str] = []
        page.on('request', lambda r: asked.append(r.url))
        page.goto(f'{address}/episode/{episode.episode_id}/0?t=1.0')
        page.wait_for_selector('html[data-ready=yes]')
        frame = page.locator('video')
        assert frame.get_attribute('data-frame') == '5'  # frames are 0.2 s apart
        page.keyboard.press('ArrowRight')
        assert frame.get_attribute('data-frame') == '6'
        for keys, t in (('Shift+ArrowRight', '1.250'), (']', '2.600'), ('End', ''), ('[', '9.600')):
            page.keyboard.press(keys)
            page.wait_for_url(f'**t={t}*')
        shown = 'const look = () => (v.readyState >= 2 && !v.seeking ? done() : setTimeout(look, 20)); look();'
        frame.evaluate(f'v => new Promise((done) => {{ {shown} }})')
        assert frame.evaluate('v => [v.currentTime >= 9.6, v.currentTime < 9.8]') == [True, True]
        assert page.locator('.lane').count() == 2
        Opened(page).shot('explorer-episode')
        page.set_viewport_size({'width': 360, 'height': 800})
        Opened(page).check_fits()
        other = next(e for e in store.episodes() if e.policy == 'quick' and e.seed != 99)
        page.goto(f'{address}/episode/{episode.episode_id}/0?beside={other.episode_id}:0')
        page.wait_for_selector('html[data-ready=yes]')
        assert page.locator('video').count() == 2
        Opened(page).shot('explorer-beside')
        assert all(url.startswith(address) for url in asked if not url.startswith(('blob:', 'data:')))
        assert not trouble
        page.close()


ODD = '<img src=x onerror=alert(1)>"{{7*7}}'


def odd_store(path: Path) -> tuple[Store, list[Episode]]:
    """Names that are markup, numbers that are none, and cameras whose films lead elsewhere."""
    store = Store.create(path)
    columns = {name: np.zeros(9) for name in ('gripper_command', 'gripper_position')}
    videos = ('../../trial.json', '/etc/passwd', 'a\0b', 5000 * 'x', 'missing.mp4', 'media')
    cameras = tuple(Camera(ODD, None, None, 4, 4, video=video, video_steps=(0, 1)) for video in videos)
    scenes = (
        Scene(target_center_m=(math.nan, 0, 0), target_size_m=(1, 1, math.inf), control_rate_hz=20.0),
        Scene(cameras=cameras, control_rate_hz=20.0),
    )
    episodes = []
    for seed, scene in enumerate(scenes):
        episode = Episode(policy=ODD, task=ODD, stratum=ODD, reason=ODD, outcome=Outcome.TIMEOUT, duration_s=1.0,
                          time_cap_s=2.0, items=2, items_placed=1, seed=seed, instance=seed)  # fmt: skip
        extra = {ODD: np.full(9, np.inf)}
        trajectory = Trajectory(time_s=np.arange(1, 10) / 20, ee_pose=np.full((9, 7), np.nan), extra=extra, scene=scene,
                                **columns)  # fmt: skip
        store.append([episode], trajectories={episode.key: trajectory})
        episodes.append(episode)
    return store, episodes


def test_odd_names_and_numbers_are_shown_as_what_they_are(tmp_path: Path) -> None:
    store, episodes = odd_store(tmp_path / 's')
    for app, page in ((create_explorer(store), 'episode'), (create_review(store, by=ODD), 'review')):
        client = TestClient(app)
        for episode in episodes:
            for address in ('/', f'/{page}/{episode.episode_id}/0'):
                answer = client.get(address)
                assert answer.status_code == 200
                assert '<img src=x' not in answer.text
            told = client.get(f'/data/episode/{episode.episode_id}/0').json()
            assert told['path']['target'] is None
            assert told['films'] == []


def test_an_empty_store_is_shown_as_empty(tmp_path: Path) -> None:
    client = TestClient(create_explorer(Store.create(tmp_path / 's')))
    assert client.get('/').status_code == 200
    assert client.get('/figures').status_code == 400


@pytest.mark.parametrize('name', ['%00.mp4', 5000 * 'a' + '.mp4', '..%2F..%2Ftrial.json', '%2Fetc%2Fpasswd'])
def test_media_that_no_file_can_be_are_refused(client: TestClient, name: str) -> None:
    assert client.get(f'/media/{name}').status_code == 400


@pytest.mark.parametrize('headers', [{'host': '[::1'}, {'origin': 'http://[x'}, {'host': 'example.org'}])
def test_odd_senders_are_refused(store: Store, headers: dict[str, str]) -> None:
    answer = TestClient(create_review(store, by='ann')).post('/review/x/0', json={'marks': []}, headers=headers)
    assert answer.status_code in (403, 421)


@pytest.fixture(scope='module')
def trial(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two policies and a reference in two strata, so that every kind of figure has something to show."""
    store = Store.create(tmp_path_factory.mktemp('trial') / 's')
    rng = np.random.default_rng(3)
    for policy, pace_s in (('quick', 3.0), ('slow', 7.0), ('person', 2.0)):
        for number in range(8):
            times = np.cumsum(rng.gamma(8, pace_s / 8, 2)).tolist()
            events = tuple(Event(t, EventKind.PLACEMENT) for t in times)
            store.append([Episode(
                policy=policy, task='pick', stratum=('spoon', 'block')[number % 2], outcome=Outcome.SUCCESS,
                duration_s=times[-1], time_cap_s=60.0, items=2, items_placed=2, seed=number, instance=number,
                events=events, is_reference=policy == 'person',
            )])  # fmt: skip
    return store


def open_all(page: Page) -> None:
    """Opens what the report folds, as a reader does who wants to see all of it."""
    page.locator('main details:not([open])').evaluate_all('all => all.forEach((d) => { d.open = true; })')


def listed_ids(page: Page) -> set[str]:
    """The episodes of the list that a link was followed to."""
    page.wait_for_url(lambda url: urlsplit(url).path == '/')
    return {a.get_attribute('href').split('/')[2] for a in page.locator('#rows tbody a').all()}  # type: ignore[union-attr]


def test_marks_of_a_figure_lead_to_their_episodes_by_mouse_and_keyboard(browser: Browser, trial: Store) -> None:
    own = {
        s: {e.episode_id for e in trial.episodes(where={'policy': 'slow', 'stratum': s})} for s in ('spoon', 'block')
    }
    with served(create_explorer(trial)) as address:
        page = new_page(browser)
        trouble: list[str] = []
        page.on('console', lambda m: trouble.append(m.text) if m.type == 'error' else None)
        page.on('pageerror', lambda e: trouble.append(str(e)))
        page.goto(f'{address}/figures')
        page.get_by_role('link', name='rmst-grid', exact=True).click()
        page.wait_for_selector('html[data-ready=yes]')
        Opened(page).shot('explorer-figure')
        spoon = page.locator('.drawn a[aria-label^="slow, spoon"]')
        spoon.click()
        assert listed_ids(page) == own['spoon']
        page.go_back()
        page.wait_for_selector('html[data-ready=yes]')
        page.locator('.drawn a').first.focus()
        names = page.locator('.drawn a').evaluate_all('all => all.map((a) => a.getAttribute("aria-label"))')
        wanted = next(n for n, name in enumerate(names) if name.startswith('slow, block'))
        for _ in range(wanted):
            page.keyboard.press('ArrowRight')
        assert page.locator('[data-mark-told]').inner_text().startswith('slow, block')
        assert page.locator('.drawn a[tabindex="0"]').count() == 1
        page.keyboard.press('Enter')
        assert listed_ids(page) == own['block']
        page.goto(f'{address}/figures/qq')
        mark = page.locator('.drawn a').first
        told, href = mark.get_attribute('aria-label') or '', mark.get_attribute('href') or ''
        page.goto(address + href)
        assert f'{len(listed_ids(page))} episode' in told
        assert not trouble
        page.close()


def test_the_report_beside_the_explorer_leads_there(browser: Browser, trial: Store) -> None:
    with served(create_explorer(trial)) as address:
        page = new_page(browser)
        trouble: list[str] = []
        page.on('console', lambda m: trouble.append(m.text) if m.type == 'error' else None)
        page.goto(f'{address}/report')
        open_all(page)
        own = {e.episode_id for e in trial.episodes(where={'policy': 'quick', 'stratum': 'block'})}
        chart = page.locator('#success-grid svg.chart')
        chart.focus()
        marks = chart.locator('.mark:not(.words)')
        names = marks.evaluate_all('all => all.map((a) => a.getAttribute("aria-label"))')
        for _ in range(1 + next(n for n, name in enumerate(names) if name.startswith('quick, block'))):
            page.keyboard.press('ArrowRight')
        Opened(page).shot('explorer-report')
        page.keyboard.press('Enter')
        assert listed_ids(page) == own
        page.goto(f'{address}/report')
        open_all(page)
        bar = page.locator('#failure-chart a.mark[aria-label^="slow: done"]').first
        bar.click()
        assert listed_ids(page) == {e.episode_id for e in trial.episodes(where={'policy': 'slow'})}
        assert not trouble
        page.close()


def test_every_page_fits_a_phone_and_a_desk_and_can_be_read_light_and_dark(browser: Browser, store: Store) -> None:
    episode = next(e for e in store.episodes() if e.policy == 'slow')
    own = f'/episode/{episode.episode_id}/0'
    with served(create_explorer(store)) as address:
        page = new_page(browser)
        for path in ('/', '/?policy=nobody', own, f'{own}?end=after', '/figures', '/figures/cdf'):
            page.goto(address + path)
            if path.startswith(own):
                page.wait_for_selector('html[data-ready=yes]')
            for width in (PHONE_PX, DESK_PX):
                page.set_viewport_size({'width': width, 'height': 900})
                for scheme in ('light', 'dark'):
                    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                    Opened(page).check_fits()
                    Opened(page).check_contrast()
        page.close()


@pytest.mark.parametrize('name', ['nothing', 'power', 'claims'])
def test_a_figure_that_is_not_of_episodes_is_refused(client: TestClient, name: str) -> None:
    assert client.get(f'/figures/{name}').status_code == 400
