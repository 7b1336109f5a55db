"""Where the text of a drawn figure stands: what is cut off, and what covers what."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def shown_texts(figure: Figure) -> list[Text]:
    """Every text that is drawn: titles, labels, ticks inside the view, legends, notes."""
    figure.canvas.draw()
    found: list[Text] = [*figure.texts]
    holders: list[Any] = [figure, *figure.subfigs]
    for holder in holders:
        found += [t for t in (holder._suptitle, holder._supxlabel, holder._supylabel) if t is not None]
        for legend in holder.legends:
            found += legend.get_texts()
    for axes in figure.axes:
        if not axes.get_visible() or axes.name == '3d':
            continue
        found += axes.texts
        found += [axes.title]
        if axes.get_legend() is not None:
            found += axes.get_legend().get_texts()
        if axes.axison:
            found += [axes.xaxis.label, axes.yaxis.label]
            for axis in (axes.xaxis, axes.yaxis):
                found += [tick.label1 for tick in axis._update_ticks()]
    return [t for t in dict.fromkeys(found) if t.get_visible() and t.get_text().strip()]


def cut_off(figure: Figure, *, slack_px: float = 1.5) -> list[str]:
    """Texts that reach over the edge of the figure."""
    edge = figure.bbox
    said = []
    for text in shown_texts(figure):
        box = text.get_window_extent()
        if (
            box.x0 < edge.x0 - slack_px or box.y0 < edge.y0 - slack_px or box.x1 > edge.x1 + slack_px
            or box.y1 > edge.y1 + slack_px
        ):  # fmt: skip
            said.append(text.get_text())
    return said


def covered(figure: Figure, *, slack_px: float = 1.0) -> list[tuple[str, str]]:
    """Pairs of upright texts of which one covers the other."""
    upright = [t for t in shown_texts(figure) if t.get_rotation() % 90 == 0]
    boxes = [(t.get_text(), _shrunk(t.get_window_extent(), slack_px)) for t in upright]
    return [
        (a, b)
        for i, (a, first) in enumerate(boxes)
        for b, second in boxes[i + 1 :]
        if first.overlaps(second) and first.width > 0 and second.width > 0
    ]


def _shrunk(box: Bbox, by_px: float) -> Bbox:
    return Bbox.from_extents(box.x0 + by_px, box.y0 + by_px, box.x1 - by_px, box.y1 - by_px)
