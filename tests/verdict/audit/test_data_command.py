"""`robotrials audit datasource | overfit | mix | card` as they are typed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from robotrials.cli import full_app
from robotrials.testing.scene import write_mix_case
from robotrials.verdict.audit.datasource import DataSource, SourcePoint, SourceProtocol, write_datasource

app = full_app()


def call(*arguments: object) -> str:
    found = CliRunner().invoke(app, ['audit', *map(str, arguments)])
    assert found.exit_code == 0, found.output + str(found.exception)
    return found.stdout


def result(folder: Path, host: str = 'point-mass') -> Path:
    points = tuple(
        SourcePoint(
            task='reach', asked_m=d, n_demonstrations=6, n_tried=6, outcomes=(1,) * x + (0,) * (6 - x),
            nearest_m=(d,) * 6, nearest_deg=(1.0,) * 6, n_same=0, n_leaked=0,
        )
        for d, x in ((0.0, 6), (0.1, 0))
    )  # fmt: skip
    return write_datasource(
        DataSource(protocol=SourceProtocol(host=host, learner='lookup', seed=1), points=points), folder / 'd.json'
    )


def test_the_form_and_the_papers_tables_are_printed():
    assert 'How close is the training data to the test?' in call('datasource', '--template')
    assert '94.8' in call('datasource', '--paper')
    assert '17/32' in call('mix', '--paper', '--format', 'csv')


def test_a_result_is_read_back_and_drawn(tmp_path):
    path = result(tmp_path)
    tables = json.loads(call('datasource', '--read', path, '--format', 'json', '--figure', tmp_path / 'd.svg'))
    assert tables[0]['rows'][0]['score'] == '6/6'
    assert (tmp_path / 'd.svg').stat().st_size > 1000


def test_results_are_tables_by_name_and_the_same_as_the_commands(tmp_path):
    write_mix_case(tmp_path / 'mix.json')
    for name, path in (('datasource', result(tmp_path)), ('mix', tmp_path / 'mix.json')):
        named = CliRunner().invoke(app, ['tables', name, str(path), '--format', 'json'])
        assert named.exit_code == 0, named.output
        assert json.loads(named.stdout) == json.loads(call(name, '--read', path, '--format', 'json'))
    swapped = CliRunner().invoke(app, ['tables', 'mix', str(result(tmp_path))])
    assert 'wanted trialist-mix of version 1' in str(swapped.exception)
    absent = CliRunner().invoke(app, ['tables', 'datasource', str(tmp_path / 'absent.json')])
    assert 'datasource wants the datasource.json of a diagnosis' in str(absent.exception)


def test_a_card_of_a_host_says_what_was_not_run(tmp_path):
    page = tmp_path / 'card.json'
    told = call('card', 'point-mass', '--no-rerun', '-o', page, '--datasource', result(tmp_path))
    assert 'shortcut solvability: not run' in told
    assert 'data-source dependence: weakness shown' in told
    card = json.loads(page.read_text())
    kinds = {s['key']: [b['kind'] for b in s['blocks']] for s in card['sections']}
    assert kinds['determinism'] == ['missing']
    assert kinds['datasource'] == ['table', 'chart', 'table']


def test_a_result_of_another_host_is_refused(tmp_path):
    found = CliRunner().invoke(
        app, ['audit', 'card', 'point-mass', '--no-rerun', '-o', str(tmp_path / 'c.md'), '--datasource',
              str(result(tmp_path, 'tabletop'))],
    )  # fmt: skip
    assert found.exit_code != 0
    assert 'is of host tabletop' in found.output + str(found.exception)
    assert not (tmp_path / 'c.md').exists()


@pytest.mark.parametrize('verb', ['datasource', 'overfit', 'mix'])
def test_nothing_to_do_says_what_is_wanted(verb):
    found = CliRunner().invoke(app, ['audit', verb])
    assert found.exit_code != 0
    assert 'wanted a folder' in found.output + str(found.exception)
