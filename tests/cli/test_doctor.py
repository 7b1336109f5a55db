"""`robotrials doctor`: what it sees, on a screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import robotrials

EVENING = Path(__file__).parents[1] / 'formats' / 'evening'
ODD = """policy,task,seed,success,steps,duration_s,time_cap_s,items,items_placed
pi 0,pick,1,1,0,0,30,2,2
pi 0,pick,2,0,300,30,30,2,1
pi_0,pick,3,1,90,9,30,2,2
act,pick,1,0,900,90,30,2,0
act,pick,2,1,50,5,30,2,1
act,pick,4,0,300,30,30,2,0
"""


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / 'odd.csv'
    path.write_text(ODD)
    return path


def test_it_names_what_is_odd_in_a_file(odd: Path) -> None:
    seen = ' '.join(robotrials('doctor', odd).split())
    for said in (
        'columns read as table: policy, task, seed, steps, items, items_placed',
        "alike policy 'pi 0' = 'pi_0'",
        'caps 30 s (6)',
        'pairing 0 of 4 starts were run by all 3 policies, 2 more by some of them',
        'first step 1 successes at the first step',
        '1 episodes last longer than their time cap',
        '1 episodes succeed without all items placed',
    ):
        assert said in seen


def test_a_store_is_seen_as_its_file(odd: Path, tmp_path: Path) -> None:
    robotrials('import', odd, '--to', tmp_path / 's')
    of_file, of_store = (robotrials('doctor', source).splitlines() for source in (odd, tmp_path / 's'))
    start = [line.split()[0] for line in of_store].index('policies')
    assert [line for line in of_store[start:-1] if line in of_file] == of_store[start:-1]


@pytest.mark.parametrize('name', sorted(path.name for path in EVENING.iterdir()))
def test_it_fits_a_screen(name: str) -> None:
    path = EVENING / name
    try:
        printed = robotrials('doctor', path)
    except AssertionError as error:  # the file needs a remedy, which is what the doctor then says
        assert f'Try: robotrials import {path}' in str(error)  # noqa: PT017
        return
    lines = [line for line in printed.splitlines() if str(path) not in line]
    assert max(map(len, lines)) <= 80
    assert len(printed.splitlines()) <= 24


def test_counts_that_cannot_be_are_told_with_their_columns(tmp_path: Path) -> None:
    path = tmp_path / 'rates.csv'
    path.write_text('policy,task,success_rate,trials\na,t,67%,20\nb,t,85%,20\n')
    said = robotrials('doctor', path, code=2)
    assert 'read as table: policy, task, success_rate, trials' in said
    assert "row 1: success_rate is '67%' of 20 trials: no count fits" in said


def test_it_is_data_too(odd: Path) -> None:
    table = json.loads(robotrials('doctor', odd, '-f', 'json'))
    assert '1: pick (6)' in json.dumps(table['rows'])


def test_it_goes_on_with_what_the_file_does_not_name(odd: Path) -> None:
    odd.write_text(ODD.replace(',pick,', ',').replace('task,', ''))
    seen = robotrials('doctor', odd)
    assert '(--set' not in seen  # which the doctor does not have
    assert f'robotrials import {odd} --to {odd.stem}-store --set task=NAME' in ' '.join(seen.split())
