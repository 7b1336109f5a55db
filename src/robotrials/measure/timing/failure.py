"""How it failed: drops, safety stops and timeouts, by operation and by episode (PhAIL, Appendix F)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from robotrials.errors import NotEstimable
from robotrials.measure.timing.cohort import Cohort
from robotrials.measure.timing.curve import success_curve
from robotrials.measure.timing.operation import Cause, is_safety_stopped
from robotrials.record import EventKind, Outcome

DROPS = (Cause.DROP_OUTSIDE, Cause.DROP_UNCOLLECTED)


@dataclass(frozen=True, slots=True)
class FailureModes:
    """Counts for one policy; rates are derived from them."""

    policy: str
    n_episodes: int
    n_invalid: int
    n_operations: int
    operations_by_cause: Mapping[Cause, int]
    episodes_by_outcome: Mapping[Outcome, int]
    n_assists: int
    hard_failure: float | None  # the curve's plateau gap; None when every operation is censored
    missing_at_tau: float  # 1 - F(tau)
    tau_s: float
    n_safety_stops: int  # episodes that a safety stop ended, by outcome or by event
    n_dropping: int  # episodes with at least one item dropped and lost

    def operation_rate(self, *causes: Cause) -> float:
        """Operations that ended by any of `causes`, over all operations."""
        return sum(self.operations_by_cause[c] for c in causes) / self.n_operations

    @property
    def drop_rate(self) -> float:
        return self.operation_rate(*DROPS)

    @property
    def ghost_share(self) -> float:
        """All ghosts over all operations."""
        return self.drop_rate + self.operation_rate(Cause.SAFETY_STOP, Cause.FAILURE)

    @property
    def safety_stop_rate(self) -> float:
        """Episodes ended by a safety stop over valid episodes: the intervention rate."""
        return self.n_safety_stops / self.n_episodes

    @property
    def dropping_rate(self) -> float:
        """Episodes with a drop over valid episodes."""
        return self.n_dropping / self.n_episodes

    def episode_rate(self, outcome: Outcome) -> float:
        """Episodes with this outcome, over valid episodes."""
        return self.episodes_by_outcome[outcome] / self.n_episodes


def failure_modes(cohort: Cohort, *, tau_s: float = 240.0) -> FailureModes:
    """The decomposition of one policy's failures, all strata together."""
    pooled = cohort.pooled
    curve = success_curve(pooled.durations_s, pooled.observed)
    dropped = {k for k, cause in zip(pooled.cluster.tolist(), pooled.cause or (), strict=True) if cause in DROPS}
    try:
        hard: float | None = curve.hard_failure
    except NotEstimable:
        hard = None
    outcomes, n_assists, n_safety_stops = Counter[Outcome](), 0, 0
    for episode in cohort.episodes:  # in one pass: building episodes takes time where there are many
        outcomes[episode.outcome] += 1
        if episode.is_valid:
            n_assists += sum(event.count for event in episode.events if event.kind is EventKind.ASSIST)
            n_safety_stops += is_safety_stopped(episode)
    n_invalid = outcomes[Outcome.INVALID]
    return FailureModes(
        policy=cohort.policy,
        n_episodes=len(cohort.episodes) - n_invalid,
        n_invalid=n_invalid,
        n_operations=pooled.n_operations,
        operations_by_cause={cause: pooled.count(cause) for cause in Cause},
        episodes_by_outcome={o: outcomes[o] for o in Outcome if o is not Outcome.INVALID},
        n_assists=n_assists,
        hard_failure=hard,
        missing_at_tau=1.0 - float(curve.at(tau_s)),
        tau_s=tau_s,
        n_safety_stops=n_safety_stops,
        n_dropping=len(dropped),
    )
