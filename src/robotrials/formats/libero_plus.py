"""LIBERO-Plus: a run is one outcome per task variant; `task_classification.json` says what each variant disturbs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robotrials.errors import InputError
from robotrials.formats.imported import (
    CERTAIN,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Recording,
    check_settable,
    refuse_unused,
)
from robotrials.formats.peek import head_of
from robotrials.formats.rows import load_json
from robotrials.record.episode import Episode, Outcome

CLASSIFICATION = 'task_classification.json'
SUITES = ('libero_spatial', 'libero_object', 'libero_goal', 'libero_10')
TRUE, FALSE = (True, 1, 1.0), (False, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Variant:
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
        refuse_unused(options, name='LIBERO-Plus outcomes', takes=('answers',))
        check_settable(options, 'LIBERO-Plus outcomes', ('policy',))
        table = Path(options.answers.get('classification', path.parent / CLASSIFICATION))
        if not table.is_file():
            raise InputError(
                f'{table}: missing; it comes with LIBERO-Plus (--answer classification=PATH says where it is)'
            )
        variants = read_classification(table)
        outcomes = {suite: _vector(path, suite, values, variants) for suite, values in _suites(path, variants).items()}
        policy = options.defaults.get('policy') or path.stem.partition('__')[0]
        ledger, source = Ledger(), options.source_name(path)

        def recordings() -> Iterator[Recording]:
            for suite, vector in outcomes.items():
                for variant, success in zip(variants[suite], vector, strict=True):
                    ledger.keep(f'episodes: {variant.category}')
                    yield Recording(_episode(policy, suite, variant, success, source))
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


def read_classification(path: Path) -> dict[str, tuple[Variant, ...]]:
    """The variants of each suite, in the order of their numbers."""
    document = load_json(path)
    if not isinstance(document, dict):
        raise InputError(f'{path}: wanted an object of suites')
    found = {}
    for suite, rows in document.items():
        variants = []
        for place, row in enumerate(rows if isinstance(rows, list) else [None]):
            if not isinstance(row, dict) or not {'id', 'name', 'category'} <= row.keys():
                raise InputError(f'{path} {suite}[{place}]: wanted an object with id, name and category')
            level = row.get('difficulty_level')
            variants.append(Variant(int(row['id']), str(row['name']), str(row['category']), level))
        found[suite] = tuple(sorted(variants, key=lambda v: v.number))
    return found


def _suites(path: Path, variants: Mapping[str, Sequence[Variant]]) -> dict[str, Any]:
    document = load_json(path)
    if not isinstance(document, dict) or not document:
        raise InputError(f'{path}: wanted an object with a vector of outcomes per suite')
    for suite in document:
        if suite not in variants:
            raise InputError(f'{path}: suite {suite!r} is not in the classification; known: {", ".join(variants)}')
    return document


def _vector(path: Path, suite: str, values: Any, variants: Mapping[str, Sequence[Variant]]) -> list[bool]:
    known = variants[suite]
    if isinstance(values, dict):
        names = {v.name for v in known} | {str(v.number) for v in known}
        unknown = next((name for name in values if name not in names), None)
        if unknown is not None:
            raise InputError(f'{path} {suite}: {unknown!r} is no variant of the classification')
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


def _episode(policy: str, suite: str, variant: Variant, success: bool, source: str) -> Episode:
    parameters = {} if variant.difficulty is None else {'difficulty_level': variant.difficulty}
    return Episode(
        policy=policy, task=variant.name, benchmark=f'libero-plus-{suite.removeprefix("libero_")}', stratum=suite,
        trial_id=f'import:{source}', outcome=Outcome.SUCCESS if success else Outcome.FAILURE, success=success,
        condition=variant.category.lower().replace(' ', '-'), condition_parameters=parameters, instance=variant.number,
    )  # fmt: skip
