"""Run benchmarks and keep the ratios: `python -m bench [AREA ...]`, all areas by default.

An area is a module of this folder with a function `run() -> list[Result]`. Results of areas that were not run are kept.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / 'results.json'
NOT_AREAS = {'__main__', 'measure'}


def _shown(ratio: float) -> str:
    return f'{ratio:,.1f}' if ratio >= 1 else f'{ratio:.3f}'


def main() -> None:
    areas = sorted(m.name for m in pkgutil.iter_modules([str(FOLDER)]) if m.name not in NOT_AREAS)
    asked = sys.argv[1:] or areas
    unknown = set(asked) - set(areas)
    if unknown:
        raise SystemExit(f'no benchmark area {", ".join(sorted(unknown))}; known: {", ".join(areas)}')
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    by_name = {row['name']: row for row in kept if row['name'].split('/')[0] in areas}
    for area in asked:
        by_name = {name: row for name, row in by_name.items() if name.split('/')[0] != area}
        for result in importlib.import_module(f'bench.{area}').run():
            by_name[result.name] = result.as_json()
            mark = 'ok  ' if result.ratio >= result.target else 'LOW '
            print(
                f'{mark}{result.name}: {_shown(result.ratio)}x {result.peer} (target {_shown(result.target)}x); '
                f'{result.work}'
            )
    RESULTS.write_text(json.dumps([by_name[name] for name in sorted(by_name)], indent=1) + '\n')


if __name__ == '__main__':
    main()
