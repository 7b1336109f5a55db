"""The documents say what is true: the command reference, the public surface, the links."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob('*.md'), *ROOT.glob('docs/**/*.md')])


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / 'tools' / f'{name}.py')
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_reference_is_that_of_the_commands() -> None:
    written = (ROOT / 'docs' / 'reference' / 'cli.md').read_text(encoding='utf-8')
    assert written == tool('cli_reference').reference(), 'run: python tools/cli_reference.py > docs/reference/cli.md'


def test_the_shown_imports_are_what_the_command_prints() -> None:
    written = (ROOT / 'docs' / 'reference' / 'import-examples.md').read_text(encoding='utf-8')
    assert written == tool('import_examples').page(), 'run: sh tools/regenerate.sh'


def test_every_verb_has_an_example() -> None:
    text = (ROOT / 'docs' / 'reference' / 'cli.md').read_text(encoding='utf-8')
    for section in re.split(r'^## ', text, flags=re.MULTILINE)[1:]:
        name = section.partition('\n')[0].strip('`')
        is_group = (
            len([s for s in re.findall(r'^## `(.+)`$', text, flags=re.MULTILINE) if s.startswith(f'{name} ')]) > 0
        )
        assert is_group or 'Example: `trialist ' in section, name


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
            r'^(?:>>> )?from (trialist[\w.]*) import (.+)$', page.read_text(), flags=re.MULTILINE
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


@pytest.mark.parametrize('page', PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_shown_commands_exist(page: Path) -> None:
    """A verb that a page shows is a verb of the command line."""
    import typer

    from trialist.cli import full_app

    verbs = set(typer.main.get_command(full_app()).commands)  # type: ignore[attr-defined]
    text = page.read_text(encoding='utf-8')
    for block in re.findall(r'```[a-z]*\n(.*?)```', text, flags=re.DOTALL):
        for verb in re.findall(r'^(?:\$ )?(?:\.venv/bin/)?trialist ([a-z]+)', block, flags=re.MULTILINE):
            assert verb in verbs, f'{page.name}: trialist {verb}'


def test_verbs_are_summarised_in_few_words_and_load() -> None:
    from trialist.cli.app import VERBS

    for name, (_, summary) in VERBS.items():
        assert len(summary) <= 60, f'{name}: the help would cut its summary'


def test_the_notebook_of_the_how_to_runs() -> None:
    page = ROOT / 'docs' / 'how-to' / 'analyse-in-a-notebook.md'
    result = doctest.testfile(str(page), module_relative=False, encoding='utf-8')
    assert result.attempted > 5
    assert result.failed == 0
