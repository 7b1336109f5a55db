"""The figures of `robotrials safety`: success against safety, what is violated, what unsafe successes are made of."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError, NotEstimable, SetupError
from robotrials.measure.safety import CellSafety, EpisodeSafety, pareto_frontier
from robotrials.show.document import EpisodeFilter
from robotrials.show.figure import (
    COLUMN_WIDTH_IN,
    MARKERS,
    PAGE_WIDTH_IN,
    THING_PALETTE,
    PolicyLook,
    add_legend,
    fold,
    new_figure,
    policy_looks,
)
from robotrials.show.figure_mark import counted, lead_to, these_episodes
from robotrials.show.request import ShowRequest
from robotrials.verdict.analysis import SafetyPart, present
from robotrials.verdict.analysis.behind import Film

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray


SAME_PLACE = 1.5  # percentage points: nearer markers would hide each other
IMAGE_SUFFIXES = ('.png', '.jpg', '.jpeg', '.bmp')
ANIMATED_SUFFIXES = ('.gif', '.apng', '.webp')


def pareto_figure(cells: Sequence[CellSafety], *, looks: Mapping[str, PolicyLook] | None = None) -> Figure:
    """SR against Safety, a marker a cell with Wilson bars; under the dashed line lies what another cell beats.

    Cells at one place are rings around each other, so that each is seen. Auxiliary cells are faint, and in no frontier.
    `looks` says how each policy of the whole store is drawn; without it, only these cells' policies count.
    """
    main = [cell for cell in cells if not cell.is_auxiliary]
    others = [cell for cell in cells if cell.is_auxiliary]
    if not main:
        raise InputError('no cell to draw: every one is auxiliary, or none was scored')
    figure = new_figure(COLUMN_WIDTH_IN * 1.3, 3.4)
    axes = figure.add_subplot()
    looks = looks or policy_looks(cell.policy for cell in cells)
    names = [*sorted({c.benchmark for c in main}), *sorted({c.benchmark for c in others})]
    shapes = dict(zip(names, itertools.cycle(MARKERS), strict=False))
    points = [(100 * cell.success.count / cell.n, 100 * cell.safety.count / cell.n) for cell in [*main, *others]]
    for number, (cell, (x, y)) in enumerate(zip([*main, *others], points, strict=True)):
        beneath = sum(math.dist(points[number], other) < SAME_PLACE for other in points[:number])
        bars = [_arms(at, rate.interval) for at, rate in ((x, cell.success), (y, cell.safety))]
        look = looks[cell.policy]
        axes.errorbar(
            x, y, xerr=bars[0], yerr=bars[1], fmt=shapes[cell.benchmark], color=look.color,
            fillstyle='none' if beneath else look.fill, markersize=5 + 4 * beneath, linewidth=0.7,
            alpha=0.4 if cell.is_auxiliary else 0.9, zorder=3 - 0.01 * beneath,
        )  # fmt: skip
        words = f'{_label(cell)}: {x:.0f} % success, {y:.0f} % safe'
        lead_to(axes, x, y, _whole_cell(cell), words)
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    front = [points[i] for i in pareto_frontier(points[: len(main)])]
    # A staircase from edge to edge, so that a frontier of one cell can be seen too.
    stairs = [(left, front[0][1])]
    for x, y in front:
        stairs += [(stairs[-1][0], y), (x, y)]
    axes.plot(*zip(*stairs, (front[-1][0], bottom), strict=True), linestyle='--', color='0.4', linewidth=0.9, zorder=0)
    axes.set_xlim(left=left)
    axes.set_ylim(bottom=bottom)
    axes.set_xlabel('task success, %')
    axes.set_ylabel('safety, %')
    told = {f'{n} (auxiliary)' if n in {c.benchmark for c in others} else n: s for n, s in shapes.items()}
    _legend(figure, {c.policy: looks[c.policy] for c in sorted(cells, key=lambda c: c.policy)}, told)
    return figure


def _arms(at: float, interval: Any) -> list[list[float]]:
    return [[max(0.0, at - 100 * interval.low)], [max(0.0, 100 * interval.high - at)]]


def _legend(figure: Figure, looks: Mapping[str, PolicyLook], shapes: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color=look.color, marker='o', markersize=6, fillstyle=look.fill, linestyle='', label=name)
        for name, look in looks.items()
    ]
    entries += [
        Line2D([], [], marker=shape, markersize=5, label=name, color='0.5', linestyle='')
        for name, shape in shapes.items()
    ]
    entries.append(Line2D([], [], color='0.4', linestyle='--', linewidth=0.9, label='frontier'))
    add_legend(figure, entries, [str(entry.get_label()) for entry in entries])


def heatmap_figure(cells: Sequence[CellSafety], *, by: str = 'family', scores: Sequence[EpisodeSafety] = ()) -> Figure:
    """Violation rates in percent, a row a cell, a column a family or one of the three axes; a dash where inactive.

    `scores` are the episodes behind the cells, where their marks are to lead to them.
    """
    if by not in ('family', 'axis'):
        raise InputError(f"by is {by!r}, wanted 'family' or 'axis'")
    if not cells:
        raise InputError('no cell to draw: none was scored')
    rows = [_rates(cell, by) for cell in cells]
    names = _column_order(cells, by)
    values = [[row.get(name, float('nan')) for name in names] for row in rows]
    figure = new_figure(PAGE_WIDTH_IN, 1.5 + 0.22 * len(cells), is_rows=True)
    is_narrow = figure.get_figwidth() < 0.75 * len(names) + 2.2
    axes = figure.add_subplot()
    top = max(10.0, *(value for row in rows for value in row.values()))
    shown = axes.imshow(values, cmap='YlOrRd', vmin=0, vmax=top, aspect='auto')
    for i, row in enumerate(rows):
        for j, name in enumerate(names):
            text, color = (
                (f'{row[name]:.1f}', 'white' if row[name] > 0.6 * top else '0.15') if name in row else ('–', '0.5')
            )
            axes.text(j, i, text, ha='center', va='center', fontsize='x-small' if is_narrow else 'small', color=color)
            if name in row:
                unsafe = _violating(cells[i], name, by, scores)
                words = f'{_label(cells[i])}, {name.replace("_", " ")}: {row[name]:.1f} %, {counted(unsafe)}'
                behind = these_episodes(unsafe, _whole_cell(cells[i]))
                lead_to(axes, (j - 0.5, j + 0.5), (i - 0.5, i + 0.5), behind, words)
    turn = 60 if is_narrow else 25
    axes.set_xticks(
        range(len(names)), [name.replace('_', ' ') for name in names], rotation=turn, ha='right', fontsize='small',
        rotation_mode='anchor',
    )  # fmt: skip
    axes.set_yticks(range(len(cells)), [_label(c) for c in cells], fontsize='small')
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if is_narrow:  # every cell says its number, so the bar can go
        axes.set_title('episodes that violate it, %', fontsize='small')
    else:
        figure.colorbar(shown, ax=axes, label='episodes that violate it, %', fraction=0.04)
    return figure


def _whole_cell(cell: CellSafety) -> EpisodeFilter:
    return {'policy': (cell.policy,), **({'benchmark': (cell.benchmark,)} if cell.benchmark else {})}


def _violating(cell: CellSafety, name: str, by: str, scores: Sequence[EpisodeSafety]) -> list[EpisodeSafety]:
    """The scored episodes of a cell that violate a family, or any spec of an axis."""
    families = {name} if by == 'family' else {s.family for s in cell.specs if s.axis == name}
    return [
        s for s in scores
        if (s.policy, s.benchmark) == (cell.policy, cell.benchmark) and families & {v.family for v in s.violations}
    ]  # fmt: skip


def _label(cell: CellSafety) -> str:
    return f'{cell.policy}, {cell.benchmark}' + (' (auxiliary)' if cell.is_auxiliary else '')


def _column_order(cells: Sequence[CellSafety], by: str) -> list[str]:
    """Families of one axis side by side."""
    if by == 'axis':
        return sorted({name for cell in cells for name, _ in cell.axes})
    return [family for _, family in sorted({(s.axis, s.family) for cell in cells for s in cell.specs})]


def _rates(cell: CellSafety, by: str) -> dict[str, float]:
    if by == 'axis':
        return {name: 100 * rate.count / rate.n for name, rate in cell.axes}
    return {spec.family: 100 * spec.violations.count / spec.violations.n for spec in cell.specs}


def composition_figure(cells: Sequence[CellSafety], *, scores: Sequence[EpisodeSafety] = ()) -> Figure:
    """Bars of SBU, each split by the specs that the unsafe successes violate."""
    if not cells:
        raise InputError('no cell to draw: none was scored')
    families = sorted({spec.family for cell in cells for spec, _ in cell.composition()})
    colors = {family: THING_PALETTE[i % len(THING_PALETTE)] for i, family in enumerate(families)}
    figure = new_figure(PAGE_WIDTH_IN, 1.1 + 0.24 * len(cells), is_rows=True)
    axes = figure.add_subplot()
    labels = [_label(cell) for cell in cells]
    widest = max(100 * cell.sbu.count / cell.n for cell in cells)
    for row, cell in enumerate(cells):
        left, whole = 0.0, 100 * cell.sbu.count / cell.n
        for spec, share in sorted(cell.composition(), key=lambda part: part[0].family):
            axes.barh(row, whole * share, left=left, color=colors[spec.family], height=0.7)
            behind = [s for s in _violating(cell, spec.family, 'family', scores) if s.success]
            words = f'{_label(cell)}, {spec.family.replace("_", " ")}: {counted(behind)}'
            lead_to(axes, (left, left + whole * share), (row - 0.35, row + 0.35),
                    these_episodes(behind, _whole_cell(cell)), words)  # fmt: skip
            left += whole * share
        axes.text(whole + 0.01 * widest, row, f'{whole:.1f} %', va='center', fontsize='small')
    axes.set_xlim(0, (1.2 if figure.get_figwidth() > 5 else 1.5) * widest or 1.0)  # room for the last number
    axes.set_yticks(range(len(cells)), labels, fontsize='small')
    axes.invert_yaxis()
    axes.set_xlabel(fold('successful but unsafe episodes, %, by violated spec', 0.5 * figure.get_figwidth()))
    handles = [axes.barh(0, 0, color=color) for color in colors.values()]
    add_legend(figure, handles, [name.replace('_', ' ') for name in colors])
    return figure


def filmstrip_figure(score: EpisodeSafety, film: Film) -> Figure:
    """Three frames of an unsafe success: its start, its worst violation (red) and its end (green)."""
    if not (score.success and score.violations):
        raise InputError(f'episode {score.episode_id} is no unsafe success; a filmstrip needs one')
    worst = max(score.violations, key=lambda v: (v.depth, -v.time_s))
    frames = read_frames(film.path, [0.0, film.frame_at(worst.time_s) / max(len(film.times_s) - 1, 1), 1.0])
    figure = new_figure(PAGE_WIDTH_IN, 2.1)
    third_in = figure.get_figwidth() / 3.2
    bodies = f', {" × ".join(worst.bodies)}' if worst.bodies else ''
    moment = f'{worst.time_s:.2f} s: {worst.signal.replace("_", " ")} {worst.value:.3g} {worst.unit}{bodies}'
    for place, (frame, title, color) in enumerate(
        zip(frames, ('start', moment, 'success'), ('0.6', '#C00000', '#2E8B57'), strict=True)
    ):
        axes = figure.add_subplot(1, 3, place + 1)
        axes.imshow(frame)
        axes.set_title(fold(title, third_in, size=0.833), fontsize='small')
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set(visible=True, color=color, linewidth=2.5)
        lead_to(axes, None, None, these_episodes([score]), title, t_s=worst.time_s if place == 1 else None)
    head = f'{score.policy}, {score.benchmark}/{score.task}: {worst.clause}'
    figure.suptitle(fold(head, 0.9 * figure.get_figwidth()))
    return figure


def read_frames(video: Path | str, shares: Sequence[float]) -> list[NDArray[Any]]:
    """Frames at these shares (0 to 1) of a folder of images, an animated image, or a video that PyAV can decode."""
    path = Path(video)
    if not path.exists():
        raise InputError(f'{path}: no such video')
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
        if not files:
            raise InputError(f'{path}: no image in it')
        return [_image(files[_at(share, len(files))]) for share in shares]
    if path.suffix.lower() in (*ANIMATED_SUFFIXES, *IMAGE_SUFFIXES):
        return _animation(path, shares)
    return _decoded(path, shares)


def _at(share: float, count: int) -> int:
    return min(max(round(share * (count - 1)), 0), count - 1)


def _image(path: Path) -> NDArray[Any]:
    import numpy as np
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert('RGB'))


def _animation(path: Path, shares: Sequence[float]) -> list[NDArray[Any]]:
    import numpy as np
    from PIL import Image

    frames = []
    with Image.open(path) as image:
        count = getattr(image, 'n_frames', 1)
        for share in shares:
            image.seek(_at(share, count))
            frames.append(np.asarray(image.convert('RGB')))
    return frames


def _decoded(path: Path, shares: Sequence[float]) -> list[NDArray[Any]]:
    try:
        av: Any = importlib.import_module('av')
    except ModuleNotFoundError as error:
        raise SetupError(f'{path}: decoding {path.suffix} needs PyAV; install it with: pip install av') from error
    with av.open(str(path)) as container:
        count = sum(1 for _ in container.decode(video=0))
    wanted = [_at(share, count) for share in shares]
    found: dict[int, NDArray[Any]] = {}
    with av.open(str(path)) as container:
        for number, frame in enumerate(container.decode(video=0)):
            if number in wanted:
                found[number] = frame.to_ndarray(format='rgb24')
    return [found[number] for number in wanted]


# The safety figures that `robotrials plot NAME STORE` draws, from the analysis of a store.


def draw_pareto(request: ShowRequest) -> Figure:
    """Task success against safety, one marker per policy and benchmark, with Wilson bars and the frontier."""
    return pareto_figure(safety_cells(request), looks=request.looks())


def draw_heatmap(request: ShowRequest) -> Figure:
    """Violation rates of every safety family, one row per policy and benchmark."""
    return heatmap_figure(safety_cells(request), scores=requested_safety(request).scores)


def draw_axis_heatmap(request: ShowRequest) -> Figure:
    """Violation rates of the three axes of safety, one row per policy and benchmark."""
    return heatmap_figure(safety_cells(request), by='axis', scores=requested_safety(request).scores)


def draw_composition(request: ShowRequest) -> Figure:
    """Bars of unsafe successes, split by the specs that they violate."""
    return composition_figure(safety_cells(request), scores=requested_safety(request).scores)


def draw_filmstrip(request: ShowRequest) -> Figure:
    """Start, violation and success of the most severe unsafe success that has a video."""
    part = requested_safety(request)
    films = request.analysis.leading_films
    shown = request.shown(dict.fromkeys(s.policy for s in part.scores))
    unsafe = [s for s in part.scores if s.sbu and s.violations and s.policy in shown]
    filmed = [s for s in unsafe if (s.episode_id, s.attempt) in films]
    if not filmed:
        raise NotEstimable('no unsafe success of this store has a recorded video; a filmstrip needs one')
    worst = max(filmed, key=lambda s: (s.vsi or 0.0, s.episode_id))
    film = films[worst.episode_id, worst.attempt]
    return filmstrip_figure(worst, film)


def requested_safety(request: ShowRequest) -> SafetyPart:
    return present(request.analysis.safety)


def safety_cells(request: ShowRequest) -> tuple[CellSafety, ...]:
    """The cells of the policies asked for."""
    return shown_cells(request, requested_safety(request).summary.cells)


def shown_cells(request: ShowRequest, cells: tuple[CellSafety, ...]) -> tuple[CellSafety, ...]:
    shown = request.shown(dict.fromkeys(c.policy for c in cells))
    return tuple(c for c in cells if c.policy in shown)
