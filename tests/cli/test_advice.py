"""Command lines that newcomers type: each says what is wrong and ends with a command, and that command works."""

from __future__ import annotations

import shlex
from pathlib import Path

import openpyxl
import pytest
from tests.cli.command import robotrials

# What was typed, and what is to be tried instead.
TYPED = {
    'comapre r.csv': 'compare r.csv',
    'r.csv': 'compare r.csv',
    'analyze r.csv': 'compare r.csv',
    'stats r.csv': 'compare r.csv',
    'summarize r.csv': 'score r.csv',
    'check r.csv': 'doctor r.csv',
    'doctr r.csv': 'doctor r.csv',
    'help compare': 'compare --help',
    'version': '--version',
    '--verison': '--version',
    'frobnicate': '--help',
    'compare': 'compare r.csv',
    'score': 'score r.csv',
    'doctor': 'doctor r.csv',
    'compare --details': 'compare --details r.csv',
    'watch --once': 'watch --once r.csv',
    'plan': 'plan --help',
    'store ls': 'store ls --help',
    'store show': 'store show --help',
    'store ls --frobnicate': 'store ls --help',
    'annotate queue': 'annotate queue --help',
    'audit paired r.csv': 'audit paired --help',
    'submit': 'submit --help',
    'compare r.csv a': 'compare r.csv',
    'compare r.csv r.csv': 'compare r.csv',
    'compare r.csv --policies a,b': 'compare r.csv --policy a --policy b',
    'compare r.csv --map success=success': 'import r.csv --to r-store --map success=success && compare r-store',
    'score r.csv --blank invalid': 'import r.csv --to r-store --blank invalid && score r-store',
    'doctor r.csv --set task=pick': 'import r.csv --to r-store --set task=pick && doctor r-store',
    'compare r.csv --metric success': 'compare r.csv --set primary=success',
    'compare r.csv -o out.html': 'report r.csv -o out.html',
    'compare r.csv --verbose': 'compare --help',
    'report r.csv out.html': 'report r.csv -o out.html',
    'import r.csv': 'import r.csv --to r-store',
    'import r.csv out': 'import r.csv --to out',
    'import r.csv --to': 'import --help',
    'plot r.csv': 'plot cdf r.csv',
    'plot r.csv cdf': 'plot cdf r.csv',
    'tables r.csv': 'tables headline r.csv',
    'power r.csv': 'power --help',
    'store r.csv': 'store --help',
    'gate r.csv': 'gate --help',
}


@pytest.mark.parametrize('typed', TYPED)
def test_what_to_type_instead_is_said_and_works(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f'{p},t,{k},{int(k % 5 > d)},{4 + k}' for p, d in (('a', 0), ('b', 2)) for k in range(12)]
    Path('r.csv').write_text('\n'.join(['policy,task,seed,success,time_s', *rows]) + '\n')
    printed = robotrials(*shlex.split(typed), code=2)
    (line,) = [line for line in printed.splitlines() if line.startswith('Try: ')]
    commands = [command.removeprefix('robotrials ') for command in line.removeprefix('Try: ').split(' && ')]
    assert ' && '.join(commands) == TYPED[typed]
    for command in commands:
        robotrials(*shlex.split(command))


def lab_file(name: str, header: str, rows: list[str]) -> str:
    Path(name).write_text('\n'.join([header, *rows]) + '\n')
    return name


def tried(printed: str) -> list[str]:
    """The commands of the one line that says what to try."""
    (line,) = [line for line in printed.splitlines() if line.startswith('Try: ')]
    return [command.removeprefix('robotrials ') for command in line.removeprefix('Try: ').split(' && ')]


def test_a_store_is_not_imported_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = lab_file('r.csv', 'policy,task,success', [f'{p},t,1' for p in 'ab'])
    robotrials('import', file, '--to', 's')
    assert tried(robotrials('export', 's', '--map', 'policy=x', code=2)) == ['export --help']


def test_a_verb_of_stores_is_offered_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    robotrials('import', lab_file('r.csv', 'policy,task,success', [f'{p},t,1' for p in 'ab']), '--to', 's')
    for typed in ('store ls', 'store verify', 'annotate queue', 'explore'):
        assert tried(robotrials(*typed.split(), code=2)) == [f'{typed} s']


def test_every_field_is_named_to_whoever_maps_an_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = lab_file('r.csv', 'policy,task,success,why', ['a,t,1,', 'b,t,0,fell'])
    assert ' reason,' in robotrials('import', file, '--to', 's', '--map', 'failure=why', code=2)


def test_the_help_of_a_group_cuts_no_summary() -> None:
    assert '...' not in robotrials('power', '--help').partition('Commands:')[2]


def test_no_command_is_offered_that_leaves_the_question_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = lab_file('r.csv', 'policy,task,time_s', [f'{p},t,{k + 3}' for p in 'ab' for k in range(6)])
    printed = robotrials('compare', file, code=2)
    assert 'no column for outcome or success among: policy, task, time_s. Name one with --map success=' in printed
    assert 'Try: ' not in printed
    printed = robotrials('doctor', file, code=2)
    assert '\nnext ' not in printed
    assert tried(printed) == ['import r.csv --to r-store --blank invalid']
    file = lab_file('one.csv', 'task,success', [f't,{k % 2}' for k in range(12)])
    assert 'Try: ' not in robotrials('compare', file, code=2)  # one policy is no comparison
    first, then = tried(robotrials('score', file, code=2))
    robotrials(*shlex.split(first))
    robotrials(*shlex.split(then))


def test_a_remedy_of_an_import_keeps_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = lab_file('r.csv', 'policy,trial no,success', ['a,0,yes', 'a,1,no', 'b,0,maybe', 'b,1,yes'])
    (command,) = tried(robotrials('import', file, '--to', 'runs/may', code=2))
    assert command == 'import r.csv --to runs/may --value maybe=invalid'
    printed = ' '.join(robotrials(*shlex.split(command)).split())
    assert "--map 'instance=trial no'" in printed


def test_policies_without_a_valid_episode_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f'{p},t,{k},{"invalid" if p == "b" else "success"}' for p in 'ab' for k in range(4)]
    printed = robotrials('compare', lab_file('r.csv', 'policy,task,seed,outcome', rows), code=2)
    assert 'fewer than two policies have a valid episode (b: 4 invalid)' in printed


def test_a_gate_is_offered_with_both_of_its_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f'{p},t,{k},{int(k % 5 > 0)},{4 + k}' for p in ('act', 'pi0') for k in range(12)]
    robotrials('import', lab_file('r.csv', 'policy,task,seed,success,time_s', rows), '--to', 'may')
    wanted = 'gate may --baseline may --policy pi0 --baseline-policy act'
    assert tried(robotrials('gate', code=2)) == [wanted]
    printed = robotrials('gate', 'may', '--baseline', 'act', code=2)
    assert "--baseline is 'act', a policy of may" in printed
    assert tried(printed) == [wanted]
    assert 'act' in robotrials(*shlex.split(wanted), code=3)


def test_what_a_table_does_not_name_is_said_with_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f'{p},{k},{(k + j) % 2},{4 + k}' for p in 'ab' for j in range(4) for k in range(6)]
    file = lab_file('r.csv', 'policy,seed,success,time_s', rows)
    said = "No task column: all rows are one task, 'r'. Each seed occurs 4 times per policy: is a task column missing?"
    for verb, rest in (('compare', ()), ('doctor', ()), ('import', ('--to', 's'))):
        assert said in ' '.join(robotrials(verb, file, *rest).split()), verb
    assert robotrials('doctor', file).endswith('robotrials import r.csv --to r-store --set task=NAME\n')
    printed = robotrials('compare', file)
    assert 'a time cap? If so, add --set time_cap_s=9 to the import.' in printed
    first, then = tried(printed)
    assert (first, then) == ('import r.csv --to r-store --set task=NAME', 'compare r-store')
    robotrials(*shlex.split(first))
    assert 'task column' not in robotrials(*shlex.split(then))
    book = openpyxl.Workbook()  # which another process reads
    assert book.active is not None
    for row in (line.split(',') for line in Path(file).read_text().splitlines()):
        book.active.append(row)
    book.save('r.xlsx')
    assert said in robotrials('compare', 'r.xlsx')
    once = lab_file('once.csv', 'policy,seed,success', [f'{p},{k},{k % 2}' for p in 'ab' for k in range(6)])
    assert 'Each seed occurs' not in robotrials('compare', once)


def test_columns_that_are_not_used_are_named_where_one_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f'{p},{t},{k},{k % 2},{4.5 + k}' for p in 'ab' for t in ('mug', 'lid') for k in range(8)]
    file = lab_file('r.csv', 'ckpt,scene_desc,Rng,solved,How long (s)', rows)
    printed = robotrials('compare', file)
    assert 'No column for durations; not used: Rng, How long (s)' in printed
    first, then = tried(printed)
    assert first == "import r.csv --to r-store --map task=scene_desc --map 'duration_s=How long (s)'"
    robotrials(*shlex.split(first))
    printed = robotrials(*shlex.split(then))
    assert '2 tasks' in printed
    assert 'or time' in ' '.join(printed.split())
    assert "--map 'duration_s=How long (s)'" in ' '.join(robotrials('import', file, '--to', 's').split())


def test_a_value_that_no_plan_can_have_is_refused_before_reading(tmp_path: Path) -> None:
    (tmp_path / 'bad.csv').write_text('no,table\n')
    assert 'alpha is 5.0, wanted a number' in robotrials('compare', tmp_path / 'bad.csv', '--set', 'alpha=5', code=2)
