"""Numbers to verdicts: analysis, planning, robustness, audit; and the one comparison of two arms under them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.verdict.analysis.contrast import *
    from robotrials.verdict.planning.analysis_plan import *

_PLACES = {'.analysis.contrast': 'Contrast contrast', '.planning.analysis_plan': 'AnalysisPlan'}
__getattr__, __dir__ = late_names(__name__, _PLACES)
