"""CALVIN's `results.json`: chains of five subtasks, kept as rates of chains of at least 1, 2, ... 5."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from robotrials.errors import InputError
from robotrials.formats.counts import LABEL
from robotrials.formats.imported import (
    LIKELY,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Recording,
    check_settable,
    placed,
    refuse_unused,
    whole_option,
)
from robotrials.formats.peek import head_of
from robotrials.formats.rows import load_json
from robotrials.record.episode import Episode, Outcome

CHAIN = 5
SEQUENCES = 1000


class CalvinFormat:
    """The counts of one or more checkpoints."""

    name = 'calvin'
    summary = "CALVIN's results.json (avg_seq_len, chain_sr, task_info), expanded to 1,000 sequences per checkpoint"

    def recognise(self, path: Path) -> float | None:
        if not path.is_file() or path.suffix != '.json':
            return None
        head = head_of(path)
        return LIKELY if b'"chain_sr"' in head and b'"avg_seq_len"' in head else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='CALVIN results', takes=())
        check_settable(options, 'CALVIN results', ('policy', 'trials'))
        document = load_json(path)
        if not isinstance(document, dict) or not document:
            raise InputError(f'{path}: wanted an object with an entry per checkpoint')
        trials = whole_option(options, 'trials') or SEQUENCES
        policy = options.defaults.get('policy') or path.resolve().parent.name
        names = {epoch: policy if len(document) == 1 else f'{policy}@{epoch}' for epoch in document}
        counts = {epoch: completed_counts(path, epoch, values, trials) for epoch, values in document.items()}
        ledger, source = Ledger(), options.source_name(path)

        def recordings() -> Iterator[Recording]:
            for epoch, counted in counts.items():
                for place, done in enumerate(d for d, n in enumerate(counted) for _ in range(n)):
                    ledger.keep(f'sequences with {done} of {CHAIN} subtasks')
                    yield Recording(placed(_episode(names[epoch], done, source), epoch, place))
            ledger.note('expanded from rates: no sequence, seed or time is recorded, so nothing is paired or timed')
            ledger.drop('task_info', None, why='successes per subtask of the same sequences; they would count twice')

        guesses = [FieldGuess('policy', f'checkpoint {epoch!r}', name) for epoch, name in names.items()]
        guesses.append(FieldGuess('(episodes)', f'{trials} sequences each (--set trials=N)', 'labelled from=counts'))
        return Imported(format=self.name, sources=(path,), recordings=recordings, ledger=ledger, guesses=tuple(guesses))


CALVIN = CalvinFormat()


def completed_counts(path: Path, epoch: str, values: Any, trials: int) -> list[int]:
    """How many sequences completed exactly 0, 1, ... 5 subtasks: differences of the rates, which must be whole."""
    where = f'{path} {epoch!r}'
    chain = values.get('chain_sr') if isinstance(values, Mapping) else None
    if not isinstance(chain, dict) or set(chain) != {str(k) for k in range(1, CHAIN + 1)}:
        raise InputError(f'{where}: chain_sr wants the keys "1" to "{CHAIN}"')
    shares = [1.0, *(chain[str(k)] for k in range(1, CHAIN + 1)), 0.0]
    if not all(isinstance(s, int | float) and math.isfinite(s) and 0 <= s <= 1 for s in shares):
        raise InputError(f'{where}: chain_sr holds {list(chain.values())}, wanted shares from 0 to 1 (not percentages)')
    if any(a < b for a, b in zip(shares, shares[1:], strict=False)):  # noqa: RUF007 - shares and those after them
        raise InputError(f'{where}: chain_sr rises; a chain of k + 1 subtasks holds one of k')
    at_least = [s * trials for s in shares]
    if any(abs(n - round(n)) > 1e-6 * trials for n in at_least):
        raise InputError(f'{where}: chain_sr are no counts out of {trials} sequences; say how many with --set trials=N')
    mean = values.get('avg_seq_len')
    if isinstance(mean, int | float) and abs(mean - sum(shares[1:-1])) > 0.01:
        raise InputError(f'{where}: avg_seq_len is {mean}, chain_sr adds up to {sum(shares[1:-1]):.3f}')
    whole = [round(n) for n in at_least]
    return [a - b for a, b in zip(whole, whole[1:], strict=False)]  # noqa: RUF007


def _episode(policy: str, done: int, source: str) -> Episode:
    is_success = done == CHAIN
    return Episode(
        policy=policy, task='chain of five', benchmark='calvin', trial_id=f'import:{source}', success=is_success,
        outcome=Outcome.SUCCESS if is_success else Outcome.FAILURE, score=float(done), max_score=float(CHAIN),
        labels=LABEL,
    )  # fmt: skip
