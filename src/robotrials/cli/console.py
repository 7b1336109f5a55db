"""`robotrials console STORE`: the operator's page beside a real robot, or the way to a platform's."""

from __future__ import annotations

import hashlib
import socket
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.explore import show_in_browser
from robotrials.errors import InputError, RigError, RobotrialsError, SetupError, install_hint

if TYPE_CHECKING:
    from robotrials.run.arm_limit import StopHook
    from robotrials.run.plan import TrialPlan
    from robotrials.service.console import Desk

LOOPBACK = ('127.0.0.1', 'localhost', '::1')
OPERATOR_PAGE = '/cells'  # of a platform
ANSWER_S = 10.0


def console(
    target: Annotated[
        str, typer.Argument(metavar='STORE_OR_SERVER', help='The folder of the store, or the address of a platform.')
    ],
    plan: Annotated[
        Path | None,
        typer.Option(help="The plan, preferably the operator's (robotrials seal). Needed once, to create the store."),
    ] = None,
    arms: Annotated[
        Path | None, typer.Option(help='For a sealed trial: arms.json, which holds the key to its order.')
    ] = None,
    operator: Annotated[str, typer.Option(help="The operator's name or code; recorded with every episode.")] = '',
    fixture: Annotated[str | None, typer.Option(help='Only the slots of this fixture.')] = None,
    session: Annotated[str | None, typer.Option(help='Only the slots of this session: s1, s2, ...')] = None,
    stop_command: Annotated[
        str, typer.Option(help='A command that stops the arm, run without a shell; exit code 0 confirms.')
    ] = '',
    stop_url: Annotated[
        str, typer.Option(help='Where to POST to stop the arm; ROBOTRIALS_STOP_SECRET is sent as a bearer token.')
    ] = '',
    host: Annotated[
        str, typer.Option(help='The address to listen on; 0.0.0.0 admits phones, with the key in the printed address.')
    ] = '127.0.0.1',
    port: Annotated[int, typer.Option(min=0, max=65_535, help='Where to listen; 0: any free port.')] = 8766,
    certificate: Annotated[
        Path | None, typer.Option(help='A certificate, to serve over TLS; a phone needs TLS to open the page offline.')
    ] = None,
    private_key: Annotated[Path | None, typer.Option(help='The private key of the certificate.')] = None,
    browser: Annotated[bool, typer.Option(help='Open a browser window.')] = True,
) -> None:
    """Run a trial on a real robot, with an operator beside it.

    The page shows the next blinded assignment, never the policy; it has the clock, the outcome and the counts, and one
    key (Escape) that stops the arm. If the server goes away, the current episode continues, and is sent when the server
    is back; the next assignment comes only then. In episodes of an arm with `use = "human"` the operator acts: the page
    says so.

    Given the address of a platform, it opens that platform's page for operators instead.

    Example: `robotrials console runs/may --plan sealed/operator.json --arms sealed/arms.json --operator kim`
    """
    if target.startswith(('http://', 'https://')):
        _open_platform(target.rstrip('/'), browser=browser)
        return
    from robotrials.record.part import EntryKind
    from robotrials.run.blinding import read_arms
    from robotrials.run.engine import chosen_slots, open_trial_store, sole_runner, with_provenance
    from robotrials.run.plan import StoppingRule
    from robotrials.run.station import Context

    if (certificate is None) != (private_key is None):
        raise InputError('TLS wants both --certificate and --private-key')
    store = Path(target)
    declared = _declared(store, plan)
    if declared.stopping.rule is not StoppingRule.NONE and (fixture is not None or session is not None):
        raise InputError('a stopping rule looks at all slots in their order; run without fixture and session')
    context = Context.of(declared, operator=operator, arms=None if arms is None else read_arms(declared, arms))
    slots = chosen_slots(context.slots(), fixture=fixture, session=session)
    hook = _hook(stop_command, stop_url)
    try:
        from robotrials.service.console import Desk, access_key, create_console
        from robotrials.service.console.account import Journal, console_folder
        from robotrials.service.frame import listen, serve_locally
    except ModuleNotFoundError as error:
        raise SetupError(f'pages need {error.name}: {install_hint("web")}') from error
    opened = open_trial_store(context, store)
    with sole_runner(opened.path, fixture):
        folder = console_folder(opened.path)
        journal = Journal(folder / f'{_name(fixture, session)}.jsonl')
        desk = Desk(with_provenance(context, opened), opened, slots, journal, stop=hook)
        key = '' if host in LOOPBACK else access_key(folder)
        app = create_console(desk, key=key, is_secure=certificate is not None)
        listener = listen(port, host=host)
        place = f'{_shown_host(host)}:{listener.getsockname()[1]}'
        address = f'{"https" if certificate else "http"}://{place}/' + (f'?key={key}' if key else '')
        _tell(desk, address, has_key=bool(key), has_hook=hook is not None)
        if browser:
            show_in_browser(address)
        opened.log(EntryKind.RUN, by=operator, body={'event': 'begin', 'console': True})
        serve_locally(app, listener, certificate=certificate, private_key=private_key)


def _declared(store: Path, path: Path | None) -> TrialPlan:
    """The plan that is given, or that the store holds whole: a sealed one."""
    from robotrials.cli.run import check_secret
    from robotrials.run import read_plan
    from robotrials.run.plan import plan_from_json

    if store.is_file():
        raise InputError(f'{store}: a file; wanted the folder of a store, existing or to be created')
    if path is not None:
        plan = read_plan(path)
        check_secret(plan, path)
        return plan
    if not (store / 'trial.json').exists():
        raise InputError(f'{store}: no store yet; give the plan to create it from (--plan operator.json)')
    from robotrials.record import read_store

    trial = read_store(store).trial
    try:
        plan = plan_from_json(trial.plan)
    except ValueError as error:
        raise InputError(f'{store}: does not hold its whole plan; give it (--plan)') from error
    if plan.hash != trial.plan_hash:
        raise InputError(f'{store}: does not hold its whole plan; give it (--plan)')
    return plan


def _hook(command: str, url: str) -> StopHook | None:
    from robotrials.run.arm_limit import stop_by_command, stop_by_url

    if command and url:
        raise InputError('wanted either --stop-command or --stop-url, found both')
    return stop_by_command(command) if command else stop_by_url(url) if url else None


def _name(fixture: str | None, session: str | None) -> str:
    """The name of the journal: consoles of different parts of a trial have their own."""
    if fixture is None and session is None:
        return 'journal'
    return 'journal-' + hashlib.sha256(repr((fixture, session)).encode()).hexdigest()[:12]


def _shown_host(host: str) -> str:
    """The address under which another machine finds this one."""
    if host not in ('0.0.0.0', '::'):
        return f'[{host}]' if ':' in host else host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(('192.0.2.1', 9))  # sends nothing: it only chooses the interface
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _tell(desk: Desk, address: str, *, has_key: bool, has_hook: bool) -> None:
    state = desk.state()
    typer.echo(
        f'{desk.store.path}: {state["n_valid"]} of {state["n_total"]} episodes valid, {len(state["drafts"])} under way'
    )
    typer.echo(f'{address} (interrupt to end)')
    if has_key:
        typer.echo(
            'anyone with the key in the address can get in; remove access-key beside the journal to get a new one'
        )
    if not has_hook:
        typer.secho(
            'without --stop-command or --stop-url, Escape ends the episode as a safety stop, but cannot stop the arm',
            fg='yellow', err=True,
        )  # fmt: skip


def _open_platform(url: str, *, browser: bool) -> None:
    from robotrials.wire.request import HttpLink

    link = HttpLink(url)
    try:
        answer = link.get('/healthz', timeout_s=ANSWER_S)
    except RobotrialsError as error:
        raise RigError(f'{url}: wanted the address of a platform (robotrials serve): {error}') from error
    finally:
        link.close()
    if answer.status != 200:
        raise RigError(
            f'{url}: answered {answer.status} to /healthz; wanted the address of a platform (robotrials serve)'
        )
    typer.echo(f'{url}{OPERATOR_PAGE}')
    if browser:
        webbrowser.open(url + OPERATOR_PAGE)
