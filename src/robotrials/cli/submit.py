"""`robotrials submit`: have a policy evaluated by a platform."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from robotrials.errors import InputError


def submit(
    benchmark: Annotated[str, typer.Argument(help='Name of the benchmark.')],
    server: Annotated[str, typer.Option(help='Address of the platform, such as http://lab:8080.')],
    name: Annotated[str, typer.Option(help='What the leaderboard will call the policy.')],
    policy: Annotated[str, typer.Option(help='A policy that runs here: a catalogue name, or module:attribute.')] = '',
    dial: Annotated[str, typer.Option(help='Address of a policy server that the platform dials instead.')] = '',
    wire: Annotated[str, typer.Option(help='The protocol of a dialled server.')] = 'openpi',
    option: Annotated[list[str] | None, typer.Option(help='NAME=VALUE for the policy or the wire; repeatable.')] = None,
    key: Annotated[
        str,
        typer.Option(help='Submitting with the same key again resumes that submission.', show_default='BENCHMARK/NAME'),
    ] = '',
    wait: Annotated[bool, typer.Option('--wait/--no-wait', help='With --dial: wait for the score.')] = True,
    as_json: Annotated[bool, typer.Option('--json', help='Print the score as JSON.')] = False,
) -> None:
    """Submit a policy, run it in its episodes (or have the platform dial it), and print its score.

    Your token is read from ROBOTRIALS_TOKEN. If it is interrupted, run it again to resume. Exit code 1 if the
    submission was cancelled.

    Example: `robotrials submit reach --server http://lab:8080 --name mine --policy mypackage:MyPolicy`
    """
    from robotrials.cli.worker import read_option, token_from_environment

    if bool(policy) == bool(dial):
        raise InputError(
            'wanted either --policy, for one that runs here, or --dial, for a server; found both or neither'
        )
    options = dict(map(read_option, option or ()))
    token = token_from_environment()
    score: dict[str, object] | None
    if policy:
        score = _act(policy, options, server=server, token=token, benchmark=benchmark, name=name, key=key)
    else:
        entry: dict[str, object] = {'use': wire, 'options': {'url': dial, **options}}
        score = _have_dialled(entry, server=server, token=token, benchmark=benchmark, name=name, key=key, wait=wait)
    if score is not None:
        _print_score(score, as_json=as_json)
        if score.get('state') in ('cancelled', 'void'):
            raise typer.Exit(1)


def _act(
    use: str, options: dict[str, object], *, server: str, token: str, benchmark: str, name: str, key: str
) -> dict[str, object]:
    from robotrials.record.episode import digest
    from robotrials.run.component import open_policy
    from robotrials.run.plan import PolicyEntry
    from robotrials.service.platform.client import evaluate

    policy = open_policy(PolicyEntry(use, options))
    last = ''

    def tell(text: str) -> None:
        nonlocal last
        if text != last:
            typer.echo(text, err=True)
        last = text

    done = evaluate(
        policy, server=server, token=token, benchmark=benchmark, name=name, client_key=key, tell=tell,
        fingerprint=digest([use, sorted(map(repr, options.items()))]),
    )  # fmt: skip
    for code, count in done.faults.items():
        typer.secho(f'{count} episodes ended by a fault of the policy: {code}', fg='yellow', err=True)
    return dict(done.score)


def _have_dialled(
    entry: dict[str, object], *, server: str, token: str, benchmark: str, name: str, key: str, wait: bool
) -> dict[str, object] | None:
    from robotrials.service.platform.client import Submitter

    platform = Submitter(server, token, tell=lambda text: typer.echo(text, err=True))
    submission_id = platform.submit(benchmark, name=name, client_key=key, dial=entry)
    typer.echo(f'submission {submission_id}', err=True)
    last = None
    while wait:
        state = platform.state(submission_id)
        if state.get('jobs') != last:
            last = state.get('jobs')
            typer.echo(', '.join(f'{n} {word}' for word, n in dict(last or {}).items()), err=True)
        if state.get('state') in ('finished', 'cancelled', 'void'):
            return dict(platform.score(submission_id))
        time.sleep(1.0)
    return None


def _print_score(score: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(score, indent=1))
        return
    typer.echo(f'{score.get("state")}: {score.get("note") or ""}'.rstrip(': '))
    values = score.get('values')
    for name, value in (values if isinstance(values, dict) else {}).items():
        if value.get('value') is None:
            typer.echo(f'{name:14} -  {value.get("note", "")}')
        else:
            interval = f'[{value["low"]:.3g}, {value["high"]:.3g}]' if value.get('low') is not None else ''
            typer.echo(f'{name:14} {value["value"]:.3g} {interval}')
