"""Draw every task of the tabletop cell at eight times, with their page: `python tools/task_pictures.py docs`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from robotrials.record.footage import FilmStates
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import FilmOptions, RecordingOptions
from robotrials.run.seam import Setup
from robotrials.worlds.cell import TASKS, TabletopHost
from robotrials.worlds.cell.scripted import ScriptedPolicy

MOMENTS = 8
CAMERAS = ('gallery', 'front')
SIZE_PX = (240, 180)
HEAD_PX, GAP_PX = 20, 2
SEED = 6
QUALITY = 80
PAGE = """# The cell's tasks in pictures

Every task of [the embedded cell](tabletop.md) at eight times of one episode, from its reset to its end, drawn from the
recorded states as [films](../how-to/films.md) are: above the overview, below the front camera. The scripted reference
policy acts. `python tools/task_pictures.py docs` draws them anew.
"""


def main(docs: str) -> None:
    pictures = Path(docs) / 'images' / 'tasks'
    pictures.mkdir(parents=True, exist_ok=True)
    page = [PAGE]
    host = TabletopHost(state='privileged')
    for task in TASKS:
        done = act(host, task)
        sheet, times_s = draw(host, done)
        path = pictures / f'{task}.jpg'
        sheet.save(path, 'JPEG', quality=QUALITY, optimize=True)
        sentence = f'"{host.instruction()}" ' if host.instruction() else ''
        page.append(
            f'## {task}\n\n{sentence}({done.outcome} after {times_s[-1]:.1f} s, seed {SEED}).\n\n'
            f'![{task} at {MOMENTS} times](../images/tasks/{task}.jpg)\n'
        )
        print(f'{path}: {path.stat().st_size // 1000} kB, {done.outcome}')
    host.close()
    (Path(docs) / 'concepts' / 'task-pictures.md').write_text('\n'.join(page), encoding='utf-8')


def act(host: TabletopHost, task: str) -> Rollout:
    setup = Setup(task=task, seed=SEED, instance=1)
    recording = RecordingOptions(film=FilmOptions(rate_hz=20.0, draw=False))
    return run_episode(
        host,
        ScriptedPolicy(temper='reference'),
        setup,
        order=Order(time_cap_s=60.0, policy_seed=1, recording=recording),
    )


def draw(host: TabletopHost, done: Rollout) -> tuple[Image.Image, list[float]]:
    """The frames in rows by camera, with their times above."""
    steps = np.rint(np.linspace(0, done.n_steps, MOMENTS)).astype(np.int64)
    kept = host.film(FilmOptions(rate_hz=host.spec.control_rate_hz)).states
    states = FilmStates(steps, kept.states[steps])
    width, height = SIZE_PX
    sheet = Image.new('RGB', (MOMENTS * (width + GAP_PX), HEAD_PX + len(CAMERAS) * (height + GAP_PX)), 'white')
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=14)
    times_s = [float(step) / host.spec.control_rate_hz for step in steps]
    footage = host.film(FilmOptions(cameras=CAMERAS, size_px=SIZE_PX), states=states)
    for row, shot in enumerate(footage.shots):
        for column, frame in enumerate(shot.frames):
            place = column * (width + GAP_PX), HEAD_PX + row * (height + GAP_PX)
            sheet.paste(Image.fromarray(frame), place)
    for column, t_s in enumerate(times_s):
        pen.text((column * (width + GAP_PX) + 4, 1), f'{t_s:.1f} s', fill='black', font=font)
    return sheet, times_s


if __name__ == '__main__':
    main(sys.argv[1])
