"""The figure of the shortcut diagnosis: score by checkpoint, reported scores as lines, variants beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.show.figure import PAGE_WIDTH_IN, THING_PALETTE, add_legend, new_figure
from robotrials.verdict.audit import ScoreKind
from robotrials.verdict.audit.run_score import RunScore
from robotrials.verdict.audit.shortcut import BEST, FOUNDATION, InputNeed, Shortcut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROBE_COLOR = THING_PALETTE[0]
LINE_STYLES = {BEST: ('#000000', '-', 'best reported'), FOUNDATION: ('#000000', '--', 'foundation policy')}
NEED_COLORS = {InputNeed.NEEDED: '#CC6677', InputNeed.NOT_NEEDED: '#117733', InputNeed.UNRESOLVED: '#7F7F7F'}
NEED_WORDS = {
    InputNeed.NEEDED: 'input needed', InputNeed.NOT_NEEDED: 'input not needed', InputNeed.UNRESOLVED: 'unresolved',
}  # fmt: skip


def shortcut_figure(found: Shortcut) -> Figure:
    """Left: every checkpoint with its interval; right: the full probe and its variants on the same start states."""
    figure = new_figure(PAGE_WIDTH_IN * 0.8, 2.8)
    widths = [max(2, len(found.checkpoints)), max(1, len(found.variants) + 1)]
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=widths)
    scale = 100.0 if found.max_score == 1 else 1.0
    for place, score in enumerate(found.checkpoints):
        is_best = score.name == found.best
        _bar(
            left,
            place,
            score,
            scale,
            PROBE_COLOR,
            marker='D' if is_best else 'o',
            label='best checkpoint' if is_best else '',
        )
    names = [str(c.step if c.step is not None else c.name) for c in found.checkpoints]
    left.set_xticks(range(len(names)), names)
    left.set_xlabel('training step')
    left.set_ylabel('success (%)' if found.max_score == 1 else f'score (of {found.max_score})')
    _reported_lines(left, found, scale)
    _bar(right, 0, found.final_checkpoint, scale, PROBE_COLOR)
    for place, variant in enumerate(found.variants, start=1):
        _bar(right, place, variant.score, scale, NEED_COLORS[variant.need], label=NEED_WORDS[variant.need])
    labels = ['full', *(v.score.name.replace('_', ' ') for v in found.variants)]
    right.set_xticks(range(len(labels)), labels, rotation=25, ha='right', rotation_mode='anchor')
    for axes, count in ((left, len(names)), (right, len(labels))):
        axes.set_xlim(-0.6, count - 0.4)
    left.set_ylim(-0.03 * scale * found.max_score, 1.03 * scale * found.max_score)
    handles: dict[str, object] = {}
    for axes in (left, right):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    add_legend(figure, list(handles.values()), list(handles))
    return figure


def _bar(
    axes: Axes, place: int, score: RunScore, scale: float, color: str, *, marker: str = 'o', label: str = ''
) -> None:  # fmt: skip
    low, high = (scale * end for end in score.interval)
    axes.plot([place, place], [low, high], color=color, lw=1.6, solid_capstyle='butt')
    if score.task_interval is not None:
        ends = [scale * end for end in score.task_interval]
        axes.plot([place, place], ends, color=color, lw=0.6)
    axes.plot(place, scale * score.mean, marker, color=color, ms=4.5, ls='none', label=label or None)


def _reported_lines(axes: Axes, found: Shortcut, scale: float) -> None:
    for gap in found.gaps:
        if gap.checkpoint != found.best:
            continue
        color, style, role = LINE_STYLES[gap.role]
        height = scale * float(gap.reported.mean(found.max_score))
        axes.axhline(height, color=color, ls=style, lw=1.0, label=f'{role}: {gap.reported.policy}')
    for row in found.reported:
        if row.kind is ScoreKind.RL_FINETUNED:
            height = scale * float(row.mean(found.max_score))
            axes.axhline(height, color='#BDBDBD', ls=':', lw=0.8, label='RL-finetuned (not compared)')
