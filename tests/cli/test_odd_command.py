"""Whatever is asked of the command line, the answer is a result or one clear line; never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import robotrials, words

from robotrials.stats import wilson

HEAD = 'policy,task,success,duration_s\n'


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / 'r.csv').write_text(HEAD + 'a,t,1,3\nb,t,0,4\n', encoding='utf-8')
    robotrials('import', tmp_path / 'r.csv', '--to', tmp_path / 'my store')
    return tmp_path / 'my store'


def first_id(store: Path) -> str:
    from robotrials.record import read_store

    return next(read_store(store).episodes()).episode_id


def test_a_file_is_no_store(tmp_path: Path, store: Path) -> None:
    assert 'wanted a folder' in robotrials('import', tmp_path / 'r.csv', '--to', tmp_path / 'r.csv', code=2)


def test_what_the_system_refuses_is_one_line(tmp_path: Path, store: Path) -> None:
    told = robotrials('import', tmp_path / 'r.csv', '--to', '/proc/nowhere', code=2)
    assert '/proc/nowhere' in told
    assert 'Traceback' not in told
    assert 'folder that is there' in robotrials('store', 'export', store, '-o', tmp_path / 'no' / 'x.csv', code=2)


def test_an_absent_value_can_be_filtered_for(store: Path) -> None:
    assert robotrials('store', 'ls', store, '-w', 'seed=', '-f', 'csv').count('nominal') == 2
    assert 'found' in robotrials('store', 'ls', store, '-w', 'seed=99999999999999999999', code=2)


def test_a_negative_limit_is_refused(store: Path) -> None:
    robotrials('store', 'ls', store, '--limit', '-3', code=2)


def test_the_start_of_an_id_is_enough_to_edit_and_the_edit_is_shown(store: Path) -> None:
    start = first_id(store)[:6]
    robotrials('store', 'edit', store, start, 'set', 'outcome=invalid', '--why', 'camera unplugged')
    assert 'set outcome=invalid (camera unplugged)' in robotrials('store', 'show', store, start)
    assert 'start with it' in robotrials('store', 'edit', store, '', 'drop', '--why', 'x', code=2)


def test_a_merge_makes_its_target(store: Path, tmp_path: Path) -> None:
    assert '2 episodes added' in robotrials('store', 'merge', tmp_path / 'all', store)
    assert 'no such folder' in robotrials('store', 'merge', tmp_path / 'none', tmp_path / 'nowhere', code=2)
    assert not (tmp_path / 'none').exists()


def write_store(folder: Path, rows: str) -> Path:
    (folder / 'odd.csv').write_text('policy,task,outcome,duration_s,stratum,is_reference\n' + rows, encoding='utf-8')
    robotrials('import', folder / 'odd.csv', '--to', folder / 'odd')
    return folder / 'odd'


def test_a_score_beyond_what_was_watched_says_so(tmp_path: Path) -> None:
    made = write_store(tmp_path, 'a,t,timeout,30,x,0\na,t,success,10,x,0\n')
    told = words('score', made, '--resamples', 10, '--tau', 60)
    assert 'x is judged less far than declared: followed to 30 s, not to 60 s' in told
    assert 'none was declared, so the documented defaults apply, but for tau_s = 60, resamples = 10' in told
    assert 'NOT AS DECLARED' not in told  # nothing was
    assert 'less far' not in robotrials('score', made, '--resamples', 10)


def test_one_episode_has_no_interval(tmp_path: Path) -> None:
    made = write_store(tmp_path, 'a,t,success,5,x,0\n')
    success, times = json.loads(robotrials('score', made, '--resamples', 10, '-f', 'json').partition('\n')[2])
    assert (success['title'], times['title']) == ('Episode success', 'Time to success')
    assert (times['rows'][0]['RMST (s)'], times['rows'][0]['RMST low']) == (5.0, None)
    assert success['rows'][0]['success (%)'] == 100.0
    assert success['rows'][0]['low'] == pytest.approx(100 * wilson(1, 1).low)


def test_a_policy_that_shares_no_stratum_with_the_reference_is_still_scored(tmp_path: Path) -> None:
    made = write_store(tmp_path, 'a,t,success,5,x,0\na,t,success,6,x,0\nh,t,success,2,y,1\nh,t,success,3,y,1\n')
    told = words('score', made, '--resamples', 10)
    assert 'a: no HRT, it shares no stratum with h' in told
    assert '5.5' in told


def test_equal_policies_have_an_advantage_of_0_and_not_of_minus_0(tmp_path: Path) -> None:
    made = write_store(tmp_path, ''.join(f'{p},t,success,10,x,0\n' for p in 'abab'))
    assert '-0' not in robotrials('compare', made, 'a', 'b', '--resamples', 20, '-f', 'csv')


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('duration_s', [0, 5])
@pytest.mark.parametrize('figure', ['uph-mtbf', 'uph-mtbf-macro'])
def test_what_never_fails_can_be_drawn(tmp_path: Path, figure: str, duration_s: int) -> None:
    made = write_store(tmp_path, f'a,t,success,{duration_s},x,0\n' * 3)
    robotrials('plot', figure, made, '-o', tmp_path / 'f.png', '--resamples', 5)
    assert (tmp_path / 'f.png').stat().st_size > 1000


def test_strata_of_one_policy_only_are_left_out_and_named(tmp_path: Path) -> None:
    rows = ''.join(f'{p},t,success,{n},{s},0\n' for p, s in (('a', 'x'), ('b', 'x'), ('b', 'y')) for n in (3, 4, 5))
    made = write_store(tmp_path, rows)
    told = words('compare', made, 'a', 'b', '--resamples', 20)
    assert 'Not every policy was run on one stratum (y); policies are ranked on the others.' in told
    assert 'not significantly different' in told


def test_names_that_look_like_formulas_are_drawn_as_they_are(tmp_path: Path) -> None:
    made = write_store(
        tmp_path, ''.join(f'"{p}",t,success,{n},x_$y,0\n' for p in ('$\\frac$', 'a_$b$') for n in (3, 4))
    )
    for name in ('cdf', 'rmst-grid', 'pairwise-pp'):
        robotrials('plot', name, made, '-o', tmp_path / 'f.svg', '--resamples', 5)
    assert '$\\frac$' in (tmp_path / 'f.svg').read_text(encoding='utf-8')
