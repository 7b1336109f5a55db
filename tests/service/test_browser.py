"""The tests' own browser: what it measures is a page that is loaded, also right after a click that leaves another."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse, StreamingResponse
from tests.browser import Browser, Opened, new_page
from tests.service.serving import served

HELD_UP_S = 0.7


def slow_app() -> FastAPI:
    app = FastAPI()

    @app.get('/')
    def first() -> HTMLResponse:
        return HTMLResponse('<title>first</title><a href="/wide">on</a>')

    @app.get('/wide')
    def wide() -> StreamingResponse:
        def parts() -> Iterator[str]:
            yield '\n'
            time.sleep(HELD_UP_S)  # the browser has left the first page, and of this one there is no element yet
            yield '<!doctype html><title>wide</title>' + '<p style="color: #aaa">grey</p>' * 9
            time.sleep(HELD_UP_S)
            yield '<div style="width: 5000px">wide</div>'

        return StreamingResponse(parts(), media_type='text/html')

    return app


@pytest.mark.parametrize(('check', 'found'), [('check_fits', '50.. px wide'), ('check_contrast', 'grey')])
def test_a_check_right_after_a_click_waits_for_the_new_page(browser: Browser, check: str, found: str) -> None:
    with served(slow_app()) as address:
        page = new_page(browser)
        page.goto(address)
        page.click('text=on')
        page.wait_for_url('**/wide', wait_until='commit')
        with pytest.raises(AssertionError, match=found):
            getattr(Opened(page), check)()
        page.close()
