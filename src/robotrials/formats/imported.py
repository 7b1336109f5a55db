"""What every importer gives: episodes one at a time, and an account of what was kept, what was dropped, and why."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from robotrials.errors import InputError, RecordError, UnknownName
from robotrials.record import Episode, Outcome, Provenance
from robotrials.record.episode import digest
from robotrials.value import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

    from robotrials.record import Trajectory


CERTAIN = 1.0  # names or tables that nobody else writes
LIKELY = 0.6  # the right fields, which others might have too
POSSIBLE = 0.2  # readable, and nothing speaks against it


OUTCOME_NAMES = tuple(outcome.value for outcome in Outcome)
BLANKS = ('invalid', 'failure', 'drop')


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the user says beyond the source itself; an importer refuses what it has no use for (`refuse_unused`)."""

    columns: Mapping[str, str] = field(default_factory=dict)  # field -> column or dotted path: --map
    defaults: Mapping[str, str] = field(default_factory=dict)  # field -> value for every episode: --set
    answers: Mapping[str, str] = field(default_factory=dict)  # key of a question -> the answer: --answer
    group_by: tuple[str, ...] = ()  # columns whose equal values make one episode of several rows
    rate_hz: float | None = None  # control steps per second
    source: str | None = None  # part of the ids; default: the name of the file or folder
    values: Mapping[str, str] = field(default_factory=dict)  # a cell as it is written -> the outcome it means: --value
    blank: str = ''  # what a row without a result is: an outcome, or 'drop'; nothing: an error
    folder: str = ''  # the name of the folder of tables that the file is one of

    def __post_init__(self) -> None:
        for word, outcome in self.values.items():
            if outcome not in OUTCOME_NAMES:
                raise UnknownName(f'outcome (for --value {word!r})', outcome, OUTCOME_NAMES)
        if self.blank and self.blank not in BLANKS:
            raise UnknownName('meaning of a blank result (--blank)', self.blank, BLANKS)
        if self.rate_hz is not None and not 0 < self.rate_hz < 1e6:
            raise InputError(f'--rate-hz is {self.rate_hz}, wanted control steps per second, such as 20')

    def source_name(self, path: Path) -> str:
        """The name that ids are made from."""
        return self.source if self.source is not None else path.resolve().name


class FixableError(RecordError):
    """A source that can be read with `options`; the message ends with the command that does so."""

    def __init__(self, problem: str, path: Path, options: ImportOptions, to: Path | None = None) -> None:
        self.problem, self.path, self.options = problem, path, options
        super().__init__(f'{problem}\nTry: {import_command(path, options, to)}')


def store_name(path: Path) -> str:
    """The store that a suggested command imports a source into: beside nothing, in the current folder."""
    return f'{path.stem}-store'


def import_command(path: Path, options: ImportOptions, to: Path | None = None) -> str:
    """The command that imports `path` with these options, ready for a shell."""
    words = ['robotrials', 'import', str(path), '--to', store_name(path) if to is None else str(to)]
    words += [word for name, column in options.columns.items() for word in ('--map', f'{name}={column}')]
    words += [word for name, value in options.defaults.items() for word in ('--set', f'{name}={value}')]
    words += [word for text, outcome in options.values.items() for word in ('--value', f'{text}={outcome}')]
    words += [word for key, answer in options.answers.items() for word in ('--answer', f'{key}={answer}')]
    words += ['--blank', options.blank] if options.blank else []
    words += ['--group-by', ','.join(options.group_by)] if options.group_by else []
    words += ['--rate-hz', f'{options.rate_hz:g}'] if options.rate_hz is not None else []
    words += ['--source', options.source] if options.source is not None else []
    return shlex.join(words)


@dataclass(frozen=True, slots=True)
class Question:
    """Something the source leaves open; `assumed` holds until someone answers, and None must be answered first."""

    key: str
    text: str
    choices: tuple[str, ...]
    assumed: str | None

    def answer(self, options: ImportOptions) -> str | None:
        """What the user said, or what is assumed; an answer that is none of the choices is refused."""
        given = options.answers.get(self.key)
        if given is not None and given not in self.choices:
            raise UnknownName(f'answer to {self.key!r}', given, self.choices)
        return given if given is not None else self.assumed


FAULTS = Question(
    'faults', 'The harness gave some episodes up (server lost, timeout without steps). Set aside, or failures?',
    ('aside', 'failures'), 'aside',
)  # fmt: skip


def given_up(options: ImportOptions, reason: str) -> tuple[Outcome, str]:
    """An episode that the harness gave up or could not score, for a reason that is not the policy's as far as is known.

    It is set aside; `--answer faults=failures` counts it as a failure, as most harnesses do in their own rates.
    """
    return (Outcome.FAILURE if FAULTS.answer(options) == 'failures' else Outcome.INVALID), reason


@dataclass(frozen=True, slots=True)
class AccountLine:
    """One line of the account: how many of what, and why."""

    what: str
    count: int | None = None
    why: str = ''

    def __str__(self) -> str:
        number = '' if self.count is None else f'{self.count:,} '
        return f'{number}{self.what}' + (f': {self.why}' if self.why else '')


@dataclass(slots=True)
class ImportAccount:
    """The account of one import, written while the source is read, and complete once every episode was taken."""

    _kept: dict[tuple[str, str], int | None] = field(default_factory=dict)
    _dropped: dict[tuple[str, str], int | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    def keep(self, what: str, count: int | None = 1, *, why: str = '') -> None:
        """`count` more of `what` were kept; None for things that are not counted, such as a column."""
        _add(self._kept, (what, why), count)

    def drop(self, what: str, count: int | None = 1, *, why: str) -> None:
        """`count` more of `what` were left out, and why."""
        _add(self._dropped, (what, why), count)

    def note(self, text: str) -> None:
        """A fact about the source that its reader must know, once."""
        if text not in self.notes:
            self.notes.append(text)

    def hint(self, text: str) -> None:
        """Something that looks odd, with the one flag that settles it, once."""
        if text not in self.hints:
            self.hints.append(text)

    def add(self, other: ImportAccount) -> None:
        """Take over another account."""
        for mine, theirs in ((self._kept, other._kept), (self._dropped, other._dropped)):
            for key, count in theirs.items():
                _add(mine, key, count)
        self.notes += [text for text in other.notes if text not in self.notes]
        self.hints += [text for text in other.hints if text not in self.hints]

    def copy(self) -> ImportAccount:
        """The account as it stands."""
        return ImportAccount(dict(self._kept), dict(self._dropped), list(self.notes), list(self.hints))

    def restore(self, before: ImportAccount) -> None:
        """Forget what was counted since; notes and hints stay, since each is there once."""
        self._kept, self._dropped = dict(before._kept), dict(before._dropped)

    @property
    def kept(self) -> tuple[AccountLine, ...]:
        return tuple(AccountLine(what, count, why) for (what, why), count in self._kept.items())

    @property
    def dropped(self) -> tuple[AccountLine, ...]:
        return tuple(AccountLine(what, count, why) for (what, why), count in self._dropped.items())


def _add(entries: dict[tuple[str, str], int | None], key: tuple[str, str], count: int | None) -> None:
    before = entries.get(key)
    entries[key] = before if count is None else (before or 0) + count


class Clip(Protocol):
    """Something that is written into media/ as a file of its own."""

    def write(self, target: Path) -> None: ...


Media = Path | Clip  # a file of the source that is copied, or something that is written


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """One imported rollout: its episode, and its trajectory and media where the source has them."""

    episode: Episode
    trajectory: Trajectory | None = None
    media: Mapping[str, Media] = field(default_factory=dict)  # name in media/ -> what becomes that file


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that a source does not name and was assumed, with what names it."""

    text: str
    flag: str  # of `robotrials import`
    options: ImportOptions  # of an import with that flag, and with those of the doubts before it

    def __str__(self) -> str:
        return f'{self.text} ({self.flag})'


@dataclass(frozen=True, slots=True)
class FieldGuess:
    """One line of the printed guess: which field comes from where, changed how."""

    field: str
    source: str
    change: str = ''


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Imported:
    """A source that was opened and understood. Nothing is in memory but what `recordings` is just yielding.

    `recordings` may be called again, and starts anew. Whatever breaks while reading raises InputError with file, row
    and field, and whoever writes then keeps nothing (`formats.intake`).
    """

    format: str
    sources: tuple[Path, ...]
    recordings: Callable[[], Iterator[Recording]]
    ledger: ImportAccount
    guesses: tuple[FieldGuess, ...] = ()
    questions: tuple[Question, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    origin: Provenance = field(default_factory=Provenance)  # what the source itself says of its making
    tables: Callable[[], Iterator[pa.Table]] | None = None  # the same by columns, see `bulk.completed`
    sha256: str = ''  # of the source, where it is not the hash of its files
    faults: str | None = None  # how episodes that a harness gave up are read (`FAULTS`); None: it gives none up
    resolved: ImportOptions | None = None  # the options with every guess spelled out, for `--save-map`

    def __post_init__(self) -> None:
        opened, read = self.ledger.copy(), self.recordings

        def from_the_start() -> Iterator[Recording]:
            self.ledger.restore(opened)
            n_invalid = 0
            for recording in read():
                n_invalid += not recording.episode.is_valid
                yield recording
            self._tell_faults(n_invalid)

        object.__setattr__(self, 'recordings', from_the_start)

    def _tell_faults(self, n_invalid: int) -> None:
        """Which reading of missing episodes was taken, and how to get the other."""
        if self.faults == 'failures':
            self.ledger.note('episodes that the harness gave up count as failures (--answer faults=failures)')
        elif self.faults is not None and n_invalid:
            self.ledger.hint(
                f'{n_invalid} invalid {"episode is" if n_invalid == 1 else "episodes are"} set aside from rates and '
                'comparisons; harnesses count such as failures, which can turn a verdict: a report has both readings '
                'where it does, and an import with --answer faults=failures has them as failures'
            )

    def episodes(self) -> Iterator[Episode]:
        """The episodes alone."""
        return (recording.episode for recording in self.recordings())

    def settle(self, path: Path, options: ImportOptions, *, is_asking: bool = False) -> None:
        """Note what is assumed where nobody answered; a question that must be answered first is an error.

        A verb that asks (`is_asking`) has no such option: there the whole command is told.
        """
        for doubt in self.doubts:
            self.ledger.hint(doubt.text if is_asking else str(doubt))
        if self.doubts and is_asking:
            self.ledger.hint(f'Try: {import_command(path, self.doubts[-1].options)}')
        for question in self.questions:
            answer = question.answer(options)
            flag = f'--answer {question.key}={"|".join(question.choices)}'
            if answer is None:
                raise InputError(f'{path}: {question.text} Say which with {flag}')
            if question.key not in options.answers:
                others = [choice for choice in question.choices if choice != answer]
                if is_asking:
                    answers = {**options.answers, question.key: others[0]}
                    command = import_command(path, replace(options, answers=answers))
                    self.ledger.hint(f'{question.text} Assumed: {answer}. For {others[0]}:\nTry: {command}')
                else:
                    flag = f'--answer {question.key}={"|".join(others)}'
                    self.ledger.hint(f'{question.text} Assumed: {answer} ({flag})')


class Format(Protocol):
    """How to read one kind of file or folder.

    A third party offers one by an entry point of the group `robotrials.formats` that names an object like this.
    """

    name: str
    summary: str  # one line for `robotrials import --list`

    def recognise(self, path: Path) -> float | None:
        """How sure it is that `path` is its own (see CERTAIN, LIKELY, POSSIBLE), or None; cheap, and never raises."""

    def read(self, path: Path, options: ImportOptions) -> Imported:
        """Open the source and say what it holds; episodes are read when asked for."""


def source_hash(paths: Iterable[Path]) -> str:
    """SHA-256 over the names and bytes of the files, in order."""
    total = hashlib.sha256()
    for path in paths:
        with path.open('rb') as stream:
            digest = hashlib.file_digest(stream, 'sha256').hexdigest()
        total.update(f'{path.name}\n{digest}\n'.encode())
    return total.hexdigest()


def refuse_unused(
    options: ImportOptions, *, name: str, takes: tuple[str, ...], sets: tuple[str, ...] | None = None
) -> None:
    """Raise InputError for an option that this format has no use for: silence would look like obedience.

    takes: the options. sets: what may be set, where the source itself records the rest.
    """
    flags = {
        'columns': '--map', 'group_by': '--group-by', 'rate_hz': '--rate-hz', 'answers': '--answer',
        'values': '--value', 'blank': '--blank',
    }  # fmt: skip
    for attribute, flag in flags.items():
        if attribute not in takes and getattr(options, attribute):
            raise InputError(f'{flag} means nothing for {name}; leave it out')
    if sets is not None:
        check_settable(options, name, sets)


def check_settable(options: ImportOptions, name: str, fields: Sequence[str]) -> None:
    """Refuse to set what the source itself records."""
    unknown = sorted(options.defaults.keys() - set(fields))
    if unknown:
        raise InputError(f'{name} take --set {", ".join(fields)}; found {", ".join(unknown)}')


def mapping_of(value: object) -> Mapping[str, Any]:
    """A value of a JSON document where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def chosen_scorer(path: Path, names: Sequence[str], options: ImportOptions, *, usual: str = '') -> str:
    """The score that counts as the success: as answered, the usual one, or the only one there is."""
    chosen = options.answers.get('scorer')
    if chosen is not None and chosen not in names:
        raise UnknownName('scorer', chosen, names)
    if chosen is None and usual and (usual in names or not names):
        return usual
    if chosen is None and len(names) != 1:
        raise InputError(
            f'{path}: scores {", ".join(names) or "none"}; say which is the success with --answer scorer=NAME'
        )
    return chosen or names[0]


def placed(episode: Episode, *place: str | int | None) -> Episode:
    """The episode with an id made from its place in the source, for want of a start state that tells it apart."""
    return episode.replace(episode_id=digest([episode.episode_id, *place]))


def whole_option(options: ImportOptions, name: str) -> int | None:
    """A whole number > 0 that the user set, or None."""
    text = options.defaults.get(name)
    if text is None:
        return None
    if not text.isdigit() or not 0 < int(text) < 2**31:
        raise InputError(f'--set {name}={text}, wanted a whole number > 0')
    return int(text)


# A first look at a file or folder: cheap, and never an error.

HEAD_BYTES = 1 << 16
MOST_FILES = 100_000


def head_of(path: Path) -> bytes:
    """The first bytes of a file; none where it cannot be read."""
    try:
        with path.open('rb') as stream:
            return stream.read(HEAD_BYTES)
    except OSError:
        return b''


def listed(folder: Path) -> list[Path]:
    """What lies in a folder, by name, without hidden entries; nothing where it cannot be read."""
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith('.'))[:MOST_FILES]
    except OSError:
        return []


# Control rates and step caps that a benchmark fixes, so that its steps can be told in seconds.

# Steps per second. LIBERO and RoboCasa run robosuite at control_freq 20; CALVIN at 30; DROID's controller at 15.
RATES_HZ: Mapping[str, float] = {'libero': 20.0, 'robocasa': 20.0, 'calvin': 30.0, 'droid': 15.0}
# Steps after which OpenVLA's and vla-eval's runners cut an episode; others differ (LeRobot: 280 on spatial).
LIBERO_STEP_CAPS: Mapping[str, int] = {
    'libero_spatial': 220, 'libero_object': 280, 'libero_goal': 300, 'libero_10': 520, 'libero_90': 400,
}  # fmt: skip


def known_rate_hz(name: str) -> float | None:
    """The control rate of a benchmark by its name, such as `libero_spatial`, or None."""
    plain = name.lower()
    return next((rate for part, rate in RATES_HZ.items() if part in plain), None)


def libero_suite(name: str) -> str | None:
    """The LIBERO suite that a name ends in or contains (`LIBEROBenchmark_libero_10`), the longest that fits."""
    plain = name.lower().replace('-', '_').replace('libero_long', 'libero_10')
    fitting = [suite for suite in LIBERO_STEP_CAPS if suite in plain]
    return max(fitting, key=len) if fitting else None
