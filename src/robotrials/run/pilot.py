"""A few episodes with a stopwatch: what an episode of a plan takes on this machine, by what it is spent on."""

from __future__ import annotations

import dataclasses
import tempfile
import time

from robotrials.errors import InputError
from robotrials.run.mark import NoBoard, Phase
from robotrials.run.plan import TrialPlan
from robotrials.run.schedule import trial_slots
from robotrials.run.station import Context, TrialStation
from robotrials.run.trial_store import open_trial_store
from robotrials.verdict.planning.plan_size import EpisodeDemand

# Of the one process that hands out slots, per episode: assumed. `python -m bench scale` says what it is on a machine.
DRIVER_S = {'local': 0.004, 'ray': 0.006}


class Stopwatch(NoBoard):
    """A board that adds up how long each phase lasted, and how often the policy was asked."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(Phase, 0.0)
        self.inferences = 0
        self._phase, self._since = Phase.IDLE, time.perf_counter()

    def enter(self, phase: Phase, episode_s: float = 0.0) -> None:
        now = time.perf_counter()
        self.seconds[self._phase] += now - self._since
        self.inferences += phase is Phase.POLICY
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
            watch.enter(Phase.IDLE)
            start_s = watch.seconds[Phase.START]
            before = dict(watch.seconds)
            for slot in slots:
                station.run(slot, 0)
        finally:
            station.close()
    spent = {phase: (watch.seconds[phase] - before[phase]) / len(slots) for phase in Phase}
    asked = watch.inferences / len(slots)
    return dataclasses.replace(
        EpisodeDemand(
            host_s=spent[Phase.HOST] + spent[Phase.START] + spent[Phase.IDLE],
            inferences=asked,
            inference_s=spent[Phase.POLICY] / asked if asked else 0.0,
            store_s=spent[Phase.STORE],
            driver_s=DRIVER_S[engine],
        ),
        start_s=start_s,
    )
