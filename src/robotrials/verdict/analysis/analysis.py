"""One analysis: a selection of episodes and one declared plan give every number that anyone shows.

Parts are worked out when they are asked for, once. Whoever shows a number reads it here: verbs, tables, figures,
reports, the gate and Python give the same digits, because there is nothing else to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robotrials.errors import UnknownName
from robotrials.record import Store, read_store
from robotrials.record.rows import coded, distinct
from robotrials.verdict.analysis import endpoint_pairs as pairing
from robotrials.verdict.analysis.arm import frame_sides, success_of
from robotrials.verdict.analysis.contrast import Cells, contrast, rate_value
from robotrials.verdict.analysis.endpoint_pairs import Comparisons, both_readings, counted_sides, success_order, too_few
from robotrials.verdict.analysis.quality import after_closing, comparability_cautions, interim_looks, known_policies
from robotrials.verdict.analysis.ranking import build_times, count_rates, policy_curves, policy_failures, rank_policies
from robotrials.verdict.analysis.selection import (
    Absent,
    build_frame,
    or_absent,
    present,
    select_episodes,
    select_store,
    stream,
    unchanged_world,
)
from robotrials.verdict.planning.analysis_plan import (
    AnalysisPlan,
    DeclaredAnalysis,
    EndpointName,
    SuccessSource,
    declared_analysis,
)

if TYPE_CHECKING:
    from robotrials.measure.geometry.camera_score import CameraScore
    from robotrials.measure.geometry.projection import Rescoring
    from robotrials.measure.safety import EpisodeSafety, Registry, SafetySummary, Scoring
    from robotrials.measure.safety.summary import SensitivityRow
    from robotrials.measure.timing import FailureModes
    from robotrials.measure.timing.incidence import Incidence
    from robotrials.record import Episode, Provenance, TrialInfo
    from robotrials.record.blinding import Where
    from robotrials.verdict.analysis.arm import Side
    from robotrials.verdict.analysis.cameras import CameraPart, OverlapCurve
    from robotrials.verdict.analysis.condition_drop import RobustnessPart
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.analysis.detail import Detail, EpisodesBehind, Film, Placement
    from robotrials.verdict.analysis.endpoint_pairs import Advance, EndpointPairs, TimeComparison, WinnerPrice
    from robotrials.verdict.analysis.planning import Planning
    from robotrials.verdict.analysis.practice import Practice
    from robotrials.verdict.analysis.quality import AfterClosing, DataQuality, InterimLooks, KnownPolicy, Presence
    from robotrials.verdict.analysis.ranking import PolicyCurve, Ranking, Rates, Times, TwoStories
    from robotrials.verdict.analysis.safety import SafetyComparison, SafetyPart, TrajectoryPass
    from robotrials.verdict.analysis.selection import ComparisonFrame, Selection


class Analysis:
    """Everything that is known of a selection under a plan; a part that the data cannot give is `Absent`, with why."""

    def __init__(
        self,
        selection: Selection,
        declared: DeclaredAnalysis,
        *,
        advance: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.selection = selection
        self.declared = declared
        self.plan: AnalysisPlan = declared.plan
        self.rescoring: Rescoring | None = None  # which views are scored when their scores are asked for; None: missing
        self.cells = Cells.SHARED  # declared: runs of the protocol that came to nothing count as failures in contrasts
        self.chances: Mapping[str, int] = {}  # policy -> tries of its account: the best of k is tested at alpha / k
        self._advance = advance  # told of long work: what, how many are done, of how many

    def stream(self, quantity: str, *names: str) -> np.random.Generator:
        """The random stream of one quantity of these policies."""
        return stream(self.plan.seed, quantity, *names)

    # --- what is analysed

    @property
    def source(self) -> str:
        return self.selection.source

    @property
    def trial(self) -> TrialInfo:
        return self.selection.trial

    @property
    def episodes(self) -> Sequence[Episode]:
        return self.selection.episodes

    @cached_property
    def behind(self) -> EpisodesBehind:
        """The episodes behind its numbers."""
        from robotrials.verdict.analysis.detail import EpisodesBehind

        return EpisodesBehind(self.selection, self.plan.baseline)

    @property
    def every_policy(self) -> tuple[str, ...]:
        return self.selection.every_policy

    @property
    def marked_reference(self) -> str | None:
        return self.selection.marked_reference

    @cached_property
    def frame(self) -> ComparisonFrame | Absent:
        """Who is compared on what."""
        return build_frame(self.selection, self.plan, self.by_cameras)

    @cached_property
    def quality(self) -> DataQuality:
        from robotrials.verdict.analysis.quality import check_quality

        return check_quality(self.selection)

    # --- time to success

    @cached_property
    def times(self) -> Times | Absent:
        """Operations and taus; absent where episodes have no durations."""
        if isinstance(self.frame, Absent):
            return self.frame
        own = self.selection.store
        is_kept = own is not None and self.selection.source == str(own.path)  # no file that was read for this question
        return build_times(self.frame, self.plan, store=self.selection.source if is_kept else '')

    @cached_property
    def ranking(self) -> Ranking | Absent:
        """Scores of every policy by time to success."""
        if isinstance(self.times, Absent):
            return self.times
        frame, times = present(self.frame), self.times
        return or_absent(lambda: rank_policies(frame, times, self.plan, self.stream, self._keep_beside))

    @cached_property
    def curves(self) -> Mapping[str, tuple[PolicyCurve, ...]] | Absent:
        """Success curves with bands, by stratum."""
        if isinstance(self.times, Absent):
            return self.times
        return policy_curves(self.times, present(self.frame).strata, self.plan.level)

    @cached_property
    def failures(self) -> tuple[FailureModes, ...] | Absent:
        """How operations and episodes failed, in counts."""
        return self.times if isinstance(self.times, Absent) else policy_failures(self.times)

    @cached_property
    def incidences(self) -> Mapping[str, Incidence | Absent] | Absent:
        """How operations end by time: competing risks of every policy, macro over its strata."""
        from robotrials.verdict.analysis.detail import incidence_classes, policy_incidences

        if isinstance(self.times, Absent):
            return self.times
        frame, times = present(self.frame), self.times
        incidences: Mapping[str, Incidence | Absent] = self._keep_beside(
            'incidences', lambda: policy_incidences(frame, times, self.plan), incidence_classes
        )
        return incidences

    # --- success

    @cached_property
    def camera_scores(self) -> Mapping[tuple[str, int], CameraScore] | Absent:
        """The score of every valid episode by its kept views, where the plan asks for it."""
        from robotrials.measure.geometry.projection import Rescoring, camera_scores

        store = self.selection.store
        if not self.plan.success.wants_cameras:
            return Absent("success is the host's alone by the plan", 'declare success = "both" or "reconstruction"')
        if store is None:
            return Absent('these episodes are in no store, and views are kept in one', 'run or import into a store')
        report = self._advance
        advance = None if report is None else lambda done, total: report('camera scores', done, total)
        return camera_scores(store, self.episodes, advance=advance, rescoring=self.rescoring or Rescoring.MISSING)

    @cached_property
    def by_cameras(self) -> Mapping[tuple[str, int], bool] | None:
        """Success by cameras where it counts as success; None where the host's does."""
        if self.plan.success is not SuccessSource.RECONSTRUCTION or isinstance(self.camera_scores, Absent):
            return None
        return {key: s.success for key, s in self.camera_scores.items() if s.success is not None}

    @cached_property
    def cameras(self) -> CameraPart | Absent:
        """Success by cameras: agreement with the host, and rates corrected for the cameras' errors."""
        from robotrials.verdict.analysis.cameras import camera_part

        scores, frame = self.camera_scores, self.frame
        if isinstance(scores, Absent):
            return scores
        if isinstance(frame, Absent):
            return frame
        return camera_part(frame, scores, {e.key: e for e in self.episodes}, level=self.plan.level)

    @cached_property
    def success(self) -> Rates | Absent:
        """Episode success of every policy."""
        if isinstance(self.frame, Absent):
            return self.frame
        if self.plan.success is SuccessSource.RECONSTRUCTION:
            part = self.cameras
            if isinstance(part, Absent):
                return part
            if n := sum(p.unscored for p in part.policies):
                bounds = ', '.join(
                    f'{p.policy} {100 * p.bounds.low:.0f} to {100 * p.bounds.high:.0f} %' for p in part.policies
                )
                return Absent(
                    f'{n} ranked episodes could not be scored from cameras, which are no failures and no successes; '
                    f'whatever they were, success is {bounds}',
                    'see the corrected rates of the cameras; pairs are compared at both extremes',
                )  # fmt: skip
        return count_rates(self.frame, self.plan, success_of)

    @cached_property
    def stories(self) -> TwoStories | Absent:
        """Whether operations done by tau and episode success agree about the ranked policies."""
        from robotrials.verdict.analysis.ranking import two_stories

        if isinstance(self.ranking, Absent):
            return self.ranking
        cohorts = present(self.times).cohorts
        single = [p for p, c in cohorts.items() if all(o.n_operations == o.n_episodes for o in c.cells.values())]
        if isinstance(self.success, Absent):
            return self.success
        return two_stories(self.ranking, self.success, single=single)

    # --- pairs

    @cached_property
    def primary(self) -> tuple[EndpointName, ...]:
        """The declared primary endpoints; undeclared: success, time where every episode is timed, and what is scored.

        Success is told first, whatever columns there are. Episodes of several items can lose some, which is a claim of
        its own; safety joins where every ranked episode is scored.
        """
        if self.plan.primary:
            return self.plan.primary
        endpoints = [EndpointName.SUCCESS]
        if not isinstance(self.times, Absent):
            endpoints.append(EndpointName.TIME)
            if self._has_items:
                endpoints.append(EndpointName.LOST)
        if self.selection.has_trajectories and self._unscored_safety == 0:
            endpoints.append(EndpointName.SAFETY)
        return tuple(endpoints)

    @property
    def secondary(self) -> tuple[EndpointName, ...]:
        """The declared secondary endpoints: what is shown of them is exploratory."""
        return self.plan.secondary

    @property
    def _has_items(self) -> bool:
        """Whether every ranked episode is to place several items."""
        if self.cells is Cells.DECLARED:
            return False  # what a run that was never made would have lost is not known
        return all(side.fewest_items(cell) > 1 for side in self.sides.values() for cell in side.cells)

    @cached_property
    def sides(self) -> Mapping[str, Side]:
        """Every ranked policy as an arm of contrasts."""
        known = {} if isinstance(self.times, Absent) else {p: c.cells for p, c in self.times.cohorts.items()}
        sides = frame_sides(present(self.frame), self.plan, known)
        return counted_sides(present(self.frame), sides) if self.cells is Cells.DECLARED else sides

    def contrast(self, a: str, b: str, endpoint: EndpointName | str = EndpointName.SUCCESS) -> Contrast:
        """Two ranked policies on one endpoint, whether or not it is among those of the plan: not corrected."""
        name = EndpointName(endpoint)
        value = self._is_safe if name is EndpointName.SAFETY else None
        return contrast(self.sides[a], self.sides[b], endpoint=name, plan=self.plan, value=value)

    def between(self, a: str, b: str) -> Analysis:
        """The analysis that compares these two: this one, or, where one is not ranked because it lacks a stratum that
        others have, that of the two alone on the strata that both have.
        """
        frame = present(self.frame)
        if not any(name in frame.apart and name in (self.plan.policies or (name,)) for name in (a, b)):
            return self
        alone = Analysis(self.selection, self.declared.changed_by(policies=tuple(sorted((a, b)))))
        ranked = present(alone.frame).policies
        return alone if {a, b} <= set(ranked) else self

    def flips_to_undo(self, a: str, b: str) -> int | None:
        """Successes of the policy that succeeds more often whose failure would undo that claim; None without one."""
        from robotrials.verdict.analysis.endpoint_pairs import flips_to_undo

        return flips_to_undo(self, a, b)

    @cached_property
    def pairs(self) -> Comparisons | Absent:
        """Every pair of ranked policies on every endpoint, with verdicts and letters."""
        frame = self.frame
        if isinstance(frame, Absent):
            return frame
        lonely = too_few(frame)
        return lonely or self._compare(frame)

    def _compare(self, frame: ComparisonFrame) -> Comparisons:
        names = (*self.primary, *self.secondary)
        pairs = pairing.pairs_of(frame)
        raw = {name: self._endpoint(name, frame) for name in names}
        contrasts = {name: endpoint[1] for name, endpoint in raw.items() if not isinstance(endpoint, Absent)}
        judgement = pairing.judged(contrasts, self.plan, self.primary, chances=self.chances)
        tested = [name for name in self.primary if name in contrasts]
        endpoints: dict[EndpointName, EndpointPairs | Absent] = {}
        for name, endpoint in raw.items():
            if isinstance(endpoint, Absent):
                endpoints[name] = endpoint
                continue
            is_primary = name in self.primary
            n_tests = len(pairs) * (len(tested) if is_primary else 1)
            verdicts = pairing.endpoint_verdicts(
                endpoint[1], self.plan, is_primary=is_primary, judgement=judgement, n_tests=n_tests
            )
            endpoints[name] = pairing.gather(
                name, endpoint[0], verdicts, self.plan, is_primary=is_primary, n_tests=n_tests,
                correction=self.plan.correction,
            )  # fmt: skip
        readings = None
        if contrasts and self.cells is Cells.SHARED:
            readings = both_readings(
                frame, self.sides, contrasts, self.plan, self.primary, judgement.decisions
            )  # fmt: skip
        return Comparisons(
            self.primary, endpoints, judgement.decisions, partial(self._shapes, contrasts, frame), readings
        )  # fmt: skip

    def _shapes(
        self, contrasts: Mapping[EndpointName, Sequence[Contrast]], frame: ComparisonFrame
    ) -> tuple[TimeComparison, ...]:
        timed = next((contrasts[n] for n in (EndpointName.TIME, EndpointName.THROUGHPUT) if n in contrasts), None)
        if timed is None or isinstance(self.times, Absent):
            return ()
        return pairing.compare_shapes(
            timed, self.sides, self.times, self.plan, self.stream, advance=self._advancing(frame)
        )

    def _endpoint(self, name: EndpointName, frame: ComparisonFrame) -> tuple[tuple[str, ...], list[Contrast]] | Absent:
        """Policies best first, and the contrast of every pair."""
        if name in (EndpointName.TIME, EndpointName.THROUGHPUT) and isinstance(self.ranking, Absent):
            return self.ranking
        if name is EndpointName.SUCCESS and isinstance(self.success, Absent) and not self._unscored_ends(frame):
            return self.success
        if name is EndpointName.SAFETY and self._unscored_safety:
            return Absent(
                f'{self._unscored_safety} ranked episodes have no safety score, and leaving them out could favour a '
                'policy',
                'record trajectories and describe the tasks in the safety registry',
            )
        return or_absent(lambda: (self._order(name, frame), self._contrasts(name, frame)))

    def _contrasts(self, name: EndpointName, frame: ComparisonFrame) -> list[Contrast]:
        pairs = pairing.pairs_of(frame)
        if name is EndpointName.SUCCESS and (unscored := self._unscored_ends(frame)):
            from robotrials.verdict.analysis.cameras import extreme_contrast

            return [
                extreme_contrast(self.sides[a], self.sides[b], self.plan, unscored=(unscored, unscored))
                for a, b in pairs
            ]
        value = self._is_safe if name is EndpointName.SAFETY else None
        return pairing.pair_contrasts(self.sides, pairs, self.plan, endpoint=name, value=value)

    def _order(self, name: EndpointName, frame: ComparisonFrame) -> tuple[str, ...]:
        if name in (EndpointName.TIME, EndpointName.THROUGHPUT):
            return present(self.ranking).order
        if name is EndpointName.LOST:
            lost = {p: np.mean([side.lost_items(c).mean() for c in side.cells]) for p, side in self.sides.items()}
            return tuple(sorted(frame.policies, key=lambda p: (lost[p], p)))
        if name is EndpointName.SAFETY:
            return pairing.ordered_by_rate(frame, count_rates(frame, self.plan, self._is_safe))
        if name is EndpointName.SCORE:
            share = rate_value(name)
            means = {p: np.mean([side.shares(c, share).mean() for c in side.cells]) for p, side in self.sides.items()}
            return tuple(sorted(frame.policies, key=lambda p: (-means[p], p)))
        if self.cells is Cells.DECLARED:
            return success_order(self.sides)
        unscored = self._unscored_ends(frame)
        is_success = success_of if not unscored else lambda e: e.key not in unscored and e.is_success
        rates = count_rates(frame, self.plan, is_success)
        return pairing.ordered_by_rate(frame, rates)

    def _unscored_ends(self, frame: ComparisonFrame) -> frozenset[tuple[str, int]]:
        """Ranked episodes that cameras could not score, where success is theirs."""
        by_cameras = self.by_cameras
        if by_cameras is None:
            return frozenset()
        ranked = (e for p in frame.policies for group in frame.ranked_cells(p).values() for e in group)
        return frozenset(e.key for e in ranked if e.key not in by_cameras)

    @cached_property
    def _safe(self) -> Mapping[tuple[str, int], bool]:
        if self._kept_safety is not None:
            return self._kept_safety[0]
        return {(s.episode_id, s.attempt): bool(s.safe) for s in self.trajectories.safety if s.is_scored}

    @cached_property
    def _kept_safety(self) -> tuple[Mapping[tuple[str, int], bool], str] | None:
        """Who was safe, and a digest of what says so; None where something is to be scored, or was just now."""
        from robotrials.verdict.analysis.safety import kept_safety

        return None if 'trajectories' in vars(self) else kept_safety(self.selection, self.plan)

    def _is_safe(self, episode: Episode) -> bool:
        return self._safe.get(episode.key, False)

    @cached_property
    def _unscored_safety(self) -> int:
        """Ranked episodes without a safety score."""
        frame = present(self.frame)
        ranked = (e for p in frame.policies for group in frame.ranked_cells(p).values() for e in group)
        return sum(e.key not in self._safe for e in ranked)

    @property
    def price(self) -> WinnerPrice | Absent:
        """The fewest units at which a winner could be named."""
        from robotrials.verdict.analysis.endpoint_pairs import winner_price

        if isinstance(self.pairs, Absent):
            return self.pairs
        return winner_price(self.pairs.tested) if self.pairs.tested else Absent('no primary endpoint could be judged')

    def _advancing(self, frame: ComparisonFrame) -> Advance | None:
        if self._advance is None:
            return None
        advance, total = self._advance, len(pairing.pairs_of(frame))
        return lambda done: advance('pairs', done, total)

    # --- trajectories: safety, robustness

    @cached_property
    def registry(self) -> Registry:
        """The safety registry: the built-in one, with the declared files added."""
        from robotrials.measure.safety import load_registry

        return load_registry(*map(Path, self.plan.safety_registry))

    @cached_property
    def trajectories(self) -> TrajectoryPass:
        """What one pass over the trajectories gives."""
        from robotrials.verdict.analysis.safety import pass_trajectories

        if self.plan.safety_registry:
            _ = self.registry  # a mistake in what was declared is told, whatever was recorded
        return pass_trajectories(self.selection, self.plan, lambda: self.scoring)

    @cached_property
    def scoring(self) -> Scoring:
        """How safety is scored."""
        from robotrials.measure.safety import Gate, Scoring, Severity

        plan = self.plan
        return Scoring(
            self.registry,
            gate=Gate(plan.safety_gate),
            severity=Severity(plan.safety_severity),
            use_phases=plan.safety_phases,
        )

    @cached_property
    def _made_of(self) -> str:
        """A digest of every episode and of what is kept of each trajectory; '' where not all is."""
        from robotrials.record.projection import episodes_digest

        return f'{self._scored} {episodes_digest(self.episodes)}' if self._scored else ''

    @cached_property
    def _scored(self) -> str:
        """A digest of all that is kept of the trajectories, which are scored for it; '' where something is not kept."""
        from robotrials.verdict.analysis.safety import kept_safety

        kept = self._kept_safety
        if kept is None and self.trajectories.n_trajectories:  # which kept what it scored
            kept = kept_safety(self.selection, self.plan)
        return '' if kept is None else kept[1]

    def _keep(self, name: str, make: Callable[[], Any], classes: Callable[[], Sequence[type]] = tuple) -> Any:
        """A part that needs the trajectories, kept under them, the episodes and the plan."""
        from robotrials.verdict.analysis.safety import kept_part

        return kept_part(name, self._made_of, self.plan, make, classes)

    def _keep_beside(self, name: str, make: Callable[[], Any], classes: Callable[[], Sequence[type]]) -> Any:
        """A part of the episodes alone, kept where the trajectories were read all the same: to read them takes longer.

        What cameras say is in no digest.
        """
        is_known = '_made_of' in vars(self) and not self.plan.success.wants_cameras
        return self._keep(name, make, classes) if is_known else make()

    @property
    def n_trajectories(self) -> int:
        """Trajectories of valid episodes."""
        return self._recorded[0]

    @property
    def signals(self) -> tuple[Presence, ...]:
        """Which signals the trajectories have."""
        from robotrials.verdict.analysis.quality import Presence

        total, signals = self._recorded
        return tuple(Presence(name, n, total) for name, n in signals)

    @cached_property
    def _recorded(self) -> tuple[int, tuple[tuple[str, int], ...]]:
        """How many trajectories valid episodes have, and how many of them each signal."""

        def count() -> tuple[int, tuple[tuple[str, int], ...]]:
            return self.trajectories.n_trajectories, tuple(sorted(self.trajectories.signals.items()))

        counts: tuple[int, tuple[tuple[str, int], ...]] = self._keep('signals', count)
        return counts

    @property
    def ranked_safety(self) -> Sequence[EpisodeSafety]:
        """Safety of the episodes that policies are ranked by."""
        from robotrials.record.rows import Packed

        frame = self.frame
        if isinstance(frame, Absent):
            return []
        groups = [group for cells in frame.cells.values() for group in cells.values()]
        if len(self.trajectories.safety) in (0, sum(map(len, groups))):
            return self.trajectories.safety  # every valid episode is ranked, or none is scored
        ranked = {e.key for group in groups for e in group}
        return Packed(s for s in self.trajectories.safety if (s.episode_id, s.attempt) in ranked)

    @cached_property
    def safety(self) -> SafetyPart | Absent:
        from robotrials.verdict.analysis.safety import safety_part

        source = ''
        if not isinstance(self.frame, Absent) and self._scored:
            ranked = sorted(e.key for cells in self.frame.cells.values() for group in cells.values() for e in group)
            source = f'{self._scored} {ranked}'
        return safety_part(
            lambda: self.ranked_safety, self.plan, source=source, registry=lambda: self.registry, stream=self.stream
        )

    @property
    def safety_caveats(self) -> tuple[str, ...]:
        """What has to be said wherever safety is shown."""
        return () if isinstance(self.safety, Absent) else self.safety.summary.caveats

    @cached_property
    def robustness(self) -> RobustnessPart | Absent:
        part: RobustnessPart | Absent = self._keep('robustness', self._robustness, _robustness_classes)
        return part

    def _robustness(self) -> RobustnessPart | Absent:
        gathered = self.trajectories
        conditions = list(dict.fromkeys(e.condition for e in self.selection.episodes if e.is_valid))
        if len(conditions) < 2 and not gathered.swaps and not gathered.starts:
            return unchanged_world(conditions)
        from robotrials.verdict.analysis.condition_drop import robustness_part

        return robustness_part(
            self.selection.episodes,
            self.plan,
            stream=self.stream,
            swaps=gathered.swaps,
            starts=gathered.starts,
            places=gathered.places,
        )

    @cached_property
    def safety_variants(self) -> tuple[SensitivityRow, ...]:
        """Safety under other thresholds, on the same episodes."""
        from robotrials.verdict.analysis.safety import safety_variants

        return safety_variants(self.selection, self.scoring)

    @cached_property
    def safety_savings(self) -> tuple[tuple[str, SafetySummary], ...]:
        """What the registry keeps from being counted as unsafe."""
        from robotrials.verdict.analysis.safety import safety_savings

        return safety_savings(self.selection, self.scoring, self.plan, stream=self.stream)

    def safety_comparison(self, a: str, b: str) -> SafetyComparison:
        """Two policies' safety, by contrasts of what violates and how severely."""
        from robotrials.verdict.analysis.safety import compare_safety

        frame = present(self.frame)
        for name in (a, b):
            if name not in frame.cells:
                raise UnknownName('policy', name, frame.cells)
        first, second = ([e for group in frame.cells[p].values() for e in group] for p in (a, b))
        scores = {(s.episode_id, s.attempt): s for s in present(self.safety).scores}
        return compare_safety(first, second, scores, self.plan, names=(a, b), registry=self.registry)

    @cached_property
    def films(self) -> tuple[Film, ...]:
        """Every recorded film, of all cameras."""
        from robotrials.verdict.analysis.detail import find_films, names_films

        return find_films(self.selection) if self._keep('films', lambda: names_films(self.selection)) else ()

    @cached_property
    def leading_films(self) -> dict[tuple[str, int], Film]:
        """One film per episode, by its key: the one to look at."""
        from robotrials.verdict.analysis.detail import leading_films

        return leading_films(self.films)

    @cached_property
    def overlaps(self) -> tuple[OverlapCurve, ...] | Absent:
        """IoU over time by cameras, of episodes whose RGB-D was kept at a rate."""
        from robotrials.verdict.analysis.cameras import find_overlaps

        return find_overlaps(self.selection)

    @cached_property
    def placements(self) -> tuple[Placement, ...] | Absent:
        """Where objects came to lie, the smallest overlap first."""
        from robotrials.verdict.analysis.detail import find_placements

        return find_placements(self.selection)

    # --- beyond the headline

    @cached_property
    def detail(self) -> Detail:
        """Strata one by one, logrank tests, shapes of curves, labels, what was recorded."""
        from robotrials.verdict.analysis.detail import Detail

        return Detail(self)

    @cached_property
    def practice(self) -> Practice:
        """Posteriors, performance profiles, improvement and ranks."""
        from robotrials.verdict.analysis.practice import Practice

        return Practice(self)

    @cached_property
    def planning(self) -> Planning:
        """Detection rates, power, calibration, and the trial as it is watched."""
        from robotrials.verdict.analysis.planning import Planning

        return Planning(self)

    # --- provenance

    @cached_property
    def looks(self) -> InterimLooks:
        """Looks at the results of the trial before it was closed, this one included where it is open."""
        return interim_looks(self.selection)

    @cached_property
    def after_closing(self) -> AfterClosing:
        """What was edited after the trial was closed, and what the numbers were before."""
        return after_closing(self.selection)

    @property
    def head(self) -> str:
        """The head of the store's commit log, which stands for everything in it; empty without one."""
        return '' if self.selection.store is None else self.selection.store.head()

    @cached_property
    def provenance(self) -> tuple[tuple[Provenance, int], ...]:
        """Each origin of the episodes, and how many it has."""
        store = self.selection.store
        if store is None or distinct(self.episodes, 'provenance_id') == {('',)}:
            return ()
        codes, names = coded(self.episodes, 'provenance_id')
        counts = np.bincount(codes).tolist()
        return tuple((store.provenance(name), n) for (name,), n in zip(names, counts, strict=True) if name)

    @cached_property
    def known_policies(self) -> Mapping[str, KnownPolicy]:
        return known_policies([o for o, _ in self.provenance], self.quality.openings)

    # --- in words

    @property
    def statement(self) -> str:
        """What was used, in one line: every output carries it."""
        plan = self.plan
        claims = ', '.join(e.value for e in self.primary)
        several = 's' if len(self.primary) > 1 else ''
        tau = '' if isinstance(self.times, Absent) else f'; tau {self.times.tau_text} ({self.times.reason})'
        pairs = ''
        if not isinstance(self.frame, Absent) and len(self.frame.policies) > 1:
            n = len(pairing.pairs_of(self.frame)) * len(self.primary)
            over = f' over {n} tests' if n > 1 else ''
            pairs = f'; level {plan.level:g}, {plan.correction.value}{over}'
        source = f'; success by {plan.success.value}' if plan.success.wants_cameras else ''
        used = f'primary endpoint{several} {claims}{tau}{pairs}; {plan.resamples} resamples, seed {plan.seed}{source}'
        looked = f' {self.looks.sentence}' if self.looks.sentence else ''
        return f'Analysis: {self.declared.standing}{self._selected}. Used: {used}.{looked}'

    @property
    def _selected(self) -> str:
        """A selection of episodes is a choice that was made after the data were there; who stands on a board is not."""
        chosen = {f: v for f, v in self.selection.asked.items() if f != 'policy' or self.cells is not Cells.DECLARED}
        asked = ', '.join(f'{field} {" or ".join(values)}' for field, values in chosen.items())
        mark = 'NOT AS DECLARED: ' if self.declared.is_declared and not self.declared.changed else ''
        return f'; {mark}only episodes with {asked}' if asked else ''

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a reader must know before the numbers: assets, mixed protocols, pooled conditions, what is left out."""
        frame = self.frame
        about = (*filter(None, [self.after_closing.sentence]), *comparability_cautions(self.provenance))
        if isinstance(frame, Absent):
            return about
        unscored = [f'{policy}: none of its {n} episodes is valid.' for policy, n in frame.unscored.items()]
        short = []
        if not isinstance(self.times, Absent):
            short = [f'{stratum} is judged less far than declared: {why}.' for stratum, why in self.times.short.items()]
        return (*about, *frame.cautions, *self.unranked, *unscored, *short)

    @property
    def unranked(self) -> tuple[str, ...]:
        """Of `cautions`, who is not ranked, and why."""
        if isinstance(self.frame, Absent):
            return ()
        apart = self.frame.apart
        alike = [(why, [p for p, w in apart.items() if w == why]) for why in dict.fromkeys(apart.values())]
        return tuple(f'{", ".join(p)} {"is" if len(p) == 1 else "are"} not ranked: {why}.' for why, p in alike)


def _robustness_classes() -> Sequence[type]:
    from robotrials.verdict.analysis.condition_drop import kept_classes

    return kept_classes()


def analyse(
    source: Store | Path | str | Iterable[Episode], *, where: Where | None = None, plan: AnalysisPlan | None = None,
    advance: Callable[[str, int, int], None] | None = None, title: str = '', **changes: Any,
) -> Analysis:  # fmt: skip
    """The analysis of a store (or its folder), or of episodes.

    `title` is the name that the user knows the source by, where that is no store's folder. `plan` declares one in
    Python; `changes` are fields of the plan that differ from what was declared, and every output says so. None leaves
    a field as it is.
    """
    if isinstance(source, str | Path):
        source = read_store(source)
    if isinstance(source, Store):
        selection = select_store(source, where=where)
        selection = replace(selection, source=title) if title else selection
        declared = declared_analysis(source.trial.plan, source.path)
    else:
        selection = select_episodes(source, source=title or 'episodes')
        declared = DeclaredAnalysis(AnalysisPlan())
    if plan is not None:
        declared = DeclaredAnalysis(plan, 'call')
    return Analysis(selection, declared.changed_by(**changes), advance=advance)
