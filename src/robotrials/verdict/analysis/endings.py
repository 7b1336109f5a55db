"""How operations end: incidences of success and of every way to fail, macro over the strata that a policy is judged on.

Ends compete, so the share of operations that a drop or a safety stop ended by a time is an Aalen-Johansen incidence,
not one less a Kaplan-Meier curve of its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from robotrials.measure.timing.incidence import cumulative_incidence, endings
from robotrials.measure.timing.operation import Unit
from robotrials.verdict.analysis.absent import or_absent
from robotrials.verdict.analysis.success import judged_cells

if TYPE_CHECKING:
    from robotrials.measure.timing.incidence import Incidence
    from robotrials.verdict.analysis.absent import Absent
    from robotrials.verdict.analysis.frame import ComparisonFrame
    from robotrials.verdict.analysis.times import Times
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan

N_TIMES = 24  # of the grid that incidences are given on, evenly up to the largest tau; the end comes last


def policy_incidences(frame: ComparisonFrame, times: Times, plan: AnalysisPlan) -> dict[str, Incidence | Absent]:
    """Policy -> its incidences; absent where no operation was recorded."""
    grid = np.linspace(0.0, times.tau_s, N_TIMES + 1)[1:].tolist()
    return {policy: or_absent(partial(_incidence, policy, frame, times, plan, grid)) for policy in frame.everyone}


def _incidence(policy: str, frame: ComparisonFrame, times: Times, plan: AnalysisPlan, grid: list[float]) -> Incidence:
    cells = {s: endings(group, unit=Unit(plan.unit)) for s, group in judged_cells(frame, policy).items()}
    timed = {s: cell for s, cell in cells.items() if len(cell.times_s)}
    taus = {s: times.taus_s[s] for s in timed}
    longest = max((float(cell.times_s.max()) for cell in timed.values()), default=0.0)
    return cumulative_incidence(timed, times_s=[*grid, max(longest, grid[-1])], tau_s=taus, level=plan.level)
