"""Results of LIBERO runs: text logs of OpenVLA, OFT, openpi and their forks, and LIBERO-Plus."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robotrials.errors import InputError
from robotrials.formats.imported import (
    CERTAIN,
    FAULTS,
    LIKELY,
    FieldGuess,
    ImportAccount,
    Imported,
    ImportOptions,
    Recording,
    given_up,
    head_of,
    libero_suite,
    listed,
    refuse_unused,
)
from robotrials.formats.rows import load_json
from robotrials.record.episode import Episode, Outcome

# Text logs of LIBERO runs: OpenVLA's and OFT's `EVAL-*.txt`, openpi's logging, and their many forks.

SUFFIXES = ('.txt', '.log', '.out')
NAME = re.compile(
    r'^EVAL-(?P<suite>[^-]+)-(?P<family>.+?)-(?P<date>\d{4}_\d{2}_\d{2}-\d{2}_\d{2}_\d{2})(?:--(?P<note>.+))?$'
)
_START = r'(?:^|[\s:\]|>])'  # the start of the line, or the end of a logger's prefix
LINES = {
    'suite': re.compile(_START + r'Task suite: (?P<value>.+)$'),
    'task': re.compile(_START + r'Task: (?P<value>.+)$'),
    'start': re.compile(_START + r'Starting episode (?P<value>\d+)\.\.\.'),
    'error': re.compile(_START + r'(?:Episode error|Caught exception): ?(?P<value>.*)$'),
    'success': re.compile(_START + r'Success: (?P<value>True|False|1|0)\s*$'),
    'episodes': re.compile(_START + r'# episodes completed so far: (?P<value>\d+)'),
    'successes': re.compile(_START + r'# successes: (?P<value>\d+)'),
}


class LiberoLogFormat:
    """The text that a LIBERO evaluation prints."""

    name = 'libero-log'
    summary = 'OpenVLA, OFT and openpi LIBERO logs (EVAL-*.txt and forks), or a folder of them'

    def recognise(self, path: Path) -> float | None:
        if path.is_dir():
            return LIKELY if any(self.recognise(file) for file in listed(path) if file.is_file()) else None
        if path.suffix not in SUFFIXES:
            return None
        head = head_of(path).decode('utf-8', 'replace')
        fits = all(LINES[kind].search(line) is not None for kind, line in _samples(head)) and 'Starting episode' in head
        return (CERTAIN if NAME.match(path.stem) else LIKELY) if fits and 'Success: ' in head else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='LIBERO logs', takes=('answers',), sets=('policy', 'benchmark'))
        ledger = ImportAccount()
        files = [path]
        if path.is_dir():
            files = [file for file in listed(path) if file.is_file() and self.recognise(file)]
            for file in listed(path):
                if file not in files:
                    ledger.drop(f'{file.name}', None, why='no log of a LIBERO run')
        source, policies = options.source_name(path), _policies(files, options, ledger)

        def recordings() -> Iterator[Recording]:
            for file in files:
                for episode in _episodes(file, policies[file], options, ledger, source=source):
                    ledger.keep(f'episodes: {episode.outcome.value}')
                    yield Recording(episode)
            ledger.note('the log holds no steps and no times, so nothing is timed')

        guesses = [FieldGuess('policy', file.name, policies[file]) for file in files]
        return Imported(
            format=self.name,
            sources=tuple(files),
            recordings=recordings,
            ledger=ledger,
            guesses=tuple(guesses),
            faults=FAULTS.answer(options),
        )


LIBERO_LOG = LiberoLogFormat()


def _samples(head: str) -> Iterator[tuple[str, str]]:
    """One line of the head for each marker that must be read."""
    for kind, marker in (('start', 'Starting episode'), ('success', 'Success: ')):
        line = next((line for line in head.splitlines() if marker in line), None)
        if line is not None:
            yield kind, line.rstrip()


def _policy(file: Path, options: ImportOptions) -> str:
    if 'policy' in options.defaults:
        return options.defaults['policy']
    named = NAME.match(file.stem)
    return '--'.join(filter(None, [named['family'], named['note']])) if named else file.stem


def _policies(files: Sequence[Path], options: ImportOptions, ledger: ImportAccount) -> dict[Path, str]:
    """The policy of each file; a second log of the same policy and suite is a run of its own."""
    named: dict[Path, str] = {}
    seen: set[tuple[str, str]] = set()
    for file in files:
        policy, suite, matched = _policy(file, options), _suite_of_name(file), NAME.match(file.stem)
        if suite and (policy, suite) in seen:
            policy = f'{policy}@{matched["date"] if matched else file.stem}'
            ledger.note(f'{file.name}: a further run of the same policy and suite; it is kept apart as {policy}')
        seen.add((policy, suite))
        named[file] = policy
    return named


@dataclass(slots=True)
class _State:
    """Where in the log the parser is; totals are the log's own running counters."""

    suite: str = ''
    task: str = ''
    number: int | None = None
    error: str = ''
    n_episodes: int = 0
    n_successes: int = 0
    seen: set[tuple[str, int]] = field(default_factory=set)


def _episodes(
    file: Path, policy: str, options: ImportOptions, ledger: ImportAccount, *, source: str
) -> Iterator[Episode]:
    state = _State(suite=_suite_of_name(file))
    try:
        with file.open(encoding='utf-8', errors='strict') as stream:
            for number, line in enumerate(stream, start=1):
                kind, value = _kind(line)
                if kind == 'success':
                    yield _episode(
                        state, value in ('True', '1'), policy, options, source=source, where=f'{file} line {number}'
                    )
                    if state.error:
                        ledger.note(
                            f'{file.name}: the log counts episodes that broke as failures; here they are invalid'
                        )
                    state.number, state.error = None, ''
                elif kind:
                    _follow(state, kind, value, f'{file} line {number}')
    except UnicodeDecodeError as error:
        raise InputError(f'{file}: not UTF-8 text (byte {error.start}); save it as UTF-8') from error
    if not state.n_episodes:
        raise InputError(f'{file}: no episode in it; wanted lines such as "Success: True"')
    if state.number is not None:
        ledger.drop(
            f'episode {state.number} of {state.task!r} in {file.name}', None, why='the log ends before its outcome'
        )
    ledger.note('the initial state is the number of the episode in its task less one, as these runs walk a fixed list')


def _kind(line: str) -> tuple[str, str]:
    text = line.rstrip('\r\n')
    for kind, pattern in LINES.items():
        matched = pattern.search(text)
        if matched is not None:
            return kind, matched['value'].strip()
    return '', ''


def _follow(state: _State, kind: str, value: str, where: str) -> None:
    if kind == 'suite':
        state.suite = value
    elif kind == 'task':
        state.task = value
    elif kind == 'start':
        state.number = int(value)
    elif kind == 'error':
        state.error = value or 'error'
    elif kind == 'episodes' and int(value) != state.n_episodes:
        raise InputError(
            f'{where}: the log counts {value} episodes, {state.n_episodes} were read; nothing was imported'
        )
    elif kind == 'successes' and int(value) != state.n_successes:
        raise InputError(
            f'{where}: the log counts {value} successes, {state.n_successes} were read; nothing was imported'
        )


def _episode(state: _State, success: bool, policy: str, options: ImportOptions, *, source: str, where: str) -> Episode:
    if not state.task:
        raise InputError(f'{where}: an outcome before any "Task: ..."; nothing was imported')
    if state.number is None:
        raise InputError(f'{where}: an outcome without "Starting episode ..."; nothing was imported')
    start = (state.task, state.number)
    if start in state.seen:
        raise InputError(f'{where}: episode {state.number} of {state.task!r} is there twice; two runs in one file?')
    state.seen.add(start)
    state.n_episodes += 1
    state.n_successes += success
    outcome = Outcome.SUCCESS if success else Outcome.FAILURE
    reason = ''
    if state.error and not success:
        outcome, reason = given_up(options, state.error)
    suite = libero_suite(state.suite)
    return Episode(
        policy=policy, task=state.task, outcome=outcome, instruction=state.task,
        trial_id=f'import:{source}', instance=state.number - 1, success=None if outcome is Outcome.INVALID else success,
        benchmark=options.defaults.get('benchmark') or (suite.replace('_', '-') if suite else state.suite),
        reason=reason,
    )  # fmt: skip


def _suite_of_name(file: Path) -> str:
    named = NAME.match(file.stem)
    return named['suite'] if named else ''


# LIBERO-Plus: a run is one outcome per task variant; `task_classification.json` says what each variant disturbs.

CLASSIFICATION = 'task_classification.json'
SUITES = ('libero_spatial', 'libero_object', 'libero_goal', 'libero_10')
TRUE, FALSE = (True, 1, 1.0), (False, 0, 0.0)


@dataclass(frozen=True, slots=True)
class LiberoVariant:
    """One row of the classification."""

    number: int  # from 1
    name: str
    category: str
    difficulty: int | None


class LiberoPlusFormat:
    """Vectors of outcomes by suite, beside their classification."""

    name = 'libero-plus'
    summary = 'LIBERO-Plus outcomes {suite: [0, 1, ...] or {variant: 0/1}} with task_classification.json beside them'

    def recognise(self, path: Path) -> float | None:
        if not path.is_file() or path.suffix != '.json' or path.name == CLASSIFICATION:
            return None
        head = head_of(path).lstrip()
        if not (path.parent / CLASSIFICATION).is_file() or not head.startswith(b'{'):
            return None
        return CERTAIN if any(f'"{suite}"'.encode() in head[:200] for suite in SUITES) else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='LIBERO-Plus outcomes', takes=('answers',), sets=('policy',))
        table = Path(options.answers.get('classification', path.parent / CLASSIFICATION))
        if not table.is_file():
            raise InputError(
                f'{table}: missing; it comes with LIBERO-Plus (--answer classification=PATH says where it is)'
            )
        variants = read_classification(table)
        outcomes = {suite: _vector(path, suite, values, variants) for suite, values in _suites(path, variants).items()}
        policy = options.defaults.get('policy') or path.stem.partition('__')[0]
        ledger, source = ImportAccount(), options.source_name(path)

        def recordings() -> Iterator[Recording]:
            for suite, vector in outcomes.items():
                for variant, success in zip(variants[suite], vector, strict=True):
                    ledger.keep(f'episodes: {variant.category}')
                    yield Recording(_plus_episode(policy, suite, variant, success, source))
            unclassified = sum(v.difficulty is None for suite in outcomes for v in variants[suite])
            if unclassified:
                ledger.note(f'{unclassified} variants have no difficulty level; it is absent, not 0')
            ledger.note('one trial per variant: no variant has an error of its own, and no step or time is recorded')

        guesses = (
            FieldGuess('policy', 'the file name (--set policy=NAME)', policy),
            FieldGuess('condition', f"the variant's category in {table.name}"),
            FieldGuess('benchmark', 'LIBERO-Plus, whose suites share the names of LIBERO', 'libero-plus-<suite>'),
        )
        return Imported(format=self.name, sources=(path, table), recordings=recordings, ledger=ledger, guesses=guesses)


LIBERO_PLUS = LiberoPlusFormat()


def read_classification(path: Path) -> dict[str, tuple[LiberoVariant, ...]]:
    """The variants of each suite, in the order of their numbers."""
    document = load_json(path)
    if not isinstance(document, dict):
        raise InputError(f'{path}: wanted an object of suites')
    by_task = {}
    for suite, rows in document.items():
        variants = []
        for place, row in enumerate(rows if isinstance(rows, list) else [None]):
            if not isinstance(row, dict) or not {'id', 'name', 'category'} <= row.keys():
                raise InputError(f'{path} {suite}[{place}]: wanted an object with id, name and category')
            level = row.get('difficulty_level')
            variants.append(LiberoVariant(int(row['id']), str(row['name']), str(row['category']), level))
        by_task[suite] = tuple(sorted(variants, key=lambda v: v.number))
    return by_task


def _suites(path: Path, variants: Mapping[str, Sequence[LiberoVariant]]) -> dict[str, Any]:
    document = load_json(path)
    if not isinstance(document, dict) or not document:
        raise InputError(f'{path}: wanted an object with a vector of outcomes per suite')
    for suite in document:
        if suite not in variants:
            raise InputError(f'{path}: suite {suite!r} is not in the classification; known: {", ".join(variants)}')
    return document


def _vector(path: Path, suite: str, values: Any, variants: Mapping[str, Sequence[LiberoVariant]]) -> list[bool]:
    known = variants[suite]
    if isinstance(values, dict):
        names = {v.name for v in known} | {str(v.number) for v in known}
        unknown = next((name for name in values if name not in names), None)
        if unknown is not None:
            raise InputError(f'{path} {suite}: {unknown!r} is not a variant of the classification')
        missing = [v for v in known if v.name not in values and str(v.number) not in values]
        if missing:
            raise InputError(
                f'{path} {suite}: {len(missing)} variants have no outcome, the first is {missing[0].name!r}'
            )
        values = [values[v.name] if v.name in values else values[str(v.number)] for v in known]
    if not isinstance(values, list) or len(values) != len(known):
        count = len(values) if isinstance(values, list) else type(values).__name__
        raise InputError(f'{path} {suite}: {count} outcomes, the classification has {len(known)} variants')
    for place, value in enumerate(values):
        if value not in TRUE and value not in FALSE:
            raise InputError(f'{path} {suite}[{place}]: {value!r}, wanted 0 or 1, one trial per variant')
    return [value in TRUE for value in values]


def _plus_episode(policy: str, suite: str, variant: LiberoVariant, success: bool, source: str) -> Episode:
    parameters = {} if variant.difficulty is None else {'difficulty_level': variant.difficulty}
    return Episode(
        policy=policy, task=variant.name, benchmark=f'libero-plus-{suite.removeprefix("libero_")}', stratum=suite,
        trial_id=f'import:{source}', outcome=Outcome.SUCCESS if success else Outcome.FAILURE, success=success,
        condition=variant.category.lower().replace(' ', '-'), condition_parameters=parameters, instance=variant.number,
    )  # fmt: skip
