"""`robotrials policies`: what can be evaluated, whether it answers, and serving it to others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import FormatOption, print_table, print_tables, show_waiting
from robotrials.errors import InputError, UnknownName

if TYPE_CHECKING:
    from robotrials.policies.server import ConversationServer, WireNames
    from robotrials.run import Host, HostSpec, Policy, TrialPlan

policies_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help='List, check and serve policies.')

TrialPath = Annotated[Path, typer.Argument(help='The file that declares the trial.', show_default=False)]
PolicyName = Annotated[str, typer.Argument(help='The NAME of a [policies.NAME] table.', show_default=False)]


@policies_app.command('ls')
def ls(
    trial: Annotated[Path | None, typer.Argument(help='A trial, to list its policies.', show_default=False)] = None,
    form: FormatOption = 'text',
) -> None:
    """List what a plan can name under `use`, and the presets, or list the policies of a trial.

    Example: `robotrials policies ls trial.toml`
    """
    from robotrials.policies.mapping import preset_about, preset_names
    from robotrials.run import read_plan
    from robotrials.run.component import POLICIES
    from robotrials.show.table import table

    if trial is not None:
        plan = read_plan(trial)
        rows = [
            [name, entry.use, str(entry.options.get('url', '')) or None, str(entry.options.get('preset', '')) or None]
            for name, entry in plan.policies.items()
        ]
        print_table(table('policies', ['policy', 'use', 'url', 'preset'], rows), form)
        return
    kinds = table('kinds of policies', ['use', 'what it is'], [[name, ABOUT.get(name)] for name in POLICIES.names()])
    presets = table('presets', ['preset', 'for'], [[name, preset_about(name)] for name in preset_names()])
    print_tables([kinds, presets], form)


ABOUT = {
    'demonstration': 'robomimic or LIBERO demonstrations, played back',
    'function': 'a Python function or class, by module:attribute',
    'groot': 'GR00T: ZeroMQ, msgpack',
    'lerobot': 'a LeRobot checkpoint folder, in an isolated environment',
    'lerobot-server': "LeRobot's own policy server: gRPC, pickles that are never unpickled",
    'libero-scripted': 'LIBERO: reads the true state',
    'no_op': 'stands still: the floor of a benchmark',
    'openpi': 'openpi: WebSocket, msgpack',
    'openvla': 'OpenVLA, OpenVLA-OFT, AutoEval: POST /act',
    'positronic': 'positronic: session wire version 1, actions with times',
    'lookup': 'plays back the demonstration with the most similar start; learns nothing',
    'probe': 'a trained probe: image encoder and MLP, in an isolated environment',
    'random': 'acts at random',
    'replay': 'recorded actions, played back',
    'roboarena': 'RoboArena: openpi framing with sessions',
    'scripted': 'the embedded cell: reads the true state',
    'seek': 'the point mass: moves to the goal',
    'sighted': 'the embedded cell: uses the cameras',
    'vla-eval': 'vla-eval model servers: WebSocket, msgpack',
    'vlm': 'a vision-language model behind an OpenAI-compatible endpoint',
}


@policies_app.command('check')
def check(
    trial: TrialPath,
    name: PolicyName,
    seed: Annotated[int, typer.Option('--seed', help='The start state to use.')] = 0,
    form: FormatOption = 'text',
) -> None:
    """Connect, compare the mapping with both sides, and print one observation and one action as the policy sees them.

    Example: `robotrials policies check trial.toml pi05`
    """
    from robotrials.policies.served import dry_run
    from robotrials.show.table import table

    plan, host, policy = _opened(trial, name)
    try:
        task = plan.tasks[0]
        result = dry_run(host, policy, task=task.name, instruction=task.instruction, seed=seed)
    finally:
        _let_go(policy, host)
    rows = [list(value) for value in result.values]
    facts: list[list[str | int | float | None]] = [[key, value] for key, value in result.facts]
    facts.append(['answer (s)', f'{result.answer_s:.4f}'])
    facts.append(['of which inference (s)', None if result.inference_s is None else f'{result.inference_s:.4f}'])
    print_tables(
        [
            table(f'{name}: one request and its answer', ['side', 'key', 'shape', 'content'], rows),
            table('what the server reports', ['fact', 'value'], facts),
        ],
        form,
    )


@policies_app.command('serve')
def serve(
    trial: TrialPath,
    name: PolicyName,
    wire: Annotated[str, typer.Option('--wire', help='openpi or vla-eval.')] = 'openpi',
    host: Annotated[str, typer.Option('--host', help='The address to listen on.')] = '127.0.0.1',
    port: Annotated[int, typer.Option('--port', help='The port; 0 takes a free one.')] = 8000,
    image: Annotated[
        list[str] | None, typer.Option('--image', help="KEY=CAMERA: the client's key for a camera; repeatable.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option('--state', help="KEY=FIRST:LAST: the client's key for part of the state.")
    ] = None,
    prompt: Annotated[str | None, typer.Option('--prompt', help="The client's key for the instruction.")] = None,
    batch: Annotated[
        int, typer.Option('--batch', help='Batch up to this many requests, for policies that support it.')
    ] = 1,
    batch_wait_s: Annotated[
        float, typer.Option('--batch-wait-s', help='How long a request waits for others (s).')
    ] = 0.005,
) -> None:
    """Serve a policy of a trial to openpi's or vla-eval's clients, until interrupted.

    Example: `robotrials policies serve trial.toml mine --wire openpi --port 8000`
    """
    from robotrials.policies.server import OfferedPolicy, PolicyServer

    _, world, policy = _opened(trial, name)
    spec = world.spec
    _let_go(None, world)
    offered = OfferedPolicy(
        policy, state_width=spec.state_width, names=_names(wire, spec, image, state, prompt), batch=batch,
        batch_wait_s=batch_wait_s,
    )  # fmt: skip
    with PolicyServer(offered, wire=wire, host=host, port=port) as serving:
        typer.echo(f'{name} is served at ws://{host}:{serving.port} on the {wire} wire; interrupt to stop')
        _serve_until_interrupted(serving)


@policies_app.command('relay')
def relay(
    trial: Annotated[Path, typer.Argument(help='operator.json of a sealed trial.', show_default=False)],
    arms: Annotated[Path, typer.Option('--arms', help="arms.json, on the machine's account.")],
    console: Annotated[
        str, typer.Option('--console', help='The address that `robotrials console` printed.')
    ] = 'http://127.0.0.1:8766',
    host: Annotated[str, typer.Option('--host', help='The address to listen on.')] = '127.0.0.1',
    port: Annotated[int, typer.Option('--port', help='The port; 0 takes a free one.')] = 8000,
) -> None:
    """Give a robot one address for all arms of a console trial: requests go to the arm of the current assignment.

    Arms are servers that use openpi's protocol. Nothing that is printed or passed on identifies an arm; the reason why
    an arm failed is in relay.log beside arms.json. How fast an arm answers is not hidden.

    Example: `robotrials policies relay sealed/operator.json --arms sealed/arms.json --port 8000`
    """
    from robotrials.policies.relay import BlindedArms, RelayConversation
    from robotrials.policies.server import ConversationServer
    from robotrials.run import read_plan
    from robotrials.run.blinding import read_arms

    plan = read_plan(trial)
    behind = BlindedArms(plan, read_arms(plan, arms), console=console, log=arms.with_name('relay.log'))
    with ConversationServer(lambda _: RelayConversation(behind), host=host, port=port) as serving:
        typer.echo(f'the policy of each episode is at ws://{host}:{serving.port}; interrupt to stop')
        _serve_until_interrupted(serving)
    behind.close()


def _serve_until_interrupted(serving: ConversationServer) -> None:
    try:
        serving.wait()
    except KeyboardInterrupt:
        typer.echo('stopped', err=True)


def _opened(trial: Path, name: str) -> tuple[TrialPlan, Host, Policy]:
    """The plan, its host and one of its policies, fitted together."""
    from robotrials.run import read_plan
    from robotrials.run.component import check_policy_fits, open_host, open_policy
    from robotrials.wire.link import shown_waiting

    plan = read_plan(trial)
    if name not in plan.policies:
        raise UnknownName('policy', name, plan.policies)
    host = open_host(plan.host)
    policy = None
    try:
        with shown_waiting(show_waiting):
            policy = open_policy(plan.policies[name])
            check_policy_fits(plan, host, policy, name=name, shown=name)
    except BaseException:
        _let_go(policy, host)
        raise
    return plan, host, policy


def _let_go(policy: Policy | None, host: Host | None) -> None:
    for thing in (policy, host):
        closing = getattr(thing, 'close', None)
        if callable(closing):
            closing()


def _names(
    wire: str, spec: HostSpec, image: list[str] | None, state: list[str] | None, prompt: str | None
) -> WireNames:
    from robotrials.policies.server import WireNames, openpi_names, vla_eval_names

    base = vla_eval_names(spec) if wire == 'vla-eval' else openpi_names(spec)
    images, parts = dict(base.images), dict(base.state)
    if image:
        images = dict(_split(text, '--image KEY=CAMERA') for text in image)
        for camera in images.values():
            if camera not in spec.images:
                raise InputError(f'--image: host {spec.name} has no camera {camera!r}')
    if state:
        parts = {}
        for text in state:
            key, span = _split(text, '--state KEY=FIRST:LAST')
            first, _, last = span.partition(':')
            if not (first.isdigit() and last.isdigit() and int(first) < int(last) <= spec.state_width):
                raise InputError(f'--state is {text!r}, wanted KEY=FIRST:LAST within the {spec.state_width} numbers')
            parts[key] = (int(first), int(last))
    return WireNames(images, parts, base.prompt if prompt is None else prompt)


def _split(text: str, wanted: str) -> tuple[str, str]:

    key, separator, value = text.partition('=')
    if not separator or not key or not value:
        raise InputError(f'found {text!r}, wanted {wanted}')
    return key, value
