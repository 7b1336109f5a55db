"""What the data are worth: balance, invalid episodes, edits, order, and which facts and signals are missing."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from robotrials.measure.timing.operation import row_scenes, scene_of, stratum_of
from robotrials.record import Outcome, PolicyCard, Provenance
from robotrials.record.rows import EpisodeRows, coded, column, ended, kinds, lacks, pick
from robotrials.value import dataclass
from robotrials.verdict.analysis.arm import is_blinded

if TYPE_CHECKING:
    from robotrials.record import Edit, Episode, Store, Unblinding
    from robotrials.record.blinding import Where
    from robotrials.verdict.analysis.selection import Selection


# What an episode may record beside the required fields; an analysis that wants one says so where it is missing.
FACTS: Mapping[str, tuple[str, ...]] = {
    'time cap': ('time_cap_s',),
    'start time': ('started_at',),
    'seed or instance': ('seed', 'instance'),
    "host's own success": ('success',),
    'items': ('items',),
    'timed events': ('events',),
    'instruction': ('instruction',),
    'operator': ('operator',),
    'provenance': ('provenance_id',),
}


@dataclass(frozen=True, slots=True)
class ArmQuality:
    """What there is of one policy."""

    policy: str
    is_reference: bool
    n_valid: int
    n_invalid: int
    n_strata: int
    smallest_cell: int  # valid episodes in the stratum that has fewest, of all strata of the trial
    largest_cell: int
    mean_position: float | None  # mean place in the order of starts: 0 first, 1 last; None without start times


@dataclass(frozen=True, slots=True)
class Presence:
    """How many valid episodes have a fact, or a signal in their trajectory."""

    name: str
    n_present: int
    n: int


@dataclass(frozen=True, slots=True)
class DataQuality:
    """The state of a store's data, before any score."""

    arms: tuple[ArmQuality, ...]
    strata: tuple[str, ...]
    conditions: Mapping[str, int]  # valid episodes under each
    invalid_reasons: Mapping[str, int]
    n_superseded: int  # attempts that another attempt of the same episode replaced
    n_dropped: int
    edits: tuple[Edit, ...]
    facts: tuple[Presence, ...]
    order_p_value: float | None  # Kruskal and Wallis: do policies differ in when they were run?
    n_scenes: int  # start states, where they are recorded
    n_shared_scenes: int  # those that every policy met
    openings: tuple[Unblinding, ...]
    is_open: bool  # a declared trial that was not closed
    is_blinded: bool  # the same, with policies under codes
    was_blinded: bool  # closed, and until then policies were under codes

    @property
    def is_balanced(self) -> bool:
        """Whether every policy has the same number of valid episodes in every stratum, and has any."""
        return bool(self.strata) and len({n for arm in self.arms for n in (arm.smallest_cell, arm.largest_cell)}) == 1


def check_quality(selection: Selection) -> DataQuality:
    """The quality of the selected episodes, and of the store that they are from."""
    episodes, store, where = selection.episodes, selection.store, selection.where
    codes, first = kinds(episodes, 'policy', 'is_reference', 'task', 'stratum', 'condition', 'outcome', 'reason')
    tally = _Tally()
    for episode, n in zip(first, np.bincount(codes).tolist(), strict=True):
        tally.add(episode, n)
    valid = pick(episodes, np.flatnonzero(~ended(episodes, Outcome.INVALID)))
    strata = tuple(sorted({stratum for _, stratum in tally.valid}))
    positions, p_value = _start_order(valid)
    n_scenes, n_shared_scenes = _scene_counts(valid)
    openings = () if store is None else tuple(store.unblindings().by_trial.values())
    n_superseded, n_dropped, edits = (0, 0, ()) if store is None else _uncounted(store, len(episodes), where)
    is_open = (
        store is not None
        and bool(store.trial.plan_hash)
        and store.trial.trial_id not in {*store.unblindings().by_trial}
    )
    return DataQuality(
        arms=tally.arms(strata, positions), strata=strata, conditions=tally.conditions,
        invalid_reasons=tally.invalid_reasons, n_superseded=n_superseded, n_dropped=n_dropped, edits=edits,
        facts=tuple(
            Presence(name, len(valid) - int(np.logical_and.reduce([lacks(valid, f) for f in fields]).sum()), len(valid))
            for name, fields in FACTS.items()
        ),
        order_p_value=p_value, n_scenes=n_scenes, n_shared_scenes=n_shared_scenes, openings=openings,
        is_open=is_open, is_blinded=store is not None and is_blinded(store),
        was_blinded=any(o.policies != {n: n for n in o.policies} for o in openings),
    )  # fmt: skip


def _uncounted(store: Store, n_counted: int, where: Where | None) -> tuple[int, int, tuple[Edit, ...]]:
    """Attempts that another one replaced, attempts that edits dropped, and the edits, of what matches."""
    edits = store.edits()
    if where is None and store.count() == n_counted:
        return 0, 0, tuple(edit for group in edits.by_episode.values() for edit in group)
    n_attempts, n_dropped, matching = 0, 0, set()
    for episode in store.episodes(where=where, attempts='all', dropped=True, events=False):
        n_attempts += 1
        n_dropped += edits.is_dropped(*episode.key)
        if episode.episode_id in edits.by_episode:
            matching.add(episode.episode_id)
    every = tuple(
        edit for group in edits.by_episode.values() for edit in group if where is None or edit.episode_id in matching
    )
    return max(0, n_attempts - n_dropped - n_counted), n_dropped, every


@dataclass(slots=True)
class _Tally:
    """Counts of episodes that are alike."""

    valid: Counter[tuple[str, str]] = field(default_factory=Counter)  # (policy, stratum)
    invalid: Counter[str] = field(default_factory=Counter)
    is_reference: dict[str, bool] = field(default_factory=dict)
    conditions: Counter[str] = field(default_factory=Counter)
    invalid_reasons: Counter[str] = field(default_factory=Counter)

    def add(self, episode: Episode, n: int) -> None:
        self.is_reference[episode.policy] = episode.is_reference
        if not episode.is_valid:
            self.invalid[episode.policy] += n
            self.invalid_reasons[episode.reason or 'no reason recorded'] += n
            return
        self.valid[episode.policy, stratum_of(episode)] += n
        self.conditions[episode.condition] += n

    def arms(self, strata: Sequence[str], positions: Mapping[str, float]) -> tuple[ArmQuality, ...]:
        arms = []
        for policy in sorted(self.is_reference, key=lambda name: (not self.is_reference[name], name)):
            cells = [self.valid[policy, stratum] for stratum in strata] or [0]
            arms.append(
                ArmQuality(
                    policy, self.is_reference[policy], sum(cells), self.invalid[policy], sum(n > 0 for n in cells),
                    min(cells), max(cells), positions.get(policy),
                )
            )  # fmt: skip
        return tuple(arms)


def _scene_counts(valid: Sequence[Episode]) -> tuple[int, int]:
    """How many scenes were met, and how many of them by every policy."""
    policy, policies = coded(valid, 'policy')
    if isinstance(valid, EpisodeRows):
        scenes = row_scenes(valid).numbers
    else:
        numbers: dict[Hashable, int] = {None: -1}
        scenes = np.array([numbers.setdefault(scene_of(e), len(numbers)) for e in valid], dtype=np.int64)
    met = np.unique(scenes[scenes >= 0] * len(policies) + policy[scenes >= 0]) // max(len(policies), 1)
    _, n_policies = np.unique(met, return_counts=True)
    return len(n_policies), int((n_policies == len(policies)).sum())


def _start_order(valid: Sequence[Episode]) -> tuple[dict[str, float], float | None]:
    """Each policy's mean place in the order of starts, and the Kruskal-Wallis p-value that all places are alike."""
    from robotrials.stats.interaction import kruskal_wallis, midranks

    times_s, (codes, policies) = column(valid, 'started_at'), coded(valid, 'policy')
    if np.isnan(times_s).any() or len(np.unique(times_s)) < 2:
        return {}, None  # one time for all says nothing about their order
    names = [name for (name,) in policies]
    order = np.lexsort((np.argsort(np.argsort(names))[codes], times_s))
    ranks = midranks(times_s) - 1  # what started together shares a place
    ordered = dict.fromkeys(codes[order].tolist())
    places = {names[code]: ranks[order][codes[order] == code] for code in ordered}
    p_value = kruskal_wallis(list(places.values())) if len(places) > 1 else None
    return {name: float(np.mean(v)) / (len(times_s) - 1) for name, v in places.items()}, p_value


# Whether the episodes of an analysis are about the same thing, as far as their hosts say: protocol and assets.

Origins = Sequence[tuple[Provenance, int]]  # each with its number of episodes
ASSETS_NOTE = 'assets_note'


def comparability_cautions(origins: Origins) -> tuple[str, ...]:
    """What makes results not comparable, with others or among themselves; empty where nothing is known to."""
    total = sum(n for _, n in origins)
    notes: dict[str, int] = {}
    for origin, n in origins:
        note = origin.protocol.get(ASSETS_NOTE, '')
        if note:
            notes[note] = notes.get(note, 0) + n
    sentences = [f'{_share(n, total)} run with {note}.' for note, n in notes.items()]
    for benchmark in dict.fromkeys(o.protocol['benchmark'] for o, _ in origins if 'benchmark' in o.protocol):
        differing = protocol_differences([o for o in origins if o[0].protocol.get('benchmark') == benchmark])
        if differing:
            sentences.append(f'Episodes of {benchmark} follow different protocols: {"; ".join(differing)}.')
    return tuple(sentences)


def protocol_differences(origins: Origins) -> list[str]:
    """The facts that origins state differently, each with its values and how many episodes have them."""
    names = dict.fromkeys(name for origin, _ in origins for name in origin.protocol if name != ASSETS_NOTE)
    differences = []
    for name in names:
        counts: dict[str, int] = {}
        for origin, n in origins:
            value = origin.protocol.get(name, 'not stated')
            counts[value] = counts.get(value, 0) + n
        if len(counts) > 1:
            values = ', '.join(f'{value} ({n:,} episodes)' for value, n in counts.items())
            differences.append(f'{name.replace("_", " ")} is {values}')
    return differences


def _share(n: int, total: int) -> str:
    if n == total:
        return 'All episodes were'
    return f'{n:,} of {total:,} episodes {"was" if n == 1 else "were"}'


# What is known of each policy: its card, and how the plan declared it.

# What a card can say beside whose it is; a plan of another version may declare more.
CARD_FIELDS = frozenset(f.name for f in dataclasses.fields(PolicyCard)) - {'policy'}


@dataclass(frozen=True, slots=True)
class KnownPolicy:
    """One policy's card, and the component and options it was declared with ('' where no plan is open)."""

    card: PolicyCard
    declared: str = ''


def known_policies(origins: Iterable[Provenance], openings: Iterable[Unblinding]) -> dict[str, KnownPolicy]:
    """By policy: a plan's card, else the one recorded with the episodes."""
    known = {card.policy: KnownPolicy(card) for origin in origins for card in origin.policy_cards}
    for opening in openings:
        for name, entry in _declared(opening).items():
            given = entry.get('card')
            facts: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
            facts = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items() if k in CARD_FIELDS}
            earlier = known.get(name, KnownPolicy(PolicyCard(policy=name))).card
            card = PolicyCard(policy=name, **facts) if facts else earlier
            known[name] = KnownPolicy(card, _told(entry))
    return known


def _declared(opening: Unblinding) -> Mapping[str, dict[str, object]]:
    try:
        policies = json.loads(opening.plan).get('policies', {})
    except (json.JSONDecodeError, AttributeError):
        return {}
    if not isinstance(policies, dict):
        return {}  # not a plan of the runner's
    return {name: entry for name, entry in policies.items() if isinstance(entry, dict)}


def _told(entry: Mapping[str, object]) -> str:
    options = entry.get('options')
    named = ', '.join(f'{k}={v}' for k, v in options.items()) if isinstance(options, Mapping) else ''
    n = entry.get('execute')
    chunk = f', {n} action{"" if n == 1 else "s"} a chunk' if n else ''
    return f'{entry.get("use", "")}({named}){chunk}'


# What was edited after a trial was closed, and what the numbers were before.


@dataclass(frozen=True, slots=True)
class Tally:
    """What a policy came to: episodes that are valid, those that succeeded, and how long those took together."""

    n: int
    n_success: int
    success_s: float

    @property
    def words(self) -> str:
        mean = f', {self.success_s / self.n_success:.1f} s on average' if self.n_success and self.success_s else ''
        return f'{self.n_success} of {self.n} succeeded{mean}'


@dataclass(frozen=True, slots=True)
class AfterClosing:
    """Edits after closing, and what each policy that they changed came to, at the closing and now."""

    editors: tuple[str, ...]  # 'ana, approved by kim' for every edit
    changes: dict[str, tuple[Tally, Tally]]

    @property
    def sentence(self) -> str:
        """In words; empty where nobody has edited anything since."""
        if not self.editors:
            return ''
        n = len(self.editors)
        who = '; '.join(f'{name} ({count})' for name, count in sorted(Counter(self.editors).items()))
        text = f'POST-CLOSING: {n} edit{"" if n == 1 else "s"} after the trial was closed: {who}.'
        if not self.changes:
            return f'{text} No success and no time of one changed.'
        moved = [f'{policy}: {a.words} at the closing, {b.words} now' for policy, (a, b) in self.changes.items()]
        return f'{text} {"; ".join(moved)}.'


def after_closing(selection: Selection) -> AfterClosing:
    """The edits of a selection's store that came after the closing, and what they changed in the selection."""
    store = selection.store
    late = () if store is None else store.late_edits()
    if store is None or not late:
        return AfterClosing((), {})
    then = _tallies(dataclasses.replace(store, at_closing=True).episodes(where=selection.where, events=False))
    now = _tallies(store.episodes(where=selection.where, events=False))
    none = Tally(0, 0, 0.0)
    policies = sorted({p for p in (*then, *now) if then.get(p, none) != now.get(p, none)})
    editors = tuple(f'{edit.by}, approved by {edit.approved_by or "nobody"}' for edit in late)
    return AfterClosing(editors, {p: (then.get(p, none), now.get(p, none)) for p in policies})


def _tallies(episodes: Iterable[Episode]) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    for episode in episodes:
        if episode.is_valid:
            held = tallies.get(episode.policy, Tally(0, 0, 0.0))
            is_success = episode.is_success
            seconds = (episode.duration_s or 0.0) if is_success else 0.0
            tallies[episode.policy] = Tally(held.n + 1, held.n_success + is_success, held.success_s + seconds)
    return tallies


# Looks at an open trial: how many there were, and whether a rule declared in the plan allows acting on them.


@dataclass(frozen=True, slots=True)
class InterimLooks:
    """What is on record of looks at results before closing."""

    n: int
    is_open: bool  # this analysis is such a look
    rule: str  # the declared stopping rule; empty where none allows stopping by results

    @property
    def sentence(self) -> str:
        """In words; empty where nobody looked and the trial is closed."""
        if not self.n and not self.is_open:
            return ''
        allowed = (
            f'the declared rule ({self.rule}) allows stopping by `robotrials watch`, and by nothing else'
            if self.rule
            else 'no declared rule allows stopping by results'
        )
        counted = f'{self.n} interim look{"" if self.n == 1 else "s"} on record'
        text = f'The trial is open, so this is an interim look; {counted}' if self.is_open else counted.capitalize()
        return f'{text}; {allowed}.'


def interim_looks(selection: Selection) -> InterimLooks:
    """The looks of the trial that the episodes are from."""
    store = selection.store
    if store is None:
        return InterimLooks(0, False, '')
    return InterimLooks(len(store.looks()), is_open_trial(store), _rule(store.trial.plan))


def is_open_trial(store: Store) -> bool:
    """Whether a look at this store is an interim one: it is of a declared trial that was not closed."""
    return bool(store.trial.plan_hash) and store.trial.trial_id not in store.unblindings().by_trial


def _rule(plan: str) -> str:
    try:
        rule = json.loads(plan).get('stopping', {}).get('rule', '') if plan else ''
    except (json.JSONDecodeError, AttributeError):
        return ''
    return '' if rule == 'none' else str(rule)
