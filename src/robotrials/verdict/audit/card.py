"""A benchmark card: what four diagnostics, the significance cutoffs and a determinism check say of one benchmark.

What was not run is said to be not run; nothing passes by being left out.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from robotrials.errors import NotEstimable
from robotrials.verdict.audit.datasource import DataSource
from robotrials.verdict.audit.determinism import Grade, Graded, ReproductionTarget, RunComparison
from robotrials.verdict.audit.overfit import DropReading, Overfit
from robotrials.verdict.audit.shortcut import InputNeed, Shortcut, ShortcutVerdict
from robotrials.verdict.audit.topline import Cutoff, Protocol, cutoffs

BASELINES_PERCENT = (50, 80, 90, 95, 98)


class CardStanding(enum.StrEnum):
    """What a part of the card found."""

    WEAK = 'weakness shown'
    OPEN = 'open'  # run, and it does not settle the question
    SOUND = 'no weakness shown'  # which is not the same as none
    NOT_RUN = 'not run'


STANDING_WORDS = {  # of one part, and of several
    CardStanding.WEAK: ('shows a weakness', 'show a weakness'), CardStanding.OPEN: ('is open', 'are open'),
    CardStanding.SOUND: ('shows none', 'show none'), CardStanding.NOT_RUN: ('was not run', 'were not run'),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CardFinding:
    part: str
    standing: CardStanding
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignificanceCutoffs:
    """The gaps over baselines that could and that must be significant, under T tasks and S samples of each."""

    protocol: Protocol
    alpha: str
    rows: tuple[Cutoff, ...]
    source: str  # whose T and S these are

    def row_at(self, percent: int) -> Cutoff:
        return self.rows[BASELINES_PERCENT.index(percent)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterminismCheck:
    """Runs of one plan compared on the four targets, and what they could show."""

    contrast: str
    grades: tuple[Graded, ...]
    control: str
    n_episodes: int
    policy: str
    is_closed_loop: bool | None
    lacking: tuple[str, ...]  # items of Appendix B.3 that a run does not record

    def grade(self, target: ReproductionTarget) -> Grade:
        return next(g.grade for g in self.grades if g.target is target)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkCard:
    """Everything known of one benchmark; a part that was not run is None."""

    host: str
    title: str
    version: str
    rules: Mapping[str, str]  # what the host states of its own protocol
    tasks: tuple[str, ...]
    significance: SignificanceCutoffs | None = None
    determinism: DeterminismCheck | None = None
    shortcut: Shortcut | None = None
    overfit: Overfit | None = None
    datasource: DataSource | None = None
    notes: tuple[str, ...] = ()  # weaknesses that the host's rules show by themselves
    failures: Mapping[str, str] = field(default_factory=dict)  # a part that was tried and broke -> why

    def findings(self) -> tuple[CardFinding, ...]:
        """One line per part, in the paper's order, then determinism."""
        results = {
            'shortcut solvability': None if self.shortcut is None else _shortcut(self.shortcut),
            'statistical significance': None if self.significance is None else _significance(self.significance),
            'creeping overfitting': None if self.overfit is None else _overfit(self.overfit),
            'data-source dependence': None if self.datasource is None else _datasource(self.datasource),
            'determinism': None if self.determinism is None else _determinism(self.determinism),
        }
        return tuple(self._finding(part, result) for part, result in results.items())

    def standing(self) -> str:
        """The card in a sentence: how many parts show a weakness, and how many nobody ran."""
        findings = self.findings()
        counts = {s: sum(f.standing is s for f in findings) for s in CardStanding}
        parts = [f'{count} {STANDING_WORDS[s][count != 1]}' for s, count in counts.items() if count]
        return f'Of {len(findings)} parts, {", ".join(parts)}.'

    def _finding(self, part: str, result: tuple[CardStanding, str] | None) -> CardFinding:
        if result is None:
            why = self.failures.get(part, '')
            result = CardStanding.NOT_RUN, f'Tried, and it broke: {why}' if why else 'Nobody has looked yet.'
        return CardFinding(part, *result)


def significance_cutoffs(protocol: Protocol, *, source: str, alpha: str = '0.05') -> SignificanceCutoffs:
    counts = [protocol.most * percent // 100 for percent in BASELINES_PERCENT]
    rows = cutoffs(counts, tasks=protocol.tasks, samples=protocol.samples, max_score=protocol.max_score, alpha=alpha)
    return SignificanceCutoffs(protocol=protocol, alpha=alpha, rows=rows, source=source)


def determinism_check(run: RunComparison, *, policy: str) -> DeterminismCheck:
    return DeterminismCheck(
        contrast=run.contrast, grades=run.grades, control=str(run.control), n_episodes=len(run.outcomes), policy=policy,
        is_closed_loop=run.is_closed_loop, lacking=run.missing_metadata,
    )  # fmt: skip


def _shortcut(diagnosis: Shortcut) -> tuple[CardStanding, str]:
    """The verdict on the best checkpoint, as every submission is chosen, and which inputs the score does without."""
    best = diagnosis.best_checkpoint
    score = f'{best.total}/{best.n * best.max_score}'
    text = f'A probe told its task by a number scores {score}: {diagnosis.verdict}.'
    idle = [v for v in diagnosis.variants if v.need is InputNeed.NOT_NEEDED]
    if idle:
        text += f' The score does without {", ".join(v.removes for v in idle)}.'
    if idle or diagnosis.verdict in (ShortcutVerdict.NEAR_BEST, ShortcutVerdict.NEAR_FOUNDATION):
        return CardStanding.WEAK, text
    return (CardStanding.SOUND if diagnosis.verdict is ShortcutVerdict.BELOW else CardStanding.OPEN), text


def _significance(test: SignificanceCutoffs) -> tuple[CardStanding, str]:
    row, most = test.row_at(90), test.protocol.most
    could, must = (
        None if gap is None else 100 * gap / most for gap in (row.smallest_feasible, row.smallest_guaranteed)
    )
    over = f'Over a baseline of {100 * row.count_a / most:.1f} %'
    if could is None:
        return CardStanding.WEAK, f'{over} no gain at all can be significant from the averages alone.'
    sure = 'no gain is certain to be' if must is None else f'only one of {must:.2f} points is certain to be'
    text = f'{over} a gain below {could:.2f} points cannot be significant, and {sure}; {test.source}.'
    return (CardStanding.WEAK if must is None or must > 1.0 else CardStanding.SOUND), text


def _overfit(diagnosis: Overfit) -> tuple[CardStanding, str]:
    readings = [diagnosis.reading(row) for row in diagnosis.rows]
    hit = [
        f'{r.policy} under {r.change}'
        for r, reading in zip(diagnosis.rows, readings, strict=True)
        if reading is DropReading.OVERFITTING
    ]
    if hit:
        return CardStanding.WEAK, f'Overfitting: {", ".join(hit)}.'
    unclear = sum(reading in (DropReading.UNCOUNTED, DropReading.RARE) for reading in readings)
    if unclear:
        return (
            CardStanding.OPEN,
            f'{unclear} of {len(readings)} drops are shown whose cause the training data does not tell.',
        )
    text = f'No drop was shown in {len(readings)} comparisons.'
    if diagnosis.still:
        still = f'Under {", ".join(diagnosis.still)} the target stays where it was, and no drop there says nothing.'
        return CardStanding.OPEN, f'{text} {still}'
    return CardStanding.SOUND, text


def _datasource(diagnosis: DataSource) -> tuple[CardStanding, str]:
    try:
        fall = diagnosis.fall()
    except NotEstimable as error:
        return CardStanding.OPEN, f'{error}.'
    near, far = fall.near, fall.far
    text = (
        f'Data {1000 * near.median_m:.1f} mm from the test gives {near.successes}/{near.n}, '
        f'data {1000 * far.median_m:.0f} mm from it {far.successes}/{far.n} ({diagnosis.protocol.learner}).'
    )
    if fall.is_resolved:
        return (
            CardStanding.WEAK,
            f'{text} A score says little unless training data is restricted or its distance reported.',
        )
    return CardStanding.OPEN, f'{text} The fall is not resolved.'


def _determinism(comparison: DeterminismCheck) -> tuple[CardStanding, str]:
    strictest = next((g for g in comparison.grades if g.grade is Grade.MET), None)
    broken = [str(g.target) for g in comparison.grades if g.grade is Grade.NOT_MET]
    where = f'{comparison.n_episodes} episodes of {comparison.policy}, {comparison.contrast}'
    if broken:
        return CardStanding.WEAK, f'Not met: {", ".join(broken)} ({where}).'
    if strictest is None:
        return CardStanding.OPEN, f'No target is shown to be met ({where}).'
    return CardStanding.SOUND, f'The strictest target shown to be met is {strictest.target} ({where}).'
