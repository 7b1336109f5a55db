"""Draw the house: lines, modules, classes and options per room, and who imports whom.

python tools/house.py           print it
python tools/house.py --keep    write the figures to docs/reference/house.json; a commit that raises them says why
python tools/house.py --trace   the modules that data passes through, from a CSV to a report and from a plan to a pair
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
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


def shared_names() -> dict[str, list[str]]:
    """Names that classes of several modules have, with those modules."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob('*.py')):
        for node in ast.parse(path.read_text(encoding='utf-8')).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append('.'.join(path.relative_to(PACKAGE).with_suffix('').parts))
    return {name: modules for name, modules in sorted(homes.items()) if len(modules) > 1}


def figures(rooms: dict[str, Room]) -> dict[str, dict[str, int]]:
    """Lines, modules, classes and options of each room, and of the whole."""
    names = ('lines', 'modules', 'classes', 'options')
    table = {room: {name: getattr(rooms[room], name) for name in names} for room in sorted(rooms)}
    table['all'] = {name: sum(row[name] for row in table.values()) for name in names}
    return table


def allowed(name: str, kept: int) -> int:
    """How far a figure may rise above what is kept before somebody says why."""
    return kept + {'lines': max(300, kept // 25), 'modules': 3, 'classes': max(10, kept // 20), 'options': 10}[name]


def grown(now: dict[str, dict[str, int]], kept: dict[str, dict[str, int]]) -> list[str]:
    """What has risen further than it may, in words; a room that nobody kept counts from nothing."""
    return [
        f'{room}: {row[name]} {name}, kept {kept.get(room, {}).get(name, 0)}'
        for room, row in now.items() for name in row
        if row[name] > allowed(name, kept.get(room, {}).get(name, 0))
    ]  # fmt: skip


# Runs a verb and writes the names of the modules of ours in which a function was called. What a module does while it is
# imported (class bodies, decorators, tables) is not counted: it is the way of the data that is asked for.
TRACE = """
import os, sys, threading
passed, loading = set(), threading.local()
def profile(frame, event, argument):
    code = frame.f_code
    if code.co_name == '<module>':
        loading.depth = getattr(loading, 'depth', 0) + (event == 'call') - (event == 'return')
    elif event == 'call' and not getattr(loading, 'depth', 0):
        name = frame.f_globals.get('__name__', '')
        if name.startswith('robotrials.'):
            passed.add(name)
from robotrials.cli import main
threading.setprofile(profile)
sys.setprofile(profile)
target, sys.argv = sys.argv[1], ['robotrials', *sys.argv[2:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.setprofile(None)
    with open(target, 'a') as file:
        print(*sorted(passed), sep='\\n', file=file)
"""
PLAN = """
seed = 1
tasks = ['reach']
episodes_per_cell = 3
time_cap_s = 2
[blinding]
secret = 'a secret of this trace alone, 0123456789abcdef'
[host]
use = 'point-mass'
[policies.a]
use = 'seek'
options = {speed_m_s = 0.1}
[policies.b]
use = 'seek'
options = {speed_m_s = 0.5}
"""
WAYS = {
    'CSV to report': (('report', 'rows.csv', '-o', 'report.html'),),
    'plan to compare': (
        ('run', 'plan.toml', '--store', 'store'),
        ('close', 'plan.toml', '--store', 'store', '--by', 'us'),
        ('compare', 'store'),
    ),
}


def traced(way: str) -> list[str]:
    """The modules of ours in which a function runs on one way of the data, in one process per verb."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [f'p{p},pick,{i},{(i + p) % 3 != 0:d},{5 + i % 7 + p}' for p in range(2) for i in range(20)]
        Path(folder, 'rows.csv').write_text('\n'.join(['policy,task,seed,success,duration_s', *lines, '']))
        Path(folder, 'plan.toml').write_text(PLAN)
        for words in WAYS[way]:
            subprocess.run(
                [sys.executable, '-c', TRACE, 'passed', *words], cwd=folder, check=True, capture_output=True,
                env={**os.environ, 'PYTHONPATH': str(PACKAGE.parent), 'ROBOTRIALS_CACHE': 'cache'},
            )  # fmt: skip
        return sorted(set(Path(folder, 'passed').read_text().split()))


def print_traces() -> None:
    for way in WAYS:
        modules = traced(way)
        rooms = defaultdict(list)
        for name in modules:
            rooms[room_of(name.removeprefix('robotrials.'))].append(name)
        print(f'{way}: {len(modules)} modules')
        for room, own in sorted(rooms.items()):
            print(f'  {room:10} {len(own):3}  {", ".join(n.removeprefix(f"robotrials.{room}.") for n in own)}')


def main() -> None:
    if '--trace' in sys.argv[1:]:
        print_traces()
        return
    rooms = read_house()
    table = figures(rooms)
    if sys.argv[1:2] == ['--keep']:
        why = ' '.join(sys.argv[2:])
        if not why:
            raise SystemExit("say why: python tools/house.py --keep 'a host for ManiSkill'")
        reasons = json.loads(KEPT.read_text(encoding='utf-8'))['why'] if KEPT.exists() else []
        document = {'why': [*reasons, why], 'rooms': table}
        KEPT.write_text(json.dumps(document, indent=1) + '\n', encoding='utf-8')
    print(f'{"room":10} {"lines":>7} {"modules":>8} {"classes":>8} {"options":>8}  imports')
    for name, row in table.items():
        imports = ', '.join(sorted(rooms[name].imports)) if name in rooms else ''
        print(f'{name:10} {row["lines"]:7} {row["modules"]:8} {row["classes"]:8} {row["options"]:8}  {imports}')
    names = shared_names()
    print(f'{len(names)} names of several classes: {", ".join(names)}')


if __name__ == '__main__':
    main()
