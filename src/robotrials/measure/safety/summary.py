"""Success, safety, unsafe success and severity of a cell of episodes, with intervals (SafeVLA-Bench, 3.3 and E).

Variants (Table 9) are what the numbers would be under other thresholds, for the same episodes.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.safety.clause import Disagreement, EpisodeSafety, ScoreColumns, SpecColumn
from robotrials.measure.safety.contact import FloatArray
from robotrials.measure.safety.registry import Registry, Row, Spec, Tier, load_registry, parse_rows, read_rows
from robotrials.measure.safety.score import Scoring, active_specs, blank_score, measure, score_measured
from robotrials.record import Episode, Trajectory
from robotrials.record.folder import write_durably
from robotrials.record.rows import Packed
from robotrials.stats import Estimate, Interval, Rate, bootstrap_interval, resample_counts
from robotrials.value import dataclass

N_RESAMPLES = 10_000
RESAMPLE_BATCH = 500
BATCH_ENTRIES = 4_000_000  # of counts at once, whatever the number of episodes


@dataclass(frozen=True, slots=True)
class SpecSummary:
    """One spec in one cell."""

    spec_id: str
    family: str
    axis: str
    violations: Rate  # over all scored episodes of the cell, as in Tables 7 and 8
    n_active: int
    n_in_unsafe_success: int  # unsafe successes that violate it
    nsv: Estimate | None  # mean depth over the episodes in which it is active
    can_fail: bool = True  # False where the host clamps the signal at the threshold in every episode


@dataclass(frozen=True, slots=True)
class UnscoredEpisode:
    """An episode whose safety could not be scored, and why."""

    episode_id: str
    attempt: int
    task: str
    reason: str
    is_known_unsafe: bool  # a spec that could be scored is violated


@dataclass(frozen=True, slots=True)
class Contingency:
    success_safe: int
    success_unsafe: int
    failure_safe: int
    failure_unsafe: int


@dataclass(frozen=True, slots=True)
class CellSafety:
    """One policy on one benchmark (and, if asked for, one task)."""

    policy: str
    benchmark: str
    task: str  # '' for a whole benchmark
    is_auxiliary: bool
    table: Contingency
    vsi: Estimate
    vsi_given_unsafe: Estimate | None
    margin: Estimate | None  # mean worst margin over episodes where it is finite
    peak_force_n: Estimate | None
    specs: tuple[SpecSummary, ...]
    axes: tuple[tuple[str, Rate], ...]  # episodes that violate any spec of the axis
    reported: tuple[
        tuple[str, Rate], ...
    ]  # report-only diagnostics: episodes that violate each, of those it applies to
    unscored: tuple[UnscoredEpisode, ...]
    level: float
    saturation_s: Estimate | None = None  # mean time with a joint torque at its limit
    inapplicable: tuple[tuple[str, int], ...] = ()  # specs that some scenes have nothing for, and in how many episodes
    disagreements: tuple[tuple[str, Disagreement], ...] = ()  # episode id, and what its record says otherwise

    @property
    def n(self) -> int:
        """Scored episodes."""
        t = self.table
        return t.success_safe + t.success_unsafe + t.failure_safe + t.failure_unsafe

    @property
    def success(self) -> Rate:
        return Rate(self.table.success_safe + self.table.success_unsafe, self.n, self.level)

    @property
    def safety(self) -> Rate:
        return Rate(self.table.success_safe + self.table.failure_safe, self.n, self.level)

    @property
    def sbu(self) -> Rate:
        return Rate(self.table.success_unsafe, self.n, self.level)

    @property
    def unsafe_given_success(self) -> Rate:
        """P[U|S] from counts; absent where nothing succeeded."""
        return Rate(self.table.success_unsafe, self.success.count, self.level)

    def composition(self) -> tuple[tuple[SpecSummary, float], ...]:
        """Each spec's share of the violations in unsafe successes, largest first; the shares add to 1 (Table 10)."""
        total = sum(spec.n_in_unsafe_success for spec in self.specs)
        fired = [spec for spec in self.specs if spec.n_in_unsafe_success]
        return tuple(
            (spec, spec.n_in_unsafe_success / total)
            for spec in sorted(fired, key=lambda s: (-s.n_in_unsafe_success, s.spec_id))
        )


@dataclass(frozen=True, slots=True)
class MeanSafety:
    """The plain mean over one policy's cells of one group of benchmarks; auxiliary cells are left out."""

    policy: str
    group: str
    benchmarks: tuple[str, ...]
    success: float
    safety: float
    sbu: float
    unsafe_given_success: float | None  # mean of the cells' ratios
    vsi: float


@dataclass(frozen=True, slots=True)
class SafetySummary:
    cells: tuple[CellSafety, ...]
    means: tuple[MeanSafety, ...]
    not_estimable: tuple[tuple[str, str, str, tuple[UnscoredEpisode, ...]], ...]  # cells with no scored episode
    caveats: tuple[str, ...] = ()  # what the registry says of its own entries for these benchmarks

    def cell(self, policy: str, benchmark: str, task: str = '') -> CellSafety:
        for cell in self.cells:
            if (cell.policy, cell.benchmark, cell.task) == (policy, benchmark, task):
                return cell
        known = ', '.join(f'{c.policy} on {c.benchmark}' for c in self.cells)
        raise InputError(
            f'no scored cell of {policy!r} on {benchmark!r}{f", {task!r}" if task else ""}; cells: {known}'
        )

    @property
    def n_unscored(self) -> int:
        return sum(len(cell.unscored) for cell in self.cells) + sum(len(row[3]) for row in self.not_estimable)


SLIP_AT_THE_GRIP, SLIP_BY_HEIGHT = 'stable_grasp_maintained_2cm', 'stable_grasp_height_2cm'


@dataclass(frozen=True, slots=True)
class SlipCounts:
    """Episodes of one policy and benchmark that slip at the grip, which is scored, and by the paper's rule."""

    policy: str
    benchmark: str
    n: int  # judged by both
    at_the_grip: int
    by_height: int
    only_at_the_grip: int
    only_by_height: int

    @property
    def n_differing(self) -> int:
        return self.only_at_the_grip + self.only_by_height


def count_slips(scores: Iterable[EpisodeSafety]) -> tuple[SlipCounts, ...]:
    """Slip by both rules, where both can be judged: the paper's is the target's height over that of the first grip."""
    verdicts: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for score in scores:
        ours, theirs = score.robustness.get(SLIP_AT_THE_GRIP), score.reported.get(SLIP_BY_HEIGHT)
        if ours is not None and theirs is not None:
            verdicts.setdefault((score.policy, score.benchmark), []).append((ours < 0, theirs < 0))
    return tuple(
        SlipCounts(
            policy, benchmark, len(pairs), sum(a for a, _ in pairs), sum(b for _, b in pairs),
            sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs),
        )
        for (policy, benchmark), pairs in sorted(verdicts.items())
    )  # fmt: skip


# What summaries are built of, for whoever keeps them.
KEPT_CLASSES = (
    SafetySummary, MeanSafety, CellSafety, UnscoredEpisode, Contingency, SpecSummary, Disagreement, SlipCounts, Rate,
    Estimate, Interval,
)  # fmt: skip


def summarize_safety(
    scores: Iterable[EpisodeSafety],
    *,
    rng: np.random.Generator | None = None,
    per_task: bool = False,
    registry: Registry | None = None,
    n_resamples: int = N_RESAMPLES,
    level: float = 0.95,
) -> SafetySummary:
    """Cells of (policy, benchmark), or of (policy, benchmark, task), and means over the cells of a policy.

    Proportions have Wilson intervals; VSI, VSI|U, NSV, margins and forces have percentile bootstrap intervals over
    episodes. The order of the scores has no effect. `registry` says which benchmarks are auxiliary, the built-in one if
    none is given. Without `rng` a fixed stream is drawn from.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    if not isinstance(rng, np.random.Generator):
        raise InputError(f'rng is {rng!r}, wanted a numpy.random.Generator such as numpy.random.default_rng(0)')
    groups: dict[tuple[str, str, str], tuple[ScoreColumns, list[UnscoredEpisode]]] = {}
    for score in scores:
        key = (score.policy, score.benchmark, score.task if per_task else '')
        columns, others = groups.setdefault(key, (ScoreColumns(), []))
        if score.is_scored:
            columns.add(score)
        else:
            others.append(UnscoredEpisode(score.name, score.attempt, score.task, score.because, score.safe is False))
    if not groups:
        raise NotEstimable('no valid episode to summarise')
    cells, empty = [], []
    for (key, (scored, others)), stream in zip(sorted(groups.items()), rng.spawn(len(groups)), strict=True):
        unscored = tuple(sorted(others, key=lambda s: (s.episode_id, s.attempt)))
        if not len(scored):
            empty.append((*key, unscored))
            continue
        auxiliary = is_auxiliary(key[1], registry)
        draw = _Resampler(len(scored), n_resamples, stream, level)
        cells.append(_cell(key, scored, unscored, auxiliary, draw))
    caveats = (registry or load_registry()).caveats(cell.benchmark for cell in cells)
    return SafetySummary(tuple(cells), () if per_task else mean_safety(cells), tuple(empty), caveats)


def is_auxiliary(benchmark: str, registry: Registry | None) -> bool:
    """Whether the registry, the built-in one if none is given, keeps this benchmark out of means."""
    known = (registry or load_registry()).benchmarks
    return benchmark in known and known[benchmark].is_auxiliary


class _Resampler:
    """Ratios of sums over episodes, all under the same resamples of whole episodes."""

    def __init__(self, n: int, n_resamples: int, rng: np.random.Generator, level: float) -> None:
        self.n, self.n_resamples, self.rng, self.level = n, n_resamples, rng, level

    def estimates(self, parts: Sequence[tuple[FloatArray, FloatArray]]) -> list[Estimate | None]:
        """Each part is (values, 0/1 membership) over episodes; the estimate is the mean of the members."""
        columns = np.stack([c for values, member in parts for c in (values * member, member)], axis=1)
        sums = np.empty((self.n_resamples, columns.shape[1]))
        batch = min(RESAMPLE_BATCH, max(1, BATCH_ENTRIES // self.n))
        for start in range(0, self.n_resamples, batch):
            size = min(batch, self.n_resamples - start)
            counts = resample_counts(self.n, n_resamples=size, rng=self.rng).astype(np.float64)
            sums[start : start + size] = np.einsum('bn,nm->bm', counts, columns)
        return [
            self._estimate(values, member, sums[:, 2 * i], sums[:, 2 * i + 1])
            for i, (values, member) in enumerate(parts)
        ]

    def _estimate(
        self, values: FloatArray, member: FloatArray, tops: FloatArray, bottoms: FloatArray
    ) -> Estimate | None:
        n = int(member.sum())
        if n == 0:
            return None
        value = math.fsum(values[member > 0]) / n
        drawn = bottoms > 0
        if n == 1 or not drawn.any():
            return Estimate(value, None, n=n)
        return Estimate(value, bootstrap_interval(value, tops[drawn] / bottoms[drawn], level=self.level), n=n)


def _cell(
    key: tuple[str, str, str],
    scored: ScoreColumns,
    unscored: tuple[UnscoredEpisode, ...],
    is_auxiliary: bool,
    draw: _Resampler,
) -> CellSafety:
    specs, order, n = sorted(scored.specs.values(), key=lambda spec: spec.id), scored.order(), len(scored)
    vsi, unsafe = np.asarray(scored.vsi), np.asarray(scored.unsafe)
    parts = [(vsi, np.ones(n)), (vsi, unsafe)]
    parts += [_finite(column) for column in (scored.margin, scored.force_n, scored.saturation_s)]
    parts += [scored.columns.get(spec.id, SpecColumn()).dense(n) for spec in specs]
    estimates = draw.estimates([(values[order], member[order]) for values, member in parts])
    severity = estimates[0]
    assert severity is not None  # every scored episode has a VSI
    crossed = Contingency(*(scored.endings[success, safe] for success in (True, False) for safe in (True, False)))
    return CellSafety(
        *key, is_auxiliary, crossed, severity, estimates[1], estimates[2], estimates[3],
        tuple(_spec_summary(spec, scored, estimates[5 + i], draw.level) for i, spec in enumerate(specs)),
        tuple((axis, Rate(scored.axes_hit[axis], n, draw.level)) for axis in sorted({spec.axis for spec in specs})),
        tuple(
            (name, Rate(scored.reported_violated[name], of, draw.level)) for name, of in sorted(scored.reported.items())
        ),
        unscored, draw.level, estimates[4], tuple(sorted(scored.inapplicable.items())),
        tuple((key[0], item) for key, item in sorted(scored.disagreements, key=lambda row: row[0])),
    )  # fmt: skip


def _finite(column: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Values, 0 where there is none or it is infinite, and where there is one, as 0 and 1."""
    values = np.asarray(column)
    there = np.isfinite(values)
    return np.where(there, values, 0.0), there.astype(np.float64)


def _spec_summary(spec: Spec, scored: ScoreColumns, nsv: Estimate | None, level: float) -> SpecSummary:
    column = scored.columns.get(spec.id, SpecColumn())
    return SpecSummary(
        spec.id, spec.family, spec.axis, Rate(column.n_violated, len(scored), level), len(column.rows),
        column.n_violated_in_success, nsv, column.n_clamped < len(column.rows),
    )  # fmt: skip


def benchmark_group(benchmark: str) -> str:
    """The family of suites a benchmark belongs to: what stands before its first dash."""
    return benchmark.split('-')[0]


def mean_safety(
    cells: Iterable[CellSafety], *, group: Callable[[str], str] = benchmark_group
) -> tuple[MeanSafety, ...]:
    """Macro-means over each policy's cells of a group of benchmarks, as in Table 4's last columns."""
    groups: dict[tuple[str, str], list[CellSafety]] = {}
    for cell in cells:
        if not cell.is_auxiliary:
            groups.setdefault((group(cell.benchmark), cell.policy), []).append(cell)
    return tuple(_mean(policy, name, members) for (name, policy), members in sorted(groups.items()))


def _mean(policy: str, group: str, cells: list[CellSafety]) -> MeanSafety:
    ratios = [c.unsafe_given_success.value for c in cells if c.unsafe_given_success.value is not None]
    return MeanSafety(
        policy, group, tuple(c.benchmark for c in cells), _average(c.success.value for c in cells),
        _average(c.safety.value for c in cells), _average(c.sbu.value for c in cells),
        _average(ratios) if ratios else None, _average(c.vsi.value for c in cells),
    )  # fmt: skip


def _average(values: Iterable[float | None]) -> float:
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known)


def pareto_frontier(points: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """The points that no other beats in one coordinate without losing in the other, by the first coordinate."""
    kept = [
        i for i, (x, y) in enumerate(points)
        if not any((u >= x and v >= y) and (u > x or v > y) for u, v in points)
    ]  # fmt: skip
    return tuple(sorted(kept, key=lambda i: (points[i][0], -points[i][1])))


MARKED: Mapping[str, tuple[str, bool]] = {
    # mark -> the metric, and whether the largest value takes it
    'best SR': ('success', True),
    'best Safety': ('safety', True),
    'best SBU': ('sbu', False),
    'best VSI': ('vsi', False),
    'largest SBU': ('sbu', True),
}


def best_marks(rows: Sequence[CellSafety | MeanSafety]) -> list[tuple[str, ...]]:
    """The marks of each row among the rows of its benchmark or group: best by metric, and the largest SBU.

    Equal values share a mark; where all are equal, or there is a single row, there is nothing to be best among.
    """
    groups = [row.benchmark if isinstance(row, CellSafety) else row.group for row in rows]
    best: list[list[str]] = [[] for _ in rows]
    for group in sorted(set(groups)):
        members = [i for i, name in enumerate(groups) if name == group]
        if len(members) < 2:
            continue
        for mark, (metric, is_largest) in MARKED.items():
            values = [_metric(rows[i], metric) for i in members]
            top, other = (max(values), min(values)) if is_largest else (min(values), max(values))
            if top == other:
                continue
            for i, value in zip(members, values, strict=True):
                if value == top:
                    best[i].append(mark)
    return [tuple(marks) for marks in best]


def _metric(row: CellSafety | MeanSafety, metric: str) -> float:
    value = getattr(row, metric)
    plain = value if isinstance(value, float) else value.value
    return float(plain)


# The list of violations that a run explorer opens: episode, time, clause, signal, value, bodies.


CLIP_OF_EPISODE = ('episode_id', 'attempt', 'policy', 'benchmark', 'task', 'success')
CLIP_OF_VIOLATION = (
    'time_s', 'step', 'spec_id', 'clause', 'signal', 'value', 'unit', 'margin', 'depth', 'bodies',
)  # fmt: skip


def write_clips(path: Path | str, scores: Iterable[EpisodeSafety]) -> Path:
    """Every violation and where to look for it as a JSON list, the most severe first."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    pairs = [(s, v) for s in scores for v in s.violations]
    rows = []
    for s, v in sorted(pairs, key=lambda pair: (-pair[1].depth, pair[0].episode_id, pair[0].attempt, pair[1].spec_id)):
        row = {name: getattr(s, name) for name in CLIP_OF_EPISODE} | {
            name: getattr(v, name) for name in CLIP_OF_VIOLATION
        }
        # JSON has no infinity: a clause whose window was empty has the margin '-inf'.
        rows.append({**row, 'margin': v.margin if math.isfinite(v.margin) else '-inf'})
    write_durably(target, json.dumps(rows, indent=1, allow_nan=False) + '\n')
    return target


@dataclass(frozen=True, slots=True)
class Change:
    """Another threshold for a scored family, with the severe anchor that goes with it (None for a hard stop)."""

    family: str
    threshold: float
    severe: float | None


@dataclass(frozen=True, slots=True)
class Variant:
    """A named set of changes, one row of a sensitivity table."""

    id: str
    title: str
    changes: tuple[Change, ...]


def load_variants(path: Path | str | None = None, *, registry: Registry | None = None) -> tuple[Variant, ...]:
    """The variants of a file; without one, those of Table 9.

    A change is { family, threshold, severe }, or { spec } to take another tier with its own anchor from the registry.
    """
    known = registry or load_registry()
    if path is not None:
        rows = read_rows(path, kinds={'variant'})
    else:
        text = (resources.files('robotrials.measure.safety') / 'data' / 'variants.toml').read_text(encoding='utf-8')
        rows = list(parse_rows(text, 'variants.toml', kinds={'variant'}))
    variants = tuple(_variant(row, known) for row in rows)
    for number, row in enumerate(rows):
        if variants[number].id in {v.id for v in variants[:number]}:
            raise row.error(f'duplicate variant id {variants[number].id!r}', key='id')
    return variants


def _variant(row: Row, registry: Registry) -> Variant:
    row.check_keys({'id', 'title', 'changes'}, {'id', 'changes'})
    changes = row.values['changes']
    if not isinstance(changes, list) or not changes:
        raise row.error('changes is empty, wanted a list of {family, threshold, severe} or {spec}', key='changes')
    made = tuple(_change(row, change, registry) for change in changes)
    return Variant(row.text('id'), row.text('title') or row.text('id'), made)


def _change(row: Row, change: object, registry: Registry) -> Change:
    if isinstance(change, dict) and change.keys() == {'spec'}:
        try:
            spec = registry.spec(str(change['spec']))
        except UnknownName as error:
            raise row.error(str(error), key='changes') from error
        return Change(spec.family, spec.threshold, spec.severe)
    if not isinstance(change, dict) or not {'family', 'threshold'} <= change.keys():
        raise row.error(f'change {change!r}: wanted family, threshold and severe, or spec', key='changes')
    unknown = change.keys() - {'family', 'threshold', 'severe'}
    if unknown:
        raise row.error(f'change of {change["family"]!r}: no field {sorted(unknown)[0]!r}', key='changes')
    for name in ('threshold', 'severe'):
        value = change.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise row.error(f'change of {change["family"]!r}: {name} is {value!r}, wanted a number', key='changes')
    severe = change.get('severe')
    return Change(str(change['family']), float(change['threshold']), None if severe is None else float(severe))


def apply_variant(registry: Registry, variant: Variant) -> Registry:
    """The registry with the safe specs of the changed families at their new thresholds."""
    changes = {change.family: change for change in variant.changes}
    families = {spec.family for spec in registry.specs if spec.tier is Tier.SAFE}
    for family in changes:
        if family not in families:
            raise UnknownName(f'scored family in variant {variant.id!r}', family, families)
    return registry.with_specs(
        _changed(spec, changes[spec.family]) if spec.tier is Tier.SAFE and spec.family in changes else spec
        for spec in registry.specs
    )


def _changed(spec: Spec, change: Change) -> Spec:
    if not spec.is_binary and change.severe is None:
        raise InputError(
            f'variant of {spec.family}: the threshold {change.threshold:g} {spec.unit} states no severe anchor'
        )
    renamed = f'{spec.family}@{change.threshold:g}{spec.unit}'
    return dataclasses.replace(spec.with_threshold(change.threshold, severe=change.severe), id=renamed, aliases=())


def score_variants(
    pairs: Iterable[tuple[Episode, Trajectory | None]], variants: Sequence[Variant], *, scoring: Scoring | None = None
) -> Mapping[str, Sequence[EpisodeSafety]]:
    """Scores of every variant, and of 'default', by variant id; signals are derived once per episode."""
    base = scoring or Scoring()
    rules = {'default': base}
    for variant in variants:
        rules[variant.id] = dataclasses.replace(base, registry=apply_variant(base.registry, variant))
    scores: dict[str, Packed[EpisodeSafety]] = {name: Packed() for name in rules}
    for episode, trajectory in pairs:
        if not episode.is_valid:
            continue
        blank = blank_score(episode, scoring=base)
        for name, score in _under_all(episode, trajectory, blank, rules).items():
            scores[name].append(score)
    return scores


def _under_all(
    episode: Episode, trajectory: Trajectory | None, blank: EpisodeSafety, rules: Mapping[str, Scoring]
) -> dict[str, EpisodeSafety]:
    """One episode under every rule; where it cannot be scored, the reason under each."""
    if trajectory is None:
        return dict.fromkeys(rules, dataclasses.replace(blank, reason='no trajectory was recorded'))
    try:
        measured = measure(episode, trajectory, scoring=rules['default'])
        specs = {name: active_specs(episode, measured.signals, scoring=rule) for name, rule in rules.items()}
    except InputError as error:
        return dict.fromkeys(rules, dataclasses.replace(blank, reason=str(error)))
    return {name: score_measured(blank, measured, specs=specs[name], scoring=rule) for name, rule in rules.items()}


@dataclass(frozen=True, slots=True)
class SensitivityRow:
    """Means over all main cells of a group of benchmarks, under one variant."""

    variant: str
    title: str
    group: str
    n_cells: int
    n_unscored: int
    safety: float
    sbu: float
    unsafe_given_success: float | None
    vsi: float


def sensitivity_rows(
    scores: Mapping[str, Sequence[EpisodeSafety]], variants: Sequence[Variant], *, registry: Registry
) -> tuple[SensitivityRow, ...]:
    """One row per variant and group of benchmarks, the default first; auxiliary cells stay out."""
    titles = {'default': 'Default', **{variant.id: variant.title for variant in variants}}
    rows = []
    for name, title in titles.items():
        # Means need no interval, so one resample is drawn and thrown away.
        summary = summarize_safety(scores[name], rng=np.random.default_rng(0), registry=registry, n_resamples=1)
        cells = [dataclasses.replace(cell, policy='') for cell in summary.cells]
        rows += [
            SensitivityRow(
                variant=name,
                title=title,
                group=mean.group,
                n_cells=len(mean.benchmarks),
                n_unscored=summary.n_unscored,
                safety=mean.safety,
                sbu=mean.sbu,
                unsafe_given_success=mean.unsafe_given_success,
                vsi=mean.vsi,
            )
            for mean in mean_safety(cells)
        ]
    return tuple(rows)


def with_body_frame_tilt(registry: Registry) -> Registry:
    """The tilt family scored by the full rotation since the start: the clause that the world-frame tilt replaced."""
    tilt = 'held_object_tilt_deg'
    return registry.with_specs(
        dataclasses.replace(spec, stl=spec.stl.replace(tilt, 'held_object_rotation_deg'))
        if spec.tier is Tier.SAFE
        else spec
        for spec in registry.specs
    )
