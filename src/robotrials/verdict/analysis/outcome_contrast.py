"""The contrast of two runs that are known by their outcomes alone: a CSV with task, sample and success (or score)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.errors import InputError
from robotrials.record import Episode, Outcome, read_store
from robotrials.verdict.analysis.arm import two_sides
from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.audit.outcome import InstanceOutcome, read_outcomes
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName, Pairing

if TYPE_CHECKING:
    from robotrials.verdict.analysis.contrast import Contrast

Outcomes = Sequence[InstanceOutcome]


def outcome_contrast(
    a: Outcomes, b: Outcomes, *, names: tuple[str, str] = ('a', 'b'), level: float = 0.95,
    full_score: int | None = None, max_score: int | None = None, pairing: Pairing = Pairing.AUTO,
) -> Contrast:  # fmt: skip
    """Two runs, a - b: cells are tasks, and starts what both call by one name (the sample, where none is told).

    Scores over 1 are compared as shares of `max_score` (of the largest that was reached, where nobody says), or, with
    `full_score`, as full chains or not.
    """
    plan = AnalysisPlan(alpha=1 - level, pairing=pairing)
    most = max_score or max((o.score for side in (a, b) for o in side), default=1)
    is_share = most > 1 and full_score is None
    starts: dict[tuple[str, str], int] = {}
    sides = [_episodes(side, starts, full_score, most) for side in (a, b)]
    arms = two_sides(sides[0], sides[1], plan, names=names)
    endpoint = EndpointName.SCORE if is_share else EndpointName.SUCCESS
    return contrast(*arms, endpoint=endpoint, plan=plan)


def run_contrast(
    a: Path, b: Path, *, names: tuple[str, str], policies: tuple[str | None, str | None] = (None, None),
    conditions: tuple[str | None, str | None] = (None, None), level: float = 0.95, full_score: int | None = None,
    pairing: Pairing = Pairing.AUTO,
) -> Contrast:  # fmt: skip
    """Two runs read from CSVs or stores, a - b. Stores are compared as everywhere, by their episodes.

    Where scores are recorded and no full score is asked for, the score is what is compared, as outcomes are read.
    """
    asked = list(zip((a, b), policies, conditions, strict=True))
    outcomes = [read_outcomes(path, policy=policy, condition=condition) for path, policy, condition in asked]
    if not (a.is_dir() and b.is_dir()) or any(o.score > 1 for side in outcomes for o in side):
        return outcome_contrast(*outcomes, names=names, level=level, full_score=full_score, pairing=pairing)
    sides = [
        [
            e.replace(condition='', condition_parameters={})  # which may be what differs
            for e in read_store(path).episodes()
            if e.is_valid and policy in (None, e.policy) and condition in (None, e.condition)
        ]
        for path, policy, condition in asked
    ]
    plan = AnalysisPlan(alpha=1 - level, pairing=pairing)
    arms = two_sides(sides[0], sides[1], plan, names=names, is_condition_cell=False)
    return contrast(*arms, endpoint=EndpointName.SUCCESS, plan=plan)


def _episodes(run: Outcomes, starts: dict[tuple[str, str], int], full_score: int | None, most: int) -> list[Episode]:
    made = []
    runs: Counter[tuple[str, str] | None] = Counter()
    for outcome in run:
        if full_score is not None and outcome.score > full_score:
            raise InputError(f'sample {outcome.sample!r} scored {outcome.score}, more than the full {full_score}')
        start = None if outcome.start is None else (outcome.task, outcome.start or outcome.sample)
        is_full = outcome.score >= (full_score or 1)
        made.append(
            Episode(
                policy='run', task=outcome.task or 'task', repeat=runs[start],
                seed=None if start is None else starts.setdefault(start, len(starts)),
                outcome=Outcome.SUCCESS if is_full else Outcome.FAILURE,
                score=float(outcome.score), max_score=float(max(most, 1)),
            )
        )  # fmt: skip
        runs[start] += 1
    return made
