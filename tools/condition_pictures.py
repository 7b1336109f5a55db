"""Draw every condition at three severities for the documentation: `python tools/condition_pictures.py docs/images`."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from robotrials.run.conditions import CameraFrame, Condition, condition_parameters, draw_condition, parts_of
from robotrials.run.conditions.condition import FrameCondition, Latency
from robotrials.run.conditions.instruction import Instruction
from robotrials.run.seam import Observation, Setup
from robotrials.show.figure import new_figure
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.camera import Pictures
from robotrials.worlds.cell.reset import things_of
from robotrials.worlds.cell.scene import PLATFORM_CENTER_M, PLATFORM_SIZE_M, STAGE_TOP_M
from robotrials.worlds.cell.scripted import ScriptedPolicy

TASK, SEED, CAMERA = 'two_block', 6, 'front'
SEVERITIES = (0.0, 1 / 3, 2 / 3, 1.0)
SIZE_PX = (150, 200)
SECONDS = 1.4  # of a scripted pick, for what shows only in motion
PATH = (1.0, 0.0, 0.8)
PLOTTED = ('disturbance', 'latency')

Cell = Callable[[Any, float], str]  # draws into axes, and says what was drawn


class Sheet:
    """One host, used for all pictures."""

    def __init__(self) -> None:
        self.host = TabletopHost(state='privileged', cameras=(CAMERA,), image_size=SIZE_PX)
        self.room = Pictures(('gallery',), height_px=SIZE_PX[0], width_px=SIZE_PX[1])

    def begin(self, condition: Condition | None, *, task: str = TASK, seed: int = SEED) -> Observation:
        """The start under a condition, with its frames disturbed where the cell does not do it."""
        mine = [p for p in parts_of(condition) if p.kind in self.host.spec.conditions] if condition is not None else []
        setup = Setup(task=task, seed=seed)
        if mine:
            parts = {f'{p.kind}.{k}': v for p in mine for k, v in condition_parameters(p).items()}
            setup = Setup(task=task, seed=seed, condition='some', condition_parameters=parts)
        self.host.prepare(setup)
        return self.host.reset(task, seed=seed)

    def seen(self, kind: str, *, outline: bool = False, depth: bool = False, draw_seed: int = SEED) -> Cell:
        def draw(ax: Any, severity: float) -> str:
            condition = draw_condition(kind, severity, seed=draw_seed, instruction='')
            start = self.begin(condition)
            camera = start.cameras[CAMERA]
            frame = CameraFrame(
                CAMERA, start.images[CAMERA], start.depth_m[CAMERA], camera.intrinsics_px, camera.world_from_camera
            )
            for part in parts_of(condition):
                if isinstance(part, FrameCondition) and part.kind not in self.host.spec.conditions:
                    frame = part.disturb(frame, step=0)
            if depth and frame.depth_m is not None:
                ax.imshow(np.ma.masked_invalid(np.where(frame.depth_m < 3, frame.depth_m, np.nan)), cmap='viridis',
                          vmin=0.8, vmax=1.7)  # fmt: skip
                ax.set_facecolor('black')
            else:
                ax.imshow(frame.rgb)
            ax.set_autoscale_on(False)
            if outline and frame.world_from_camera is not None and frame.intrinsics_px is not None:
                corners = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1], [1, 1]]) * np.array(PLATFORM_SIZE_M) / 2
                points = np.column_stack([corners + PLATFORM_CENTER_M, np.full(5, STAGE_TOP_M)])
                self.line(ax, points, frame.intrinsics_px, frame.world_from_camera, color=PATH)
            return said(condition)

        return draw

    def start(self, ax: Any, severity: float) -> str:
        """The arm where it starts, from the side of the room."""
        condition = draw_condition('robot_state', severity, seed=2)
        self.begin(condition)
        start = self.host._start
        assert start is not None
        ax.imshow(self.room.take(start.scene, start.data)['gallery'].rgb)
        return said(condition)

    def strain(self, ax: Any, severity: float) -> str:
        """How far the tool is from where it is without the disturbance, over a scripted pick."""
        condition = draw_condition('disturbance', severity, seed=SEED)
        way, usual = self.act(condition), self.act(None)
        ax.plot(np.arange(len(way)) / 20, 1000 * np.linalg.norm(way - usual, axis=1), color='#aa3377')
        ax.set(xlim=(0, SECONDS), ylim=(0, 40))
        ax.set_box_aspect(SIZE_PX[0] / SIZE_PX[1])
        ax.text(0.02, 0.96, f'mm off its way, 0 to 40;\n0 to {SECONDS} s', va='top', transform=ax.transAxes, fontsize=5)
        return said(condition)

    def act(self, condition: Condition | None) -> np.ndarray:
        observation = self.begin(condition)
        session = ScriptedPolicy(temper='reference').start(Setup(task=TASK, seed=SEED), seed=1)
        way = []
        while observation.t_s < SECONDS:
            observation = self.host.step(session.act(observation).actions[0])
            way.append(self.host.signals()['ee_pose'][:3].copy())
        return np.array(way)

    def line(self, ax: Any, points: np.ndarray, intrinsics: Any, pose: Any, *, color: Sequence[float]) -> None:
        local = (points - pose[:3, 3]) @ pose[:3, :3]
        pixel = local @ intrinsics.T
        ax.plot(pixel[:, 0] / pixel[:, 2], pixel[:, 1] / pixel[:, 2], color=tuple(color), linewidth=0.9)

    def words(self, ax: Any, severity: float) -> str:
        self.begin(None)
        start = self.host._start
        assert start is not None
        drawn = [
            Instruction.draw(severity, seed=s, canonical=start.layout.instruction, things=things_of(start.layout))
            for s in range(3)
        ]
        texts = list(dict.fromkeys(d.text for d in drawn))
        ax.text(0.5, 0.5, '\n\n'.join(fold(t) for t in texts), ha='center', va='center', fontsize=5.5)
        ax.set(xlim=(0, 1), ylim=(0, 1))
        return ''

    def delays(self, ax: Any, severity: float) -> str:
        latency = Latency.draw(severity, seed=SEED)
        drawn = [latency.delay(step) for step in range(24)]
        parts = np.array([[d.network_s, d.inference_s, d.transport_s] for d in drawn])
        below = np.zeros(len(parts))
        for values, color in zip(parts.T, ('#4477aa', '#ee6677', '#ccbb44'), strict=True):
            ax.bar(np.arange(len(parts)), 1000 * values, bottom=1000 * below, color=color, width=0.9)
            below = below + values
        ax.set(xlim=(-1, 24), ylim=(0, 900), aspect='auto')
        ax.text(0.02, 0.96, '0 to 900 ms, by step', va='top', transform=ax.transAxes, fontsize=5)
        ax.set_box_aspect(SIZE_PX[0] / SIZE_PX[1])
        return f'mean {1000 * below.mean():.0f} ms'


def said(condition: Condition) -> str:
    """The numbers that matter, in short."""
    parts = parts_of(condition)
    if len(parts) > 1:
        return f'{len(parts)} kinds at {condition.severity:.2f}'
    v = condition_parameters(condition)
    texts: dict[str, Callable[[], str]] = {
        'background': lambda: f'{v["texture"]}, strength {v["strength"]:.2f}, {v["posters"]} posters',
        'light': lambda: f'{v["stops"]:+.1f} stops, {v["temperature_k"]:.0f} K',
        'exposure+': lambda: f'{v["stops"]:+.1f} stops',
        'exposure-': lambda: f'{v["stops"]:+.1f} stops',
        'camera_moved': lambda: f'{np.degrees(v["turn_rad"]):.1f} deg, {100 * v["shift_m"]:.1f} cm',
        'camera_bumped': lambda: f'{np.degrees(v["turn_rad"]):.1f} deg, {100 * v["shift_m"]:.1f} cm',
        'distractor': lambda: f'{v["count"]} objects',
        'robot_state': lambda: f'sd {v["sd_rad"]:.2f} rad',
        'sensor_noise': lambda: f'{v["rgb_sigma"]:.0f} grey levels, {v["disparity_noise_px"]:.2f} px of disparity',
        'disturbance': lambda: f'friction x{v["friction_scale"]:.1f}, pull {v["pull_n"]:.0f} N',
    }
    return texts.get(condition.kind, lambda: '')()


def fold(text: str, width: int = 34) -> str:
    lines = ['']
    for word in text.split():
        if len(lines[-1]) + len(word) > width:
            lines.append('')
        lines[-1] += f' {word}' if lines[-1] else word
    return '\n'.join(lines)


def draw_sheet(rows: Sequence[tuple[str, Cell]]) -> Figure:
    figure = new_figure(7.2, 1.44 * len(rows))
    axes = figure.subplots(len(rows), len(SEVERITIES), squeeze=False)
    for line, (name, draw) in zip(axes, rows, strict=True):
        for ax, severity in zip(line, SEVERITIES, strict=True):
            numbers = draw(ax, severity)
            ax.set_title(f'{severity:.2f}  {numbers}' if severity else 'severity 0', fontsize=5, pad=2)
            ax.set(xticks=[], yticks=[])
            for spine in ax.spines.values():
                spine.set(visible=name in PLOTTED, linewidth=0.4)
        line[0].set_ylabel(name, fontsize=6.5)
    return figure


def save(figure: Figure, path: Path) -> None:
    """As a small JPEG: photographs of a scene are three times as large as PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, format='png', dpi=150)
    Image.open(buffer).convert('RGB').save(path, quality=82, optimize=True)
    print(path)


def main(folder: str) -> None:
    sheet = Sheet()
    world = [
        ('background', sheet.seen('background', draw_seed=8)),
        ('light', sheet.seen('light')),
        ('camera_moved', sheet.seen('camera_moved', outline=True)),
        ('camera_bumped', sheet.seen('camera_bumped', outline=True)),
        ('distractor', sheet.seen('distractor')),
        ('layout', sheet.seen('layout')),
        ('robot_state', sheet.start),
    ]
    rest = [
        ('exposure+', sheet.seen('exposure+')),
        ('exposure-', sheet.seen('exposure-')),
        ('sensor_noise', sheet.seen('sensor_noise', outline=True)),
        ('sensor_noise\n(depth)', sheet.seen('sensor_noise', depth=True)),
        ('disturbance', sheet.strain),
        ('instruction', sheet.words),
        ('latency', sheet.delays),
        ('chaos', sheet.seen('chaos', draw_seed=8)),
    ]
    save(draw_sheet(world), Path(folder) / 'conditions-in-the-world.jpg')
    save(draw_sheet(rest), Path(folder) / 'conditions-on-the-way.jpg')
    sheet.room.close()
    sheet.host.close()


if __name__ == '__main__':
    main(sys.argv[1])
