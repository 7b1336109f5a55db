"""The explorer of a submission: no page, answer or address tells start states that others have still to meet."""

from __future__ import annotations

import base64
import itertools
import re

import pytest
from tests.service.platform.service import Service
from tests.service.platform.test_pages import TWO_CELLS, Visit, run

from robotrials.record import Outcome, Store
from robotrials.service.explorer.pages import store_figures


def explored(visit: Visit, submission: str, *names: str) -> dict[str, str]:
    """Every page and answer of a submission's explorer, figures only by these names: its text with all addresses."""
    base = f'/submission/{submission}/explore'
    seen: dict[str, str] = {}
    waiting = [f'{base}/', f'{base}/figures', f'{base}/report', *(f'{base}/figures/{name}' for name in names)]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        answer = visit.get(path)
        pictures = re.findall(r'data:image/svg[+]xml;base64,([A-Za-z0-9+/=]+)', answer.text)
        drawn = ''.join(base64.b64decode(picture).decode() for picture in pictures)
        seen[path] = f'{path}\n{answer.text}\n{drawn}\n{dict(answer.headers)}'
        found = re.findall(rf'{base}/episode/\w+/\d+', answer.text)
        waiting += [*found, *(link.replace('/episode/', '/data/episode/') for link in found)]
    return seen


@pytest.fixture
def submitted(service: Service) -> tuple[str, str]:
    """A finished submission, and its submitter's token."""
    service.benchmark(plan=TWO_CELLS)
    kim, worker = service.token('kim', 'submitter'), service.worker()
    return run(service, kim, 'mine', worker, itertools.cycle([Outcome.SUCCESS, Outcome.FAILURE])), kim


def seeds_of(service: Service) -> set[str]:
    store = Store.open(service.platform.config.folder / 'stores' / 'reach')
    seeds = {str(episode.seed) for episode in store.episodes()}
    assert min(map(len, seeds)) > 6  # too long to be met by chance
    return seeds


def check_hides(service: Service, seen: dict[str, str]) -> None:
    assert sum('/data/episode/' in path for path in seen) == 6
    assert [path for path, text in seen.items() if any(seed in text for seed in seeds_of(service))] == []
    assert [path for path, text in seen.items() if re.search(r'"(seed|instance)"|>(seed|instance)<', text)] == []


def test_no_seed_is_shown_while_others_can_still_submit(service: Service, submitted: tuple[str, str]) -> None:
    submission, kim = submitted
    check_hides(service, explored(Visit(service, kim), submission))


@pytest.mark.platform
def test_no_figure_shows_a_seed_while_others_can_still_submit(service: Service, submitted: tuple[str, str]) -> None:
    submission, kim = submitted
    names = [name for name, _ in store_figures()]
    assert len(names) > 10
    check_hides(service, explored(Visit(service, kim), submission, *names))


def test_the_seeds_of_a_closed_benchmark_are_shown(service: Service, submitted: tuple[str, str]) -> None:
    submission, kim = submitted
    service.ok('POST', '/benchmarks/reach/close', service.admin, {'why': ''})
    seen = explored(Visit(service, kim), submission)
    for seed in seeds_of(service):
        assert any(seed in text for path, text in seen.items() if '/data/episode/' in path)
        assert seed in seen[f'/submission/{submission}/explore/report']
