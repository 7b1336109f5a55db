"""What a plan amounts to: counted, and tried with a stopwatch.

What a plan amounts to: episodes, time, and what it will be able to tell.

A few episodes with a stopwatch: what an episode of a plan takes on this machine, by what it is spent on.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from robotrials.errors import InputError
from robotrials.run.engine import open_trial_store
from robotrials.run.mark import NoBoard, WorkerPhase
from robotrials.run.plan import Scenes, TrialPlan
from robotrials.run.schedule import trial_slots
from robotrials.run.station import Context, TrialStation
from robotrials.verdict.planning.plan_size import EpisodeDemand

POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """Sizes of a plan. Half-widths are of Wilson 95 % intervals at a rate of 0.5, the widest there is."""

    n_cells: int
    n_policies: int
    episodes_per_cell: int
    episodes_per_policy: int
    n_episodes: int
    longest_s: float  # every episode at its cap, with the declared turnaround
    half_width_per_cell: float
    half_width_per_policy: float
    resolvable_difference: float | None  # of two policies over all cells, power 0.8 at 0.05; None: none at this size
    resolvable_basis: str


def summarize_plan(plan: TrialPlan) -> PlanSummary:
    """The size, the longest duration and the precision of a plan."""
    cells, per_cell = plan.cells(), plan.episodes_in_a_cell() * plan.repeats
    per_policy = per_cell * len(cells)
    total = per_policy * len(plan.policies)
    capped_s = sum(cell.time_cap_s for cell in cells) * per_cell * len(plan.policies)
    difference, basis = _resolvable(plan, plan.episodes_in_a_cell() * len(cells))
    return PlanSummary(
        n_cells=len(cells),
        n_policies=len(plan.policies),
        episodes_per_cell=per_cell,
        episodes_per_policy=per_policy,
        n_episodes=total,
        longest_s=capped_s + total * (plan.turnaround_s or 0.0),
        half_width_per_cell=_half_width(per_cell),
        half_width_per_policy=_half_width(per_policy),
        resolvable_difference=difference,
        resolvable_basis=basis,
    )


def _half_width(n: int) -> float:
    from robotrials.stats import wilson

    # At odd n no count is exactly half; the two beside it have equal widths.
    interval = wilson(n // 2, n)
    return (interval.high - interval.low) / 2


def episodes_for_power(plan: TrialPlan) -> int:
    """Start states per cell that the declared power target needs, for a comparison of two policies over all cells.

    The size is that of the test that will judge. Matched scenes: McNemar's, which needs the discordance. Independent
    scenes: that of two rates, which needs the worse policy's.
    """
    from robotrials.verdict.planning import pairs_size, success_size

    target = plan.power
    if target is None:
        raise InputError('the plan has no [power] target')
    if plan.scenes is Scenes.MATCHED:
        if target.discordance is None:
            raise InputError(
                '[power] with matched scenes wants discordance: the share of scenes two policies differ on'
            )
        pairs = pairs_size(target.difference, target.discordance, power=target.power, alpha=target.alpha)
        return math.ceil(pairs / len(plan.cells()))
    if target.success_rate is None:
        raise InputError('[power] with independent scenes wants success_rate: that of the worse policy')
    rate = target.success_rate
    return success_size(
        rate, rate + target.difference, strata=len(plan.cells()), power=target.power, alpha=target.alpha
    )


def _resolvable(plan: TrialPlan, n: int) -> tuple[float | None, str]:
    """The smallest true difference that N start states a policy would show with power 0.8 at 0.05, two-sided."""
    from robotrials.verdict.planning import pairs_power, success_power

    if plan.scenes is Scenes.MATCHED:
        stated = plan.power.discordance if plan.power is not None else None
        discordance = 0.25 if stated is None else stated
        enough = _bisect(lambda d: pairs_power(d, discordance, n=n) >= POWER, 1e-4, discordance)
        return enough, f'paired, discordance {discordance:g}' + ('' if stated is not None else ' assumed')
    strata = len(plan.cells())
    enough = _bisect(
        lambda d: success_power(0.5 - d / 2, 0.5 + d / 2, per_cell=n // strata, strata=strata) >= POWER, 1e-4, 0.999
    )
    return enough, 'unpaired, rates around 0.5'


def _bisect(suffices: Callable[[float], bool], low: float, high: float) -> float | None:
    if not suffices(high):
        return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        if suffices(middle):
            high = middle
        else:
            low = middle
    return high


# Of the one process that hands out slots, per episode: assumed. `python -m bench scale` says what it is on a machine.
DRIVER_S = {'local': 0.004, 'ray': 0.006}


class Stopwatch(NoBoard):
    """A board that adds up how long each phase lasted, and how often the policy was asked."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(WorkerPhase, 0.0)
        self.inferences = 0
        self._phase, self._since = WorkerPhase.IDLE, time.perf_counter()

    def enter(self, phase: WorkerPhase, episode_s: float = 0.0) -> None:
        now = time.perf_counter()
        self.seconds[self._phase] += now - self._since
        self.inferences += phase is WorkerPhase.POLICY
        self._phase, self._since = phase, now


def measure_demand(plan: TrialPlan, *, episodes: int, engine: str = 'local') -> EpisodeDemand:
    """Run the first `episodes` slots of a plan into a store that is thrown away, and say what one takes."""
    slots = trial_slots(plan)[:episodes]
    if not slots:
        raise InputError(f'{episodes} episodes to measure, wanted at least 1')
    context = Context.of(plan)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(prefix='pilot-') as folder:
        station = TrialStation(context, open_trial_store(context, f'{folder}/store'), board=watch)
        try:
            station.check()
            watch.enter(WorkerPhase.IDLE)
            start_s = watch.seconds[WorkerPhase.START]
            before = dict(watch.seconds)
            for slot in slots:
                station.run(slot, 0)
        finally:
            station.close()
    spent = {phase: (watch.seconds[phase] - before[phase]) / len(slots) for phase in WorkerPhase}
    asked = watch.inferences / len(slots)
    return dataclasses.replace(
        EpisodeDemand(
            host_s=spent[WorkerPhase.HOST] + spent[WorkerPhase.START] + spent[WorkerPhase.IDLE],
            inferences=asked,
            inference_s=spent[WorkerPhase.POLICY] / asked if asked else 0.0,
            store_s=spent[WorkerPhase.STORE],
            driver_s=DRIVER_S[engine],
        ),
        start_s=start_s,
    )
