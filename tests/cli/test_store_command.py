"""The store's commands, run as a person would."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tests.cli.command import robotrials


@pytest.fixture(scope='module')
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('cli')
    (folder / 'r.csv').write_text(
        'model,task,success,time,object\nact,pick,1,12,towel\nact,pick,0,30,towel\npi,pick,1,8,cup\n'
    )
    told = robotrials('import', folder / 'r.csv', '--to', folder / 's')
    assert "column 'model'" in told
    assert '3 episodes added, 0 already there' in told
    return folder / 's'


def test_a_file_read_in_another_way_into_the_same_store_is_warned_of(tmp_path: Path) -> None:
    source = tmp_path / 'r.csv'
    source.write_text('model,task,success,run\nact,pick,1,1\nact,pick,0,2\npi,pick,1,1\npi,pick,1,2\n')
    assert 'counts twice' not in robotrials('import', source, '--to', tmp_path / 's')
    assert 'counts twice' not in robotrials('import', source, '--to', tmp_path / 's')
    again = ' '.join(robotrials('import', source, '--to', tmp_path / 's', '--map', 'seed=run').split())
    assert '4 episodes added, 0 already there' in again
    assert f'this source was imported into {tmp_path / "s"} before' in again
    assert 'each now counts twice. Import it into a new folder instead.' in again


@pytest.mark.parametrize('start', ['', ',seed'])
def test_a_copy_of_a_table_under_another_name_is_warned_of(tmp_path: Path, start: str) -> None:
    header = f'policy,task,success,time{start}\n'
    rows = [f'act,pick,{k % 4 and 1},{10 + 1.37 * k:.2f}{start and f",{k}"}\n' for k in range(12)]
    (tmp_path / 'may.csv').write_text(header + ''.join(rows))
    (tmp_path / 'copy.csv').write_text(header + ''.join(reversed(rows)) + rows[0])
    (tmp_path / 'june.csv').write_text(header + ''.join(rows).replace('.', '.5'))
    assert 'counts twice' not in robotrials('import', tmp_path / 'may.csv', '--to', tmp_path / 's')
    assert 'counts twice' not in robotrials('import', tmp_path / 'june.csv', '--to', tmp_path / 's')
    told = ' '.join(robotrials('import', tmp_path / 'copy.csv', '--to', tmp_path / 's').split())
    assert f'9 successes added are in {tmp_path / "s"} from another source' in told
    assert 'each now counts twice' in told
    assert '--source NAME' in told


def test_importing_again_adds_nothing_and_a_dry_run_writes_nothing(store: Path, tmp_path: Path) -> None:
    assert '0 episodes added, 3 already there' in robotrials('import', store.parent / 'r.csv', '--to', store)
    assert '3 episodes, the first 3' in robotrials(
        'import', store.parent / 'r.csv', '--to', tmp_path / 'new', '--dry-run'
    )
    assert not (tmp_path / 'new').exists()


def test_ls_filters_and_prints_every_form(store: Path) -> None:
    assert robotrials('store', 'ls', store, '--where', 'policy=act', '-f', 'csv').count('towel') == 2
    rows = json.loads(robotrials('store', 'ls', store, '--format', 'json'))['rows']
    assert [row['policy'] for row in rows] == ['act', 'act', 'pi']
    assert len(list(csv.DictReader(robotrials('store', 'ls', store, '-f', 'csv').splitlines()))) == 3
    assert '| act | pick | towel |' in robotrials('store', 'ls', store, '-f', 'markdown')
    assert r'\toprule' in robotrials('store', 'ls', store, '-f', 'latex')
    assert "did you mean 'json'" in robotrials('store', 'ls', store, '-f', 'jsn', code=2)
    assert "did you mean 'policy'" in robotrials('store', 'ls', store, '-w', 'polcy=act', code=2)
    assert 'the first 1' in robotrials('store', 'ls', store, '--limit', 1)


def test_show_edit_tables_and_verify(store: Path) -> None:
    rows = json.loads(robotrials('store', 'ls', store, '--format', 'json'))['rows']
    episode_id = rows[0]['episode_id']
    assert json.loads(robotrials('store', 'show', store, episode_id[:8]))['outcome'] == 'success'
    assert 'none starts with it' in robotrials('store', 'show', store, 'zz', code=2)
    told = robotrials('store', 'edit', store, episode_id, 'set', 'outcome=invalid', '--why', 'camera', '--by', 'ana')
    assert 'ana: set outcome=invalid' in told
    shown = json.loads(robotrials('store', 'show', store, episode_id))
    assert shown['outcome'] == 'invalid'
    assert 'camera' in shown['edits'][0]
    (table,) = json.loads(robotrials('store', 'tables', store, '-f', 'json'))
    towels = next(row for row in table['rows'] if row['policy'] == 'act')
    assert (towels['episodes'], towels['failure'], towels['invalid']) == (1, 1, 1)
    assert 'clean: 3 episodes' in robotrials('store', 'verify', store)
    assert 'wanted one of' in robotrials('store', 'edit', store, episode_id, 'set', 'outcome=won', '--why', 'x', code=2)


def test_a_filter_that_nothing_matches_says_so(store: Path, tmp_path: Path) -> None:
    told = robotrials('store', 'ls', store, '--where', 'policy=nobody')
    assert 'no episode matches, of those that count; --all looks at every attempt' in told
    assert 'no episode matches policy=nobody' in robotrials(
        'store', 'film', store, '--where', 'policy=nobody', '--to', tmp_path / 'films', code=2
    )


def test_export_merge_and_compact(store: Path, tmp_path: Path) -> None:
    assert '3 episodes' in robotrials('store', 'export', store, '-o', tmp_path / 'out.csv')
    robotrials('import', tmp_path / 'out.csv', '--to', tmp_path / 'again')
    assert '3 episodes' in robotrials('store', 'verify', tmp_path / 'again')
    (tmp_path / 'more.csv').write_text('policy,task,success,time\nb,pick,1,3\n')
    robotrials('import', tmp_path / 'more.csv', '--to', tmp_path / 'more')
    assert '1 episodes added' in robotrials('store', 'merge', tmp_path / 'again', tmp_path / 'more')
    assert '2 parts became 1' in robotrials('store', 'compact', tmp_path / 'again')


def test_verify_exits_with_1_and_names_the_damage(store: Path, tmp_path: Path) -> None:
    robotrials('store', 'export', store, '-o', tmp_path / 'out.csv')
    robotrials('import', tmp_path / 'out.csv', '--to', tmp_path / 's')
    (part,) = (tmp_path / 's' / 'episodes').iterdir()
    part.write_bytes(part.read_bytes()[:-3])
    told = robotrials('store', 'verify', tmp_path / 's', '-f', 'csv', code=1)
    assert part.name in told
    assert 'DAMAGED' in told
    assert 'no such folder' in robotrials('store', 'verify', tmp_path / 'nothing', code=2)
