"""Print, as Markdown, success and time against delay on the embedded cell, and draw it.

python tools/latency_table.py [N_EPISODES [PICTURE.png]]     16 episodes per cell by default; some minutes
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.worlds.cell.latency_dose import DELAYS_S, POLICIES, TASKS, THINKING, Dose, run_doses

from robotrials.show.figure import add_legend, legend_entries, new_panels, save_figure
from robotrials.show.plot import policy_looks
from robotrials.show.table import render, table
from robotrials.stats import wilson

VARIANTS: dict[str, dict[str, object]] = {
    'delay in the wires, `waiting = "keep"`': {},
    'the same, commands under way untold': {'under_way': 'untold'},
    'the same, jitter of 50 %': {'jitter': 0.5},
    'the same, one message in five lost': {'loss': 0.2},
    'the same, `waiting = "hold"`': {'waiting': 'hold'},
    'delay in thinking': {'shares': THINKING},
}


def shown(dose: Dose) -> str:
    return f'{dose.successes}/{dose.episodes}' + ('' if dose.median_s is None else f', {dose.median_s:.1f} s')


def rows(doses: list[Dose]) -> list[list[str]]:
    groups: dict[tuple[str, str], list[Dose]] = {}
    for dose in doses:
        groups.setdefault((dose.task, dose.policy), []).append(dose)
    return [[*group, *(shown(d) for d in of_group)] for group, of_group in groups.items()]


def draw(doses: list[Dose], path: str) -> None:
    figure, panels = new_panels(4, most=2, panel_in=(2.6, 1.9), extra_in=0.6, sharex=True)
    for column, task in enumerate(TASKS):
        rate, seconds = panels[column], panels[2 + column]
        rate.set_title(task)
        for k, (policy, look) in enumerate(policy_looks(POLICIES).items()):
            own = [d for d in doses if d.task == task and d.policy == policy]
            x = [1000 * d.delay_s + 5 * (k - 1.5) for d in own]
            share = [d.successes / d.episodes for d in own]
            bounds = [wilson(d.successes, d.episodes) for d in own]
            ends = [[s - b.low for s, b in zip(share, bounds, strict=True)],
                    [b.high - s for s, b in zip(share, bounds, strict=True)]]  # fmt: skip
            style = {'color': look.color, 'linestyle': look.dash, 'marker': look.marker, 'ms': 3, 'lw': 1.2}
            rate.errorbar(x, share, yerr=ends, elinewidth=0.6, label=policy, **style)
            timed = [d for d in own if d.successes >= 3 and d.median_s is not None]
            seconds.plot([1000 * d.delay_s for d in timed], [d.median_s for d in timed], **style)
        rate.set_ylim(-0.03, 1.03)
        seconds.set_ylim(0, None)
        seconds.set_xlabel('delay in ms')
    panels[0].set_ylabel('success rate')
    panels[2].set_ylabel('median seconds of successes')
    add_legend(figure, *legend_entries(panels[:1]))
    save_figure(figure, path)


def main(episodes: int, picture: str | None) -> None:
    heads = ['task', 'policy', *(f'{1000 * d:.0f} ms' for d in DELAYS_S)]
    with tempfile.TemporaryDirectory() as folder:
        doses = run_doses(Path(folder), episodes=episodes)
        print(render(table('', heads, rows(doses)), 'markdown'), flush=True)
        if picture is not None:
            draw(doses, picture)
        for number, (name, options) in enumerate(VARIANTS.items()):
            measured = run_doses(
                Path(folder) / f'variant-{number}', (0.1, 0.2, 0.4), episodes=max(episodes // 2, 1),
                tasks=('single_block',), policies=('fast', 'chunking'), **options,
            )  # fmt: skip
            for row in rows(measured):
                print('|', ' | '.join([name, *row[1:]]), '|', flush=True)


if __name__ == '__main__':
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 16, sys.argv[2] if len(sys.argv) > 2 else None)
