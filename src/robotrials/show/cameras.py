"""Tables of success by cameras: agreement with the host, rates with their bounds and corrections, every episode."""

from __future__ import annotations

from robotrials.measure.geometry.camera_score import CameraScore
from robotrials.record import Episode
from robotrials.show.card import ALL, Card
from robotrials.show.phrase import ends, plural
from robotrials.show.request import ShowRequest
from robotrials.show.table import Cell, Column, Table, table, without_empty
from robotrials.show.terminal import estimate_text
from robotrials.verdict.analysis import present
from robotrials.verdict.analysis.cameras import CameraPart


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
    rows = []
    for p in part.policies:
        n = p.successes + p.failures
        told = f'{p.successes}/{n} by cameras, {p.unscored} unscored'
        if p.corrected.value is not None:
            span = None if p.corrected.interval is None else p.corrected.interval.scaled(100.0)
            told += f'; corrected {estimate_text(100 * p.corrected.value, span, unit=" %")}'
        if p.host is not None and p.host.value is not None:
            told += f'; host {100 * p.host.value:.0f} %'
        rows.append((p.policy, told))
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
        host = None if p.host is None or p.host.value is None else 100 * p.host.value
        corrected = None if p.corrected.value is None else 100 * p.corrected.value
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
        told = 'unscored' if score.success is None else 'success' if score.success else 'failure'
        host = None if episode.success is None else 'success' if episode.success else 'failure'
        made.append([
            episode.episode_id[:12], episode.policy, episode.cell, host, told,
            None if score.success is None else score.confidence, score.iou, placed, max(angles, default=None),
            score.reason or None,
        ])  # fmt: skip
    return without_empty(table('Episodes by cameras', columns, made))


def cameras(request: ShowRequest) -> list[Table]:
    """Success by cameras: agreement with the host, rates with bounds and corrections, why episodes are unscored."""
    part = present(request.analysis.cameras)
    tables = [confusion_table(part), rate_table(part), standing_table(part)]
    return [*tables, reason_table(part)] if part.unscored_reasons else tables


def camera_episodes(request: ShowRequest) -> list[Table]:
    """Every episode's score by its cameras, beside the host's."""
    scores = present(request.analysis.camera_scores)
    return [episode_table([(e, scores[e.key]) for e in request.analysis.episodes if e.key in scores])]
