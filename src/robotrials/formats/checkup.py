"""What can be seen of episodes before any analysis: caps, shared starts, successes at once, numbers that cannot be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import field

from robotrials.formats.guess import ALIKE, groups_alike
from robotrials.formats.row_outcome import SLACK_S, Caps
from robotrials.record.episode import Episode, Outcome
from robotrials.value import dataclass

MOST_NAMED = 6
LATE = 0.02  # the share of a cap by which the last step may end after it


@dataclass(slots=True)
class Checkup:
    """Counts of one source, taken episode by episode in bounded memory."""

    n: int = 0
    policies: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    names: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in ALIKE})
    cap_s: Counter[float] = field(default_factory=Counter)
    caps: Caps = field(default_factory=Caps)
    at_once: int = 0
    impossible: Counter[str] = field(default_factory=Counter)
    starts: dict[tuple[object, ...], set[str]] = field(default_factory=lambda: defaultdict(set))

    def see(self, episode: Episode) -> None:
        """Take one episode into account."""
        self.n += 1
        self.policies[episode.policy] += 1
        self.tasks[episode.task] += 1
        self.outcomes[episode.outcome.value] += 1
        for name in ALIKE:
            self.names[name][str(getattr(episode, name))] += 1
        if episode.time_cap_s is not None:
            self.cap_s[episode.time_cap_s] += 1
        values = {'duration_s': episode.duration_s, 'steps': episode.steps}
        is_open = episode.time_cap_s is None and episode.outcome is Outcome.FAILURE
        self.caps.see(values, is_failure=is_open, is_success=False)
        self.at_once += episode.is_success and (episode.duration_s == 0 or episode.steps in (0, 1))
        self.impossible.update(impossibilities(episode))
        if episode.is_valid and not (episode.seed is None and episode.instance is None):
            place = (episode.benchmark, episode.task, episode.stratum, episode.condition)
            self.starts[*place, episode.seed, episode.instance].add(episode.policy)

    def alike(self) -> list[str]:
        """Names that may be one."""
        found = ((name, groups_alike(counts.elements())) for name, counts in self.names.items())
        return [f'{name} {" = ".join(map(repr, group))}' for name, groups in found for group in groups]

    def pairing(self) -> str:
        """Which starts the policies share."""
        if not self.starts:
            return 'none: no seed and no instance is recorded, so no start is known to be shared'
        shared = sum(len(policies) == len(self.policies) for policies in self.starts.values())
        if len(self.policies) < 2:
            return f'{len(self.starts):,} starts of one policy: nothing to pair with'
        some = sum(len(policies) > 1 for policies in self.starts.values())
        others = f', {some - shared:,} more by some of them' if some > shared else ''
        return f'{shared:,} of {len(self.starts):,} starts were run by all {len(self.policies)} policies{others}'

    def capped(self) -> str:
        """The caps on record, and those that the failures suggest."""
        told = ', '.join(f'{cap:g} s ({count:,})' for cap, count in sorted(self.cap_s.items())[:MOST_NAMED])
        return '; '.join([told or 'none recorded', *self.caps.hints()])


def checkup(episodes: Iterable[Episode]) -> Checkup:
    """What these episodes show."""
    found = Checkup()
    for episode in episodes:
        found.see(episode)
    return found


def impossibilities(episode: Episode) -> list[str]:
    """Numbers of one episode that cannot all be true, and that the record's own rules let pass."""
    found = []
    lasted, cap = episode.duration_s, episode.time_cap_s
    if lasted is not None and cap is not None and lasted > cap + max(SLACK_S, LATE * cap):
        found.append('last longer than their time cap')
    if episode.items and episode.items_placed is not None:
        if episode.is_success and episode.items_placed < episode.items:
            found.append('succeed without all items placed')
        if episode.outcome is Outcome.FAILURE and episode.items_placed == episode.items:
            found.append('fail with all items placed')
    return found


def counted_names(counts: Counter[str]) -> str:
    """`2: act (48), pi0 (48)`, the first few."""
    shown = ', '.join(f'{name} ({count:,})' for name, count in counts.most_common(MOST_NAMED))
    return f'{len(counts):,}: {shown}{", ..." if len(counts) > MOST_NAMED else ""}'
