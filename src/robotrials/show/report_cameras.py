"""A report's section on success by cameras; only where the plan asks for it."""

from __future__ import annotations

from robotrials.show.cameras import confusion_table, rate_table, reason_table, standing_table
from robotrials.show.document import Block, EpisodeFilter, Section, paragraph, section
from robotrials.show.figure_mark import these_episodes
from robotrials.show.phrase import ends, number
from robotrials.show.report_block import missing, table_block
from robotrials.verdict.analysis import Absent, Analysis
from robotrials.verdict.analysis.cameras import CameraPart
from robotrials.verdict.planning.analysis_plan import SuccessSource

DEFINITIONS = {
    'successes': 'success', 'failures': 'success', 'low': 'interval', 'high': 'interval', 'PP low': 'interval',
    'PP high': 'interval', 'host (%)': 'success',
}  # fmt: skip


def camera_sections(analysis: Analysis) -> list[Section]:
    """Agreement, bias and corrected rates; nothing where success is the host's alone."""
    if not analysis.plan.success.wants_cameras:
        return []
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
    if part.unscored_reasons:
        blocks.append(table_block('camera-unscored', reason_table(part), {}, is_folded=True))
    return [section('cameras', 'Success by cameras', blocks)]


def _confused(analysis: Analysis, part: CameraPart) -> dict[tuple[int, str], EpisodeFilter]:
    """The episodes behind every number of the confusion table."""
    told = {True: 'cameras: success', False: 'cameras: failure', None: 'unscored'}
    return {
        (0 if host else 1, told[cameras]): these_episodes(episodes)
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
