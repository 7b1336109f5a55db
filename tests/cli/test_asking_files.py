"""Verbs that ask take a file as they take a store: the same numbers, nothing left behind."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import robotrials as here

ROWS = [
    f'{policy},{task},{seed},{int((seed * 7 + len(task)) % 10 < share)},{5 + (seed * 3 + share) % 17}.5,{condition}'
    for policy, share in (('pi0', 8), ('act', 4)) for task in ('pick', 'place') for seed in range(12)
    for condition in ('nominal', 'dark')
]  # fmt: skip
CSV = '\n'.join(['model,task,seed,success,duration_s,condition', *ROWS]) + '\n'


def ask(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    scratch = folder / 'tmp'
    scratch.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, '-m', 'robotrials', *words],
        cwd=folder, env={**os.environ, 'TMPDIR': str(scratch)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert not list(scratch.glob('robotrials-*')), 'what was read stays behind'
    return done


@pytest.fixture(scope='module')
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('lab')
    (folder / 'may.csv').write_text(CSV)
    (folder / 'more').mkdir()
    (folder / 'more' / 'may.csv').write_text(CSV)
    here('import', folder / 'may.csv', '--to', folder / 'may')
    return folder


def test_in_a_new_process_too(lab: Path) -> None:
    by_store, by_file = ask(lab, 'compare', 'may'), ask(lab, 'compare', 'may.csv')
    assert by_file.stdout == by_store.stdout
    assert 'may.csv read as table: policy from model' in by_file.stderr


@pytest.mark.parametrize(
    'words',
    [
        ('compare', '{}', 'pi0', 'act', '--where', 'task=pick', '-f', 'json'),
        ('score', '{}'),
        ('robustness', '{}', '--resamples', '50', '--show', 'drops'),
        ('tables', 'success', '{}'),
        ('watch', '{}', '--once'),
        ('report', '{}', '--format', 'md', '--resamples', '50'),
        ('audit', 'paired', '{}', '{}', '--old-policy', 'act', '--new-policy', 'pi0', '--condition', 'nominal'),
        ('audit', 'drop', '{}', '{}', '--policy', 'act', '--calibration-condition', 'nominal',
         '--altered-condition', 'dark'),
    ],
    ids=lambda words: '-'.join(words[:2]),
)  # fmt: skip
def test_a_file_answers_as_the_store_it_would_become(
    lab: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab)
    before = sorted(p.name for p in lab.rglob('*'))
    by_store = here(*(word.format('may') for word in words))
    by_file = here(*(word.format('may.csv') for word in words))
    told = 'may.csv read as table: policy from model, task, condition, '
    assert by_file.startswith(told)
    assert strip(by_file) == strip(by_store)
    assert sorted(p.name for p in lab.rglob('*')) == before


def strip(text: str) -> list[str]:
    """Without the name of the source, its random id, and the line that says how it was read."""
    text = re.sub(r'may read as table.*\n(?:  \S.*\n)*', '', text.replace('may.csv', 'may'))  # it may be wrapped
    lines = [line for line in text.splitlines() if '| command |' not in line]
    return [re.sub(r'[0-9a-f]{8,64}|\d{4}-\d\d-\d\dT[0-9:+]+', 'ID', line) for line in lines]


def test_the_gate_takes_files_and_keeps_its_exit_code(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ['--baseline-policy', 'pi0', '--policy', 'act', '--where', 'condition=nominal', '--require', 'success']
    monkeypatch.chdir(lab)
    by_store = here('gate', 'may', '--baseline', 'may', *words, code=1)
    by_file = here('gate', 'may.csv', '--baseline', 'may.csv', *words, code=1)
    assert strip(by_file) == strip(by_store)


def test_a_plot_of_a_file(lab: Path, tmp_path: Path) -> None:
    here('plot', 'cdf', lab / 'may.csv', '-o', str(tmp_path / 'cdf.svg'))
    assert (tmp_path / 'cdf.svg').read_text().startswith('<?xml')


def test_a_folder_of_tables(lab: Path) -> None:
    assert 'pi0' in here('score', lab / 'more')


def test_cameras_judge_what_a_store_keeps(lab: Path) -> None:
    """Views stay behind where a file is read to be asked, and what would be written about it has no place."""
    for words in (('score', '--write'), ('segment', '--using', 'masks'), ('reset',)):
        refused = ask(lab, 'geometry', words[0], 'may.csv', *words[1:], code=2).stderr
        asked_again = shlex.join(['robotrials', 'geometry', words[0], 'may-store', *words[1:]])
        assert 'may.csv read as' not in refused
        assert f'Try: robotrials import may.csv --to may-store && {asked_again}' in refused


def test_wrong_words_are_refused_before_the_file_is_read(lab: Path) -> None:
    (lab / 'bad.csv').write_text('this is no table of episodes\n1\n')
    try:
        for words in (('--primary', 'sucess'), ('--pairing', 'both'), ('--where', 'polcy=a')):
            refused = here('compare', lab / 'bad.csv', *words, code=2)
            assert words[1].partition('=')[0] in refused
            assert 'bad.csv' not in refused
        assert "no policy named 'pi1'" in here('compare', lab / 'may.csv', 'pi1', 'act', code=2)
        assert 'add --once' in here('watch', lab / 'may.csv', code=2)
    finally:
        (lab / 'bad.csv').unlink()


def test_the_notebook_selects_from_a_file(lab: Path) -> None:
    import robotrials

    every = robotrials.load(lab / 'may.csv').analysis
    some = robotrials.load(lab / 'may.csv', where={'task': 'pick'}).analysis
    assert (len(every.episodes), len(some.episodes)) == (96, 48)
    assert every.source == str(lab / 'may.csv')


def timed_rows(folder: Path, blank: int | None = None) -> Path:
    """Two policies, two tasks, starts of their own; a third of the tries fail at 60 s, and one time may be blank."""
    rows = [
        f'{policy},{task},{seed},{int(seed % 3 > 0)},{20 + seed + share if seed % 3 else 60}'
        for policy, share in (('act', 1), ('pi0', 8)) for task in ('pick', 'place') for seed in range(9)
    ]  # fmt: skip
    if blank is not None:
        rows[blank] = rows[blank].rpartition(',')[0] + ','
    table = folder / 'timed.csv'
    table.write_text('\n'.join(['policy,task,seed,success,duration_s', *rows]) + '\n')
    return table


def test_a_cap_that_was_not_declared_is_named_with_the_command_that_sets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = here('compare', timed_rows(tmp_path).name)
    assert '12 failures end at exactly 60 s: a time cap? If so, import them as time-outs.' in told
    command = re.search(r'^Try: robotrials (import timed.csv .*) && robotrials (compare timed-store)$', told, re.M)
    assert command is not None
    assert '12  episodes: timeout' in here(*shlex.split(command[1]))
    assert 'a time cap?' not in here(*shlex.split(command[2]))


def test_a_number_of_rollouts_is_named_with_the_command_that_pairs_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f'{policy},pick,{k},{(k * 7 + len(policy)) % 3 and 1}' for policy in ('act', 'pi0') for k in range(20)]
    (tmp_path / 'may.csv').write_text('\n'.join(['policy,task,episode,success', *rows]))
    monkeypatch.chdir(tmp_path)
    told = here('compare', 'may.csv', 'act', 'pi0')
    assert "column 'episode' numbers the rollouts. If it is the initial state, import it as such." in told
    command = re.search(r'^Try: robotrials (import may.csv .*) && robotrials (compare may-store act pi0)$', told, re.M)
    assert command is not None
    assert 'instance' in here(*shlex.split(command[1]))
    assert 'numbers the rollouts' not in here(*shlex.split(command[2]))


def test_a_blank_duration_is_named_with_what_to_do(tmp_path: Path) -> None:
    table = timed_rows(tmp_path, blank=12)
    for asked in (('compare', table), ('score', table), ('compare', table, 'act', 'pi0')):
        told = ' '.join(here(*asked).split())
        assert '1 of 36 valid episodes has no duration (act, place, seed 3); fill it in or leave it out' in told


def test_a_card_with_times_says_that_failures_count_as_tau(tmp_path: Path) -> None:
    table = timed_rows(tmp_path)
    assert 'Time is a mean; a failure counts as tau, 30 s.' in here('score', table, '--tau', 30)
    table.write_text(
        table.read_text() + table.read_text().partition('\n')[2].replace('pi0', 'octo').replace('act,', 'x,')
    )
    told = here('compare', table, '--tau', 30)
    assert 'time, fail = tau (s)' in told
    assert 'Time is a mean; a failure counts as tau, 30 s.' in told
