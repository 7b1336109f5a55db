"""Is B better than A, given the outcome of every instance? The task-stratified tests of Appendix C.1 and C.6."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError
from robotrials.stats import Permutation, Wald, exact_mcnemar, paired_wald, sign_flip, two_sample_wald
from robotrials.verdict.audit.outcome import InstanceOutcome, align

if TYPE_CHECKING:
    IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PairedSignificance:
    """One-sided tests of "B improves on A"; the mean difference weighs every task the same.

    With no spread, z is +inf, 0 or -inf by the sign of the difference. McNemar exists for 0/1 scores only. It pools
    the tasks; the sign flips keep them apart.
    """

    paired: Wald
    independent: Wald
    mcnemar_p_value: float | None
    sign_flip: Permutation
    wins_a: int  # instances on which A scored higher
    wins_b: int
    ties: int
    tasks: int
    only_a: tuple[tuple[str, str], ...] = ()
    only_b: tuple[tuple[str, str], ...] = ()

    @property
    def difference(self) -> float:
        return self.paired.estimate

    @property
    def z(self) -> float:
        return self.paired.z

    @property
    def p_value(self) -> float:
        return self.paired.p_value

    @property
    def z_independent(self) -> float:
        return self.independent.z

    @property
    def p_value_independent(self) -> float:
        return self.independent.p_value

    @property
    def sign_flip_p_value(self) -> float:
        return self.sign_flip.p_value

    @property
    def instances(self) -> int:
        return self.wins_a + self.wins_b + self.ties

    def rejects(self, alpha: float = 0.05) -> bool:
        """Whether the paired Wald rule rejects "no improvement": z > z_{1-alpha}, which is p < alpha."""
        return self.p_value < alpha


def paired_significance(
    table_a: ArrayLike, table_b: ArrayLike, *, rng: np.random.Generator | None = None, n_resamples: int = 9_999
) -> PairedSignificance:
    """Test two outcome tables (tasks, samples) of whole-number scores, row by row the same instances.

    `rng` is needed only where the sign flips are too many to count exactly; without it a fixed stream is used there.
    """
    a, b = _table(table_a, 'table_a'), _table(table_b, 'table_b')
    if a.shape != b.shape:
        raise InputError(f'table_a is {a.shape} and table_b {b.shape}; wanted the same (tasks, samples)')
    tasks = np.repeat(np.arange(a.shape[0]), a.shape[1])
    return _tested(a.ravel(), b.ravel(), tasks, n_resamples, rng)


def compare_outcomes(
    outcomes_a: Iterable[InstanceOutcome],
    outcomes_b: Iterable[InstanceOutcome],
    *,
    rng: np.random.Generator | None = None,
    n_resamples: int = 9_999,
) -> PairedSignificance:
    """`paired_significance` of two runs aligned by (task, sample); tasks may differ in size, unmatched are named."""
    pairs = align(outcomes_a, outcomes_b)
    found = _tested(pairs.scores_a, pairs.scores_b, np.array(pairs.tasks), n_resamples, rng)
    return replace(found, only_a=pairs.only_a, only_b=pairs.only_b)


def _tested(
    a: IntArray, b: IntArray, tasks: NDArray[Any], n_resamples: int, rng: np.random.Generator | None
) -> PairedSignificance:
    differences = b - a
    wins_a, wins_b = int((differences < 0).sum()), int((differences > 0).sum())
    is_binary = max(a.max(), b.max()) <= 1
    mcnemar = exact_mcnemar(wins_b, wins_a, alternative='greater').p_value if is_binary else None
    return PairedSignificance(
        paired=paired_wald(differences, strata=tasks, alternative='greater'),
        independent=two_sample_wald(b, a, strata_a=tasks, strata_b=tasks, alternative='greater'),
        mcnemar_p_value=mcnemar,
        sign_flip=sign_flip(
            differences,
            strata=tasks,
            alternative='greater',
            n_resamples=n_resamples,
            rng=np.random.default_rng(0) if rng is None else rng,
        ),
        wins_a=wins_a,
        wins_b=wins_b,
        ties=int((differences == 0).sum()),
        tasks=len(np.unique(tasks)),
    )


def _table(values: ArrayLike, name: str) -> IntArray:
    try:
        table = np.asarray(values)
    except ValueError:  # rows of unequal length
        raise InputError(f'{name} has tasks of unequal length; align runs with compare_outcomes instead') from None
    if table.ndim != 2 or table.size == 0:
        raise InputError(f'{name} has shape {table.shape}, wanted (tasks, samples)')
    if table.dtype.kind == 'f' and np.all(np.isfinite(table)) and np.all(table == np.floor(table)):
        table = table.astype(np.int64)
    if table.dtype.kind not in 'bui':
        raise InputError(f'{name} holds {table.dtype} values that are not whole numbers; wanted scores 0..R')
    if table.min() < 0:
        raise InputError(f'{name} holds {table.min()}, wanted scores >= 0')
    return table.astype(np.int64)
