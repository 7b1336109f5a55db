"""What a named figure or table is made from: a store's episodes, or the file that its kind of input is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from robotrials.errors import InputError, UnknownName
from robotrials.value import dataclass
from robotrials.verdict.analysis import Analysis
from robotrials.verdict.analysis.subject import PUBLISHED, Input

if TYPE_CHECKING:
    from robotrials.show.figure import PolicyLook

COUNTS = {
    Input.STORE: (1, 1), Input.TWO_STORES: (2, 2), Input.PREDICTIONS: (1, 1), Input.LEADERBOARD: (1, 1),
    Input.CANDIDATES: (1, None), Input.BENCHMARK: (1, 1), Input.SHORTCUT: (1, 1),
    Input.DATASOURCE: (1, 1), Input.MIX: (1, 1),
    Input.REGISTRY: (0, None), Input.NOTHING: (0, 0),
}  # fmt: skip
WANTED = {
    Input.STORE: 'a store, or a file or folder of episodes', Input.TWO_STORES: 'two stores, recorded runs of one plan',
    Input.PREDICTIONS: "a store of predicted actions (robotrials actions run), or the word 'published'",
    Input.LEADERBOARD: 'a vla-eval leaderboard file (.json)',
    Input.CANDIDATES: 'tables of papers (.csv or .jsonl), or a leaderboard file (.json)',
    Input.BENCHMARK: 'the name of a benchmark preset, such as libero-spatial',
    Input.SHORTCUT: 'the shortcut.json of a diagnosis (robotrials audit shortcut)',
    Input.DATASOURCE: 'the datasource.json of a diagnosis (robotrials audit datasource)',
    Input.MIX: 'the mix.json of a diagnosis (robotrials audit mix)',
    Input.REGISTRY: 'nothing, or safety registry files of your own (.toml)', Input.NOTHING: 'nothing',
}  # fmt: skip
SUFFIXES = {
    Input.LEADERBOARD: ('.json',), Input.CANDIDATES: ('.csv', '.jsonl', '.json'), Input.REGISTRY: ('.toml',),
    Input.SHORTCUT: ('.json',), Input.DATASOURCE: ('.json',), Input.MIX: ('.json',),
}  # fmt: skip

Made = TypeVar('Made', bound=Callable[..., object])
V = TypeVar('V')


class OfPolicy(Protocol):
    """Whatever belongs to one policy."""

    @property
    def policy(self) -> str: ...


R = TypeVar('R', bound=OfPolicy)


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


def named(
    choose: Callable[[ShowRequest], object] | None = None, *, wants: Input = Input.STORE, is_apart: bool = False
) -> Callable[[Made], Made]:
    """Let a function that builds one table be asked for by name; its first line is what `tables --list` says of it.

    `choose` takes from a request what the function is called with; without it the function takes nothing.
    """

    def mark(build: Made) -> Made:
        def build_tables(request: ShowRequest) -> list[object]:
            return [build() if choose is None else build(choose(request))]

        build_tables.__doc__ = build.__doc__
        marked = apart(build_tables) if is_apart else build_tables
        build.by_name = takes(wants)(marked)  # type: ignore[attr-defined]
        return build

    return mark


def summary_of(made: Callable[..., object]) -> str:
    """The first line of what a figure's or table's function says about itself."""
    return (made.__doc__ or '').strip().partition('\n')[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRequest:
    """What was asked for. A figure or table reads the values in it, and says when something is missing.

    `subject` is the value that the input was read into: an `Analysis` for a store; for other inputs what
    `verdict.analysis.subject` makes of them. `policies` and `strata` choose what is shown of it, never what is
    analysed.
    """

    subject: object = None
    policies: tuple[str, ...] = ()  # all when empty
    strata: tuple[str, ...] = ()  # all when empty
    label: str | None = None  # a label of the episodes, or `a=b`: whether two labels agree

    @property
    def analysis(self) -> Analysis:
        """The analysis of the store that was asked about."""
        if not isinstance(self.subject, Analysis):
            raise InputError('this shows an analysis of episodes; give the folder of a store')
        return self.subject

    def value(self, kind: type[V]) -> V:
        """What another kind of input was read into."""
        if not isinstance(self.subject, kind):
            raise InputError(f'wanted {kind.__name__}, found {type(self.subject).__name__}')
        return self.subject

    def shown(self, policies: Iterable[str]) -> tuple[str, ...]:
        """Of these policies, those that were asked for; a name that nobody has is an error."""
        known = tuple(policies)
        for name in self.policies:
            if name not in self.analysis.every_policy:
                raise UnknownName('policy', name, self.analysis.every_policy)
        return tuple(p for p in known if not self.policies or p in self.policies)

    def rows_of(self, rows: Iterable[R]) -> list[R]:
        """The rows of the policies that were asked for."""
        every = list(rows)
        kept = self.shown(dict.fromkeys(row.policy for row in every))
        return [row for row in every if row.policy in kept]

    def shown_strata(self, strata: Iterable[str]) -> tuple[str, ...]:
        """Of these strata, those that were asked for."""
        known = tuple(strata)
        for name in self.strata:
            if name not in known:
                raise UnknownName('stratum', name, known)
        return tuple(s for s in known if not self.strata or s in self.strata)

    def looks(self) -> dict[str, PolicyLook]:
        """How each policy is drawn: fixed by the whole store, whichever part of it is shown."""
        from robotrials.show.figure import policy_looks

        return policy_looks(self.analysis.every_policy, reference=self.analysis.marked_reference)


def check_sources(name: str, wanted: Input, sources: Sequence[str]) -> None:
    """Refuse the wrong number or kind of inputs, and say what the name wants."""
    fewest, most = COUNTS[wanted]
    said = f'{name} wants {WANTED[wanted]}'
    if len(sources) < fewest or (most is not None and len(sources) > most):
        given = ', '.join(sources) if sources else 'nothing'
        raise InputError(f'{said}; found {given}')
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
    elif wanted is not Input.STORE and not is_store:  # what episodes are in is said by whoever opens it
        kind = 'a folder that is no store' if path.is_dir() else 'a file'
        raise InputError(f'{said}; {source} is {kind}')
