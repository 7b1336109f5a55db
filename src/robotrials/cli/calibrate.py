"""robotrials power calibrate: does the test keep its level on your own data?"""

from __future__ import annotations

from typing import Annotated

import typer

from robotrials.cli.engine import AddressOption, EngineOption, resampled_on
from robotrials.cli.output import DetailsOption, FormatOption, check_form, print_card, progress_bar
from robotrials.cli.source import MethodOption, SeedOption, StoreArgument, TauOption, WhereOption


def calibrate(
    store: StoreArgument,
    method: MethodOption = 'permutation',
    setup: Annotated[
        list[str] | None, typer.Option('--setup', help='same_policy, reference or permutation; default: all three.')
    ] = None,
    label: Annotated[str | None, typer.Option('--label', help='Shuffle within stratum x this label.')] = None,
    trials: Annotated[int, typer.Option('--trials', min=1, help='Null data sets per row.')] = 500,
    resamples: Annotated[int, typer.Option('--resamples', min=1, help='Resamples of each test.')] = 500,
    tau: TauOption = None,
    seed: SeedOption = None,
    where: WhereOption = None,
    engine: EngineOption = 'local',
    address: AddressOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Reject rates of the macro-KS test on null data made from the store's own episodes.

    Example: `robotrials power calibrate runs/may --label tote_side`
    """
    from robotrials.cli.output import print_analysis_table
    from robotrials.cli.source import check_method, open_analysis
    from robotrials.errors import UnknownName
    from robotrials.show.timing import calibration_card, calibration_table
    from robotrials.verdict.planning import NullSetup

    check_form(form)
    check_method(method)
    for name in setup or []:
        if name not in set(NullSetup):
            raise UnknownName('null setup', name, [s.value for s in NullSetup])
    analysis = open_analysis(store, where, tau=tau, seed=seed)
    with resampled_on(engine, address), progress_bar('null scenarios') as advance:
        found = analysis.planning.calibration(
            n_trials=trials, n_resamples=resamples, setups=tuple(setup or NullSetup), label=label,
            method=check_method(method), on_row=advance,
        )  # fmt: skip
    if form != 'text':
        print_analysis_table(analysis, calibration_table(found), form)
        return
    shown = [calibration_table(found)]
    print_card(lambda: calibration_card(found), lambda: shown, details=details, analysis=analysis)
