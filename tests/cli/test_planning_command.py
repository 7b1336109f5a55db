"""robotrials power, watch, and the planning figures, as commands."""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import json
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.patience import PATIENCE_S
from tests.run.plans import make_plan

from robotrials.cli.watch import why_idle
from robotrials.record import Store
from robotrials.run import run_trial
from robotrials.run.engine import sole_runner
from robotrials.testing.scene import PAPER_LIKE, cell_episodes


@pytest.fixture(scope='module')
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp('planning') / 'store'
    made = Store.create(path, trial_id='t')
    for profile in PAPER_LIKE[1:4]:
        for stratum in ('spoons', 'towels'):
            made.append(cell_episodes(rng, profile, stratum, n_episodes=14))
    return path


def test_power_size_prints_the_papers_numbers_and_ours() -> None:
    """Wilson 381 and 320; Connor's formula 312 and 783 pairs, 624 and 1,566 rollouts; McNemar's mid-p 305 and 779."""
    shown = robotrials('power', 'size', '--details')
    for number in ('381', '320', '312', '783', '624', '1566', '305', '779'):
        assert number in shown
    assert 'surveyed papers' in shown.replace('\n', ' ')
    assert 'LBM' in robotrials('power', 'size', '--survey')
    plan = robotrials('power', 'size', '--policies', 4, '--tasks', 10, '--overall', '-d', '0.1', '--discordance', '0.3')
    assert '1,880' in plan, '47 per cell by the rule, in ten strata at 0.05 / 6'


def test_power_size_simulates_the_rule_for_assumed_times() -> None:
    assumed = ('--assume', 'old:median=60,spread=0.3', '--assume', 'new:median=40,spread=0.3,ever=0.98', '--tasks', 2)
    text = robotrials('power', 'size', *assumed, '--n', '4,20', '--format', 'json')
    shown = json.loads(text)
    few, many = shown['rows']
    assert shown['title'].endswith('new against old')
    assert few['new is faster'] < 0.8 < many['new is faster']
    assert many['new succeeds more often'] < 0.1  # it fails more, if at all
    sizes = re.search(r'new is faster from (\d+); at least one of both from (\d+)', shown['note'])
    assert sizes is not None
    again = json.loads(
        robotrials('power', 'size', *assumed, '--n', f'{sizes[1]},{int(sizes[1]) - 1}', '--format', 'json')
    )
    enough, short = (row['new is faster'] for row in again['rows'])
    assert enough >= 0.8 > short
    assert 'two --assume' in robotrials('power', 'size', '--assume', 'new:median=40', code=2)
    assert 'matched' in robotrials('power', 'size', *assumed, '--correlation', 0.5, code=2)


def test_power_bridge_from_a_store_and_from_assumptions(store: Path, tmp_path: Path) -> None:
    shown = robotrials('power', 'bridge', store, 'act', 'groot', '--tau', 120, '--bridges', 500, '--n', '5:20:5',
                     '--figure', tmp_path / 'power.svg')  # fmt: skip
    assert '80 % power needs ' in shown
    assert (tmp_path / 'power.svg').stat().st_size > 1000
    curve = tmp_path / 'curve.csv'
    curve.write_text('t_s,chance\n20,0.4\n60,0.9\n')
    assumed = robotrials('power', 'bridge', '--assume', 'new:median=20', '--assume', f'old:{curve}', '--bridges', 500,
                       '-f', 'json')  # fmt: skip
    assert len(json.loads(assumed)['rows']) == 10
    assert 'did you mean' in robotrials('power', 'bridge', store, 'act', 'grot', code=2)
    assert 'STORE' in robotrials('power', 'bridge', code=2)
    assert 'median' in robotrials('power', 'bridge', '--assume', 'a:spread=1', '--assume', 'b:median=3', code=2)
    assert '5:50:5' in robotrials('power', 'bridge', store, 'act', 'groot', '--n', 'many', code=2)


def test_power_detect_writes_the_whole_table(store: Path, tmp_path: Path) -> None:
    out, figure = tmp_path / 'rates.csv', tmp_path / 'rates.png'
    shown = robotrials('power', 'detect', store, '--pair', 'act:groot', '--n', '5,10', '--trials', 20, '--resamples',
                     39, '--csv', out, '--figure', figure, '--fit', '10')  # fmt: skip
    assert 'Smallest N' in shown
    assert 'Largest gap' in shown
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert len(rows) == 2 * 4
    assert {r['metric'] for r in rows} == {'ks', 'rmst_s', 'chance_30s', 'chance_60s'}
    assert all(float(r['low']) <= float(r['rate']) <= float(r['high']) for r in rows)
    assert all(0 <= float(r['null rate']) <= 1 for r in rows)
    assert 'null rate at N = 10' in ' '.join(shown.split())
    assert figure.stat().st_size > 1000


def test_power_detect_speaks_of_items_only_where_there_are_some() -> None:
    assumed = ('--assume', 'new:median=35', '--assume', 'old:median=45,ever=0.95', '--n', 5)
    shown = robotrials('power', 'detect', *assumed, '--set', 'trials=5', '--set', 'resamples=20')
    assert 'share done within 30 s' in shown
    assert 'item' not in shown


def test_power_calibrate_prints_rates_in_one_precision(tmp_path: Path) -> None:
    rows = [f'{policy},pick,{seed},1,{5 + seed * 7 % 31}' for policy in ('act', 'pi0') for seed in range(40)]
    (tmp_path / 'may.csv').write_text('\n'.join(['policy,task,seed,success,duration_s', *rows]))
    shown = robotrials('power', 'calibrate', tmp_path / 'may.csv', '--set', 'trials=40', '--set', 'resamples=20')
    rates = re.findall(r'([\d.]+) %', shown)
    assert len(rates) == 4, shown
    assert all(re.fullmatch(r'\d+\.\d', rate) for rate in rates), shown


def test_plan_prints_what_its_claim_needs(store: Path, tmp_path: Path) -> None:
    declared = tmp_path / 'trial.toml'
    declared.write_text(
        'seed = 1\nepisodes_per_cell = 10\ntime_cap_s = 4.0\ntasks = ["reach"]\n[host]\nuse = "point-mass"\n'
        '[policies.a]\nuse = "seek"\n[policies.b]\nuse = "seek"\n'
    )
    shown = robotrials('plan', declared, '--power', 0.8, '--difference', 0.1, '--pilot', store)
    assert '309' in shown, 'two rates by the rule, 0.7 against 0.8'
    assert 'The plan has 10 per cell' in shown
    assert 'power at 10' in shown


def test_the_headline_answers_the_plan_that_was_asked() -> None:
    """The number of the plan's own row, by all its comparisons, and what it is sized for."""
    asked = ('power', 'size', '--rate', 0.6, '--difference', 0.2)
    two, many, mean = (
        ' '.join(robotrials(*asked, *more).split())
        for more in ((), ('--policies', 3, '--tasks', 4), ('--policies', 3, '--tasks', 4, '--overall'))
    )
    assert '60 % against 80 % takes 84 rollouts of each policy, or 76 on matched starts (discordance 0.4).' in two
    assert 'Sized to' not in two
    assert 'takes 588 rollouts of each policy (147 in each of 4 cells), or 524 on matched' in many
    assert 'Sized to compare 3 policies, every pair, within every cell; --overall' in many
    assert 'takes 112 rollouts of each policy (28 in each of 4 cells), or 100 on matched' in mean
    assert 'Sized to compare 3 policies, every pair, on the mean over cells.' in mean


def test_rates_that_no_policy_can_have_are_refused_with_a_command_that_works() -> None:
    for given, wanted, offered in (
        ((0.97, 0.05), 'that of the worse policy: 97 % and 5 points more are 102 %', '--rate 0.95 -d 0.05'),
        ((70, 5), 'fractions from 0 to 1, found --rate 70 and --difference 5', '--rate 0.7 -d 0.05'),
        ((0.7, 0), 'fractions from 0 to 1', '--rate 0.7 -d 0.05'),
    ):
        told = robotrials('power', 'size', '--rate', given[0], '-d', given[1], code=2)
        assert wanted in ' '.join(told.split())
        assert f'Try: robotrials power size {offered}' in told
    assert '90 % against 100 % takes ' in robotrials('power', 'size', '--rate', 0.9, '-d', 0.1)
    assert '95 % against 100 % takes ' in robotrials('power', 'size', '--rate', 0.95, '-d', 0.05)


def test_compare_prints_the_n_that_would_resolve(store: Path) -> None:
    shown = robotrials('compare', store, 'groot', 'openpi', '--resamples', 200)
    assert 'more starts per cell would resolve ' in ' '.join(shown.split())
    assert 'needed N' in robotrials('compare', store, '--resamples', 100, '--details')


def test_watch_once_says_what_may_be_said(store: Path) -> None:
    shown = robotrials('watch', store, '--once', '--looks')
    assert 'Continue: 3 of 3 pairs undecided.' in shown
    assert 'Every look' in shown
    timed = robotrials('watch', store, '--once', '--score', 'promptness', '-p', 'act', '-p', 'groot')
    assert 'promptness at tau = 300 s' in ' '.join(timed.split())
    assert 'did you mean' in robotrials('watch', store, '--once', '--score', 'succes', code=2)
    assert 'at least two policies' in robotrials('watch', store, '--once', '-p', 'act', code=2)


def test_watch_follows_a_trial_until_it_may_stop(tmp_path: Path) -> None:
    """Episodes arrive while it watches; it ends by itself once the better policy is clear."""
    from tests.verdict.planning.test_watch import trial

    made = Store.create(tmp_path / 'live', trial_id='live')
    episodes = trial({'x7': 0.95, 'k2': 0.1}, 40)
    made.append(episodes[:4])
    printed: list[str] = []
    watcher = threading.Thread(target=lambda: printed.append(robotrials('watch', made.path, '--every', '0.1')))
    watcher.start()
    for start in range(4, len(episodes), 8):
        made.append(episodes[start : start + 8])
    watcher.join(timeout=PATIENCE_S)
    assert not watcher.is_alive()
    assert 'x7 succeeds more often than k2.' in printed[0]
    assert 'The trial may stop.' in printed[0]


def test_watch_ends_where_nothing_more_will_come(tmp_path: Path) -> None:
    rows = [f'{policy},t,{i % 2},3' for policy in ('act', 'pi') for i in range(8)]
    (tmp_path / 't.csv').write_text('\n'.join(['policy,task,success,time', *rows]))
    robotrials('import', tmp_path / 't.csv', '--to', tmp_path / 'imported')
    said = robotrials('watch', tmp_path / 'imported')
    assert 'Continue' in said
    assert 'imported: its episodes were imported, so there is nothing to wait for.' in ' '.join(said.split())


def test_watch_waits_for_whoever_runs_the_trial(tmp_path: Path) -> None:
    path = tmp_path / 'run'
    assert why_idle(path) == '', 'it may be made any moment'
    waited_for: list[str] = []
    run_trial(make_plan(), path, workers=0, stop_after=5, report=lambda _: waited_for.append(why_idle(path)))
    assert set(waited_for) == {''}
    assert why_idle(path) == 'no run of this trial is under way'
    for share in (None, 'shard 1/2'):
        with sole_runner(path, share):
            assert why_idle(path) == '', 'somebody has the right to run'
    open_plan = make_plan(blinding={'enabled': False})
    run_trial(open_plan, tmp_path / 'open', workers=0)
    assert 'no run of this trial is under way, so there is nothing' in robotrials('watch', tmp_path / 'open')


def test_watch_waits_where_the_file_system_has_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_trial(make_plan(), tmp_path / 'run', workers=0, stop_after=5)

    def lockless(handle: int, operation: int) -> None:
        raise OSError(errno.EBADF, 'a lock of one who only reads')

    monkeypatch.setattr(fcntl, 'flock', lockless)
    assert why_idle(tmp_path / 'run') == ''


@pytest.mark.parametrize('name', ['power', 'sequential', 'posterior', 'profile', 'improvement', 'ranks'])
def test_planning_figures_are_drawn_by_name(store: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / f'{name}.png'
    robotrials('plot', name, store, '-o', target, '--resamples', 50)
    assert target.stat().st_size > 3000
