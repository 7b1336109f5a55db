"""Films: strips of frames in a report and for a paper, the worst moment of an unsafe success, and reading frames."""

from __future__ import annotations

import base64
import importlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from robotrials.errors import InputError, NotEstimable, SetupError
from robotrials.measure.safety import EpisodeSafety
from robotrials.record import Episode
from robotrials.show.document import Block, Chart, Missing, Panel
from robotrials.show.figure import PAGE_WIDTH_IN, figure_width_in, fold, lead_to, new_figure, these_episodes
from robotrials.show.phrase import escape, plural
from robotrials.show.request import ShowRequest
from robotrials.show.safety import requested_safety
from robotrials.show.table import Cell, Column, Table, table, without_empty
from robotrials.verdict.analysis import Analysis
from robotrials.verdict.analysis.behind import Film

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray


FRAMES = 6
MOST_STRIPS = 8  # a panel
MOST_BYTES = 4 << 20  # of a film that is worth decoding for a few frames
FRAME_PX = 160
HEAD_PX, FOOT_PX, GAP_PX = 22, 18, 14
QUALITY = 78


def film_blocks(analysis: Analysis, *, folder: Path) -> list[Block]:
    """Nothing where no episode was filmed; why not, where one was to be."""
    leading = analysis.leading_films
    if not leading:
        why = sorted({e.labels['film'].removeprefix('none: ') for e in analysis.episodes if 'film' in e.labels})
        return [Missing('Films', f'no episode has one: {why[0]}')] if why else []
    chosen = {word: _chosen(list(leading.values()), success=ended) for word, ended in ENDS.items()}
    try:
        panels = [Panel(word, _strips(films, analysis, folder=folder)) for word, films in chosen.items() if films]
    except SetupError as error:
        return [Missing('Films', f'{plural(len(leading), "episode")} were filmed; {error}')]
    if not panels:
        return []
    listed = [film for films in chosen.values() for film in films]
    valid = sum(arm.n_valid for arm in analysis.quality.arms)
    return [_chart(analysis, listed, panels, n_filmed=len(leading), n_valid=valid)]


ENDS = {'successes': True, 'failures': False}


def _chosen(films: Sequence[Film], *, success: bool) -> list[Film]:
    """The first film of each policy that ended so, in the canonical order of episodes."""
    first: dict[str, Film] = {}
    for film in films:
        if film.episode.is_success is success and film.path.stat().st_size <= MOST_BYTES:
            first.setdefault(film.episode.policy, film)
    return list(first.values())[:MOST_STRIPS]


def _chart(analysis: Analysis, films: Sequence[Film], panels: Sequence[Panel], *, n_filmed: int, n_valid: int) -> Chart:
    source = analysis.source
    note = (
        f'{n_filmed} of {plural(n_valid, "valid episode")} {"has" if n_filmed == 1 else "have"} a film, in '
        f'{source}/media. The links lead there, and hold as long as page and store stay where they are. To draw one '
        f'again, larger: robotrials store film {source} EPISODE --size 1280x960'
    )
    alt = (
        f'For each policy {FRAMES} frames of the first episode that succeeded, and of the first that did not, from its '
        'start to its end.'
    )
    return Chart('films-strips', 'What success and failure look like', alt, tuple(panels), _table(films), note)


def _table(films: Sequence[Film]) -> Table:
    rows: list[list[Cell]] = [
        [f.episode.policy, f.episode.outcome.value, f.episode.stratum or f.episode.task, f.episode.condition,
         f.episode.episode_id[:12], f.episode.duration_s, len(f.steps), f'media/{f.name}']
        for f in films
    ]  # fmt: skip
    columns: list[str | Column] = [
        'policy', 'outcome', 'stratum', 'condition', 'episode', Column('duration_s', '.2f'), 'frames', 'film',
    ]  # fmt: skip
    return without_empty(table('Films shown', columns, rows))


def _strips(films: Sequence[Film], analysis: Analysis, *, folder: Path) -> str:
    """One row of frames per film, under each its time; the heading links to every film of that episode."""
    parts, top, height = [], 0.0, 0.0
    for film in films:
        numbers = [film.frame_at(t) for t in np.linspace(0.0, float(film.times_s[-1]), FRAMES)]
        picture, tall = _picture(film, numbers)
        links = [f for f in analysis.films if f.episode.key == film.episode.key]
        parts.append(_head(film, links, top=top, folder=folder))
        parts.append(
            f'<image x="0" y="{top + HEAD_PX:g}" width="{FRAMES * FRAME_PX}" height="{tall:g}" '
            f'href="data:image/jpeg;base64,{base64.b64encode(picture).decode()}"/>'
        )
        for place, number in enumerate(numbers):
            at = f'x="{place * FRAME_PX + 4}" y="{top + HEAD_PX + tall + FOOT_PX - 4:g}"'
            parts.append(f'<text class="soft" {at}>{film.times_s[number]:.2f} s</text>')
        cuts = ''.join(f'M{k * FRAME_PX} {top + HEAD_PX:g}v{tall:g}' for k in range(1, FRAMES))
        parts.append(f'<path class="cut" d="{cuts}"/></g>')
        top += HEAD_PX + tall + FOOT_PX + GAP_PX
        height = top - GAP_PX
    box = f'0 0 {FRAMES * FRAME_PX} {height:g}'
    return f'<svg class="strip" viewBox="{box}" role="img" aria-label="filmstrips">{"".join(parts)}</svg>'


def _head(film: Film, links: Sequence[Film], *, top: float, folder: Path) -> str:
    """The opening of a row: who, what, how it ended, and links in the words after it."""
    episode = film.episode
    lasted = '' if episode.duration_s is None else f', {episode.duration_s:.2f} s'
    words = f'{episode.policy}: {episode.stratum or episode.task}, {episode.outcome.value}{lasted}'
    condition = '' if episode.condition in ('', 'nominal') else f' ({episode.condition})'
    addresses = {f.camera.removeprefix('film_'): _address(f.path, folder) for f in links}
    linked = ''.join(
        f'<a href="{escape(address)}"><tspan dx="12">{escape(camera)} film</tspan></a>'
        for camera, address in addresses.items()
    )
    return (
        f'<g data-policy="{escape(episode.policy)}"><text x="4" y="{top + HEAD_PX - 7:g}">'
        f'<tspan font-weight="650">{escape(words + condition)}</tspan>{linked}</text>'
    )


def _address(path: Path, folder: Path) -> str:
    """From the report to a film; of another drive, the whole path."""
    try:
        return quote(Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix())
    except ValueError:
        return path.resolve().as_uri()


def _picture(film: Film, numbers: Sequence[int]) -> tuple[bytes, float]:
    """Frames side by side as one JPEG, and how tall it is drawn."""
    from PIL import Image

    frames = read_frames(film.path, [n / max(len(film.times_s) - 1, 1) for n in numbers])
    joined = Image.fromarray(np.hstack(frames))
    tall = FRAME_PX * frames[0].shape[0] / frames[0].shape[1]
    if joined.width > 2 * FRAMES * FRAME_PX:
        joined = joined.resize((2 * FRAMES * FRAME_PX, round(2 * tall)))
    buffer = io.BytesIO()
    joined.save(buffer, 'JPEG', quality=QUALITY, optimize=True)
    return buffer.getvalue(), tall


# Filmstrips of episodes with a video: what a success and what a failure of each task looks like.

FRAME_IN = 1.1  # about this wide on the page


def draw_successes(request: ShowRequest) -> Figure:
    """Frames of one successful episode of every task (and policy, up to eight), from its start to its end."""
    return _filmstrip_strips(request, success=True)


def draw_failures(request: ShowRequest) -> Figure:
    """Frames of one failed episode of every task (and policy, up to eight), from its start to its end."""
    return _filmstrip_strips(request, success=False)


def _filmstrip_strips(request: ShowRequest, *, success: bool) -> Figure:
    filmed = _episodes(request, success=success)
    if not filmed:
        said = 'successful' if success else 'failed'
        raise NotEstimable(f'no {said} episode of this store has a recorded video; a filmstrip needs one')
    count = max(3, min(7, int(figure_width_in() / FRAME_IN)))
    frames = [read_frames(video, [k / (count - 1) for k in range(count)]) for _, video in filmed]
    height, width = frames[0][0].shape[:2]
    frame_in = figure_width_in() / count
    figure = new_figure(PAGE_WIDTH_IN, (frame_in * height / width + 0.3) * len(filmed) + 0.2, is_rows=True)
    rows = figure.subfigures(len(filmed), 1, squeeze=False)[:, 0]
    for row, (episode, _), pictures in zip(rows, filmed, frames, strict=True):
        lasted = '' if episode.duration_s is None else f', {episode.duration_s:.1f} s'
        said = f'{episode.policy}: {episode.instruction or episode.task} ({episode.outcome}{lasted})'
        row.suptitle(fold(said, 0.9 * figure.get_figwidth(), size=0.833), fontsize='small')
        for k, (axes, frame) in enumerate(zip(row.subplots(1, count, squeeze=False)[0], pictures, strict=True)):
            axes.imshow(frame)
            at_s = (episode.duration_s or 0.0) * k / (count - 1)
            lead_to(axes, None, None, these_episodes([episode]), f'{said}, at {at_s:.1f} s', t_s=at_s)
            axes.set_axis_off()
    return figure


def _episodes(request: ShowRequest, *, success: bool) -> list[tuple[Episode, Path]]:
    """The first episode of each task and policy with this outcome and a film."""
    films = request.analysis.leading_films.values()
    kept = request.shown(dict.fromkeys(f.episode.policy for f in films))
    filmed: dict[tuple[str, str], tuple[Episode, Path]] = {}
    for film in films:
        if film.episode.is_success is success and film.episode.policy in kept:
            filmed.setdefault((film.episode.task, film.episode.policy), (film.episode, film.path))
    return [filmed[key] for key in sorted(filmed)][:MOST_STRIPS]


# Three frames of an unsafe success, and the frames of films.

IMAGE_SUFFIXES = ('.png', '.jpg', '.jpeg', '.bmp')
ANIMATED_SUFFIXES = ('.gif', '.apng', '.webp')


def draw_filmstrip(request: ShowRequest) -> Figure:
    """Start, violation and success of the most severe unsafe success that has a video."""
    part = requested_safety(request)
    films = request.analysis.leading_films
    unsafe = [s for s in request.rows_of(part.scores) if s.sbu and s.violations]
    filmed = [s for s in unsafe if (s.episode_id, s.attempt) in films]
    if not filmed:
        raise NotEstimable('no unsafe success of this store has a recorded video; a filmstrip needs one')
    worst = max(filmed, key=lambda s: (s.vsi or 0.0, s.episode_id))
    film = films[worst.episode_id, worst.attempt]
    return filmstrip_figure(worst, film)


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
    decoded: dict[int, NDArray[Any]] = {}
    with av.open(str(path)) as container:
        for number, frame in enumerate(container.decode(video=0)):
            if number in wanted:
                decoded[number] = frame.to_ndarray(format='rgb24')
    return [decoded[number] for number in wanted]
