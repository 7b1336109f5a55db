"""Write import-linter's contracts from the table in ARCHITECTURE.md.

python tools/import_contracts.py > .importlinter

A row is a room, or a part of one (`measure.actions`) that may import more than the rest of its room.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / 'src' / 'robotrials'
EVERYONE = ('errors', 'value', 'old_name', 'catalog')  # what every room may import
HEAD = """\
# Written by tools/import_contracts.py from the table in ARCHITECTURE.md; edit the table, not this file.
[importlinter]
root_package = robotrials
"""


def read_table() -> dict[str, str]:
    """Room -> the text of what it may import, as the table has it."""
    text = (ROOT / 'ARCHITECTURE.md').read_text(encoding='utf-8')
    rows = re.findall(r'^\| ([\w.]+) \| ([^|]+) \|$', text, flags=re.MULTILINE)
    return {room: allowed.strip() for room, allowed in rows if room.partition('.')[0] in parts()}


def parts(room: str = '') -> list[str]:
    """The packages and modules directly below a room, by their dotted names; of the whole package without one."""
    folder = PACKAGE.joinpath(*room.split('.')) if room else PACKAGE
    names = [p.parent.name for p in folder.glob('*/__init__.py')]
    names += [p.stem for p in folder.glob('*.py') if not p.stem.startswith('__')]
    return sorted(f'{room}.{name}' if room else name for name in names)


def allowed_rooms(text: str, table: dict[str, str]) -> set[str]:
    """The rooms, and parts of rooms, that one cell of the table permits."""
    if text == 'nothing':
        return set()
    if text.startswith('everything'):
        excepted = set(text.removeprefix('everything').removeprefix(' but ').split(', '))
        return {room for room in table if '.' not in room} - excepted - {'testing'}
    return set(text.split(', '))


def forbidden_rooms(room: str, allowed: set[str]) -> list[str]:
    """What a room must not import: whole rooms, or the other parts of one of which it may import a part."""
    forbidden: list[str] = []
    for other in parts():
        some = {a for a in allowed if a.startswith(f'{other}.')}
        if other in (room.partition('.')[0], *EVERYONE) or other in allowed:
            continue
        forbidden += [p for p in parts(other) if p not in some] if some else [other]
    return forbidden


def contracts() -> str:
    """The whole .importlinter file."""
    table = read_table()
    unlisted = [room for room in parts() if room not in (*table, *EVERYONE)]
    if unlisted:
        raise SystemExit(f'no row in the table of ARCHITECTURE.md for: {", ".join(unlisted)}')
    sections = [HEAD]
    for room in sorted({*table, *EVERYONE}):
        allowed = allowed_rooms(table.get(room, 'nothing'), table)
        own_rows = {other for other in table if other.startswith(f'{room}.')}  # parts with a row of their own
        sources = [part for part in parts(room) if part not in own_rows] if own_rows else [room]
        forbidden = forbidden_rooms(room, allowed)
        if room in EVERYONE:  # in the order above, each may import those before it
            forbidden += EVERYONE[EVERYONE.index(room) + 1 :]
        if forbidden:
            lines = {key: ''.join(f'    robotrials.{name}\n' for name in names) for key, names in (
                ('source', sources), ('forbidden', sorted(forbidden)),
            )}  # fmt: skip
            sections.append(
                f'[importlinter:contract:{room}]\nname = {room} may import: {table.get(room, "nothing")}\n'
                f'type = forbidden\nsource_modules =\n{lines["source"]}forbidden_modules =\n{lines["forbidden"]}'
                'allow_indirect_imports = True\n'
            )
    return '\n'.join(sections)


if __name__ == '__main__':
    print(contracts(), end='')
