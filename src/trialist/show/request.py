"""What a named figure or table is made from: a store's episodes, or the file that its kind of input is."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trialist.episodes import Episode
from trialist.errors import InputError, UnknownName
from trialist.show.policy_look import PolicyLook, policy_looks


class Input(enum.StrEnum):
    """Which kind of input a name wants, after it on the command line."""

    STORE = 'store'  # the folder of a store
    TWO_STORES = 'two stores'  # two recorded runs of one plan
    PREDICTIONS = 'predictions'  # a store of predicted actions, or the word `published`
    LEADERBOARD = 'leaderboard'  # a vla-eval leaderboard file
    CANDIDATES = 'candidates'  # tables of papers (CSV, JSONL), or a leaderboard file
    BENCHMARK = 'benchmark'  # the name of a preset, such as libero-spatial
    REGISTRY = 'registry'  # nothing: the built-in safety registry; or registry files of your own after it
    NOTHING = 'nothing'


COUNTS = {
    Input.STORE: (1, 1), Input.TWO_STORES: (2, 2), Input.PREDICTIONS: (1, 1), Input.LEADERBOARD: (1, 1),
    Input.CANDIDATES: (1, None), Input.BENCHMARK: (1, 1), Input.REGISTRY: (0, None), Input.NOTHING: (0, 0),
}  # fmt: skip
WANTED = {
    Input.STORE: 'the folder of a store', Input.TWO_STORES: 'two stores, recorded runs of one plan',
    Input.PREDICTIONS: "a store of predicted actions (trialist actions run), or the word 'published'",
    Input.LEADERBOARD: 'a vla-eval leaderboard file (.json)',
    Input.CANDIDATES: 'tables of papers (.csv or .jsonl), or a leaderboard file (.json)',
    Input.BENCHMARK: 'the name of a benchmark preset, such as libero-spatial',
    Input.REGISTRY: 'nothing, or safety registry files of your own (.toml)', Input.NOTHING: 'nothing',
}  # fmt: skip
SUFFIXES = {
    Input.LEADERBOARD: ('.json',), Input.CANDIDATES: ('.csv', '.jsonl', '.json'), Input.REGISTRY: ('.toml',),
}  # fmt: skip
PUBLISHED = 'published'

Made = TypeVar('Made', bound=Callable[..., object])


def takes(wanted: Input) -> Callable[[Made], Made]:
    """Mark what kind of input a figure's or table's function takes; without the mark it takes a store."""

    def mark(made: Made) -> Made:
        made.wants = wanted  # type: ignore[attr-defined]
        return made

    return mark


def input_of(made: Callable[..., object]) -> Input:
    """The kind of input that a figure's or table's function takes."""
    return Input(getattr(made, 'wants', Input.STORE))


def apart(made: Made) -> Made:
    """Mark a figure's or table's function that tells conditions apart, so that none are taken together in it."""
    made.is_apart = True  # type: ignore[attr-defined]
    return made


def is_apart(made: Callable[..., object]) -> bool:
    """Whether a figure or table tells conditions apart."""
    return bool(getattr(made, 'is_apart', False))


def summary_of(made: Callable[..., object]) -> str:
    """The first line of what a figure's or table's function says about itself."""
    return (made.__doc__ or '').strip().partition('\n')[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRequest:
    """What was asked for. A figure or table takes what it needs of it and says when something is missing."""

    episodes: tuple[Episode, ...] = ()
    store: Path | None = None  # its folder, for what reads trajectories or media
    sources: tuple[str, ...] = ()  # what was named on the command line, for inputs that are no store
    policies: tuple[str, ...] = ()  # all when empty
    strata: tuple[str, ...] = ()  # all when empty
    reference: str | None = None  # the marked one when not given
    tau_s: float = 240.0
    n_resamples: int = 1000
    seed: int = 0
    label: str | None = None  # a label of the episodes, or `a=b`: whether two labels agree
    known_policies: tuple[str, ...] = ()  # of the whole store, which fixes the colours; those of `episodes` when empty
    known_reference: str | None = None  # the policy that the whole store marks as its reference

    def chosen(self) -> tuple[Episode, ...]:
        """The episodes of the policies and strata asked for; one that no episode has is an error."""
        chosen = self.episodes
        for kind, names in (('policy', self.policies), ('stratum', self.strata)):
            known = {_named(episode, kind) for episode in chosen}
            for name in names:
                if name not in known:
                    raise UnknownName(kind, name, known)
            chosen = tuple(e for e in chosen if not names or _named(e, kind) in names)
        return chosen

    def looks(self) -> dict[str, PolicyLook]:
        """How each policy is drawn: fixed by the whole store, whichever part of it is shown."""
        if self.known_policies:
            return policy_looks(self.known_policies, reference=self.known_reference)
        marked = next((e.policy for e in self.episodes if e.is_reference), None)
        return policy_looks((e.policy for e in self.episodes), reference=marked)

    def folder(self, what: str) -> Path:
        """The store's folder, which `what` needs."""
        if self.store is None:
            raise InputError(f'{what} reads trajectories, so the request needs the folder of a store')
        return self.store


def _named(episode: Episode, kind: str) -> str:
    """Its policy, or its stratum, which is its task where none was recorded."""
    return episode.policy if kind == 'policy' else episode.stratum or episode.task


def known_policies(episodes: Sequence[Episode]) -> tuple[tuple[str, ...], str | None]:
    """Every policy of a store and the one that it marks as its reference."""
    marked = next((e.policy for e in episodes if e.is_reference), None)
    return tuple(sorted({e.policy for e in episodes})), marked


def check_sources(name: str, wanted: Input, sources: Sequence[str]) -> None:
    """Refuse the wrong number or kind of inputs, and say what the name wants."""
    fewest, most = COUNTS[wanted]
    said = f'{name} wants {WANTED[wanted]}'
    if len(sources) < fewest or (most is not None and len(sources) > most):
        found = ', '.join(sources) if sources else 'nothing'
        raise InputError(f'{said}; found {found}')
    for source in sources:
        _check_source(said, wanted, source)


def _check_source(said: str, wanted: Input, source: str) -> None:
    path = Path(source)
    is_store = (path / 'trial.json').exists()
    if wanted is Input.BENCHMARK or (wanted is Input.PREDICTIONS and source == PUBLISHED):
        if is_store or path.suffix in ('.json', '.csv'):
            raise InputError(f'{said}; found {"the store" if is_store else "the file"} {source}')
        return
    if not path.exists():
        raise InputError(f'{said}; {source}: no such file or folder')
    if wanted in SUFFIXES:
        if path.is_dir() or path.suffix.lower() not in SUFFIXES[wanted]:
            raise InputError(
                f'{said}; found {"the store" if is_store else "the folder" if path.is_dir() else "the file"} {source}'
            )
    elif not is_store:
        kind = 'a folder that is no store' if path.is_dir() else 'a file'
        raise InputError(f'{said}; {source} is {kind}')
