"""Write import-linter's contracts from the table in ARCHITECTURE.md, for the rooms that exist.

python tools/import_contracts.py > .importlinter
"""

from __future__ import annotations

import re
from pathlib import Path

EVERYONE = {'old_name'}  # what every room may import
ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# Written by tools/import_contracts.py from the table in ARCHITECTURE.md; edit the table, not this file.
[importlinter]
root_package = robotrials
"""


def read_table() -> dict[str, str]:
    """Room -> the text of what it may import, as the table has it."""
    text = (ROOT / 'ARCHITECTURE.md').read_text(encoding='utf-8')
    rows = re.findall(r'^\| (\w+) \| ([^|]+) \|$', text, flags=re.MULTILINE)
    return {room: allowed.strip() for room, allowed in rows if room != 'package'}


def existing_rooms() -> list[str]:
    """The rooms of src/robotrials that have content."""
    package = ROOT / 'src' / 'robotrials'
    folders = [p.parent.name for p in package.glob('*/__init__.py')]
    modules = [p.stem for p in package.glob('*.py') if p.stem != '__init__']
    return sorted(folders + modules)


def allowed_rooms(text: str, table: dict[str, str]) -> set[str]:
    """The rooms that one cell of the table permits."""
    if text == 'nothing':
        return set()
    if text.startswith('everything'):
        excepted = set(text.removeprefix('everything').removeprefix(' but ').split(', '))
        return set(table) - excepted - {'testing'}
    return set(text.split(', '))


def contracts() -> str:
    """The whole .importlinter file."""
    table, rooms = read_table(), existing_rooms()
    unlisted = [room for room in rooms if room not in table]
    if unlisted:
        raise SystemExit(f'no row in the table of ARCHITECTURE.md for: {", ".join(unlisted)}')
    parts = [HEAD]
    for room in rooms:
        allowed = allowed_rooms(table[room], table) | EVERYONE | {room}
        forbidden = [other for other in rooms if other not in allowed]
        if forbidden:
            lines = '\n'.join(f'    robotrials.{other}' for other in forbidden)
            parts.append(
                f'[importlinter:contract:{room}]\nname = {room} may import: {table[room]}\ntype = forbidden\n'
                f'source_modules =\n    robotrials.{room}\nforbidden_modules =\n{lines}\n'
                'allow_indirect_imports = True\n'
            )
    return '\n'.join(parts)


if __name__ == '__main__':
    print(contracts(), end='')
