"""Per-instance outcomes, one whole-number score for each (task, sample), and the contrast of two runs known by them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.record import Episode, Outcome, read_store
from robotrials.stats import Permutation, Wald, exact_mcnemar, paired_wald, sign_flip, two_sample_wald
from robotrials.value import dataclass
from robotrials.verdict.analysis.arm import two_sides
from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName, Pairing

if TYPE_CHECKING:
    from robotrials.verdict.analysis.contrast import Contrast


IntArray = NDArray[np.int64]

TASK_COLUMNS = ('task', 'task_id')
SAMPLE_COLUMNS = ('sample', 'instance', 'sequence', 'episode', 'seed', 'id')
SCORE_COLUMNS = ('score', 'success', 'outcome', 'count')
WORDS = {'true': 1, 'yes': 1, 'success': 1, 'false': 0, 'no': 0, 'failure': 0, 'timeout': 0, 'safety_stop': 0}


@dataclass(frozen=True, slots=True)
class InstanceOutcome:
    """One evaluated instance; `start` names the start state that repeats share: '' is the sample, None is unknown."""

    task: str
    sample: str
    score: int
    start: str | None = ''

    @property
    def key(self) -> tuple[str, str]:
        return self.task, self.sample


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Two runs matched by (task, sample): scores of matched instances, and the keys that only one run has."""

    keys: tuple[tuple[str, str], ...]
    scores_a: IntArray  # (pairs,)
    scores_b: IntArray
    only_a: tuple[tuple[str, str], ...]
    only_b: tuple[tuple[str, str], ...]

    @property
    def tasks(self) -> list[str]:
        return [task for task, _ in self.keys]


def align(outcomes_a: Iterable[InstanceOutcome], outcomes_b: Iterable[InstanceOutcome]) -> Alignment:
    """Match two runs by (task, sample); what has no partner is named, not dropped in silence."""
    a, b = by_key(outcomes_a, 'A'), by_key(outcomes_b, 'B')
    shared = sorted(a.keys() & b.keys())
    if not shared:
        hint = f'A has such as {_first(a)}, B such as {_first(b)}'
        raise NotEstimable(f'no (task, sample) is in both runs, so nothing is paired; {hint}')
    return Alignment(
        keys=tuple(shared),
        scores_a=np.array([a[k].score for k in shared], dtype=np.int64),
        scores_b=np.array([b[k].score for k in shared], dtype=np.int64),
        only_a=tuple(sorted(a.keys() - b.keys())),
        only_b=tuple(sorted(b.keys() - a.keys())),
    )


def by_key(outcomes: Iterable[InstanceOutcome], run: str) -> dict[tuple[str, str], InstanceOutcome]:
    """Outcomes by (task, sample); a key that comes twice is an error."""
    keyed: dict[tuple[str, str], InstanceOutcome] = {}
    for outcome in outcomes:
        if outcome.key in keyed:
            where = f'task {outcome.task!r}, sample {outcome.sample!r}'
            raise InputError(f'run {run} has {where} twice; wanted one outcome per instance (number the repeats)')
        keyed[outcome.key] = outcome
    return keyed


def read_outcomes(
    path: Path | str, *, policy: str | None = None, condition: str | None = None
) -> tuple[InstanceOutcome, ...]:
    """The outcomes in a CSV file or in a robotrials store (a folder); a store may need `policy` and `condition`."""
    source = Path(path)
    if source.is_dir():
        return outcomes_of(read_store(source).episodes(), policy=policy, condition=condition, where=str(source))
    if not source.exists():
        raise InputError(f'{source}: no such file or folder; wanted a CSV of outcomes or a robotrials store')
    if policy is not None or condition is not None:
        raise InputError(f'{source}: policy and condition choose episodes of a store; a CSV holds one run')
    return _read_csv(source)


def outcomes_of(
    episodes: Iterable[Episode], *, policy: str | None = None, condition: str | None = None, where: str = 'episodes'
) -> tuple[InstanceOutcome, ...]:
    """Outcomes of the valid episodes of one policy under one condition; the score, or else success as 0 or 1."""
    chosen = [
        e
        for e in episodes
        if e.is_valid and policy in (None, e.policy) and (condition is None or condition == e.condition)
    ]
    if not chosen:
        raise NotEstimable(f'{where}: no valid episodes of policy {policy or "any"} under {condition or "any"}')
    for name in ('policy', 'condition'):
        values = sorted({getattr(e, name) for e in chosen})
        if len(values) > 1:
            raise InputError(f'{where}: several of {name} ({", ".join(values)}); name one')
    names = _task_names(chosen)
    return tuple(
        InstanceOutcome(names[_place(e), e.task], _sample_of(e), _score_of(e, where), start=_start_of(e))
        for e in chosen
    )


def instances_of(episodes: Iterable[Episode]) -> frozenset[tuple[str, str]]:
    """The (task, sample) of every episode on record, those that stayed INVALID too: what a run may not leave out."""
    known = list(episodes)
    names = _task_names(known)
    return frozenset((names[_place(e), e.task], _sample_of(e)) for e in known)


def _place(episode: Episode) -> str:
    return '/'.join(filter(None, (episode.benchmark, episode.stratum)))


def _task_names(episodes: Sequence[Episode]) -> dict[tuple[str, str], str]:
    """(place, task) -> the task's name; its benchmark and stratum stand before it where a task of that name has two."""
    places = {(_place(e), e.task) for e in episodes}
    is_plain = len({task for _, task in places}) == len(places)
    return {(place, task): task if is_plain or not place else f'{place}/{task}' for place, task in places}


def _sample_of(episode: Episode) -> str:
    parts = {'instance': episode.instance, 'seed': episode.seed, 'repeat': episode.repeat}
    return ' '.join(f'{name}={value}' for name, value in parts.items() if value is not None)


def _start_of(episode: Episode) -> str | None:
    """The start state: the instance, whatever the seed of a repeat; the seed where none was recorded; or None."""
    known = {'instance': episode.instance, 'seed': episode.seed}
    where = '/'.join(filter(None, (_place(episode), episode.task)))
    return next((f'{where} {name}={value}' for name, value in known.items() if value is not None), None)


def _score_of(episode: Episode, where: str) -> int:
    if episode.score is not None:
        if episode.score != int(episode.score):
            raise InputError(
                f'{where}: episode {episode.episode_id} has score {episode.score}; the audit tests whole-number scores'
            )
        return int(episode.score)
    return int(episode.is_success)


def _read_csv(path: Path) -> tuple[InstanceOutcome, ...]:
    with path.open(newline='', encoding='utf-8-sig') as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or []
        task, sample = _column(names, TASK_COLUMNS), _column(names, SAMPLE_COLUMNS)
        score, start = _column(names, SCORE_COLUMNS), _column(names, ('start', 'cluster', 'state'))
        if sample is None or score is None:
            wanted = f'a sample column ({", ".join(SAMPLE_COLUMNS)}) and a score column ({", ".join(SCORE_COLUMNS)})'
            raise InputError(f'{path}: wanted {wanted}, found {", ".join(names) or "no header"}')
        outcomes = [
            InstanceOutcome(
                task=row[task] if task else '',
                sample=row[sample],
                score=_whole(row[score], f'{path} line {reader.line_num}, {score}'),
                start=row[start] if start else '',
            )
            for row in reader
        ]
    if not outcomes:
        raise NotEstimable(f'{path}: no rows below the header')
    return tuple(outcomes)


def _column(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    known: Mapping[str, str] = {name.strip().lower(): name for name in names}
    return next((known[name] for name in wanted if name in known), None)


def _whole(text: str | None, where: str) -> int:
    cleaned = (text or '').strip().lower()
    if cleaned in WORDS:
        return WORDS[cleaned]
    try:
        value = float(cleaned)
    except ValueError:
        value = float('nan')
    if value != value or value < 0 or value != int(value):
        raise InputError(f'{where}: {text!r}, wanted a whole number >= 0, or success or failure')
    return int(value)


def _first(rows: Mapping[tuple[str, str], Any]) -> str:
    return str(next(iter(sorted(rows)), 'nothing'))


# Is B better than A, given the outcome of every instance? The task-stratified tests of Appendix C.1 and C.6.


@dataclass(frozen=True, slots=True)
class PairedSignificance:
    """One-sided tests of "B improves on A"; the mean difference weighs every task the same.

    With no spread, z is +inf, 0 or -inf by the sign of the difference. McNemar exists for 0/1 scores only. It pools
    the tasks; the sign flips keep them apart.
    """

    paired: Wald
    independent: Wald
    mcnemar_p_value: float | None
    sign_flip: Permutation
    wins_a: int  # instances on which A scored higher
    wins_b: int
    ties: int
    tasks: int
    only_a: tuple[tuple[str, str], ...] = ()
    only_b: tuple[tuple[str, str], ...] = ()

    @property
    def difference(self) -> float:
        return self.paired.estimate

    @property
    def z(self) -> float:
        return self.paired.z

    @property
    def p_value(self) -> float:
        return self.paired.p_value

    @property
    def z_independent(self) -> float:
        return self.independent.z

    @property
    def p_value_independent(self) -> float:
        return self.independent.p_value

    @property
    def sign_flip_p_value(self) -> float:
        return self.sign_flip.p_value

    @property
    def instances(self) -> int:
        return self.wins_a + self.wins_b + self.ties

    def rejects(self, alpha: float = 0.05) -> bool:
        """Whether the paired Wald rule rejects "no improvement": z > z_{1-alpha}, which is p < alpha."""
        return self.p_value < alpha


def paired_significance(
    table_a: ArrayLike, table_b: ArrayLike, *, rng: np.random.Generator | None = None, n_resamples: int = 9_999
) -> PairedSignificance:
    """Test two outcome tables (tasks, samples) of whole-number scores, row by row the same instances.

    `rng` is needed only where the sign flips are too many to count exactly; without it a fixed stream is used there.
    """
    a, b = _table(table_a, 'table_a'), _table(table_b, 'table_b')
    if a.shape != b.shape:
        raise InputError(f'table_a is {a.shape} and table_b {b.shape}; wanted the same (tasks, samples)')
    tasks = np.repeat(np.arange(a.shape[0]), a.shape[1])
    return _tested(a.ravel(), b.ravel(), tasks, n_resamples, rng)


def compare_outcomes(
    outcomes_a: Iterable[InstanceOutcome],
    outcomes_b: Iterable[InstanceOutcome],
    *,
    rng: np.random.Generator | None = None,
    n_resamples: int = 9_999,
) -> PairedSignificance:
    """`paired_significance` of two runs aligned by (task, sample); tasks may differ in size, unmatched are named."""
    pairs = align(outcomes_a, outcomes_b)
    tested = _tested(pairs.scores_a, pairs.scores_b, np.array(pairs.tasks), n_resamples, rng)
    return replace(tested, only_a=pairs.only_a, only_b=pairs.only_b)


def _tested(
    a: IntArray, b: IntArray, tasks: NDArray[Any], n_resamples: int, rng: np.random.Generator | None
) -> PairedSignificance:
    differences = b - a
    wins_a, wins_b = int((differences < 0).sum()), int((differences > 0).sum())
    is_binary = max(a.max(), b.max()) <= 1
    mcnemar = exact_mcnemar(wins_b, wins_a, alternative='greater').p_value if is_binary else None
    return PairedSignificance(
        paired=paired_wald(differences, strata=tasks, alternative='greater'),
        independent=two_sample_wald(b, a, strata_a=tasks, strata_b=tasks, alternative='greater'),
        mcnemar_p_value=mcnemar,
        sign_flip=sign_flip(
            differences,
            strata=tasks,
            alternative='greater',
            n_resamples=n_resamples,
            rng=np.random.default_rng(0) if rng is None else rng,
        ),
        wins_a=wins_a,
        wins_b=wins_b,
        ties=int((differences == 0).sum()),
        tasks=len(np.unique(tasks)),
    )


def _table(values: ArrayLike, name: str) -> IntArray:
    try:
        table = np.asarray(values)
    except ValueError:  # rows of unequal length
        raise InputError(f'{name} has tasks of unequal length; align runs with compare_outcomes instead') from None
    if table.ndim != 2 or table.size == 0:
        raise InputError(f'{name} has shape {table.shape}, wanted (tasks, samples)')
    if table.dtype.kind == 'f' and np.all(np.isfinite(table)) and np.all(table == np.floor(table)):
        table = table.astype(np.int64)
    if table.dtype.kind not in 'bui':
        raise InputError(f'{name} holds {table.dtype} values that are not whole numbers; wanted scores 0..R')
    if table.min() < 0:
        raise InputError(f'{name} holds {table.min()}, wanted scores >= 0')
    return table.astype(np.int64)


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
