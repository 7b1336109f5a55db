"""Print, as Markdown, how boxes by cameras come out when calibrations are off and depth is noisy.

python tools/camera_table.py [N_SCENES [NOISE ...]]     three blocks in a scene; 70 scenes by default
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.measure.geometry.camera_study import DEGREES, measure, study_host, study_row

FIRST_SEED = 20000  # not used to choose any limit


def main(n_scenes: int, levels: list[str]) -> None:
    host = study_host()
    print('| noise | degrees off | objects | centre error, median / 95 % / max, mm | wrong | trusted '
          '| trusted and wrong | with a camera refused |')  # fmt: skip
    print('|---|---|---|---|---|---|---|---|')
    for level in levels:
        for degrees in DEGREES:
            studies = [
                f
                for s in range(FIRST_SEED, FIRST_SEED + n_scenes)
                for f in measure(host, s, noise=level, degrees=degrees)
            ]
            print(f'| {level} | {degrees:g} | {" | ".join(map(str, study_row(studies)))} |', flush=True)
    host.close()


if __name__ == '__main__':
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 70, sys.argv[2:] or ['white', 'mild', 'default', 'heavy'])
