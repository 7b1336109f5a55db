"""Options as a reader meets them: own flags, shared options, settings and tables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from robotrials.cli import full_app
from robotrials.cli.option import COMMON, KEPT, SETTINGS, TABLES
from robotrials.errors import InputError, UnknownName

CSV = 'policy,task,success,time\n' + ''.join(
    f'{policy},lift,{int(n % 4 != 0 or policy == "b")},{10 + n + (3 if policy == "a" else 0)}\n'
    for policy in 'ab' for n in range(32)
)  # fmt: skip


def count_options(command: Any) -> int:
    """Options that a reader meets: a verb's own flags, and what verbs share once."""
    shared: set[str] = set()

    def walk(c: Any) -> int:
        own: int = sum(p.param_type_name == 'option' for p in c.params)
        shared.update(p.opts[0] for p in getattr(c, 'common', ()))
        return own + sum(walk(child) for child in getattr(c, 'commands', {}).values())

    return walk(command) + len(shared)


@pytest.fixture
def results(tmp_path: Path) -> str:
    (tmp_path / 'results.csv').write_text(CSV, encoding='utf-8')
    return str(tmp_path / 'results.csv')


def output(*words: str) -> str:
    result = CliRunner().invoke(full_app(), words)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def every_verb() -> list[Any]:
    def walk(command: Any) -> list[Any]:
        children = getattr(command, 'commands', {}).values()
        return [leaf for child in children for leaf in walk(child)] or [command]

    return walk(get_command(full_app()))


def test_the_command_line_fits_in_a_head() -> None:
    assert count_options(get_command(full_app())) <= 250


def test_every_listed_name_is_an_option_of_some_verb() -> None:
    declared = {p.opts[0] for verb in every_verb() for group in (verb.params, verb.common, verb.settings.values(),
                verb.tables.values()) for p in group}  # fmt: skip
    assert declared >= {*COMMON, *SETTINGS, *TABLES, *(flag for flags in KEPT.values() for flag in flags)}


def test_a_setting_and_its_flag_give_the_same(results: str) -> None:
    by_setting = output('compare', results, '--set', 'alpha=0.2', '--set', 'pairing=independent', '-f', 'json')
    assert by_setting == output('compare', results, '--alpha', '0.2', '--pairing', 'independent', '-f', 'json')
    assert by_setting != output('compare', results, '-f', 'json')


def test_every_field_of_the_analysis_can_be_set(results: str) -> None:
    corrected = output('compare', results, '-f', 'json')
    assert output('compare', results, '--set', 'correction=none', '-f', 'json') != corrected
    assert output('compare', results, '-f', 'json') == corrected, 'a setting outlived its verb'


def test_a_setting_goes_by_the_name_of_the_plan(results: str) -> None:
    assert output('compare', results, '--set', 'tau_s=12', '-f', 'json') == output(
        'compare', results, '--tau', '12', '-f', 'json'
    )


def test_tables_are_shown_by_name() -> None:
    safety = next(verb for verb in every_verb() if 'slip' in verb.tables)
    by_name = safety.make_context('score', ['store', '--show', 'per-spec,slip', '--show=margins'])
    assert by_name.params == safety.make_context('score', ['store', '--per-spec', '--slip', '--margins']).params


@pytest.mark.parametrize(('words', 'error', 'told'), [
    (('compare', 'R', '--set', 'alhpa=0.1'), UnknownName, "did you mean 'alpha'"),
    (('compare', 'R', '--set', 'alpha'), InputError, 'NAME=VALUE'),
    (('compare', 'R', '--set', 'correction=bonferonni'), InputError, 'correction'),
    (('safety', 'R', '--set', 'phases=perhaps'), InputError, 'true or false'),
    (('safety', 'R', '--show', 'per-spc'), UnknownName, "did you mean 'per-spec'"),
])  # fmt: skip
def test_a_wrong_setting_is_refused(results: str, words: tuple[str, ...], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        output(*(results if word == 'R' else word for word in words))


def test_spellings_of_earlier_releases_still_work(results: str, tmp_path: Path) -> None:
    output('import', results, '--to', str(tmp_path / 'a'))
    output('import', results, '-o', str(tmp_path / 'b'))
    words = ('--trials', '3', '--resamples', '19', '-f', 'json')
    assert output('calibrate', str(tmp_path / 'a'), *words) == output('power', 'calibrate', str(tmp_path / 'b'), *words)


def test_an_option_that_became_an_argument_still_works() -> None:
    split = next(verb for verb in every_verb() if verb.name == 'split')
    wanted = split.make_context('split', ['data/toto', '-o', 'split.json']).params
    assert wanted['dataset'] == Path('data/toto')
    for once in (['--dataset', 'data/toto'], ['-d', 'data/toto'], ['--dataset=data/toto']):
        assert split.make_context('split', ['-o', 'split.json', *once]).params == wanted


def test_help_names_settings_and_stages() -> None:
    told = output('compare', '--help')
    assert 'Settings, given as --set NAME=VALUE' in told
    assert '--alpha' not in told
    assert [line for line in output('--help').splitlines() if line in ('Bring in results:', 'Analyse:', 'Show:')] == [
        'Bring in results:', 'Analyse:', 'Show:'
    ]  # fmt: skip


@pytest.mark.parametrize('shell', ['bash', 'zsh', 'fish', 'powershell'])
@pytest.mark.parametrize(('line', 'wanted'), [
    ('robotrials comp', 'compare'), ('robotrials compare --re', '--reference'), ('robotrials actions ru', 'run'),
    ('robotrials actions run --mo', '--model'),
])  # fmt: skip
def test_a_shell_completes_verbs_and_options(shell: str, line: str, wanted: str) -> None:
    script = 'from robotrials.cli import main; main()'
    environment = {
        '_ROBOTRIALS_COMPLETE': f'complete_{shell}', '_TYPER_COMPLETE_FISH_ACTION': 'get-args',
        **({'COMP_WORDS': line, 'COMP_CWORD': str(line.count(' '))} if shell == 'bash' else
           {'_TYPER_COMPLETE_ARGS': line, '_TYPER_COMPLETE_WORD_TO_COMPLETE': line.rpartition(' ')[2]}),
    }  # fmt: skip
    result = subprocess.run(
        [sys.executable, '-c', f'import sys; sys.argv = ["robotrials"]; {script}'],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert wanted in re.findall(r'[\w-]+', result.stdout), result.stderr
