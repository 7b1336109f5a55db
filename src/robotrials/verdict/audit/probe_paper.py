"""The probe of the benchmark audit (arXiv 2606.04233): its Tables 1, 2 and 3 as data, with their arithmetic.

Facts as printed; minus signs that the text form of the paper lost are restored by the columns' own definition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from robotrials.stats import Interval, wilson
from robotrials.verdict.audit.benchmark import Benchmark, find_benchmark
from robotrials.verdict.audit.realize import realize
from robotrials.verdict.audit.reported import ReportedScore, ScoreKind
from robotrials.verdict.audit.reported_gap import ProbeStanding, ReportedGap, reported_gap
from robotrials.verdict.audit.run_score import RunScore, TaskCount
from robotrials.verdict.audit.threshold import exact

SOURCE = 'arXiv 2606.04233v1'


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One row of Table 1, with Table 2's final checkpoint where it has one. Deltas are as printed."""

    preset: str
    suite: str
    probe: str
    foundation: tuple[str, str, str]  # policy, parameters, score
    best: tuple[str, str, str]
    delta_f: str
    delta_b: str
    final: str | None = None

    @property
    def benchmark(self) -> Benchmark:
        return find_benchmark(self.preset)

    def delta(self, reported: str) -> Fraction:
        """Reported minus probe, exactly."""
        return exact(reported) - exact(self.probe)

    @property
    def choice_gain(self) -> float:
        """Best minus final checkpoint (Table 2); NaN where no final one is printed."""
        return float(exact(self.probe) - exact(self.final)) if self.final is not None else math.nan

    def gap(self, role: str) -> ReportedGap:
        """What the printed averages can prove about a gap."""
        policy, parameters, score = self.foundation if role == 'foundation' else self.best
        kind = ScoreKind.FOUNDATION if role == 'foundation' else ScoreKind.OTHER
        row = ReportedScore(
            policy=policy, score=score, unit=self.benchmark.unit, kind=kind, parameters=parameters, source=SOURCE
        )
        return reported_gap(
            row, self._counted(), role=role, official=self.benchmark.protocol, alpha=0.05, level=0.95
        )  # fmt: skip

    def standing(self, role: str) -> ProbeStanding:
        return self.gap(role).standing

    def _counted(self) -> RunScore:
        """The probe's printed score as counts; how it falls on tasks is not printed, and no bound asks for it."""
        shape = self.benchmark.protocol
        total = realize(
            self.probe, tasks=shape.tasks, samples=shape.samples, max_score=shape.max_score, unit=self.benchmark.unit
        ).half_up
        tasks = tuple(TaskCount(f'task {i}', 0, shape.samples) for i in range(shape.tasks))
        interval = wilson(total, shape.most) if shape.max_score == 1 else Interval(0.0, float(shape.max_score))
        return RunScore(
            name='probe', total=total, n=shape.instances, max_score=shape.max_score, interval=interval, tasks=tasks
        )


_OPENVLA, _X_VLA, _FLAMINGO = ('OpenVLA', '7B'), ('X-VLA', '0.9B'), ('RoboFlamingo', '3B')
_CORAL, _MOTU = ('CORAL (SimVLA)', '0.8B'), ('MotuBrain', '')

TABLE_1: tuple[PaperRow, ...] = (
    PaperRow('libero-spatial', 'LIBERO Spatial', '99.0', (*_OPENVLA, '84.7'), ('pi0+T-MEE', '2.3B', '99.8'),
             '-14.3', '+0.8', '98.2'),
    PaperRow('libero-object', 'LIBERO Object', '100.0', (*_OPENVLA, '88.4'), ('pi0.5+MoH', '3B', '100.0'),
             '-11.6', '+0.0', '99.4'),
    PaperRow('libero-goal', 'LIBERO Goal', '98.8', (*_OPENVLA, '79.2'), ('MoLA', '1.64B', '99.5'),
             '-19.6', '+0.7', '94.8'),
    PaperRow('libero-10', 'LIBERO Long', '92.4', (*_OPENVLA, '53.7'), (*_CORAL, '98.8'), '-38.7', '+6.4', '88.0'),
    PaperRow('calvin-d-d', 'CALVIN D->D', '3.123', ('DeeR-VLA', '3B', '2.83'), ('MDT-V', '', '4.52'),
             '-0.29', '+1.40', '3.123'),
    PaperRow('calvin-abc-d', 'CALVIN ABC->D', '3.242', (*_FLAMINGO, '2.48'), ('MMaDA-VLA', '8B', '4.78'),
             '-0.76', '+1.54', '3.149'),
    PaperRow('calvin-abcd-d', 'CALVIN ABCD->D', '3.872', (*_FLAMINGO, '4.09'), ('Xiaomi-0', '4.7B', '4.80'),
             '+0.22', '+0.93'),
    PaperRow('simpler-widowx', 'SimplerEnv WidowX', '0.0', (*_X_VLA, '95.8'), (*_CORAL, '97.9'), '+95.8', '+97.9'),
    PaperRow('robotwin2-clean-b', 'RoboTwin 2.0 clean (50+500)', '60.4', (*_X_VLA, '72.8'), (*_MOTU, '95.8'),
             '+12.4', '+35.4'),
    PaperRow('robotwin2-randomized-b', 'RoboTwin 2.0 randomized (50+500)', '59.4', (*_X_VLA, '72.8'),
             (*_MOTU, '96.1'), '+13.4', '+36.7'),
    PaperRow('robocasa-panda', 'RoboCasa RSS24', '18.8', ('GR00T-N1', '2B', '49.6'), ('X-WAM', '', '79.2'),
             '+30.8', '+60.4'),
)  # fmt: skip
LIBERO_MEANS = ('97.6', '95.1')  # of best and final checkpoints over the four suites, as printed in A.1
AVERAGES = ('60.4', '59.4')  # of Table 3, as printed

_ROBOTWIN = """
    adjust_bottle 95 90, beat_block_hammer 47 42, blocks_ranking_rgb 44 55, blocks_ranking_size 36 40,
    click_alarmclock 64 68, click_bell 83 81, dump_bin_bigbin 48 50, grab_roller 100 100, handover_block 67 67,
    handover_mic 86 80, hanging_mug 8 16, lift_pot 99 100, move_can_pot 69 61, move_pillbottle_pad 63 59,
    move_playingcard_away 83 86, move_stapler_pad 6 5, open_laptop 96 95, open_microwave 14 21,
    pick_diverse_bottles 83 68, pick_dual_bottles 97 93, place_a2b_left 30 24, place_a2b_right 25 32,
    place_bread_basket 83 80, place_bread_skillet 80 69, place_burger_fries 91 94, place_can_basket 50 57,
    place_cans_plasticbox 97 97, place_container_plate 62 51, place_dual_shoes 24 27, place_empty_cup 90 87,
    place_fan 42 43, place_mouse_pad 15 20, place_object_basket 56 62, place_object_scale 50 47,
    place_object_stand 79 76, place_phone_stand 58 58, place_shoe 69 67, press_stapler 99 92,
    put_bottles_dustbin 9 7, put_object_cabinet 50 36, rotate_qrcode 42 44, scan_object 82 77, shake_bottle 100 100,
    shake_bottle_horizontally 100 100, stack_blocks_three 28 31, stack_blocks_two 62 58, stack_bowls_three 20 25,
    stack_bowls_two 60 58, stamp_seal 33 29, turn_switch 46 45
"""


@dataclass(frozen=True, slots=True)
class PaperTask:
    """Successes out of 100 of the probe on one RoboTwin 2.0 task (Table 3)."""

    task: str
    clean: int
    randomized: int


TABLE_3: tuple[PaperTask, ...] = tuple(
    PaperTask(name, int(clean), int(randomized))
    for name, clean, randomized in (row.split() for row in _ROBOTWIN.replace('\n', ' ').split(',') if row.strip())
)
