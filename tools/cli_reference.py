"""Write the reference of the command line from the commands themselves.

python tools/cli_reference.py > docs/reference/cli.md
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from robotrials.cli import full_app

HEAD = """\
# The command line

Written by `tools/cli_reference.py` from the commands themselves; a test keeps it true.
"""


def sections(command: Any, path: str) -> Iterator[str]:
    """A section for a command, then for each command below it."""
    children = getattr(command, 'commands', {})
    if path != 'robotrials':
        yield section(command, path)
    for name in children:
        yield from sections(children[name], f'{path} {name}')


def section(command: Any, path: str) -> str:
    """One command: what it does, and its arguments and options."""
    lines = [f'## `{path}`', '', inspect.cleandoc(command.help or '').replace('\f', '').strip(), '']
    parameters = [*command.params, *getattr(command, 'common', ())]
    rows = [row for parameter in parameters if (row := parameter_row(parameter)) is not None]
    if rows:
        lines += ['| argument or option | meaning | default |', '|---|---|---|', *rows, '']
    for title, named in (
        ('setting (`--set NAME=VALUE`)', getattr(command, 'settings', {})),
        ('table (`--show NAME`)', getattr(command, 'tables', {})),
    ):
        if named:
            rows = [str(parameter_row(p, name)) for name, p in named.items()]
            lines += [f'| {title} | meaning | default |', '|---|---|---|', *rows, '']
    return '\n'.join(lines)


def parameter_row(parameter: Any, name: str = '') -> str | None:
    """One line of the table; a setting goes by its name."""
    if parameter.name == 'help' or getattr(parameter, 'hidden', False):
        return None
    is_option = parameter.param_type_name == 'option'
    if name:
        name = f'`{name}`'
    elif is_option:
        name = ', '.join(f'`{o}`' for o in parameter.opts)
    else:
        name = f'`{(parameter.metavar or parameter.name).upper()}`'
    meaning = ' '.join((getattr(parameter, 'help', '') or '').split()).replace('|', r'\|')
    default = parameter.default
    absent = default is None or default is False or callable(default) or default in ('', [], ())
    given = '' if absent else f'`{default}`'
    if parameter.required:
        given = 'required'
    return f'| {name} | {meaning} | {given} |'


def reference() -> str:
    """The whole page."""
    return HEAD + '\n' + '\n'.join(sections(typer.main.get_command(full_app()), 'robotrials'))


if __name__ == '__main__':
    print(reference(), end='')
