"""trialist calibrate: does the test keep its level on your own data?"""

from __future__ import annotations

from typing import Annotated

import typer

from trialist.cli.output import FormatOption, print_table, progress_bar
from trialist.cli.source import MethodOption, ResamplesOption, SeedOption, StoreArgument, WhereOption


def calibrate(
    store: StoreArgument,
    method: MethodOption = 'permutation',
    setup: Annotated[
        list[str] | None, typer.Option('--setup', help='same_policy, reference or permutation; default: all three.')
    ] = None,
    label: Annotated[str | None, typer.Option('--label', help='Shuffle within stratum x this label.')] = None,
    trials: Annotated[int, typer.Option('--trials', min=1, help='Null data sets a row.')] = 500,
    resamples: ResamplesOption = 500,
    tau: Annotated[float | None, typer.Option('--tau', help='Look for differences only up to here (s).')] = None,
    seed: SeedOption = 0,
    where: WhereOption = None,
    form: FormatOption = 'text',
) -> None:
    """Reject rates of the macro-KS test on null data made from the store's own episodes.

    Example: `trialist calibrate runs/may --label tote_side`
    """
    import numpy as np

    from trialist.cli.source import check_method, read_episodes
    from trialist.errors import UnknownName
    from trialist.planning import NullSetup, null_calibration
    from trialist.show.timing import calibration_table
    from trialist.timing import cohorts

    for name in setup or []:
        if name not in set(NullSetup):
            raise UnknownName('null setup', name, [s.value for s in NullSetup])
    found = {name: c for name, c in cohorts(read_episodes(store, where)).items() if c.cells}
    with progress_bar('null scenarios') as advance:
        result = null_calibration(
            found, rng=np.random.default_rng(seed), setups=setup or tuple(NullSetup), label=label, n_trials=trials,
            n_resamples=resamples, method=check_method(method), tau_s=tau, on_row=advance,
        )  # fmt: skip
    print_table(calibration_table(result), form)
