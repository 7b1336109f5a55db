"""The console in a real browser: by keyboard alone, on a phone, without a server, after a reload; and what it keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.browser import DESK_PX, PHONE_PX, Browser, Opened
from tests.cli.command import robotrials
from tests.formats.test_positronic import START_NS, put_episode
from tests.patience import PATIENCE_MS
from tests.service.consoles import CAP_S, ITEMS, NAMES, account, make_desk, sealed
from tests.service.postgres import free_port
from tests.service.serving import served
from tests.service.test_console import ALLOWED, REFUSED

from robotrials.record import Episode, EventKind, EventSource, Outcome, Store
from robotrials.record.verify import verify_store
from robotrials.run import close_trial
from robotrials.run.arm_limit import ArmStop
from robotrials.run.blinding import Allocation
from robotrials.service.console import create_console
from robotrials.service.console.account import Account, find_trouble
from robotrials.service.console.desk import Desk

PANELS = '[data-panel]:not([hidden])'
PAGE_CAP_S = 600.0  # no clock ends by itself in a test that does not wait for it


@pytest.fixture
def trial(tmp_path: Path) -> Allocation:
    return sealed(tmp_path / 'sealed', time_cap_s=PAGE_CAP_S)


@pytest.fixture
def desk(trial: Allocation, tmp_path: Path) -> Desk:
    return make_desk(trial.operator_plan, tmp_path / 's', stop=lambda: ArmStop(True, 'brakes on'))


@contextmanager
def opened(
    browser: Browser, address: str, *, width: int = DESK_PX, scheme: str = 'light', **options: Any
) -> Iterator[Opened]:
    context = browser.driven.new_context(
        viewport={'width': width, 'height': 760}, color_scheme=scheme, **options,  # type: ignore[arg-type]
    )  # fmt: skip
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    found = Opened(page)
    page.on('pageerror', lambda error: found.problems.append(f'page error: {error}'))
    try:
        page.goto(address)
        page.wait_for_selector('html[data-ready=yes]')
        yield found
    finally:
        context.close()


def waits_for(page: Any, text: str, selector: str = 'main') -> None:
    page.wait_for_function(
        '([selector, text]) => document.querySelector(selector).innerText.includes(text)', arg=[selector, text]
    )


def waits_until_sent(page: Any) -> None:
    page.wait_for_function("() => !Object.keys(localStorage).some((k) => k.includes(':out:'))")


def episodes(desk: Desk) -> list[Episode]:
    return list(Store.open(desk.store.path).episodes(attempts='all', dropped=True))


def test_an_episode_by_keyboard_alone(browser: Browser, desk: Desk) -> None:
    with served(create_console(desk)) as address, opened(browser, address) as seen:
        page, press = seen.page, seen.page.keyboard.press
        assert 'time cap' in page.inner_text('[data-panel=assignment]')
        assert page.inner_text('[data-clock]') == '10:00.0'
        press('Space')
        press('p')
        press('l')
        press('u')  # nothing was lost
        press('p')
        press('Space')
        waits_for(page, 'it took')
        press('1')  # success, with two of three marked
        assert 'a success places' not in page.inner_text('main')
        page.keyboard.type('1')  # in the first empty field: one is left in the source
        assert '= 3' not in page.inner_text('main')
        press('Tab')
        press('Tab')
        press('Tab')
        page.keyboard.type('0')
        assert 'a success places all 3 items, and 2 are counted' in page.inner_text('[data-trouble=placed]')
        assert page.get_attribute('[data-count=placed]', 'aria-invalid') == 'true'
        press('Enter')
        assert episodes(desk) == []
        page.focus('[data-label=safety]')
        press('Enter')
        press('Enter')  # still on the button: it is only chosen again
        assert episodes(desk) == []
        seen.shot('console-end')
        page.focus('[data-do=save]')
        press('Enter')
        waits_for(page, '1 of 12 episodes are in')
        assert 'Last saved' in page.inner_text('[data-panel=last]')
        press('u')
        page.keyboard.type('the wrong tote')
        seen.shot('console-undo')
        press('Enter')
        waits_for(page, '0 of 12 episodes are in')
        assert seen.problems == []
    (episode,) = episodes(desk)
    assert episode.outcome is Outcome.SAFETY_STOP
    placed = [e for e in episode.events if e.kind is EventKind.PLACEMENT]
    assert len(placed) == 2
    assert all(e.source is EventSource.OPERATOR for e in episode.events)
    assert not any(e.kind is EventKind.DROP_OUTSIDE for e in episode.events)
    assert desk.store.edits().is_dropped(*episode.key)
    assert verify_store(desk.store.path).is_clean


def test_escape_stops_the_arm_even_from_a_field_and_ends_the_episode(browser: Browser, desk: Desk) -> None:
    with served(create_console(desk)) as address, opened(browser, address) as seen:
        page, press = seen.page, seen.page.keyboard.press
        press('Space')
        page.wait_for_timeout(150)
        press('Escape')
        waits_for(page, 'The arm was stopped: confirmed')
        seen.shot('console-stopped')
        assert page.get_attribute('[data-label=safety]', 'aria-pressed') == 'true'
        press('1')
        assert page.inner_text('[data-trouble=label]') == 'you stopped the arm: that is Safety, or a system fault'
        page.click('[data-label=safety]')
        press('u')
        assert 'that stays on record' in page.inner_text('[data-told]')
        for name, count in (('placed', '1'), ('source', '2'), ('lost', '0')):
            page.fill(f'[data-count={name}]', count)
        press('Escape')  # in a field, after the end: the arm is stopped again, the account stays
        waits_for(page, 'The arm was stopped: confirmed')
        page.focus('[data-count=lost]')
        press('Enter')
        waits_for(page, '1 of 12 episodes are in')
        assert seen.problems == []
    (episode,) = episodes(desk)
    assert episode.outcome is Outcome.SAFETY_STOP
    (stop,) = [e for e in episode.events if e.kind is EventKind.SAFETY_STOP]
    assert stop.source is EventSource.OPERATOR
    assert stop.t_s == episode.duration_s
    assert episode.labels['arm_stop'] == 'confirmed'
    assert len([e for e in desk.journal.entries if e['kind'] == 'stop']) == 2


def run_through(page: Any, label: str) -> None:
    """Start and stop the clock, and say how it ended."""
    waits_for(page, 'Start', '[data-do=timer]')
    page.click('[data-do=timer]')
    waits_for(page, 'Stop', '[data-do=timer]')
    page.wait_for_timeout(300)
    page.click('[data-do=timer]')
    waits_for(page, 'it took')
    page.click(f'[data-label={label}]')


def test_console_telemetry_and_closing_meet_in_one_store(
    browser: Browser, trial: Allocation, desk: Desk, tmp_path: Path
) -> None:
    """A fault asks for no counts, telemetry joins by the clock what was saved, and a closed trial takes no more."""
    counts = (('placed', '3'), ('source', '0'), ('lost', '0'))
    with served(create_console(desk)) as address, opened(browser, address) as seen:
        page = seen.page
        run_through(page, 'fault')
        assert not page.is_visible('[data-counts]')
        page.click('[data-do=save]')
        waits_for(page, 'Last saved')
        run_through(page, 'success')
        assert page.is_visible('[data-counts]')
        for name, count in counts:
            page.fill(f'[data-count={name}]', count)
        page.click('[data-do=save]')
        waits_for(page, '1 of 12 episodes are in')

        (valid,) = [e for e in episodes(desk) if e.is_valid]
        assert valid.started_at is not None
        late_ns = round((valid.started_at.timestamp() - 1) * 1e9) - START_NS
        put_episode(tmp_path / 'tele' / '000000000000' / '000000000000', 'session', rounds=5, late_ns=late_ns)
        assert 'the recorded clocks agree' in robotrials('store', 'attach', desk.store.path, tmp_path / 'tele')
        trajectory = Store.open(desk.store.path).trajectory(valid)
        assert trajectory is not None
        assert trajectory.time_s[-1] <= (valid.duration_s or 0.0) + 0.1

        close_trial(trial.operator_plan, desk.store.path, by='lee', why='test', early=True, allocation=trial)
        run_through(page, 'success')
        for name, count in counts:
            page.fill(f'[data-count={name}]', count)
        page.click('[data-do=save]')
        waits_for(page, 'this trial was closed by lee')
        assert seen.problems == []
    fault, success = sorted(episodes(desk), key=lambda e: e.started_at)  # type: ignore[arg-type, return-value]
    assert (fault.outcome, fault.items_placed, fault.items_lost) == (Outcome.INVALID, None, None)
    assert (success.outcome, success.items_placed) == (Outcome.SUCCESS, 3)
    assert verify_store(desk.store.path).is_clean


def test_a_stop_that_nobody_confirms_says_so(browser: Browser, trial: Allocation, tmp_path: Path) -> None:
    desk = make_desk(trial.operator_plan, tmp_path / 'n', stop=lambda: ArmStop(False, 'no answer from the arm'))
    with served(create_console(desk)) as address, opened(browser, address, width=PHONE_PX) as seen:
        seen.page.click('[data-do=stop]')
        waits_for(seen.page, 'THE STOP IS NOT CONFIRMED')
        assert 'no answer from the arm' in seen.page.inner_text('[data-told]')
        seen.shot('console-stop-unconfirmed-360')


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_one_thumb_on_a_phone(browser: Browser, desk: Desk, scheme: str) -> None:
    from playwright.sync_api import expect

    with (
        served(create_console(desk)) as address,
        opened(browser, address, width=PHONE_PX, scheme=scheme, has_touch=True, is_mobile=True) as seen,
    ):
        page = seen.page

        def look(name: str) -> None:
            seen.check_fits()
            seen.check_contrast()
            small = page.evaluate(
                "[...document.querySelectorAll('[data-console] button')].filter((b) => b.checkVisibility())"
                '.filter((b) => b.getBoundingClientRect().height < 44).map((b) => b.innerText)'
            )
            assert small == []
            seen.shot(f'console-{name}-360-{scheme}')

        look('ready')
        page.tap('[data-do=timer]')
        page.tap('[data-do=place]')
        look('running')
        page.tap('[data-do=timer]')
        page.tap('[data-label=fault]')
        expect(page.locator('[data-counts]')).to_be_hidden()  # it is run again: there is nothing to count
        look('fault')
        page.tap('[data-label=safety]')
        page.tap('[data-more=placed]')
        look('ended')
        assert 'placed = 2' not in page.inner_text('main')
        page.tap('[data-more=source]')
        page.tap('[data-more=lost]')
        expect(page.locator('[data-trouble=source]')).to_have_text('placed + source + lost = 4, and there were 3 items')
        look('refused')
        page.tap('[data-less=placed]')
        page.tap('[data-do=save]')
        waits_for(page, 'Last saved')
        waits_until_sent(page)
        look('saved')
    (episode,) = episodes(desk)
    assert (episode.outcome, episode.items_placed, episode.items_lost) == (Outcome.SAFETY_STOP, 1, 1)


def test_without_the_server_nothing_is_lost_and_nothing_comes_twice(
    browser: Browser, desk: Desk, trial: Allocation
) -> None:
    app, port = create_console(desk), free_port()
    with ExitStack() as stack:
        with served(app, port=port) as address:
            seen = stack.enter_context(opened(browser, address))
            page, press = seen.page, seen.page.keyboard.press
            page.wait_for_function('() => navigator.serviceWorker.controller !== null')
            press('Space')
            press('p')
        page.context.set_offline(True)  # and the server is gone as well
        press('p')
        press('p')
        press('Space')
        press('1')
        press('Enter')
        waits_for(page, '1 waiting here')
        page.reload()  # the page itself comes from the service worker
        page.wait_for_selector('html[data-ready=yes]')
        assert 'kept here, not sent yet' in page.inner_text('main')
        assert 'offline' in page.inner_text('[data-link]')
        seen.shot('console-offline')
        waits_for(page, 'The next assignment comes from the server')
        press('Space')  # nothing to start: no assignment ahead is known here
        assert not page.is_visible('[data-panel=clock]')
        check_nothing_tells(page, trial)
        assert episodes(desk) == []
        stack.enter_context(served(app, port=port))
        page.context.set_offline(False)
        second = page.context.new_page()  # two windows with the same things to send
        second.set_default_timeout(PATIENCE_MS)
        second.goto(address)
        waits_for(page, '1 of 12 episodes are in')
        waits_for(second, '1 of 12 episodes are in')
        waits_until_sent(page)
        check_nothing_tells(page, trial)
        assert seen.problems == []
        page.context.close()
    (kept,) = episodes(desk)
    assert kept.outcome is Outcome.SUCCESS
    assert len([e for e in kept.events if e.kind is EventKind.PLACEMENT]) == ITEMS
    assert verify_store(desk.store.path).is_clean


def test_an_answer_that_never_comes_offers_nothing_twice(browser: Browser, desk: Desk) -> None:
    with served(create_console(desk)) as address, opened(browser, address, service_workers='block') as seen:
        page, press = seen.page, seen.page.keyboard.press
        (assignment,) = desk.state()['assignments']
        page.route('**/api/state', lambda route: route.abort())  # saved, and then the connection breaks
        press('Space')
        press('u')  # a start that is undone is offered again
        press('Space')
        press('Space')
        press('1')
        press('Enter')
        waits_until_sent(page)
        press('Space')  # what was saved is not offered again, though nothing new has come
        assert not page.is_visible('[data-panel=clock]')
        page.unroute('**/api/state')
        waits_for(page, '1 of 12 episodes are in')
        assert not page.is_visible('[data-panel=refused]')
    (kept,) = episodes(desk)
    assert '{}/{}'.format(*kept.key) == assignment['key']


def check_nothing_tells(page: Any, trial: Allocation) -> None:
    """No page, storage or cache holds a policy's name, nor a word that leads to it."""
    held = page.evaluate(
        """async () => {
          const kept = [localStorage, sessionStorage].map((storage) => JSON.stringify({ ...storage }));
          const texts = [document.documentElement.outerHTML, ...kept, document.cookie];
          for (const name of await caches.keys()) {
            const cache = await caches.open(name);
            for (const request of await cache.keys()) {
              texts.push(request.url + await (await cache.match(request)).text());
            }
          }
          return texts;
        }"""
    )
    assert len(held) > 8  # the page, the storages, and every file of the cache
    assert re.search(r'\bep-[0-9a-f]+', held[1])  # an episode's pseudonym: it is the right storage that was searched
    for word in (*NAMES, *trial.codes.values(), 'zebrafinch', 'quokka', 'wombat', 'openpi', 'groot'):
        assert [text[:60] for text in held if word in text] == []
    assert not any('/api/' in text[:200] for text in held[4:])


def test_a_reload_in_the_middle_offers_to_resume_or_to_record_a_fault(browser: Browser, desk: Desk) -> None:
    with served(create_console(desk)) as address, opened(browser, address) as seen:
        page, press = seen.page, seen.page.keyboard.press
        press('Space')
        press('p')
        page.wait_for_function("() => !localStorage[Object.keys(localStorage).find((k) => k.endsWith(':dirty'))]")
        page.reload()
        waits_for(page, 'An episode is in progress')
        seen.shot('console-resume')
        press('p')  # nothing but the question is answered
        press('r')
        waits_for(page, 'Stop the clock')
        assert page.inner_text('[data-n=placement]') == '1'
        press('p')
        with opened(browser, address, width=PHONE_PX) as other:  # the laptop is dead: a phone takes over
            waits_for(other.page, 'An episode is in progress')
            other.page.keyboard.press('f')
            waits_for(other.page, 'System fault')
        press('p')  # the laptop was not dead after all
        waits_for(page, 'it was ended on another screen')
        assert page.is_visible('[data-panel=assignment]')
        seen.shot('console-set-aside')
        assert seen.problems == []
    (episode,) = episodes(desk)
    assert episode.outcome is Outcome.INVALID
    assert 'cut off' in episode.reason


def test_the_clock_stops_at_the_cap(browser: Browser, tmp_path: Path) -> None:
    trial = sealed(tmp_path / 'short', time_cap_s=1.0)
    desk = make_desk(trial.operator_plan, tmp_path / 's')
    with served(create_console(desk)) as address, opened(browser, address) as seen:
        seen.page.keyboard.press('Space')
        waits_for(seen.page, 'Time is up')
        seen.page.keyboard.press('2')
        for name, count in (('placed', '0'), ('source', '3'), ('lost', '0')):
            seen.page.fill(f'[data-count={name}]', count)
        seen.page.keyboard.press('Enter')
        waits_for(seen.page, '1 of 12 episodes are in')
    (episode,) = episodes(desk)
    assert (episode.outcome, episode.duration_s) == (Outcome.TIMEOUT, 1.0)


def test_a_slow_answer_does_not_move_the_clock(browser: Browser, desk: Desk) -> None:
    """Page and server are on one machine: their clocks agree, however long an answer took."""
    with served(create_console(desk)) as address, opened(browser, address, service_workers='block') as seen:
        page = seen.page

        def late(route: Any) -> None:
            answer = route.fetch()
            page.wait_for_timeout(3000)
            route.fulfill(response=answer)

        page.route('**/api/state', late)
        with page.expect_response('**/api/state'):
            page.keyboard.press('Space')
        page.wait_for_timeout(200)
        offset = page.evaluate(
            "() => Number(localStorage[Object.keys(localStorage).find((k) => k.endsWith(':offset'))])"
        )
        assert abs(offset) < 1500
        page.unroute_all(behavior='ignoreErrors')


def test_the_person_who_is_an_arm_is_told_to_act(browser: Browser, desk: Desk) -> None:
    with served(create_console(desk)) as address, opened(browser, address, width=PHONE_PX) as seen:
        page = seen.page
        for n_saved in range(1, 12):
            if page.is_visible('[data-human]'):
                break
            page.keyboard.press('Space')
            page.keyboard.press('Space')
            page.keyboard.press('1')
            page.keyboard.press('Enter')
            waits_for(page, f'{n_saved} of 12 episodes are in.')  # none is waiting: the next assignment has come
        assert 'You act' in page.inner_text('[data-panel=assignment]')
        seen.shot('console-human-360')


def test_page_and_server_refuse_the_same_for_the_same_reason(browser: Browser, desk: Desk) -> None:
    cases = [account(**change) for change in (*(r[0] for r in REFUSED), *ALLOWED)]
    whole = [Account.model_validate(case).model_dump(mode='json') for case in cases]
    with served(create_console(desk)) as address, opened(browser, address) as seen:
        found = seen.page.evaluate(
            "async ([cases, cell]) => { const rules = await import('/static/console-rules.js');"
            'return cases.map((one) => rules.findTrouble(one, cell)); }',
            [whole, {'items': ITEMS, 'time_cap_s': CAP_S}],
        )
    for case, told in zip(cases, found, strict=True):
        trouble = find_trouble(Account.model_validate(case), items=ITEMS, time_cap_s=CAP_S)
        wanted = None if trouble is None else (trouble.field, trouble.why, trouble.is_missing)
        assert (None if told is None else (told['field'], told['why'], told.get('missing', False))) == wanted, (
            json.dumps(case)
        )
