"""trialist compare: do two policies differ, and which is better?"""

from __future__ import annotations

from typing import Annotated

import typer

from trialist.cli.output import FormatOption, print_tables
from trialist.cli.source import (
    MethodOption,
    ReferenceOption,
    ResamplesOption,
    SeedOption,
    StoreArgument,
    TauOption,
    WhereOption,
)


def compare(
    store: StoreArgument,
    a: Annotated[str | None, typer.Argument(metavar='A', help='A policy; leave both out to compare all pairs.')] = None,
    b: Annotated[str | None, typer.Argument(metavar='B', help='Another policy.')] = None,
    reference: ReferenceOption = None,
    tau: TauOption = 240.0,
    ks_tau: Annotated[float | None, typer.Option('--ks-tau', help='Look for differences only up to here (s).')] = None,
    alpha: Annotated[float, typer.Option('--alpha', help='Level of the test and of the intervals.')] = 0.05,
    method: MethodOption = 'permutation',
    resamples: ResamplesOption = 2000,
    seed: SeedOption = 0,
    drop: Annotated[bool, typer.Option('--drop', help='Leave out strata that only one policy has, by name.')] = False,
    strata: Annotated[bool, typer.Option('--strata', help='Also print RMST differences in each stratum.')] = False,
    ranks: Annotated[bool, typer.Option('--logrank', help='Also print logrank tests of every pair.')] = False,
    where: WhereOption = None,
    form: FormatOption = 'text',
) -> None:
    """Compare two policies, or all pairs: better, different but crossing, direction unresolved, or unresolved.

    Example: `trialist compare runs/may openpi groot`
    """
    import itertools

    import numpy as np

    from trialist.analysis.pairs import compare_all, compare_timing
    from trialist.cli.source import check_method, note_follow_up, read_episodes
    from trialist.errors import InputError
    from trialist.show import timing as show
    from trialist.timing import Scale, cohorts, find_cohort, find_reference, logrank_pairs, stratum_differences

    found = {name: c for name, c in cohorts(read_episodes(store, where)).items() if c.cells}
    anchor = find_reference(found, reference)
    rng = np.random.default_rng(seed)
    missing = 'drop' if drop else 'refuse'
    scale = Scale(tau_s=tau)
    if (a is None) != (b is None):
        raise InputError('wanted two policies to compare, or none to compare all pairs; found one')
    if a is not None and b is not None:
        chosen = [find_cohort(found, a), find_cohort(found, b)]
        result = compare_timing(
            chosen[0].cells, chosen[1].cells, rng=rng, reference=anchor.cells if anchor else None, names=(a, b),
            scale=scale, ks_tau_s=ks_tau, n_resamples=resamples, alpha=alpha, method=check_method(method),
            missing=missing,
        )  # fmt: skip
        tables = [show.comparison_table(result), show.stratum_table(result.ks.per_stratum)]
    else:
        chosen = [c for c in found.values() if anchor is None or c.policy != anchor.policy]
        pairs = compare_all(
            chosen, rng=rng, reference=anchor, scale=scale, ks_tau_s=ks_tau, n_resamples=resamples, alpha=alpha,
            method=check_method(method), missing=missing,
        )  # fmt: skip
        tables = [show.all_pairs_table(pairs)]
        if not pairs.is_resolvable:
            typer.echo(
                f'{resamples} resamples can not resolve any of {len(pairs.comparisons)} pairs after Holm, however far '
                f'apart they are; --resamples {pairs.fewest_resamples} is the least that can',
                err=True,
            )
    note_follow_up(chosen, tau)
    if strata:
        rows = stratum_differences(
            list(itertools.combinations(chosen, 2)), tau_s=tau, n_resamples=resamples, rng=rng,
            method=check_method(method), missing=missing,
        )  # fmt: skip
        tables.append(show.stratum_difference_table(rows))
    if ranks:
        tables.append(show.logrank_table(logrank_pairs(list(itertools.combinations(chosen, 2)), missing=missing)))
    print_tables(tables, form)
