"""Scores that others reported on a protocol, from a CSV file: what a probe's score is set beside."""

from __future__ import annotations

import csv
import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from robotrials.errors import InputError, NotEstimable, near_miss
from robotrials.stats import Interval, newcombe, wilson
from robotrials.stats.interval import two_sided_z
from robotrials.value import dataclass
from robotrials.verdict.audit.envelope import exact
from robotrials.verdict.audit.run_score import RunScore, TaskCount
from robotrials.verdict.audit.topline import (
    UNITS,
    Benchmark,
    Classification,
    Protocol,
    find_benchmark,
    realize,
    topline,
)

REPORT_COLUMNS = ('policy', 'score', 'unit', 'kind', 'parameters', 'protocol', 'source', 'tasks', 'samples')
NEEDED = ('policy', 'score', 'unit', 'kind')
MOST_DIGITS = 6  # of a count of tasks or samples


class ScoreKind(enum.StrEnum):
    """Who reports: a foundation policy to be compared with, any other, or one whose training saw rewards."""

    FOUNDATION = 'foundation'
    OTHER = 'other'
    RL_FINETUNED = 'rl-finetuned'  # listed, never compared with: the probe only imitates


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedScore:
    """A published score as it was printed. `tasks` and `samples` are those behind it, None where nobody said."""

    policy: str
    score: str
    unit: str
    kind: ScoreKind
    parameters: str = ''
    protocol: str = ''
    source: str = ''
    tasks: int | None = None
    samples: int | None = None
    where: str = ''  # file and line, for messages

    def __post_init__(self) -> None:
        place = f'{self.where}: ' if self.where else ''
        if not self.policy:
            raise InputError(f'{place}policy is empty, wanted the name of who reported the score')
        if self.unit not in UNITS or self.unit == 'count':
            raise InputError(f'{place}unit is {self.unit!r}, wanted percent, fraction or score')
        value = exact(self.score, f'{place}score')
        most = {'percent': 100, 'fraction': 1}.get(self.unit)
        if value < 0 or (most is not None and value > most):
            raise InputError(f'{place}score is {self.score}, wanted 0 to {most or "the full score"} in {self.unit}')

    def mean(self, max_score: int) -> Fraction:
        """The score as a mean in 0..max_score, exactly as its digits say."""
        value = exact(self.score, 'score')
        scale = {'percent': Fraction(max_score, 100), 'fraction': Fraction(max_score), 'score': Fraction(1)}[self.unit]
        if value * scale > max_score:
            raise InputError(f'{self.where}: score is {self.score}, more than the full score of {max_score}')
        return value * scale


def read_reported(path: Path | str) -> tuple[ReportedScore, ...]:
    """The rows of a CSV with columns policy, score, unit, kind, and maybe parameters, protocol, source, tasks, samples.

    Every mistake names the line. A policy stands once for each protocol.
    """
    source = Path(path)
    try:
        with source.open(newline='', encoding='utf-8-sig') as file:
            reader = csv.DictReader(file, strict=True)
            names = _checked_header(source, [n.strip().lower() for n in reader.fieldnames or []])
            rows = [_row(row, names, f'{source} line {reader.line_num}') for row in reader]
    except OSError as error:
        raise InputError(f'{source}: cannot be read ({error.strerror}); wanted a CSV of reported scores') from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f'{source}: not a CSV in UTF-8 ({error})') from error
    if not rows:
        raise NotEstimable(f'{source}: no rows below the header; wanted one for each reported score')
    _check_unique(rows)
    return tuple(rows)


def _checked_header(source: Path, names: Sequence[str]) -> Sequence[str]:
    missing = [name for name in NEEDED if name not in names]
    if missing and len(names) == 1 and (sign := next((s for s in ';\t' if s in names[0]), '')):
        raise InputError(f'{source} line 1: cells are parted by {sign!r}; wanted commas, and points in numbers')
    if missing:
        raise InputError(f'{source} line 1: no column {missing[0]!r}; wanted {", ".join(NEEDED)}, found {list(names)}')
    for name in names:
        if name not in REPORT_COLUMNS:
            raise InputError(f'{source} line 1: no column is called {name!r}: {near_miss(name, REPORT_COLUMNS)}')
        if names.count(name) > 1:
            raise InputError(f'{source} line 1: column {name!r} stands twice')
    return names


def _row(row: Mapping[str | None, str | list[str] | None], names: Sequence[str], where: str) -> ReportedScore:
    cells = list(row.values())
    if len(cells) != len(names) or None in cells:
        raise InputError(f'{where}: the number of cells is not that of the {len(names)} columns')
    given = {name: str(cell).strip() for name, cell in zip(names, cells, strict=True)}
    kinds = [k.value for k in ScoreKind]
    if given['kind'] not in kinds:
        raise InputError(f'{where}: kind is {given["kind"]!r}: {near_miss(given["kind"], kinds)}')
    counts = {name: _count(given.pop(name, ''), f'{where}, {name}') for name in ('tasks', 'samples')}
    if None in counts.values() and any(counts.values()):
        raise InputError(f'{where}: tasks is {counts["tasks"]}, samples is {counts["samples"]}; wanted both or neither')
    kind = ScoreKind(given.pop('kind'))
    return ReportedScore(kind=kind, where=where, tasks=counts['tasks'], samples=counts['samples'], **given)


def _count(text: str, where: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise InputError(f'{where}: {text[:40]!r}, wanted a whole number from 1 to a million, or nothing')
    return int(text)


def _check_unique(rows: Iterable[ReportedScore]) -> None:
    seen: dict[tuple[str, str], ReportedScore] = {}
    for row in rows:
        first = seen.setdefault((row.policy.casefold(), row.protocol), row)
        if first is not row:
            raise InputError(
                f'{row.where}: {row.policy} on {row.protocol or "the protocol"} stands in {first.where} too'
            )


def of_protocol(scores: Sequence[ReportedScore], protocol: str) -> tuple[ReportedScore, ...]:
    """The scores on one protocol. A file that names no protocols is about the one asked for."""
    named = sorted({s.protocol for s in scores if s.protocol})
    if not named:
        return tuple(scores)
    if not protocol and len(named) > 1:
        raise InputError(f'{scores[0].where}: scores on several protocols ({", ".join(named)}); say which to compare')
    unnamed = next((s for s in scores if not s.protocol), None)
    if unnamed is not None:  # left out, it could be the best
        raise InputError(f'{unnamed.where}: {unnamed.policy} names no protocol, and other rows do; name it')
    wanted = protocol or named[0]
    chosen = tuple(s for s in scores if s.protocol == wanted)
    if not chosen:
        raise InputError(f'{scores[0].where}: no score on protocol {wanted!r}: {near_miss(wanted, named)}')
    return chosen


def foundation_score(scores: Sequence[ReportedScore]) -> ReportedScore | None:
    """The foundation policy to be compared with, if the file marks one; to mark two is an error."""
    marked = [s for s in scores if s.kind is ScoreKind.FOUNDATION]
    if len(marked) > 1:
        raise InputError(
            f'{marked[1].where}: {marked[1].policy} is marked foundation, as {marked[0].policy} is; mark the most '
            'cited one, the rest are other'
        )
    return marked[0] if marked else None


def best_score(scores: Sequence[ReportedScore], max_score: int) -> ReportedScore | None:
    """The highest score that needed no reinforcement learning; of equal ones the first."""
    imitating = [s for s in scores if s.kind is not ScoreKind.RL_FINETUNED]
    return max(imitating, key=lambda s: s.mean(max_score), default=None)


# A reported score minus a probe's: the differences of Table 1, and what the two averages can prove about them.


class ProbeStanding(enum.StrEnum):
    """Where the probe stands against a reported score."""

    ABOVE = 'provably above'
    NOT_PROVABLE = 'difference not provable'
    BELOW = 'provably below'
    UNKNOWN = 'episodes behind the reported score unknown'


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedGap:
    """Reported minus probe, in mean score; negative means that the probe scores higher."""

    reported: ReportedScore
    role: str  # 'foundation' or 'best'
    checkpoint: str
    difference: float
    standing: ProbeStanding
    interval: Interval | None = None  # of two independent samples; None where the reported one's size is unknown
    classification: Classification | None = None  # by the averages alone, paired, where both have one protocol


def reported_gap(
    reported: ReportedScore, score: RunScore, *, role: str, official: Protocol | None, alpha: float, level: float
) -> ReportedGap:
    """Compare a run with a printed score.

    `official` is the protocol that the reported score is on, if it is known; a row's own tasks and samples go before
    it. Where the run has the same tasks and samples, the sharp top-line bounds decide in both directions; otherwise two
    independent samples are compared.
    """
    mean = reported.mean(score.max_score)
    difference = float(mean - Fraction(score.total, score.n))
    theirs = _protocol(reported, official, score.max_score)
    known = {'reported': reported, 'role': role, 'checkpoint': score.name, 'difference': difference}
    if theirs is None:
        return ReportedGap(**known, standing=ProbeStanding.UNKNOWN)  # type: ignore[arg-type]
    interval = _independent(mean, theirs, score, level)
    samples = {t.n for t in score.tasks}
    if len(score.tasks) == theirs.tasks and samples == {theirs.samples} and not score.missing:
        result, standing = _by_topline(mean, score, theirs, alpha)
    else:
        result = None
        standing = (
            ProbeStanding.BELOW
            if interval.low > 0
            else ProbeStanding.ABOVE
            if interval.high < 0
            else ProbeStanding.NOT_PROVABLE
        )
    return ReportedGap(**known, standing=standing, interval=interval, classification=result)  # type: ignore[arg-type]


def _protocol(reported: ReportedScore, official: Protocol | None, max_score: int) -> Protocol | None:
    if reported.tasks is not None and reported.samples is not None:
        return Protocol(reported.tasks, reported.samples, max_score)
    if official is not None and official.max_score != max_score:
        raise InputError(f'the run is scored out of {max_score} and the official protocol out of {official.max_score}')
    return official


def _by_topline(
    mean: Fraction, score: RunScore, protocol: Protocol, alpha: float
) -> tuple[Classification, ProbeStanding]:  # fmt: skip
    ours = Fraction(score.total, score.n)
    low, high = sorted((mean / score.max_score, ours / score.max_score))
    result = topline(
        low, high, tasks=protocol.tasks, samples=protocol.samples, max_score=protocol.max_score, alpha=alpha
    ).classification  # fmt: skip
    if result is not Classification.GUARANTEED:
        return result, ProbeStanding.NOT_PROVABLE
    return result, ProbeStanding.BELOW if mean > ours else ProbeStanding.ABOVE


def _independent(mean: Fraction, theirs: Protocol, score: RunScore, level: float) -> Interval:
    """Of reported minus run: Newcombe for success; for other scores the widest spread that their means allow."""
    if score.max_score == 1:
        count = realize(mean, tasks=theirs.tasks, samples=theirs.samples).half_up
        return newcombe(count, theirs.instances, score.total, score.n, level)
    means, sizes, most = (float(mean), score.mean), (theirs.instances, score.n), score.max_score
    variance = math.fsum(m * (most - m) / n for m, n in zip(means, sizes, strict=True))
    reach = two_sided_z(level) * math.sqrt(variance)
    return Interval(means[0] - means[1] - reach, means[0] - means[1] + reach)


# The probe of the benchmark audit (arXiv 2606.04233): its Tables 1, 2 and 3 as data, with their arithmetic.
# Facts as printed; minus signs that the text form of the paper lost are restored by the columns' own definition.

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
