"""Draw the house: lines, modules, classes and options per room, and who imports whom.

python tools/house.py           print it
python tools/house.py --keep    write the figures to docs/reference/house.json; a commit that raises them says why
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / 'src' / 'robotrials'
KEPT = ROOT / 'docs' / 'reference' / 'house.json'


@dataclass
class Room:
    """What one room holds."""

    lines: int = 0
    modules: int = 0
    classes: int = 0
    options: int = 0  # of the command line
    imports: set[str] = field(default_factory=set)


def room_of(module: str) -> str:
    """The room of a dotted module below the package; single modules at the top stand together."""
    first = module.partition('.')[0]
    return first if (PACKAGE / first).is_dir() else 'top'


def read_house() -> dict[str, Room]:
    """Every room, by name."""
    rooms: dict[str, Room] = defaultdict(Room)
    for path in sorted(PACKAGE.rglob('*.py')):
        text = path.read_text(encoding='utf-8')
        tree = ast.parse(text)
        module = '.'.join(path.relative_to(PACKAGE).with_suffix('').parts)
        room = rooms[room_of(module)]
        room.lines += text.count('\n')
        room.modules += 1
        room.classes += sum(isinstance(node, ast.ClassDef) for node in ast.walk(tree))
        room.options += len(re.findall(r'typer\.Option\(', text))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith('robotrials.'):
                room.imports.add(room_of(node.module.removeprefix('robotrials.')))
    for name, room in rooms.items():
        room.imports -= {name, 'top'}
    return dict(rooms)


def figures(rooms: dict[str, Room]) -> dict[str, dict[str, int]]:
    """Lines, modules, classes and options of each room, and of the whole."""
    names = ('lines', 'modules', 'classes', 'options')
    told = {room: {name: getattr(rooms[room], name) for name in names} for room in sorted(rooms)}
    told['all'] = {name: sum(row[name] for row in told.values()) for name in names}
    return told


def main() -> None:
    rooms = read_house()
    table = figures(rooms)
    if '--keep' in sys.argv[1:]:
        KEPT.write_text(json.dumps(table, indent=1) + '\n', encoding='utf-8')
    print(f'{"room":10} {"lines":>7} {"modules":>8} {"classes":>8} {"options":>8}  imports')
    for name, row in table.items():
        imports = ', '.join(sorted(rooms[name].imports)) if name in rooms else ''
        print(f'{name:10} {row["lines"]:7} {row["modules"]:8} {row["classes"]:8} {row["options"]:8}  {imports}')


if __name__ == '__main__':
    main()
