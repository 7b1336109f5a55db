"""trialist score: how fast and how reliably each policy works."""

from __future__ import annotations

from trialist.cli.named import PolicyOption
from trialist.cli.output import FormatOption
from trialist.cli.source import (
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
    form: FormatOption = 'text',
) -> None:
    """Score every policy: mean time to success, HRT against the reference, episode success, with intervals and letters.

    More has names: `trialist tables scalars STORE`, `scalars-by-stratum`, `relative` (HRT and AUC), `failures`,
    `labels`, `success`.

    Example: `trialist score runs/may`
    """
    from trialist.cli.output import print_analysis
    from trialist.cli.source import open_analysis
    from trialist.show.request import ShowRequest
    from trialist.show.timing_sheet import headline

    analysis = open_analysis(
        store, where, reference=reference, tau=tau, primary=primary, pairing=pairing, baseline=baseline, alpha=alpha,
        resamples=resamples, seed=seed,
    )  # fmt: skip
    print_analysis(analysis, headline(ShowRequest(subject=analysis, policies=tuple(policy or ()))), form)
