"""robotrials score: how fast and how reliably each policy works."""

from __future__ import annotations

from robotrials.cli.named import PolicyOption
from robotrials.cli.output import DetailsOption, FormatOption, MethodsOption, PerTaskOption
from robotrials.cli.source import (
    AlphaOption,
    BaselineOption,
    PairingOption,
    PrimaryOption,
    ReferenceOption,
    ResamplesOption,
    SeedOption,
    StoreArgument,
    TauOption,
    WhereOption,
)


def score(
    store: StoreArgument,
    policy: PolicyOption = None,
    reference: ReferenceOption = None,
    tau: TauOption = None,
    primary: PrimaryOption = None,
    pairing: PairingOption = None,
    baseline: BaselineOption = None,
    alpha: AlphaOption = None,
    resamples: ResamplesOption = None,
    seed: SeedOption = None,
    where: WhereOption = None,
    details: DetailsOption = False,
    per_task: PerTaskOption = False,
    methods: MethodsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Score every policy: mean time to success, HRT against the reference, episode success, with intervals and letters.

    More has names: `robotrials tables scalars STORE`, `scalars-by-stratum`, `relative` (HRT and AUC), `failures`,
    `labels`, `success`.

    Example: `robotrials score runs/may`
    """
    from robotrials.cli.output import check_form, print_answer
    from robotrials.cli.source import open_analysis
    from robotrials.show.answer import score_card
    from robotrials.show.request import ShowRequest
    from robotrials.show.timing import headline

    check_form(form)
    analysis = open_analysis(
        store, where, reference=reference, tau=tau, primary=primary, pairing=pairing, baseline=baseline, alpha=alpha,
        resamples=resamples, seed=seed,
    )  # fmt: skip
    request = ShowRequest(subject=analysis, policies=tuple(policy or ()))
    policies_shown = request.shown(analysis.every_policy) if policy else ()
    print_answer(
        request, lambda: score_card(analysis, policies_shown), lambda: headline(request), form, details=details,
        per_task=per_task, methods=methods,
    )  # fmt: skip
