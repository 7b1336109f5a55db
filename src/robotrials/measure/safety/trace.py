"""The margin of each clause over time, for whoever looks at one episode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.measure.safety.clause import Clauses, Inapplicable, Unscored
from robotrials.measure.safety.margin import Evaluation
from robotrials.measure.safety.score import Scoring, active_specs, measure
from robotrials.record import Episode, Trajectory


def margin_traces(episode: Episode, trajectory: Trajectory, *, scoring: Scoring) -> dict[str, NDArray[np.float64]]:
    """Spec -> (T,) its margin from each step on; a clause that is not put to the test in an episode is left out."""
    measured = measure(episode, trajectory, scoring=scoring)
    clauses = Clauses(measured.raw, measured.signals, measured.labels, scoring)
    found = {}
    for spec in active_specs(episode, measured.signals, scoring=scoring):
        try:
            formula, traces = clauses.inputs(spec)
            trace = np.asarray(Evaluation(traces, scoring.gate).trace(formula), dtype=np.float64)
        except (Unscored, Inapplicable, InputError):
            continue
        if np.isfinite(trace).any():
            found[spec.id] = trace
    return found
