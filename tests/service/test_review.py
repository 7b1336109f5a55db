"""The review: what it offers, what it saves, what it refuses, and by keyboard in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.browser import PHONE_PX, Browser, Opened, new_page
from tests.measure.annotate.telemetries import ZONES
from tests.service.serving import served
from tests.service.stores import make_store

from robotrials.errors import InputError
from robotrials.measure.annotate import LabelStanding, agreements, scan, statuses
from robotrials.record import Store
from robotrials.service.review import create_review


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Six untimed episodes; in two of them the operator counted less than the detector finds."""
    made = make_store(tmp_path / 's', timed=False)
    for episode in [e for e in made.episodes() if e.seed == 0]:
        made.edit(episode.episode_id, 'set', field='items_placed', value=1, by='kim', why='recounted')
    bare = next(e for e in made.episodes() if e.seed == 99)
    made.edit(bare.episode_id, 'drop', by='kim', why='no telemetry')
    made.annotate(scan(made.trajectories(), ZONES))
    return made


def waiting(store: Store) -> list[Any]:
    return [s for s in statuses(store.episodes(), store.annotations()) if s.standing is LabelStanding.WAITING]


def path_of(store: Store) -> str:
    return '/review/{}/{}'.format(*min(s.episode.key for s in waiting(store)))


def test_a_saved_account_settles_the_episode_and_changes_nothing_else(store: Store) -> None:
    before = list(store.episodes())
    client = TestClient(create_review(store, by='ann'))
    assert '2 of 2 episodes wait for you' in client.get('/').text
    answer = client.post(path_of(store), json={'marks': [{'t_s': 2.6, 'kind': 'placement'}]})
    assert answer.json()['standing'] == 'reviewed'
    assert len(waiting(store)) == 1
    assert list(store.episodes()) == before


@pytest.mark.parametrize(
    ('marks', 'status', 'message'),
    [
        ([{'t_s': 2.6, 'kind': 'placement', 'count': 2}], 400, 'you count 2, the operator 1'),
        ([{'t_s': 2.6, 'kind': 'placement', 'count': 9}], 400, '9 placements, and the episode had 4 items'),
        ([{'t_s': 99.0, 'kind': 'placement'}], 400, 'a mark at 99 s'),
        ([{'t_s': 1.0, 'kind': 'phase'}], 400, 'a mark of kind phase'),
        ([{'t_s': -1.0, 'kind': 'placement'}], 422, 't_s'),
        ([{'t_s': 1.0, 'kind': 'nonsense'}], 422, 'kind'),
        ([{'t_s': 1.0, 'kind': 'placement', 'by': 'x'}], 422, 'by'),
    ],
)
def test_an_account_that_cannot_stand_is_refused(store: Store, marks: list[Any], status: int, message: str) -> None:
    client = TestClient(create_review(store, by='ann'))
    answer = client.post(path_of(store), json={'marks': marks})
    assert answer.status_code == status
    assert message in answer.text
    assert len(waiting(store)) == 2


def test_another_count_needs_a_note_and_still_waits(store: Store) -> None:
    client = TestClient(create_review(store, by='ann'))
    given = {'marks': [{'t_s': 2.6, 'kind': 'placement', 'count': 2}], 'note': 'two spoons at once'}
    assert client.post(path_of(store), json=given).json()['standing'] == 'waiting for review'
    with pytest.raises(InputError, match='name of the reviewer'):
        create_review(store, by='')


def test_a_blinded_reviewer_sees_neither_policies_nor_others(store: Store) -> None:
    TestClient(create_review(store, by='bob')).post(path_of(store), json={'marks': [{'t_s': 2.6, 'kind': 'placement'}]})
    client = TestClient(create_review(store, by='ann', everything=True))
    path = '/{}/{}'.format(*min(e.key for e in store.episodes()))
    seen = client.get('/').text + client.get(f'/review{path}').text + client.get(f'/data/episode{path}').text
    assert 'quick' not in seen
    assert 'slow' not in seen
    assert 'bob' not in seen
    open_eyed = TestClient(create_review(store, by='ann', blinded=False, everything=True))
    assert 'quick' in open_eyed.get(f'/data/episode{path}').text or 'slow' in open_eyed.get(f'/data/episode{path}').text


def test_two_reviewers_can_be_compared(store: Store) -> None:
    path = path_of(store)
    for by, t_s in (('ann', 2.6), ('bob', 2.9)):
        marks = [{'t_s': t_s, 'kind': 'placement'}]
        assert TestClient(create_review(store, by=by, everything=True)).post(path, json={'marks': marks}).is_success
    (found,) = agreements(store.annotations())
    assert found.apart_s == pytest.approx(0.3)


def test_the_review_by_keyboard_in_a_browser(browser: Browser, store: Store) -> None:
    path = path_of(store)
    with served(create_review(store, by='ann')) as address:
        page = new_page(browser)
        trouble: list[str] = []
        page.on('pageerror', lambda e: trouble.append(str(e)))
        page.goto(address + path)
        page.wait_for_selector('html[data-ready=yes]')
        assert '2 placed by your marks, the operator counted 1' in page.inner_text('[data-count]')
        page.keyboard.press(']')
        page.keyboard.press(']')
        page.keyboard.press('c')  # the second one was none
        assert '1 placed by your marks, as the operator counted' in page.inner_text('[data-count]')
        page.keyboard.press('Home')
        page.keyboard.press(']')
        page.keyboard.press('ArrowRight')
        page.keyboard.press('m')  # and the first came a frame later
        Opened(page).shot('review')
        page.set_viewport_size({'width': PHONE_PX, 'height': 800})
        Opened(page).check_fits()
        page.keyboard.press('s')
        page.wait_for_url(lambda url: path not in url)
        assert not trouble
        page.close()
    (account,) = [a for rows in store.annotations().values() for a in rows if a.source.value == 'reviewer']
    assert [e.t_s for e in account.events] == [pytest.approx(2.6)]
    assert len(waiting(store)) == 1


def test_rows_of_the_list_stay_low_on_a_phone(browser: Browser, store: Store) -> None:
    """A sentence in a column that nobody sees must not push the rows apart."""
    with served(create_review(store, by='ann')) as address:
        page = new_page(browser)
        page.set_viewport_size({'width': PHONE_PX, 'height': 800})
        page.goto(address)
        Opened(page).check_fits()
        heights = page.eval_on_selector_all('tbody tr', 'rows => rows.map((row) => row.offsetHeight)')
        assert heights
        assert max(heights) < 70
        page.close()
