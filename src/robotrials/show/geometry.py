"""Success by cameras: its tables, a report's section on it, and pictures of placements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.geometry import Box, PlacementScore
from robotrials.measure.geometry.camera_score import CameraScore
from robotrials.measure.geometry.mask import ORACLE
from robotrials.record import Episode
from robotrials.show.answer import ALL, Card
from robotrials.show.catalog import ShowRequest
from robotrials.show.document import Block, EpisodeFilter, Section, missing, paragraph, section, table_block
from robotrials.show.figure import PAGE_WIDTH_IN, figure_width_in, lead_to, new_figure
from robotrials.show.phrase import ends, number, percent, plural
from robotrials.show.plot import Axis, Curve, Facet, GuideLine, Layer, Plot, Point, Sheet, these_episodes
from robotrials.show.table import Cell, Column, Table, estimate_text, table, without_empty
from robotrials.verdict.analysis import Absent, Analysis, present
from robotrials.verdict.analysis.cameras import CameraPart
from robotrials.verdict.planning.analysis_plan import SuccessSource

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ALIGNED, RESULT_ONLY, TARGET_ONLY = '#009E73', '#D55E00', '#56B4E9'
FAINT, FULL = '58', 'ff'  # so that what is aligned shows through what is not
PAGE_PLACES = ((0.0, 0.06, 0.45, 0.84), (0.49, 0.06, 0.45, 0.84))


def placement_figure(
    result: Box,
    target: Box,
    *,
    score: PlacementScore | None = None,
) -> Figure:
    """Left, both boxes; right, voxels: aligned, only in the result, only in the target."""
    is_narrow = figure_width_in() < 4.5
    figure = new_figure(PAGE_WIDTH_IN, 5.6 if is_narrow else 3.3, is_rows=is_narrow)
    figure.set_layout_engine('none')  # constrained layout does not know axes in three dimensions
    places = ((0.04, 0.53, 0.84, 0.42), (0.04, 0.06, 0.84, 0.4)) if is_narrow else PAGE_PLACES
    seen: Any = figure.add_axes(places[0], projection='3d')
    drawn: Any = figure.add_axes(places[1], projection='3d')
    for box, shade, name in ((target, TARGET_ONLY, 'target'), (result, RESULT_ONLY, 'result')):
        for i, j in ((i, i | 1 << k) for i in range(8) for k in range(3) if not i >> k & 1):
            ends = box.corners[[i, j]] * 100
            seen.plot(*ends.T, color=shade, lw=1.2, label=name if (i, j) == (0, 1) else None)
    seen.legend(loc='lower left', bbox_to_anchor=(-0.05, 0.96), ncols=2, fontsize='small', borderaxespad=0)
    edges, in_result, in_target = _voxels(result, target)
    for mask, shade, alpha, name in (
        (in_result & in_target, ALIGNED, FULL, 'aligned'),
        (in_result & ~in_target, RESULT_ONLY, FAINT, 'result only'),
        (in_target & ~in_result, TARGET_ONLY, FAINT, 'target only'),
    ):
        if mask.any():
            drawn.voxels(*edges, mask, facecolors=shade + alpha, edgecolors='#00000018', linewidth=0.15)
        drawn.plot([], [], 's', color=shade, label=name)
    drawn.legend(
        loc='lower left', bbox_to_anchor=(-0.08, 0.96), ncols=3, fontsize='small', borderaxespad=0, columnspacing=0.8,
        handletextpad=0.2,
    )  # fmt: skip
    if score is not None:
        said = f'IoU {score.iou:.3f} ({"success" if score.success else "failure"} at {score.threshold:g}), '
        figure.text(0.5, 0.99, f'{said}{1000 * score.translation_error_m:.1f} mm', ha='center', va='top')
    _same_limits(seen, drawn, np.concatenate([result.corners, target.corners]) * 100)
    return figure


def _voxels(result: Box, target: Box) -> tuple[list[NDArray[Any]], NDArray[np.bool_], NDArray[np.bool_]]:
    corners = np.concatenate([result.corners, target.corners])
    low, high = corners.min(axis=0), corners.max(axis=0)
    step = float((high - low).max()) / 14
    counts = np.maximum(1, np.ceil((high - low) / step - 1e-9).astype(int))
    grid = np.meshgrid(*(low[k] + step * (np.arange(counts[k]) + 0.5) for k in range(3)), indexing='ij')
    points = np.stack([g.ravel() for g in grid], axis=1)
    ends = [low[k] + step * np.arange(counts[k] + 1) for k in range(3)]
    edges = [100 * g for g in np.meshgrid(*ends, indexing='ij')]
    return edges, result.contains(points).reshape(counts), target.contains(points).reshape(counts)


def _same_limits(first: Any, second: Any, corners_cm: NDArray[Any]) -> None:
    low, high = corners_cm.min(axis=0), corners_cm.max(axis=0)
    reach = np.maximum(high - low, (high - low).max() / 3) * 0.55
    for axes in (first, second):
        for name, center, half in zip('xyz', (low + high) / 2, reach, strict=True):
            getattr(axes, f'set_{name}lim')(center - half, center + half)
            getattr(axes, f'{name}axis').get_major_locator().set_params(nbins=5)
            getattr(axes, f'set_{name}label')(f'{name}, cm', fontsize='small', labelpad=-4)
        axes.tick_params(labelsize='x-small', pad=-2)
        axes.set_box_aspect(tuple(reach))


# The picture of a store's placement by name: the voxels of one episode's result and target.

MOST_SHOWN = 6


def draw_placement(request: ShowRequest) -> Figure:
    """Where the object came to lie against where it should: boxes, and voxels that agree or differ.

    Of the episodes of the policies asked for, the one with the median overlap, by its recorded pose.
    """
    placements = present(request.analysis.placements)
    kept = request.shown(dict.fromkeys(p.episode.policy for p in placements))
    asked = [p for p in placements if p.episode.policy in kept]
    drawn = asked[len(asked) // 2]
    figure = placement_figure(drawn.result, drawn.target, score=drawn.score)
    for axes in figure.axes:
        lead_to(axes, None, None, these_episodes([drawn.episode]), f'{drawn.episode.policy}, {drawn.episode.task}')
    return figure


def draw_iou_over_time(request: ShowRequest) -> Plot:
    """Overlap with the target over time: by cameras (dots), by the host's poses (line), and the threshold (dashes).

    Where cameras could not tell, a mark stands on the axis. Of the policies asked for, six episodes at most.
    """
    every = present(request.analysis.overlaps)
    kept = request.shown(dict.fromkeys(c.episode.policy for c in every))
    drawn = []
    for curve in [c for c in every if c.episode.policy in kept][:MOST_SHOWN]:
        policy, behind = curve.episode.policy, these_episodes([curve.episode])
        layers: list[Layer] = []
        if curve.by_host:
            times_s, overlaps = zip(*curve.by_host, strict=True)
            layers.append(Curve('', times_s, overlaps, name='host', color='0.6', width=1.0))
        layers += [
            Point(policy, t_s, overlap, name='cameras', episodes=behind, t_s=t_s, size=3.0, is_listed=True,
                  words=f'{policy} at {t_s:.1f} s: IoU {overlap:.2f}')
            for t_s, overlap in curve.by_cameras
        ]  # fmt: skip
        layers += [
            Point('', t_s, 0.0, name='not told', color='0.4', marker='x', is_listed=True) for t_s in curve.untold_s
        ]
        if curve.threshold is not None:
            layers.append(GuideLine(y=curve.threshold, color='0.3'))
        drawn.append(Facet(f'{policy}, {curve.episode.task}: {curve.episode.outcome.value}', tuple(layers)))
    axes = Axis('time, s'), Axis('IoU with the target', (-0.02, 1.02))
    sheet = Sheet(facet_in=(2.2, 1.8), most=3, extra_in=0.6)
    return Plot('iou-over-time', 'Overlap over time', tuple(drawn), *axes, sheet=sheet)


# Tables of success by cameras: agreement with the host, rates with their bounds and corrections, every episode.


def camera_card(part: CameraPart) -> Card:
    """Whether the cameras bear the host out, and success by them."""
    c = part.confusion
    agree, differ = c.both_success + c.both_failure, c.only_host + c.only_cameras
    unscored = c.unscored_success + c.unscored_failure
    total = agree + differ
    verdict = [f'Host and cameras agree on {agree} of {plural(total, "scored episode")}.' if total else
               'No episode that the host judged could be scored from cameras.']  # fmt: skip
    if differ:
        verdict.append(f'{c.only_host} successes by the host alone, {c.only_cameras} by the cameras alone.')
    if note := mask_note(part):
        verdict.append(note)
    rows = []
    for p in part.policies:
        n = p.successes + p.failures
        words = f'{p.successes}/{n} by cameras, {p.unscored} unscored'
        if p.corrected.value is not None:
            words += f'; corrected {estimate_text(p.corrected.value, p.corrected.interval, scale=100.0, unit=" %")}'
        if p.host is not None and p.host.value is not None:
            words += f'; host {100 * p.host.value:.0f} %'
        rows.append((p.policy, words))
    change = ''
    if unscored:
        reason = max(part.unscored_reasons, key=lambda r: part.unscored_reasons[r], default='')
        change = f'{plural(unscored, "unscored episode")}, most because: {reason}.' if reason else ''
    return Card(
        title='Success by cameras', scope=plural(total + unscored, 'episode'), verdict=tuple(verdict), rows=tuple(rows),
        change=change, more=(ALL, '--episodes'),
    )  # fmt: skip


def confusion_table(part: CameraPart) -> Table:
    """What the host and the cameras say of the same episodes."""
    c = part.confusion
    rows: list[tuple[Cell, ...]] = [
        ('success', c.both_success, c.only_host, c.unscored_success),
        ('failure', c.only_cameras, c.both_failure, c.unscored_failure),
    ]
    note = 'Unscored: the cameras do not bear a verdict out; it is no failure, and in no rate.'
    return table('Host against cameras', ['host', 'cameras: success', 'cameras: failure', 'unscored'], rows, note=note)


def rate_table(part: CameraPart) -> Table:
    """Success of every policy by its cameras, from the raw counts to the corrected rate."""
    rows: list[tuple[Cell, ...]] = []
    for p in part.policies:
        host = None if p.host is None else percent(p.host.value)
        corrected = percent(p.corrected.value)
        # Where the host knows every episode, prediction-powered is the host's rate once more.
        is_powered = p.host is None and p.powered.value is not None
        powered = 100 * (p.powered.value or 0.0) if is_powered else None
        reach = ends(p.powered.interval, 100.0) if is_powered else (None, None)
        rows.append((
            p.policy, p.successes, p.failures, p.unscored, 100 * p.bounds.low, 100 * p.bounds.high, corrected,
            *ends(p.corrected.interval, 100.0), powered, *reach, host,
        ))  # fmt: skip
    level = f'{100 * part.agreement.level:g} %'
    columns: list[str | Column] = ['policy', 'successes', 'failures', 'unscored']
    columns += [Column(name, '.1f') for name in (
        'least (%)', 'most (%)', 'corrected (%)', 'low', 'high', 'prediction-powered (%)', 'PP low', 'PP high',
        'host (%)',
    )]  # fmt: skip
    note = (
        'Least and most count every unscored episode as a failure, and as a success. Corrected is the rate of Rogan '
        f'and Gladen in each stratum, weighed by size, with a {level} interval of Lang and Reiczigel over strata; '
        "sensitivity and specificity come from the other policies' episodes, unscored counting as not said. Where most "
        'ends of a stratum are unscored, or too few have a known truth, low and high bound its rate and there is no '
        f'corrected one. Prediction-powered, with its {level} interval, stands where the host knows a part of the '
        'episodes only.'
    )
    return without_empty(table('Success by cameras', columns, rows, note=note))


def task_table(part: CameraPart) -> Table:
    """Whether cameras and host agree, task by task."""
    rows: list[list[Cell]] = [
        [task, c.both_success + c.both_failure, c.only_cameras, c.only_host, c.unscored_success, c.unscored_failure]
        for task, c in part.tasks.items()
    ]
    columns = [
        'task',
        'agree',
        'success by cameras alone',
        'success by host alone',
        'unscored successes',
        'unscored failures',
    ]
    return table('Host against cameras, by task', columns, rows)


def mask_note(part: CameraPart) -> str:
    """Who said which pixels are whose; a simulator's own ids are no camera's."""
    by = ', '.join(f'{name} ({plural(n, "episode")})' for name, n in part.masks.items())
    if not by:
        return ''
    is_oracle = ORACLE in part.masks
    return f'Masks by {by}{": the simulator said which pixels are whose, and nothing else" if is_oracle else ""}.'


def reason_table(part: CameraPart) -> Table:
    """Why episodes are unscored."""
    return table('Unscored, because', ['reason', 'episodes'], list(part.unscored_reasons.items()))


def standing_table(part: CameraPart) -> Table:
    """What became of the cameras' calibration."""
    cameras = list(dict.fromkeys(camera for camera, _ in part.standings))
    kinds = ('sound', 'corrected', 'refused')
    rows: list[list[Cell]] = [
        [camera, *(part.standings.get((camera, kind), 0) for kind in kinds)] for camera in cameras
    ]
    return table('Calibration checked against what stands fixed, in episodes', ['camera', *kinds], rows)


def episode_table(rows: list[tuple[Episode, CameraScore]]) -> Table:
    """Every episode: the host's word, the cameras', and what theirs rests on."""
    columns: list[str | Column] = [
        'episode', 'policy', 'stratum', 'host', 'cameras', Column('confidence', '.2f'), Column('IoU', '.3f'),
        Column('placed', 'd'), Column('worst camera (deg)', '.2f'), 'because',
    ]  # fmt: skip
    made: list[list[Cell]] = []
    for episode, score in rows:
        angles = [c.angle_deg for c in score.cameras if c.angle_deg is not None]
        placed = next((g.n_placed for g in score.goals if g.n_placed is not None), None)
        words = 'unscored' if score.success is None else 'success' if score.success else 'failure'
        host = None if episode.success is None else 'success' if episode.success else 'failure'
        made.append([
            episode.episode_id[:12], episode.policy, episode.cell, host, words,
            None if score.success is None else score.confidence, score.iou, placed, max(angles, default=None),
            score.reason or None,
        ])  # fmt: skip
    return without_empty(table('Episodes by cameras', columns, made))


def cameras(request: ShowRequest) -> list[Table]:
    """Success by cameras: agreement with the host, rates with bounds and corrections, why episodes are unscored."""
    part = present(request.analysis.cameras)
    tables = [confusion_table(part), rate_table(part), standing_table(part)]
    tables += [task_table(part)] if len(part.tasks) > 1 else []
    return [*tables, reason_table(part)] if part.unscored_reasons else tables


def camera_episodes(request: ShowRequest) -> list[Table]:
    """Every episode's score by its cameras, beside the host's."""
    scores = present(request.analysis.camera_scores)
    return [episode_table([(e, scores[e.key]) for e in request.analysis.episodes if e.key in scores])]


# A report's section on success by cameras; only where the plan asks for it.

DEFINITIONS = {
    'successes': 'success', 'failures': 'success', 'low': 'interval', 'high': 'interval', 'PP low': 'interval',
    'PP high': 'interval', 'host (%)': 'success',
}  # fmt: skip


def camera_sections(analysis: Analysis) -> list[Section]:
    """Agreement, bias and corrected rates, for a plan that asks for success by cameras."""
    part = analysis.cameras
    if isinstance(part, Absent):
        return [section('cameras', 'Success by cameras', [missing('Success by cameras', part)])]
    source = (
        "The plan takes the cameras as the source of success; the recorded outcome stays the host's."
        if analysis.plan.success is SuccessSource.RECONSTRUCTION
        else "Success is the host's; the cameras' score stands beside it."
    )
    blocks: list[Block] = [
        paragraph(source), *_agreement(part), table_block(
            'camera-confusion', confusion_table(part), {}, cells=_confused(analysis, part)
        ),
        table_block('camera-rates', rate_table(part), DEFINITIONS),
        table_block('camera-standings', standing_table(part), {}, is_folded=True),
    ]  # fmt: skip
    if len(part.tasks) > 1:
        blocks.append(table_block('camera-tasks', task_table(part), {}, is_folded=True))
    if note := mask_note(part):
        blocks.insert(1, paragraph(note))
    if part.unscored_reasons:
        blocks.append(table_block('camera-unscored', reason_table(part), {}, is_folded=True))
    return [section('cameras', 'Success by cameras', blocks)]


def _confused(analysis: Analysis, part: CameraPart) -> dict[tuple[int, str], EpisodeFilter]:
    """The episodes behind every number of the confusion table."""
    columns = {True: 'cameras: success', False: 'cameras: failure', None: 'unscored'}
    return {
        (0 if host else 1, columns[cameras]): these_episodes(episodes)
        for (host, cameras), episodes in analysis.behind.confused(part).items()
    }


def _agreement(part: CameraPart) -> list[Block]:
    c, agreed = part.confusion, part.agreement
    unscored = c.unscored_success + c.unscored_failure
    if agreed.value is None or part.bias.value is None:
        return [paragraph('The host knows the truth of no scored episode, so there is nothing to compare with.')]
    low, high = ends(agreed.interval, 100.0)
    bias_low, bias_high = ends(part.bias.interval, 100.0)
    level = f'{100 * agreed.level:g} %'
    return [
        paragraph(
            'Cameras and host agree on ', number(agreed.count, 'd', 'success'), ' of ',
            number(agreed.n, 'd', 'episode'),
            f' scored episodes ({100 * agreed.value:.1f} %, {level} interval {low:.1f} to {high:.1f}); '
            f'{unscored} of {c.n} could not be scored. ',
            f'Bias of the cameras: {100 * part.bias.value:+.1f} points ({bias_low:+.1f} to {bias_high:+.1f}).',
        )
    ]  # fmt: skip
