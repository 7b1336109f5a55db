"""`robotrials gate`: is a candidate no worse than the baseline? An exit code for continuous integration."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import DetailsOption, harmless
from robotrials.cli.source import (
    PairingOption,
    RegistryOption,
    StoreArgument,
    TauOption,
    WhereOption,
    named_changes,
    open_named,
    parse_where,
)
from robotrials.errors import InputError, UnknownName

if TYPE_CHECKING:
    from robotrials.record import Store

FORMS = ('text', 'markdown', 'json')


def gate(
    store: StoreArgument,
    baseline: Annotated[
        Path, typer.Option('--baseline', '-b', help="The baseline's store or file.", show_default=False)
    ],
    policy: Annotated[str | None, typer.Option('--policy', help='The candidate policy; default: the only one.')] = None,
    baseline_policy: Annotated[
        str | None,
        typer.Option(
            '--baseline-policy', help='The baseline policy; default: the one of the same name, or the only one.'
        ),
    ] = None,
    margin_success: Annotated[float, typer.Option(help='Episode success may be lower by less than this.')] = 0.05,
    margin_time: Annotated[float, typer.Option(help='Mean time may be longer by less than this fraction.')] = 0.10,
    margin_safety: Annotated[
        float, typer.Option(help='The rate of safe episodes may be lower by less than this.')
    ] = 0.05,
    alpha: Annotated[float, typer.Option(help='Chance of passing an endpoint that is worse by its margin.')] = 0.05,
    power: Annotated[float, typer.Option(help='Chance of passing after "N more" episodes for an equal policy.')] = 0.8,
    tau: TauOption = None,
    require: Annotated[
        str,
        typer.Option(
            help='Endpoints that must pass, of speed,success,safety.',
            show_default='speed, success, and safety where the baseline has it',
        ),
    ] = '',
    pairing: PairingOption = None,
    registry: RegistryOption = None,
    where: WhereOption = None,
    details: DetailsOption = False,
    form: Annotated[str, typer.Option('--format', '-f', help='text, markdown (a comment) or json.')] = 'text',
    output: Annotated[Path | None, typer.Option('--output', '-o', help='Also write it to a file.')] = None,
) -> None:
    """Say whether a candidate is no worse than the baseline on speed, success and safety, at stated margins.

    Exit code 0: no worse. 1: worse. 3: neither was shown; it says how many more episodes are needed. 2: wrong input.

    Example: `robotrials gate runs/new --baseline runs/main --format markdown -o comment.md`
    """
    from robotrials.show import gate as shown
    from robotrials.show.document import check_target, write_file
    from robotrials.verdict.analysis.arm import AmbiguousArmError
    from robotrials.verdict.analysis.gate import GateRules, gate_stores

    writers = {'text': shown.gate_text, 'markdown': shown.gate_comment, 'json': shown.gate_json}
    if form not in writers:
        raise UnknownName('format', form, FORMS)
    if output is not None:
        check_target(output)
    rules = GateRules(
        margins={'success': margin_success, 'speed': margin_time, 'safety': margin_safety}, alpha=alpha, power=power,
        tau_s=tau, require=tuple(filter(None, (name.strip() for name in require.split(',')))), pairing=pairing,
    )  # fmt: skip
    named, matching = named_changes(registry=registry), parse_where(where) or None
    new = open_named(store)
    if not baseline.exists():
        _refuse_policy(store, new.store, str(baseline), policy)
    old = new if baseline == store else open_named(baseline)
    try:
        outcome = gate_stores(
            new.store, old.store, policy=policy, baseline_policy=baseline_policy, rules=rules, where=matching, **named
        )
    except AmbiguousArmError as error:
        option = '--policy' if error.what == 'candidate' else '--baseline-policy'
        text = str(error)
        for opened in (new, old):  # a file was read into a scratch store, which nobody named
            text = text.replace(str(opened.store.path), opened.name)
        raise InputError(f'{text} with {option}') from error
    outcome = dataclasses.replace(
        outcome,
        candidate=dataclasses.replace(outcome.candidate, store=new.name),
        baseline=dataclasses.replace(outcome.baseline, store=old.name),
    )
    text = writers[form](outcome, command=shlex.join(['robotrials', *sys.argv[1:]]))
    is_card = form == 'text' and not details
    typer.echo(harmless(shown.gate_card(outcome).text() if is_card else text, form), nl=False)
    if output is not None:
        write_file(output, text)
        typer.echo(f'wrote {output}', err=True)
    raise typer.Exit(outcome.exit_code)


def _refuse_policy(source: Path, store: Store, baseline: str, candidate: str | None) -> None:
    """Say how a policy of the same store is named as the baseline."""
    from robotrials.cli.output import gate_words, tested_policies

    names = tested_policies(store)
    others = [name for name in ([candidate] if candidate else names) if name != baseline]
    if baseline in names and others:
        raise InputError(
            f'--baseline is {baseline!r}, a policy of {source}; wanted the store or file that has the baseline\n'
            f'Try: robotrials {gate_words(source, others[0], baseline)}'
        )
