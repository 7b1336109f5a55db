"""The documents say what is true: the command reference, the public surface, the links."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.page_commands import run_page
from tests.tool import tool

ROOT = Path(__file__).resolve().parent.parent
NO_COMMANDS = ('trialist lease v1.PAYLOAD',)  # what a worker signs
DEFAULT_VERBS = {'robotrials safety': 'score', 'robotrials serve': 'start'}
PAGES = sorted([*ROOT.glob('*.md'), *ROOT.glob('docs/**/*.md')])


def test_the_command_reference_is_that_of_the_commands() -> None:
    written = (ROOT / 'docs' / 'reference' / 'cli.md').read_text(encoding='utf-8')
    assert written == tool('cli_reference').reference(), 'run: python tools/cli_reference.py > docs/reference/cli.md'


def test_the_shown_imports_are_what_the_command_prints() -> None:
    written = (ROOT / 'docs' / 'reference' / 'import-examples.md').read_text(encoding='utf-8')
    assert written == tool('import_examples').page(), 'run: sh tools/regenerate.sh'


def test_no_message_names_a_page_that_an_installed_package_does_not_have() -> None:
    source = ROOT / 'src' / 'robotrials'
    for path in source.rglob('*.py'):
        tree = ast.parse(path.read_text(encoding='utf-8'))
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                assert 'docs/' not in node.value, f'{path.relative_to(ROOT)}:{node.lineno}: {node.value}'
    for path in (source / 'show').rglob('*.toml'):
        assert 'docs/' not in path.read_text(encoding='utf-8'), path.relative_to(ROOT)


def test_every_verb_has_an_example() -> None:
    text = (ROOT / 'docs' / 'reference' / 'cli.md').read_text(encoding='utf-8')
    for section in re.split(r'^## ', text, flags=re.MULTILINE)[1:]:
        name = section.partition('\n')[0].strip('`')
        is_group = (
            len([s for s in re.findall(r'^## `(.+)`$', text, flags=re.MULTILINE) if s.startswith(f'{name} ')]) > 0
        )
        assert is_group or 'Example: `robotrials ' in section, name


def public_surface() -> list[tuple[str, str]]:
    return [(room, name) for room, names in tool('python_reference').SURFACE.items() for name in names]


def test_the_python_reference_is_that_of_the_docstrings() -> None:
    written = (ROOT / 'docs' / 'reference' / 'python.md').read_text(encoding='utf-8')
    assert written == tool('python_reference').reference(), (
        'run: python tools/python_reference.py > docs/reference/python.md'
    )


def test_examples_in_the_python_reference_run() -> None:
    result = doctest.testfile(str(ROOT / 'docs' / 'reference' / 'python.md'), module_relative=False, encoding='utf-8')
    assert result.attempted > 0
    assert result.failed == 0


def test_every_name_that_a_how_to_imports_is_in_the_reference() -> None:
    known = {(room, name) for room, name in public_surface()}
    for page in (ROOT / 'docs' / 'how-to').glob('*.md'):
        for room, names in re.findall(
            r'^(?:>>> )?from (robotrials[\w.]*) import (.+)$', page.read_text(), flags=re.MULTILINE
        ):
            # A module named in full is for those who build their own parts; the rooms are the stable surface.
            if room.count('.') <= 1:
                for name in re.findall(r'\w+', names.partition('#')[0]):
                    assert (room, name) in known, f'{page.name}: {room}.{name}'


@pytest.mark.parametrize(('room', 'name'), public_surface())
def test_every_public_name_is_there_and_exported(room: str, name: str) -> None:
    module = importlib.import_module(room)
    assert hasattr(module, name)
    assert name in module.__all__


@pytest.mark.parametrize('page', PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r'\]\(([^)#\s]+)', page.read_text(encoding='utf-8')):
        if '://' not in target:
            assert (page.parent / target).exists(), f'{page.name}: {target}'


def shown_commands(text: str) -> list[str]:
    """Every `robotrials ...` of a page: lines of its code blocks, and code within its sentences."""
    blocks = [b.replace('\\\n', ' ') for b in re.findall(r'```[a-z]*\n(.*?)```', text, flags=re.DOTALL)]
    lines = [
        c for b in blocks for c in re.findall(r'^ *(?:\$ )?(?:\.venv/bin/)?(robotrials [a-z].*)', b, flags=re.MULTILINE)
    ]
    sentences = re.sub(r'```.*?```', '', text, flags=re.DOTALL)
    return [*lines, *(' '.join(c.split()) for c in re.findall(r'`(robotrials [a-z][^`]*)`', sentences))]


@cache
def every_command() -> Any:
    import typer

    from robotrials.cli import full_app

    return typer.main.get_command(full_app())


def accepted_flags(command: Any) -> set[str]:
    """Every option of a verb, as flags, settings, tables and earlier spellings."""
    from typer import Context

    from robotrials.cli.option import SPELLINGS

    if not hasattr(command, 'flags'):
        return {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    flags = command.flags(Context(command))
    return flags | {old for old, new in SPELLINGS.items() if new in flags} | {'--set', '--show'}


def command_problem(shown: str) -> str:
    """What the command line does not have of a command: a verb, a subcommand or an option; '' where it has all."""
    command = every_command()
    options, name = {o for p in command.params for o in p.opts} | {'--help'}, 'robotrials'
    for word in shlex.split(shown, comments=True)[1:]:
        if word in ('|', '>', '&', '&&', ';'):
            break
        if not word.startswith('-') and hasattr(command, 'commands'):
            verb = word if word in command.commands else DEFAULT_VERBS.get(name, '')
            if not verb:
                return f'{name} has no {word!r}'
            command, name = command.commands[verb], f'{name} {verb}'
            options |= accepted_flags(command)
        elif re.match(r'--?[a-zA-Z]', word) and word.partition('=')[0] not in options:
            return f'{name} has no option {word}'
    return ''


@pytest.mark.parametrize('page', PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_shown_commands_exist(page: Path) -> None:
    """Verbs, subcommands and options that a page shows are those of the command line."""
    text = page.read_text(encoding='utf-8')
    assert [
        told for shown in shown_commands(text) if shown not in NO_COMMANDS and (told := command_problem(shown))
    ] == []


@pytest.mark.parametrize('path', sorted(ROOT.glob('src/**/*.toml')), ids=lambda p: p.name)
def test_commands_in_shipped_files_exist(path: Path) -> None:
    shown = re.findall(r'^# *(robotrials [a-z].*)', path.read_text(encoding='utf-8'), flags=re.MULTILINE)
    assert [told for command in shown if (told := command_problem(command))] == []


def test_a_command_that_is_not_there_is_noticed() -> None:
    assert command_problem('robotrials change runs/may') == "robotrials has no 'change'"
    assert command_problem('robotrials store film runs/may --sise 1x1') == 'robotrials store film has no option --sise'
    assert command_problem('robotrials safety runs/may --per-spec --format csv > x.csv') == ''
    assert command_problem('robotrials compare runs/may --set alpha=0.1') == ''


def test_plans_that_a_how_to_runs_can_be_run() -> None:
    """A blinded trial wants a secret: a page that runs its plan as it stands has to show one."""
    import tomllib

    from robotrials.cli.run import SHORTEST_SECRET

    for page in (ROOT / 'docs' / 'how-to').glob('*.md'):
        text = page.read_text(encoding='utf-8')
        if not any(re.match(r'robotrials run [\w/-]+\.toml', command) for command in shown_commands(text)):
            continue
        plans = [tomllib.loads(b) for b in re.findall(r'^```toml\n(.*?)^```', text, flags=re.DOTALL | re.MULTILINE)]
        for plan in plans:
            if {'seed', 'policies'} <= set(plan):
                blinding = plan.get('blinding', {})
                is_safe = len(blinding.get('secret', '')) >= SHORTEST_SECRET or blinding.get('enabled') is False
                assert is_safe or 'robotrials seal' in text, f'{page.name}: {plan.get("title", plan["seed"])}'


def test_verbs_are_summarised_in_few_words_and_load() -> None:
    from robotrials.cli.option import VERBS

    assert len(VERBS) <= 30
    for name, (_, summary) in VERBS.items():
        assert len(summary) <= 60, f'{name}: the help would cut its summary'


def test_the_notebook_of_the_how_to_runs() -> None:
    page = ROOT / 'docs' / 'how-to' / 'analyse-in-a-notebook.md'
    result = doctest.testfile(str(page), module_relative=False, encoding='utf-8')
    assert result.attempted > 5
    assert result.failed == 0


MOST_WORDS = 1500
GENERATED = ('reference/cli.md', 'reference/python.md', 'reference/glossary.md', 'examples/')


def prose_words(text: str) -> int:
    """Words of a page's sentences; code, tables and the targets of links are looked up, not read."""
    text = re.sub(r'```.*?```|<!--.*?-->', '', text, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith('|')]
    return len(re.findall(r"[A-Za-z][\w'-]*", re.sub(r'\]\([^)]*\)', ']', '\n'.join(lines))))


@pytest.mark.parametrize('page', PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_page_is_too_long_to_read(page: Path) -> None:
    name = str(page.relative_to(ROOT))
    if name.startswith('docs/') and not name.removeprefix('docs/').startswith(GENERATED):
        assert prose_words(page.read_text(encoding='utf-8')) <= MOST_WORDS


def test_the_site_has_every_page_once() -> None:
    pages = [
        p for s in tool('site_hook').navigation(ROOT / 'docs') for ps in s.values() for e in ps for p in e.values()
    ]
    assert sorted(pages) == sorted(str(p.relative_to(ROOT / 'docs')) for p in (ROOT / 'docs').glob('**/*.md'))


def test_the_glossary_is_that_of_the_reports() -> None:
    written = (ROOT / 'docs' / 'reference' / 'glossary.md').read_text(encoding='utf-8')
    assert written == tool('glossary_page').page(), 'run: sh tools/regenerate.sh'


# Pages whose commands run in order in an empty folder: how many run, and how many a mark in the page leaves out.
RUN_PAGES = {
    'CONTRIBUTING.md': (10, 0),
    'docs/how-to/compare-two-policies.md': (13, 0),
    'docs/how-to/write-a-report.md': (9, 0),
    'docs/how-to/run-a-trial.md': (3, 0),
    'docs/how-to/plan-a-trial.md': (11, 0),
    'docs/how-to/put-results-in-a-paper.md': (12, 0),
    'docs/how-to/gate-policies-in-ci.md': (4, 1),
    'docs/how-to/check-resets.md': (1, 0),
    'docs/how-to/use-the-tabletop-cell.md': (5, 1),
    'docs/how-to/score-safety.md': (15, 1),
    'docs/how-to/keep-a-store.md': (14, 1),
    'docs/how-to/audit-a-claim.md': (17, 0),
}


@pytest.mark.study
@pytest.mark.parametrize(('name', 'counts'), RUN_PAGES.items())
def test_the_commands_of_a_page_run(name: str, counts: tuple[int, int], tmp_path: Path) -> None:
    result = run_page((ROOT / name).read_text(encoding='utf-8'), tmp_path)
    assert result.failed == []
    assert (result.n_run, len(result.left_out)) == counts
    assert all(result.left_out.values()), 'a command that is left out has its reason in the mark'


def test_a_command_that_fails_is_noticed(tmp_path: Path) -> None:
    page = "```\npython -c 'raise SystemExit(3)'\n```\n<!-- not run: a server -->\n```\npython serve.py\n```\n"
    result = run_page(page, tmp_path)
    assert (result.n_run, len(result.failed), result.left_out) == (1, 1, {'python serve.py': 'a server'})
