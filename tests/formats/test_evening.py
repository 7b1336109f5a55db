"""Files of a first evening, written without a look at the importer: each comes in, or its remedy works when pasted."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path

import pytest
from tests.cli.command import robotrials

from robotrials.record import Episode, Store

FILES = Path(__file__).with_name('evening')
# file -> successes and valid episodes of each policy, the further outcomes, and whether a remedy is asked for first.
EVENING: dict[str, tuple[dict[str, tuple[int, int]], dict[str, int], str]] = {
    '01_percent_with_n.csv': ({'pi0': (31, 40), 'ACT': (21, 40)}, {}, ''),
    '02_percent_no_counts.csv': ({'OpenVLA': (72, 150), 'Ours': (99, 150)}, {}, '--set trials=50'),
    '03_fractions.csv': ({'Diffusion Policy': (16, 60), 'pi0.5': (34, 60), 'Ours': (44, 60)}, {}, ''),
    '04_row_per_metric.csv': ({'base': (6, 12), 'tuned': (12, 12)}, {}, ''),
    '05_wide_policy.csv': ({'pi0': (12, 16), 'act': (11, 16), 'dp': (3, 16)}, {}, ''),
    '06_wide_seed.csv': ({'rt1': (149, 300), 'octo': (170, 300)}, {}, '--set trials=50'),
    '07_two_headers.csv': ({'pi0': (3, 4), 'ACT': (2, 4)}, {}, ''),
    '08_ticks.csv': ({'SmolVLA': (3, 4), 'ACT': (1, 4)}, {}, ''),
    '09_yes_no.csv': ({'gr00t': (3, 4), 'pi0': (1, 4)}, {}, ''),
    '10_blank_na.csv': ({'v1': (1, 2), 'v2': (2, 3)}, {'invalid': 3}, '--blank invalid'),
    '11_near_names.csv': ({'pi0': (3, 4), 'Pi0': (1, 1), 'act': (1, 3)}, {}, ''),
    '12_table.md': ({'pi0': (36, 50), 'ACT': (22, 50)}, {}, ''),
    '13_results.yaml': ({'diffusion': (19, 30), 'act': (12, 30)}, {}, ''),
    '14_nested.json': ({'pi0': (7, 10), 'dp3': (3, 10)}, {}, ''),
    '15_wandb_export.csv': ({'dp': (96, 150), 'act': (81, 150)}, {}, '--blank drop'),
    '16_mlflow_runs.csv': ({'octo-s': (43, 100), 'octo-b': (57, 100)}, {}, ''),
    '17_isaaclab_arena.jsonl': ({'gr00t_n1': (3, 6), 'pi0': (6, 6)}, {}, ''),
    '18_robochallenge': ({'pi05': (1, 3), 'wallx': (2, 3)}, {}, ''),
    '19_semicolon.csv': ({'alt': (2, 3), 'neu': (2, 3)}, {}, ''),
    '20_log.tsv': ({'step40k': (1, 3), 'step80k': (2, 3)}, {'timeout': 1}, ''),
    '21_counts_wide.csv': ({'A': (14, 19), 'B': (9, 19)}, {'invalid': 2}, ''),
    '22_runs.yml': ({'hpt': (2, 3), 'crossformer': (1, 3)}, {}, ''),
}


def pasted(said: str) -> tuple[list[str], Path]:
    """The words of the command that an error ends with, and the store that it makes."""
    command = said.rstrip().splitlines()[-1]
    assert command.startswith('Try: robotrials import ')
    words = shlex.split(command.removeprefix('Try: '))
    return words[1:], Path(words[words.index('--to') + 1])


def read(store: Path) -> list[Episode]:
    return list(Store.open(store).episodes())


@pytest.mark.parametrize('name', EVENING)
def test_it_comes_in_or_its_remedy_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates, further, remedy = EVENING[name]
    monkeypatch.chdir(tmp_path)
    if remedy:
        said = robotrials('import', FILES / name, '--to', tmp_path / 'first', code=2)
        assert remedy in said
        assert not (tmp_path / 'first').exists()
        words, store = pasted(said)
        robotrials(*words)
    else:
        store = tmp_path / 'store'
        robotrials('import', FILES / name, '--to', store)
    episodes = read(store)
    valid = Counter(e.policy for e in episodes if e.is_valid)
    wins = Counter(e.policy for e in episodes if e.is_success)
    assert {policy: (wins[policy], valid[policy]) for policy in valid} == rates
    outcomes = Counter(e.outcome.value for e in episodes)
    assert {k: n for k, n in outcomes.items() if k not in ('success', 'failure')} == further


def test_every_file_of_the_evening_is_tried() -> None:
    assert sorted(EVENING) == sorted(path.name for path in FILES.iterdir())


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding='utf-8')
    return folder / name


def test_words_of_a_lab_are_asked_for_and_told_by_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = ['win', 'lost it', 'win', 'arm dead', '']
    path = written(tmp_path, 'w.csv', 'policy,task,result\n' + ''.join(f'a,t,{row}\n' for row in rows))
    said = robotrials('import', path, '--to', 's', code=2)
    assert 'rows 1, 3: ' in said
    assert len([line for line in said.splitlines() if 'w.csv row' in line]) == 4  # a line per distinct problem
    words, store = pasted(said)
    robotrials(*words)
    assert {e.outcome.value for e in read(store)} == {'invalid'}
    told = ['--value', 'win=success', '--value', 'lost it=failure', '--value', 'arm dead=invalid', '--blank', 'drop']
    robotrials('import', path, '--to', 't', *told)
    assert Counter(e.outcome.value for e in read(Path('t'))) == {'success': 2, 'failure': 1, 'invalid': 1}
    assert "no outcome (for --value 'win') named 'sucess'" in robotrials(
        'import', tmp_path / 'none.csv', '--to', 'u', '--value', 'win=sucess', code=2
    )
    assert 'drop, failure, invalid' in robotrials('import', path, '--to', 'u', '--blank', 'skip', code=2)


def test_a_mapping_file_keeps_words_and_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, 'w.csv', 'policy,task,result\na,t,win\na,t,\n')
    robotrials('import', path, '--to', 's', '--value', 'win=success', '--blank', 'failure', '--save-map', 'm.json')
    robotrials('import', path, '--to', 't', '--map-file', 'm.json')
    assert [e.outcome.value for e in read(Path('t'))] == ['success', 'failure']


def test_names_that_look_alike_are_asked_about_and_joined(tmp_path: Path) -> None:
    path = FILES / '11_near_names.csv'
    said = robotrials('score', path)
    assert "policy 'pi0' = 'Pi0'" in said
    assert '--answer names=join' in said
    robotrials('import', path, '--to', tmp_path / 's', '--answer', 'names=join')
    assert Counter((e.policy, e.task) for e in read(tmp_path / 's')) == {
        ('pi0', 'Towel Folding'): 5, ('act', 'Towel Folding'): 3,
    }  # fmt: skip


def test_a_recording_of_robochallenge_has_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for policy in ('mine', 'theirs'):
        meta = tmp_path / 'runs' / policy / 'hang cup' / 'episode_000001' / 'meta'
        meta.mkdir(parents=True)
        described = {'episode_index': 1, 'start_time': 100.0, 'end_time': 130.5, 'frames': 900}
        (meta / 'episode_meta.json').write_text(json.dumps(described))
    words, store = pasted(robotrials('import', tmp_path / 'runs', '--to', 'x', code=2))
    robotrials(*words)
    found = {(e.policy, e.task, e.duration_s, e.outcome.value) for e in read(store)}
    assert found == {('mine', 'hang cup', 30.5, 'invalid'), ('theirs', 'hang cup', 30.5, 'invalid')}


def test_a_row_per_item_is_told_how_to_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words, store = pasted(robotrials('import', Path(__file__).with_name('data') / 'items.csv', '--to', 'x', code=2))
    robotrials(*words)
    assert len(read(store)) == 6


@pytest.mark.parametrize(
    ('name', 'text', 'said'),
    [
        ('b.yaml', 'a: &x [1, 1]\nsuccess: [*x, *x]\n', 'has aliases'),
        ('b.yaml', 'a: [1\n', 'not YAML'),
        ('b.md', '# nothing\n', 'no table in it'),
        ('b.yaml', '!!python/object/apply:os.system ["true"]\n', 'not YAML'),
    ],
)
def test_bad_documents_are_refused_in_words(tmp_path: Path, name: str, text: str, said: str) -> None:
    assert said in robotrials('import', written(tmp_path, name, text), '--dry-run', '--as', 'table', code=2)


@pytest.mark.parametrize('column', ['17/20', '17 of 20', '17 out of 20'])
def test_a_column_of_fractions(tmp_path: Path, column: str) -> None:
    path = written(tmp_path, 'f.csv', f'policy,task,success\na,t,{column}\nb,t,3/20\n')
    robotrials('import', path, '--to', tmp_path / 's')
    assert Counter((e.policy, e.is_success) for e in read(tmp_path / 's'))['a', True] == 17
