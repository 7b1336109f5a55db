"""robotrials compare and score: which policy is better, and how fast and how reliably each one works."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import DetailsOption, FormatOption, MethodsOption, PerTaskOption, print_answer
from robotrials.cli.source import AnalysisChanges, PolicyOption, StoreArgument, open_analysis, takes_analysis
from robotrials.errors import InputError

if TYPE_CHECKING:
    from robotrials.show.table import Table

CHANGES = 'reference tau primary pairing baseline alpha resamples seed where'


@takes_analysis(CHANGES)
def compare(
    store: StoreArgument,
    a: Annotated[str | None, typer.Argument(metavar='A', help='A policy; omit both to see all pairs.')] = None,
    b: Annotated[str | None, typer.Argument(metavar='B', help='Another policy.')] = None,
    policy: PolicyOption = None,
    *,
    changes: AnalysisChanges,
    details: DetailsOption = False,
    per_task: PerTaskOption = False,
    methods: MethodsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Compare all pairs of policies, or two of them: which is better, and what is not resolved.

    Two named policies are shown as part of all pairs: p-values are corrected over all of them. A policy that lacks a
    task is not ranked, but can be compared by name, on the tasks that both have. More: `robotrials tables
    stratum-differences STORE`, `logrank`, `needed-n`.

    Example: `robotrials compare runs/may openpi groot`
    """
    from robotrials.show.answer import compare_card
    from robotrials.show.catalog import ShowRequest

    if (a is None) != (b is None):
        other = f'; {a} is another source' if a is not None and Path(a).exists() else ''
        raise InputError(
            f'wanted two policies of {store} to compare, or none to compare all pairs; found one, {a or b}{other}\n'
            f'Try: {shlex.join(["robotrials", "compare", str(store)])}'
        )
    if a is not None and policy:
        raise InputError('wanted two policies, or --policy to show only some pairs; found both')
    analysis = open_analysis(store, **changes)
    policies_shown = tuple(policy or ()) if a is None or b is None else (a, b)
    if len(policies_shown) == 2:
        analysis = analysis.between(*policies_shown)
    request = ShowRequest(subject=analysis, policies=policies_shown)
    if len(policies_shown) == 2:
        from robotrials.show.timing import compared

        compared(request)
    elif policies_shown:
        request.shown(())

    def tables() -> list[Table]:
        from robotrials.show.timing import pairs

        return pairs(request)

    print_answer(
        analysis, lambda: request.shown(analysis.every_policy), lambda: compare_card(analysis, policies_shown), tables,
        form, details=details, per_task=per_task, methods=methods,
    )  # fmt: skip


@takes_analysis(CHANGES)
def score(
    store: StoreArgument,
    policy: PolicyOption = None,
    *,
    changes: AnalysisChanges,
    details: DetailsOption = False,
    per_task: PerTaskOption = False,
    methods: MethodsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Score every policy: mean time to success, HRT against the reference, episode success, with intervals and letters.

    More named tables: `robotrials tables scalars STORE`, `scalars-by-stratum`, `relative` (HRT and AUC), `failures`,
    `labels`, `success`.

    Example: `robotrials score runs/may`
    """
    from robotrials.show.answer import score_card
    from robotrials.show.catalog import ShowRequest
    from robotrials.show.timing import headline

    analysis = open_analysis(store, **changes)
    request = ShowRequest(subject=analysis, policies=tuple(policy or ()))
    policies_shown = request.shown(analysis.every_policy) if policy else ()
    print_answer(
        analysis, lambda: request.shown(analysis.every_policy), lambda: score_card(analysis, policies_shown),
        lambda: headline(request), form, details=details, per_task=per_task, methods=methods,
    )  # fmt: skip
