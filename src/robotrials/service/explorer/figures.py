"""Figures and the report of a store, whose marks lead to episodes; analysed once a state of the store."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from robotrials.errors import InputError
from robotrials.measure.geometry.projection import Rescoring
from robotrials.record import Episode, Store
from robotrials.record.select import Where
from robotrials.show.figure_catalog import FIGURES, SIMULATED, find_figure
from robotrials.show.figure_mark import FigureMark, figure_marks, leading
from robotrials.show.request import ShowRequest, input_of, summary_of
from robotrials.verdict.analysis import Analysis, analyse
from robotrials.verdict.analysis.subject import Input

CLOSED = 'results stay shut until the trial is closed'


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """A figure as a picture that a page can hold, and what lies over it."""

    summary: str
    picture: str  # a data: address
    width_pt: float
    height_pt: float
    marks: tuple[FigureMark, ...]


class LiveFigures:
    """What a store shows of itself in figures: the analysis is made when it is asked for, and again after a change."""

    def __init__(
        self, store: Store, *, where: Where | None = None, shown: Callable[[Episode], Episode],
        rescoring: Rescoring = Rescoring.MISSING,
    ) -> None:  # fmt: skip
        self._store, self._where, self._shown, self._rescoring = store, where, shown, rescoring
        self._lock = threading.Lock()  # matplotlib's settings are the process's
        self._head = ''
        self._analysis: Analysis | None = None

    def analysis(self) -> Analysis:
        """The analysis of the store as it is now; refused while a blinded trial is open."""
        if self._store.is_blinded:
            raise InputError(CLOSED)
        with self._lock:
            head = self._store.head()
            if self._analysis is None or head != self._head:
                self._analysis, self._head = analyse(self._store, where=self._where), head
                self._analysis.rescoring = self._rescoring
            return self._analysis

    def draw(self, name: str) -> DrawnFigure:
        """A named figure, with its marks; refused with the reason where the store cannot give it."""
        draw = find_figure(name)
        if input_of(draw) is not Input.STORE or name in SIMULATED:
            raise InputError(
                f"{name} is no figure of a store's episodes; those are {', '.join(n for n, _ in store_figures())}"
            )
        analysis = self.analysis()
        with self._lock, leading():
            figure = draw(ShowRequest(subject=analysis))
            drawn = io.BytesIO()
            figure.savefig(drawn, format='svg', metadata={'Date': None})
            width, height = figure.get_size_inches()
            picture = f'data:image/svg+xml;base64,{base64.b64encode(drawn.getvalue()).decode()}'
            return DrawnFigure(summary_of(draw), picture, 72 * width, 72 * height, figure_marks(figure))

    def report(self, *, explorer_url: str) -> str:
        """The report's page, whose claims and marks lead here."""
        from robotrials.show.page import render_html
        from robotrials.show.report import listed_episodes, trial_document

        analysis = self.analysis()
        document = trial_document(analysis, explorer_url=explorer_url, folder=self._store.path)
        shown = map(self._shown, analysis.episodes)
        return render_html(replace(document, **listed_episodes(shown, len(analysis.episodes))))


def store_figures() -> list[tuple[str, str]]:
    """Name and summary of every figure that is drawn from a store's episodes."""
    found = [(name, find_figure(name)) for name in FIGURES.names() if name not in SIMULATED]
    return [(name, summary_of(draw)) for name, draw in found if input_of(draw) is Input.STORE]


def page_policy(page: str) -> str:
    """The content policy of a page that holds all it needs: its own scripts by their hash, and nothing from anywhere.

    Drawings set heights by `style`, which no hash can name; everything in the page is escaped.
    """
    scripts = re.findall('<script>(.*?)</script>', page, flags=re.DOTALL)
    known = ' '.join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {known}; img-src data:; form-action 'none'; "
        "frame-ancestors 'none'; base-uri 'none'"
    )
